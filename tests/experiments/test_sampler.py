"""The flags of who takes part in a round.

What the samplers do is tested where they are; here, that each flag reaches the
right one.
"""

import sys
import types

import pytest

from experiments import job
from experiments.flags import sampler


@pytest.fixture
def samplers(monkeypatch):
  """Stands for `fedjax_opt.samplers`: factories that tell their arguments."""
  module = types.ModuleType("fedjax_opt.samplers")
  module.weighted = lambda: "weighted"
  module.fixed = lambda: "fixed"
  module.cyclic = lambda groups: ("cyclic", groups)
  monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.mark.parametrize(
  ("arguments", "expected"),
  [
    (["--sampler=weighted"], "weighted"),
    (["--sampler=fixed"], "fixed"),
    (["--sampler=cyclic", "--sampler_groups=5"], ("cyclic", 5)),
  ],
)
def test_flags_reach_the_sampler(flags_of, samplers, arguments, expected):
  flags = flags_of(*arguments)
  sampler.check(flags)
  assert sampler.settings(flags) == {"sampler": expected}


def test_uniform_is_the_engine_s_default(flags_of, monkeypatch):
  monkeypatch.setitem(sys.modules, "fedjax_opt.samplers", None)
  assert sampler.settings(flags_of()) == {}
  prepared = job.prepare(flags_of("--task=digits_logistic"))
  assert "sampler" not in prepared.settings
  assert prepared.flags["sampler"] == "uniform"


@pytest.mark.parametrize("groups", [1, 100])
def test_as_many_groups_as_clients(flags_of, groups):
  flags = flags_of("--sampler=cyclic", f"--sampler_groups={groups}")
  sampler.check(flags)
  sampler.check_groups(flags, 100)
