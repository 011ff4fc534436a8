"""The flags of who takes part in a round.

What the samplers do is tested where they are; here, that each flag reaches the
right one.
"""

import jax
import numpy as np
import pytest

from experiments import job
from experiments.flags import sampler
from fedjax_opt import samplers

SIZES = np.array([3, 9, 1, 4, 4, 7, 2])


def drawn(sampler):
  """The cohorts of some rounds."""
  draw = lambda r: sampler.draw(jax.random.key(r), r, SIZES, 1)[0]
  return np.array([draw(r) for r in range(12)])


@pytest.mark.parametrize(
  ("arguments", "expected"),
  [
    (["--sampler=weighted"], samplers.weighted()),
    (["--sampler=fixed"], samplers.fixed()),
    (["--sampler=cyclic", "--sampler_groups=5"], samplers.cyclic(5)),
  ],
)
def test_flags_reach_the_sampler(flags_of, arguments, expected):
  flags = flags_of(*arguments)
  sampler.check(flags)
  given = sampler.settings(flags)
  assert set(given) == {"sampler"}
  np.testing.assert_array_equal(drawn(given["sampler"]), drawn(expected))
  others = (samplers.uniform(), samplers.cyclic(4))
  for other in others:
    assert np.any(drawn(given["sampler"]) != drawn(other))


def test_uniform_is_the_engine_s_default(flags_of):
  assert sampler.settings(flags_of()) == {}
  prepared = job.prepare(flags_of("--task=digits_logistic"))
  assert "sampler" not in prepared.settings
  assert prepared.flags["sampler"] == "uniform"


@pytest.mark.parametrize("groups", [1, 100])
def test_as_many_groups_as_clients(flags_of, groups):
  flags = flags_of("--sampler=cyclic", f"--sampler_groups={groups}")
  sampler.check(flags)
  sampler.check_groups(flags, 100)
