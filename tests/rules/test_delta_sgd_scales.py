"""Delta-SGD where squares of gradients overflow or vanish."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedjax_opt import delta_sgd
from tests import reference

STEPS = 6
LARGEST = float(np.finfo(np.float32).max)
SMALLEST = float(np.finfo(np.float32).tiny)
PLAIN = ("reuse", "again")


def looped(x, targets, curvature, eta_0, reuse):
  """The box in float64: step sizes, and the sizes of numbers on the way.

  The loss of step k is sum a (x - y_k)^2 / 2.
  """
  rule = reference.DeltaSgd(eta_0=eta_0, reuse_gradients=reuse)
  numbers = [np.abs(x)]
  for target in targets:
    objective = lambda y, target=target: (None, curvature * (y - target))
    grad = objective(x)[1]
    x = rule.step(x, None, grad, objective)
    numbers += [np.abs(x), np.abs(grad), np.array([rule.eta])]
  return np.array(rule.step_sizes), np.concatenate(numbers)


def _run(x, targets, curvature, eta_0, reuse):
  rule = delta_sgd(eta_0=eta_0, reuse_gradients=reuse)

  def step(carry, k):
    x, state = carry
    gradient = lambda x: curvature * (x - targets[k])
    grads = gradient(x)
    updates, state = rule.update(grads, state, x, grad_fn=gradient)
    outputs = state.step_size, jnp.all(jnp.isfinite(grads))
    return (optax.apply_updates(x, updates), state), outputs

  return jax.lax.scan(step, (x, rule.init(x)), jnp.arange(STEPS))[1]


# Over a batch, as clients are: there a branch would be computed always.
RUN = {
  name: jax.jit(
    jax.vmap(lambda *arguments, name=name: _run(*arguments, name == "reuse"))
  )
  for name in PLAIN
}


def run(name, *arguments):
  """With an ordinary client beside this one, which must not change."""
  x, targets = arguments[:2]
  ordinary = (np.ones_like(x), np.zeros_like(targets), np.ones_like(x), 0.1)
  stacked = [
    np.stack([a, b]).astype(np.float32)
    for a, b in zip(arguments, ordinary, strict=True)
  ]
  etas, is_finite = RUN[name](*stacked)
  expected, _ = looped(*(np.asarray(a, float) for a in ordinary), False)
  np.testing.assert_allclose(etas[1], expected, rtol=1e-5)
  return np.asarray(etas[0]), np.asarray(is_finite[0])


def problem(seed, scale, curvature):
  rng = np.random.default_rng(seed)
  x = (rng.normal(size=4) * scale).astype(np.float32)
  targets = (rng.normal(size=(STEPS, 4)) * scale).astype(np.float32)
  a = (rng.uniform(0.5, 2, size=4) * curvature).astype(np.float32)
  return x, targets, a


@pytest.mark.parametrize("name", PLAIN)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
  seed=st.integers(0, 10**6),
  scale=st.integers(-30, 30),
  curvature=st.integers(-30, 30),
  factor=st.integers(-3, 30),
)
@example(0, 0, 19, 0)  # Gradients of 3e19 made step sizes of 0, and then NaN.
@example(0, -15, -15, 0)
@example(0, 0, 19, 18)
@example(0, 30, 0, 0)
def test_at_all_scales(name, seed, scale, curvature, factor):
  """As in float64 if steps are no longer than 1e19; else no NaN and no 0."""
  arguments = problem(seed, 10.0**scale, 10.0**curvature)
  eta_0 = np.float32(10.0 ** min(factor - curvature, 37))
  expected, numbers = looped(
    *(a.astype(float) for a in arguments), float(eta_0), name == "reuse"
  )
  etas, is_finite = run(name, *arguments, eta_0)
  fits = np.all((numbers < LARGEST / 8) & (numbers > 8 * SMALLEST))
  if fits and factor <= 0 and abs(scale) <= 13:
    np.testing.assert_allclose(etas, expected, rtol=1e-3)
  # A gradient that is not finite ends the client's round, not before.
  is_known = np.logical_and.accumulate(is_finite)
  assert np.all(np.isfinite(etas[is_known])), etas
  assert np.all(etas[is_known] > 0), etas


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_step_too_small_for_its_type_grows_again(dtype):
  """A step of 0 would stay 0, with the ratio 0 / 0."""
  rule = delta_sgd(reuse_gradients=True, delta=1.0)
  large = jnp.asarray(float(jnp.finfo(dtype).max) / 8, dtype)
  x = jnp.ones(2, dtype)
  state = rule.init(x)._replace(step_size=jnp.asarray(1e-7, dtype))
  if dtype != "float16":
    state = state._replace(step_size=jnp.asarray(1e-37, dtype))
  etas, update = [], jax.jit(rule.update)
  for sign in (1, -1, 1, -1, 0, 0, 0):
    grads = jnp.full(2, sign * large, dtype)
    updates, state = update(grads, state, x)
    x = optax.apply_updates(x, updates)
    etas.append(float(state.step_size))
  assert np.all(np.array(etas) > 0), etas
  assert np.isfinite(float(state.theta))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_not_hidden(bad):
  rule = delta_sgd(reuse_gradients=True)
  x = jnp.ones(2)
  state = rule.init(x)
  for value in (1.0, bad):
    updates, state = rule.update(jnp.array([value, 1.0]), state, x)
  assert not np.all(np.isfinite(updates))
