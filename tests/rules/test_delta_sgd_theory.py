"""Theorem 5 of the Delta-SGD paper, and the potential of Lemma 4 behind it.

One client descends a convex loss, least squares, along exact gradients.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_opt import delta_sgd, grad_fn_of

EXAMPLES, DIM, STEPS = 24, 6, 60


def least_squares(x, a, y):
  return jnp.mean((a @ x - y) ** 2) / 2


def convex_problem(seed):
  """Least squares with its minimizer and its smoothness."""
  rng = np.random.default_rng(seed)
  # Columns of different lengths, so that curvatures differ.
  a = rng.normal(size=(EXAMPLES, DIM)) * np.geomspace(1, 0.3, DIM)
  y = a @ rng.normal(size=DIM) + 0.1 * rng.normal(size=EXAMPLES)
  best = np.linalg.lstsq(a, y, rcond=None)[0]
  smoothness = np.linalg.norm(a.T @ a / EXAMPLES, 2)
  return {"a": a, "y": y, "best": best, "smoothness": smoothness}


@functools.partial(jax.jit, static_argnames="steps")
def descend(problem, settings, steps):
  """Points [K + 1, d], step sizes and ratios [K], gaps f(x) - f* [K + 1]."""
  rule = delta_sgd(reuse_gradients=True, gamma=1.0, delta=1.0, **settings)
  loss = lambda x: least_squares(x, problem["a"], problem["y"])

  def step(carry, _):
    x, state = carry
    value, grads = jax.value_and_grad(loss)(x)
    updates, state = rule.update(
      grads, state, x, value=value, grad_fn=grad_fn_of(loss, x)
    )
    new = optax.apply_updates(x, updates)
    return (new, state), (x, state.step_size, state.theta)

  start = jnp.ones(DIM)
  carry = (start, rule.init(start))
  (last, _), (xs, eta, theta) = jax.lax.scan(step, carry, length=steps)
  xs = jnp.concatenate([xs, last[None]])
  gap = jax.vmap(loss)(xs) - loss(problem["best"])
  return xs, eta, theta, gap


@pytest.mark.parametrize("eta_0", [0.01, 0.2, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_averaged_point_is_below_the_bound_of_theorem_5(eta_0, seed):
  """f - f* <= D / (2 S) <= 2 D L^2 / (2 L t + 1), at every step t.

  The growth branch is off in the first step.
  """
  with jax.enable_x64(True):
    problem = convex_problem(seed)
    settings = {"theta_0": np.inf, "eta_0": eta_0}
    outputs = descend(problem, settings, STEPS)
    xs, eta, theta, gap = jax.device_get(outputs)
    start = (
      np.sum((xs[1] - problem["best"]) ** 2)
      + np.sum((xs[1] - xs[0]) ** 2) / 2
      + 2 * eta[1] * theta[1] * gap[0]
    )
    alpha = eta[1:-1] * (1 + theta[1:-1]) - eta[2:] * theta[2:]
    at = lambda x: float(least_squares(x, problem["a"], problem["y"]))
    f_min, smoothness = at(problem["best"]), problem["smoothness"]
    for t in range(1, STEPS):
      total = eta[1 : t + 1].sum() + eta[1] * theta[1]
      average = eta[t] * (1 + theta[t]) * xs[t] + alpha[: t - 1] @ xs[1:t]
      bound = start / (2 * total)
      rate = 2 * start * smoothness**2 / (2 * smoothness * t + 1)
      assert 0 <= at(average / total) - f_min <= bound <= rate


@pytest.mark.parametrize("seed", range(3))
def test_the_potential_of_lemma_4_falls_at_every_step(seed):
  with jax.enable_x64(True):
    problem = convex_problem(seed)
    outputs = descend(problem, {"eta_0": 0.2}, STEPS)
    xs, eta, theta, gap = jax.device_get(outputs)
  distances = np.sum((xs - problem["best"]) ** 2, -1)
  lengths = np.sum(np.diff(xs, axis=0) ** 2, -1)
  # For t = 1, ..., T - 1: after the step with eta_t.
  potential = (
    distances[2:] + lengths[1:] / 2 + 2 * eta[1:] * (1 + theta[1:]) * gap[1:-1]
  )
  assert np.all(np.diff(potential) < 0)
