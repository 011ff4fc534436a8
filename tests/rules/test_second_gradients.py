"""Rules that take a second gradient: sharpness-aware steps, and SARAH alone."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_opt import delta_sgd, grad_fn_of, sarah, sharpness_aware
from fedjax_opt.arrays import running_statistics
from tests import reference
from tests.helpers import problems, rule_referees
from tests.helpers.jax_problems import flat

CENTER = {"a": np.array([0.5, -1.0]), "b": np.array([2.0])}
X0 = {"a": np.array([1.0, 3.0]), "b": np.array([-1.0])}


def loss(params):
  error = optax.tree.sub(params, CENTER)
  curved = optax.tree.norm(error, squared=True)
  return curved + 0.1 * jnp.sum(error["a"]) ** 4


def train(rule, params=X0, num_steps=5, loss=loss):
  return rule_referees.train(rule, loss, params, num_steps)[0]


assert_close = functools.partial(chex.assert_trees_all_close, rtol=1e-12)


def test_a_rule_inside_has_the_gradient_uphill_at_any_point():
  """On the loss that the rule minimizes, Delta-SGD takes the same steps."""
  rho = 0.05

  def sharp(params):  # Its gradient is that of the loss, rho g ahead.
    error = optax.tree.sub(params, CENTER)
    return (1 + 2 * rho) * optax.tree.norm(error, squared=True)

  def quadratic(params):
    return optax.tree.norm(optax.tree.sub(params, CENTER), squared=True)

  with jax.enable_x64(True):
    inside = sharpness_aware(delta_sgd(), rho, normalized=False)
    actual = train(inside, loss=quadratic)
    assert_close(actual, train(delta_sgd(), loss=sharp))


def test_running_statistics_are_not_perturbed():
  params = {"w": np.ones(2), "running_mean": np.ones(2)}

  def loss(p):
    x = running_statistics.attach(p["w"], p["running_mean"], jnp.full(2, 3.0))
    return jnp.sum(x**2)

  with jax.enable_x64(True):
    rule = sharpness_aware(
      running_statistics.sparing_statistics(optax.sgd(0.1)), 0.5
    )
    after = train(rule, params, 1, loss)
    np.testing.assert_allclose(after["running_mean"], 3.0)
    ahead = 1 + 0.5 / np.sqrt(2)  # w + e
    np.testing.assert_allclose(after["w"], 1 - 0.1 * 2 * ahead)


# SARAH alone, as any optax user would run it.


PROBLEM = problems.least_squares(0, dim=3, sizes=(24,))
START = {"a": PROBLEM.x0[:1], "b": PROBLEM.x0[1:]}
NUM_STEPS = 6
ROWS = np.random.default_rng(1).integers(0, 24, (NUM_STEPS, 5))
DIRECTION = {"a": np.array([0.3]), "b": np.array([-0.2, 0.5])}


def looped(rate, direction=None):
  """x_K by the loop; without a direction it begins along the gradient."""
  first = PROBLEM.gradient(PROBLEM.x0, ROWS[0])[1]
  v0 = first if direction is None else flat(direction)
  return reference.local_routine(PROBLEM, PROBLEM.x0, v0, ROWS, rate)[-1]


@functools.partial(jax.jit, static_argnums=0)
def step(rule, params, state, rows):
  x, y = (jnp.asarray(PROBLEM.examples[name])[rows] for name in "xy")

  def loss(params):
    w = jnp.concatenate([params["a"], params["b"]])
    return jnp.mean((x @ w - y) ** 2) / 2

  updates, state = rule.update(
    jax.grad(loss)(params), state, params, grad_fn=grad_fn_of(loss, params)
  )
  return optax.apply_updates(params, updates), state


def train_sarah(rule):
  params = jax.tree.map(jnp.asarray, START)
  state = rule.init(params)
  for rows in ROWS:
    params, state = step(rule, params, state, rows)
  return params, state


@pytest.mark.parametrize("direction", [None, DIRECTION])
def test_equals_the_loop(direction):
  with jax.enable_x64(True):
    params, state = train_sarah(sarah(0.2, direction))
  np.testing.assert_allclose(flat(params), looped(0.2, direction), rtol=1e-12)
  assert int(state.count) == NUM_STEPS


def test_of_some_parameters_alone():
  with jax.enable_x64(True):
    masked = optax.masked(sarah(0.2), {"a": False, "b": True})
    frozen = optax.masked(optax.set_to_zero(), {"a": True, "b": False})
    params, state = train_sarah(optax.chain(masked, frozen))
  np.testing.assert_array_equal(params["a"], START["a"])
  assert np.all(np.asarray(params["b"]) != START["b"])
  previous = optax.tree.get(state, "previous")
  assert isinstance(previous["a"], optax.MaskedNode)


def test_rates_side_by_side():
  rates = np.array([0.0, 0.05, 0.2])
  with jax.enable_x64(True):
    several = jax.vmap(lambda rate: train_sarah(sarah(rate))[0])(rates)
  expected = [looped(rate) for rate in rates]
  np.testing.assert_allclose(flat(several, 1), expected, rtol=1e-12)
