"""Small problems on which the theorems of the Delta-SGD paper can be measured.

Theorem 5 and the potential behind it are of one client with exact gradients of
a convex loss, Theorem 1 is of several clients and any smooth loss.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_opt import (
  ClientData,
  delta_sgd,
  evaluation,
  fed_avg,
  grad_fn_of,
  grid_points,
  partition,
  sweep,
)
from fedjax_opt.metrics import History

_EXAMPLES, _DIM = 24, 6


def _least_squares(x, a, y):
  return jnp.mean((a @ x - y) ** 2) / 2


def _convex_problem(seed: int) -> dict[str, Any]:
  """Least squares with its minimizer and its smoothness."""
  rng = np.random.default_rng(seed)
  # Columns of different lengths, so that curvatures differ.
  a = rng.normal(size=(_EXAMPLES, _DIM)) * np.geomspace(1, 0.3, _DIM)
  y = a @ rng.normal(size=_DIM) + 0.1 * rng.normal(size=_EXAMPLES)
  best = np.linalg.lstsq(a, y, rcond=None)[0]
  smoothness = np.linalg.norm(a.T @ a / _EXAMPLES, 2)
  return {"a": a, "y": y, "best": best, "smoothness": smoothness}


@functools.partial(jax.jit, static_argnames="steps")
def _descend(
  problem: dict[str, Any], settings: dict[str, float], steps: int
) -> tuple[jax.Array, ...]:
  """Points [K + 1, d], step sizes and ratios [K], gaps f(x) - f* [K + 1]."""
  rule = delta_sgd(reuse_gradients=True, **settings)
  loss = lambda x: _least_squares(x, problem["a"], problem["y"])

  def step(carry, _):
    x, state = carry
    value, grads = jax.value_and_grad(loss)(x)
    updates, state = rule.update(
      grads, state, x, value=value, grad_fn=grad_fn_of(loss, x)
    )
    new = optax.apply_updates(x, updates)
    return (new, state), (x, state.step_size, state.theta)

  start = jnp.ones(_DIM)
  carry = (start, rule.init(start))
  (last, _), (xs, eta, theta) = jax.lax.scan(step, carry, length=steps)
  xs = jnp.concatenate([xs, last[None]])
  gap = jax.vmap(loss)(xs) - loss(problem["best"])
  return xs, eta, theta, gap


def theorem5(
  eta_0: Sequence[float], steps: int, seeds: Sequence[int]
) -> tuple[History, list[dict[str, Any]]]:
  """The averaged point's f - f* at each step, its bound and its rate.

  The growth branch is off in the first step, gamma and delta are 1.

  Args:
    eta_0: first step sizes.
    steps: T.
    seeds: of problems.

  Returns:
    `gap`, `bound` (D / 2 S_t) and `rate` (2 D L^2 / (2 L t + 1)) at t = 1, ...,
    and the points: each problem with each first step size.
  """
  points = [{"eta_0": eta, "seed": seed} for eta in eta_0 for seed in seeds]
  rows: dict[str, list[np.ndarray]] = {"gap": [], "bound": [], "rate": []}
  with jax.enable_x64(True):
    for point in points:
      values = _averaged(_convex_problem(point["seed"]), steps, point["eta_0"])
      for name, row in zip(rows, values, strict=True):
        rows[name].append(row)
  metrics = {name: np.stack(of_points) for name, of_points in rows.items()}
  return History(list(range(1, steps)), metrics), points


def _averaged(problem: dict[str, Any], steps: int, eta_0: float):
  """Gap of the averaged point, its bound and its rate, [T - 1] each."""
  settings = {"gamma": 1.0, "delta": 1.0, "theta_0": np.inf, "eta_0": eta_0}
  found = _descend(problem, settings, steps)
  xs, eta, theta, gap = jax.device_get(found)
  start = (
    np.sum((xs[1] - problem["best"]) ** 2)
    + np.sum((xs[1] - xs[0]) ** 2) / 2
    + 2 * eta[1] * theta[1] * gap[0]
  )
  alpha = eta[1:-1] * (1 + theta[1:-1]) - eta[2:] * theta[2:]
  at = lambda x: _least_squares(x, problem["a"], problem["y"])
  least = at(problem["best"])
  gaps, bounds, rates = [], [], []
  for t in range(1, steps):
    total = eta[1 : t + 1].sum() + eta[1] * theta[1]
    average = eta[t] * (1 + theta[t]) * xs[t] + alpha[: t - 1] @ xs[1:t]
    gaps.append(float(at(average / total) - least))
    bounds.append(start / (2 * total))
    smoothness = problem["smoothness"]
    rates.append(2 * start * smoothness**2 / (2 * smoothness * t + 1))
  return np.array(gaps), np.array(bounds), np.array(rates)


def lyapunov(
  gamma: Sequence[float], steps: int, seeds: Sequence[int]
) -> tuple[History, list[dict[str, Any]]]:
  """The potential of Lemma 4 at each step, as a part of what it was at first.

  delta is 1 and the first step size 0.2.

  Args:
    gamma: scales of the smoothness branch; the lemma has 1.
    steps: T.
    seeds: of problems.

  Returns:
    `potential` after step t, and the points: each problem with each gamma.
  """
  points = [{"gamma": each, "seed": seed} for each in gamma for seed in seeds]
  rows = []
  with jax.enable_x64(True):
    for point in points:
      problem = _convex_problem(point["seed"])
      settings = {"gamma": point["gamma"], "delta": 1.0, "eta_0": 0.2}
      found = _descend(problem, settings, steps)
      xs, eta, theta, gap = jax.device_get(found)
      away = np.sum((xs - problem["best"]) ** 2, -1)
      moved = np.sum(np.diff(xs, axis=0) ** 2, -1)
      # Of t = 1, ..., T - 1: after the step with eta_t.
      potential = (
        away[2:] + moved[1:] / 2 + 2 * eta[1:] * (1 + theta[1:]) * gap[1:-1]
      )
      rows.append(potential / potential[0])
  rounds = list(range(1, steps))
  return History(rounds, {"potential": np.stack(rows)}), points


def theorem1(
  rounds: Sequence[int], scale: float, local_steps: int, seeds: Sequence[int]
) -> tuple[History, list[dict[str, Any]]]:
  """The mean over T rounds of the squared gradient norm, for several T.

  As the theorem wants, gamma is scale / (K sqrt(T)) and eta_0 is gamma / 10. A
  small network with tanh units, 20 clients of different labels, 5 a round, in
  batches of 8.

  Args:
    rounds: the T.
    scale: of gamma.
    local_steps: K.
    seeds: of the runs.

  Returns:
    `mean_grad_norm_sq` at each T, and the points: the seeds.
  """
  rng = np.random.default_rng(0)
  x = rng.normal(size=(800, 8)).astype(np.float32)
  y = np.argmax(np.tanh(x @ rng.normal(size=(8, 8))) @ rng.normal(size=(8, 4)),
                axis=1).astype(np.int32)  # fmt: skip
  rows = partition.dirichlet(y, 20, alpha=0.3, examples_per_client=40, seed=0)
  data = ClientData.from_partition({"x": x, "y": y}, rows)
  draw = lambda *shape: jnp.asarray(0.5 * rng.normal(size=shape), jnp.float32)
  params = {"hidden": draw(8, 16), "output": draw(16, 4)}

  def loss_fn(params, batch, rng):
    del rng
    logits = jnp.tanh(batch["x"] @ params["hidden"]) @ params["output"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"])

  gammas = [scale / (local_steps * num**0.5) for num in rounds]
  result = sweep(
    lambda gamma: fed_avg(loss_fn, delta_sgd(gamma=gamma, eta_0=gamma / 10)),
    {"gamma": gammas},
    params,
    data,
    seeds=list(seeds),
    rounds=max(rounds),
    cohort_size=5,
    batch_size=8,
    local_steps=local_steps,
    evaluate=evaluation.grad_norm_sq(loss_fn),
    eval_every=1,
  )
  points = grid_points({"gamma": gammas}, list(seeds))
  norms = result.history.values("grad_norm_sq")
  by_seed = np.full((len(seeds), len(rounds)), np.nan)
  for point, values in zip(points, norms, strict=True):
    column = gammas.index(point["gamma"])
    row = list(seeds).index(point["seed"])
    by_seed[row, column] = values[: rounds[column]].mean()
  metrics = {"mean_grad_norm_sq": by_seed}
  return History(list(rounds), metrics), [{"seed": seed} for seed in seeds]


def label_counts(
  alpha: float, num_clients: int, examples: int, seed: int
) -> tuple[History, list[dict[str, Any]]]:
  """How many examples of each label of CIFAR-10 every client draws.

  Only how many there are of a label matters, 5,000, so the data are not read.

  Args:
    alpha: concentration of the Dirichlet distribution.
    num_clients: M.
    examples: of each client.
    seed: of the partition.

  Returns:
    `class_0` to `class_9` of each client, and the points: the clients.
  """
  labels = np.repeat(np.arange(10), 5000)
  rows = partition.dirichlet(
    labels, num_clients, alpha, examples_per_client=examples, seed=seed
  )
  counts = np.array([np.bincount(labels[r], minlength=10) for r in rows])
  metrics = {f"class_{c}": counts[:, [c]] for c in range(10)}
  points = [{"client": client} for client in range(num_clients)]
  return History([0], metrics), points
