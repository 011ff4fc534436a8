"""SARAH alone, as any optax user would run it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_opt import grad_fn_of, sarah
from tests import problems

PROBLEM = problems.least_squares(0, dim=3, sizes=(24,))
EXAMPLES = {
  name: np.asarray(values) for name, values in PROBLEM.examples.items()
}
X0 = {"a": PROBLEM.x0[:1], "b": PROBLEM.x0[1:]}
NUM_STEPS = 6
ROWS = np.random.default_rng(1).integers(0, 24, (NUM_STEPS, 5))
DIRECTION = {"a": np.array([0.3]), "b": np.array([-0.2, 0.5])}


def flat(tree):
  return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def looped(rate, direction=None):
  """x_K and v_K by a plain loop."""
  x = before = PROBLEM.x0
  v = direction
  for k, rows in enumerate(ROWS):
    new, old = (PROBLEM.gradient(point, rows)[1] for point in (x, before))
    v = new if k == 0 and direction is None else new - old + v
    before, x = x, x - rate * v
  return x, v


@functools.partial(jax.jit, static_argnums=0)
def step(rule, params, state, rows):
  batch = {name: jnp.asarray(values)[rows] for name, values in EXAMPLES.items()}

  def loss(params):
    x = jnp.concatenate([params["a"], params["b"]])
    return jnp.mean((batch["x"] @ x - batch["y"]) ** 2) / 2

  value, grads = jax.value_and_grad(loss)(params)
  updates, state = rule.update(
    grads, state, params, value=value, grad_fn=grad_fn_of(loss, params)
  )
  return optax.apply_updates(params, updates), state


def train(rule, dtype="float64"):
  rule = optax.with_extra_args_support(rule)
  params = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), X0)
  state = rule.init(params)
  for rows in ROWS:
    params, state = step(rule, params, state, rows)
  return params, state


@pytest.mark.parametrize("direction", [None, DIRECTION])
def test_equals_the_loop(direction):
  with jax.enable_x64(True):
    params, state = train(sarah(0.2, direction))
  x, v = looped(0.2, None if direction is None else flat(direction))
  np.testing.assert_allclose(flat(params), x, rtol=1e-12)
  np.testing.assert_allclose(flat(state.direction), v, rtol=1e-12)
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
  for i, rate in enumerate(rates):
    one = jax.tree.map(lambda leaf, i=i: leaf[i], several)
    np.testing.assert_allclose(flat(one), looped(rate)[0], rtol=1e-12)


@pytest.mark.parametrize(
  ("dtype", "direction"), [("bfloat16", DIRECTION), ("float64", None)]
)
def test_types_are_kept(dtype, direction):
  with jax.enable_x64(dtype == "float64"):
    cast = lambda leaf: jnp.asarray(leaf, dtype)
    direction = jax.tree.map(cast, direction)
    rule = sarah(jnp.float32(0.1), direction)
    params = jax.tree.map(cast, X0)
    state = rule.init(params)
    updates, after = rule.update(params, state, params, grad_fn=lambda x: x)
    moved = optax.apply_updates(params, updates)
    types = {leaf.dtype for leaf in jax.tree.leaves((moved, after[:2]))}
    assert types == {jnp.dtype(dtype)}
