"""Stochastic Polyak step sizes: the number itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_opt import sps

PARAMS = {"a": np.array([1.0, 2.0]), "b": np.array([-2.0])}
GRADS = {"a": np.array([0.5, -1.0]), "b": np.array([2.0])}


def step_size(rule, value, scale=1.0):
  """By how much of the gradient the rule moves."""
  params = jax.tree.map(jnp.asarray, PARAMS)
  grads = jax.tree.map(lambda leaf: scale * jnp.asarray(leaf), GRADS)
  updates, _ = rule.update(grads, rule.init(params), params, value=value)
  ratios = jax.tree.map(lambda u, g: -u / g, updates, grads)
  ratios = np.concatenate(jax.tree.leaves(ratios))
  np.testing.assert_allclose(ratios, ratios[0], rtol=1e-6)
  return ratios[0]


@pytest.mark.parametrize("c", [0.5, 2.0])
@pytest.mark.parametrize(
  ("value", "f_min", "max_step", "scale"),
  [
    (3.0, 0.0, np.inf, 1.0),
    (3.0, 0.4, np.inf, 1.0),
    (3.0, 0.0, 0.01, 1.0),
    (3.0, 0.0, 10.0, 1.0),
    (3e-12, 0.0, np.inf, 1e-6),  # Here 1e-8 counts.
    # Below the bound the gap is negative, and so was the step.
    (0.99, 1.0, np.inf, 1.0),
    (-np.inf, 1.0, np.inf, 1.0),
  ],
)
def test_step_is_the_gap_over_c_times_the_squared_norm(
  c, value, f_min, max_step, scale
):
  gap, squares = max(value - f_min, 0), 5.25 * scale**2
  with jax.enable_x64(True):
    actual = step_size(sps(c, f_min, max_step), value, scale)
  expected = min(gap / (c * squares + 1e-8), max_step)
  np.testing.assert_allclose(actual, expected, rtol=1e-9)
