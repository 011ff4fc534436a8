"""The flags of who takes part in a round.

What the samplers do is tested where they are; here, that each flag reaches the
right one.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import job
from experiments.flags import sampler
from fedjax_opt import samplers


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
  actual = sampler.settings(flags)["sampler"]
  drawn = (jax.random.key(0), jnp.int32(3), jnp.arange(1, 21), 4)
  np.testing.assert_array_equal(
    actual.draw(*drawn)[0], expected.draw(*drawn)[0]
  )


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
