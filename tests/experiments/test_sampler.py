"""The flags of who takes part in a round.

What the samplers do is tested where they are; here, that each flag reaches the
right one.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_opt import samplers
from tests.experiments.commands import prepare, spec_of


@pytest.mark.parametrize(
  ("arguments", "expected"),
  [
    (["--sampler=weighted"], samplers.weighted()),
    (["--sampler=fixed"], samplers.fixed()),
    (["--sampler=cyclic", "--sampler_groups=5"], samplers.cyclic(5)),
  ],
)
def test_flags_reach_the_sampler(arguments, expected):
  actual = spec_of(*arguments).sampler.make({})
  drawn = (jax.random.key(0), jnp.int32(3), jnp.arange(1, 21), 4)
  np.testing.assert_array_equal(
    actual.draw(*drawn)[0], expected.draw(*drawn)[0]
  )


def test_uniform_is_the_engine_s_default():
  assert spec_of().sampler.make({}) is None
  prepared = prepare("--task=digits_logistic")
  assert prepared.settings["sampler"] == "uniform"
  assert prepared.spec.values()["sampler"] == "uniform"


@pytest.mark.parametrize("groups", [1, 100])
def test_as_many_groups_as_clients(groups):
  given = ("--sampler=cyclic", f"--sampler_groups={groups}", "--cohort_size=1")
  prepare("--task=digits_logistic", *given)
