"""Stochastic Polyak step sizes: the number itself."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_opt import sps

PARAMS = {"a": np.array([1.0, 2.0]), "b": np.array([-2.0])}
GRADS = {"a": np.array([0.5, -1.0]), "b": np.array([2.0])}
SQUARED_NORM = 5.25


def step_size(rule, value, grads=GRADS):
  """By how much of the gradient the rule moves."""
  params = jax.tree.map(jnp.asarray, PARAMS)
  grads = jax.tree.map(jnp.asarray, grads)
  updates, _ = rule.update(grads, rule.init(params), params, value=value)
  ratios = jax.tree.map(lambda u, g: -u / g, updates, grads)
  ratios = np.concatenate(jax.tree.leaves(ratios))
  np.testing.assert_allclose(ratios, ratios[0], rtol=1e-6)
  return ratios[0]


@pytest.mark.parametrize("c", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("f_min", [0.0, 0.4])
def test_step_is_the_gap_over_c_times_the_squared_norm(c, f_min):
  with jax.enable_x64(True):
    actual = step_size(sps(c, f_min), 3.0)
  expected = (3.0 - f_min) / (c * SQUARED_NORM + 1e-8)
  np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_optax_divides_by_what_it_says_it_multiplies_with():
  # So `scaling` is c there, not 1 / c as its docstring makes one expect.
  step = lambda scaling: step_size(
    optax.polyak_sgd(max_learning_rate=1e9, scaling=scaling), 3.0
  )
  ours = step_size(sps(c=2.0), 3.0)
  np.testing.assert_allclose(ours, step(2.0), rtol=1e-6)
  np.testing.assert_allclose(4 * ours, step(0.5), rtol=1e-6)


def test_eps_counts_where_the_gradient_vanishes():
  grads = jax.tree.map(lambda leaf: 1e-6 * leaf, GRADS)
  with jax.enable_x64(True):
    actual = step_size(sps(0.5), 3e-12, grads)
  expected = 3e-12 / (0.5e-12 * SQUARED_NORM + 1e-8)
  np.testing.assert_allclose(actual, expected, rtol=1e-9)


@pytest.mark.parametrize("c", [0.5, 2.0])
def test_cap(c):
  np.testing.assert_allclose(step_size(sps(c, 0, 0.01), 3.0), 0.01, rtol=1e-6)
  free = step_size(sps(c), 3.0)
  np.testing.assert_allclose(step_size(sps(c, 0, 10.0), 3.0), free, rtol=1e-6)


@pytest.mark.parametrize("value", [0.99, -3.0, -jnp.inf])
def test_a_loss_below_its_bound_gives_no_step(value):
  """The gap is negative there, and so was the step."""
  assert step_size(sps(f_min=1.0), value) == 0
  assert step_size(sps(f_min=1.0), 1.5) > 0
