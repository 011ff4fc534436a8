"""SARAH alone, as any optax user would run it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_opt import grad_fn_of, sarah
from tests import problems
from tests.jax_problems import flat
from tests.reference_variance_reduction import local_routine

PROBLEM = problems.least_squares(0, dim=3, sizes=(24,))
X0 = {"a": PROBLEM.x0[:1], "b": PROBLEM.x0[1:]}
NUM_STEPS = 6
ROWS = np.random.default_rng(1).integers(0, 24, (NUM_STEPS, 5))
DIRECTION = {"a": np.array([0.3]), "b": np.array([-0.2, 0.5])}


def looped(rate, direction=None):
  """x_K by the loop; without a direction it begins along the gradient."""
  first = PROBLEM.gradient(PROBLEM.x0, ROWS[0])[1]
  v0 = first if direction is None else flat(direction)
  return local_routine(PROBLEM, PROBLEM.x0, v0, ROWS, rate)[-1]


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


def train(rule):
  params = jax.tree.map(jnp.asarray, X0)
  state = rule.init(params)
  for rows in ROWS:
    params, state = step(rule, params, state, rows)
  return params, state


@pytest.mark.parametrize("direction", [None, DIRECTION])
def test_equals_the_loop(direction):
  with jax.enable_x64(True):
    params, state = train(sarah(0.2, direction))
  np.testing.assert_allclose(flat(params), looped(0.2, direction), rtol=1e-12)
  assert int(state.count) == NUM_STEPS


def test_of_some_parameters_alone():
  with jax.enable_x64(True):
    masked = optax.masked(sarah(0.2), {"a": False, "b": True})
    frozen = optax.masked(optax.set_to_zero(), {"a": True, "b": False})
    params, state = train(optax.chain(masked, frozen))
  np.testing.assert_array_equal(params["a"], X0["a"])
  assert np.all(np.asarray(params["b"]) != X0["b"])
  previous = optax.tree.get(state, "previous")
  assert isinstance(previous["a"], optax.MaskedNode)


def test_rates_side_by_side():
  rates = np.array([0.0, 0.05, 0.2])
  with jax.enable_x64(True):
    several = jax.vmap(lambda rate: train(sarah(rate))[0])(rates)
  expected = [looped(rate) for rate in rates]
  np.testing.assert_allclose(flat(several, 1), expected, rtol=1e-12)
