"""Stochastic Polyak step sizes: the number itself."""

import functools

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


def test_vmap_over_hyperparameters_and_masked():
  run = lambda c: step_size_traced(sps(c))
  steps = jax.vmap(run)(jnp.array([0.5, 1.0]))
  np.testing.assert_allclose(
    steps, [3 / (0.5 * SQUARED_NORM), 3 / SQUARED_NORM], rtol=1e-6
  )
  masked = optax.masked(sps(1.0), {"a": True, "b": False})
  np.testing.assert_allclose(step_size_traced(masked), 3 / 1.25, rtol=1e-6)


def step_size_traced(rule):
  params = jax.tree.map(jnp.asarray, PARAMS)
  grads = jax.tree.map(jnp.asarray, GRADS)
  updates, _ = rule.update(grads, rule.init(params), params, value=3.0)
  return -updates["a"][0] / grads["a"][0]


def test_settles_on_least_squares():
  loss = lambda x: jnp.sum(jnp.array([1.0, 3.0]) * x**2) / 2
  rule = optax.inject_hyperparams(sps)(c=0.5)

  @functools.partial(jax.jit, static_argnums=1)
  def train(x, num_steps):
    state = rule.init(x)
    for _ in range(num_steps):
      value, grads = jax.value_and_grad(loss)(x)
      updates, state = rule.update(grads, state, x, value=value)
      x = optax.apply_updates(x, updates)
    return x

  assert loss(train(jnp.array([2.0, 1.0]), 25)) < 1e-4


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_types_are_kept(dtype):
  with jax.enable_x64(dtype == "float64"):
    cast = lambda tree: jax.tree.map(
      lambda leaf: jnp.asarray(leaf, dtype), tree
    )
    params, grads, rule = cast(PARAMS), cast(GRADS), sps()
    updates, _ = rule.update(grads, rule.init(params), params, value=3.0)
    params = optax.apply_updates(params, updates)
    types = {leaf.dtype for leaf in jax.tree.leaves(params)}
    assert types == {jnp.dtype(dtype)}


@pytest.mark.parametrize("value", [0.99, -3.0, -jnp.inf])
def test_a_loss_below_its_bound_gives_no_step(value):
  """The gap is negative there, and so was the step."""
  assert step_size(sps(f_min=1.0), value) == 0
  assert step_size(sps(f_min=1.0), 1.5) > 0
