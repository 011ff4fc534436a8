"""Small problems on which the theorems of the Delta-SGD paper can be measured.

Theorem 5 and the potential behind it concern one client with exact gradients of
a convex loss. Theorem 1 concerns several clients and any smooth loss.
"""

import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.artefacts.artefact import Block, Found, Picture, Table
from experiments.artefacts.claims import Claim, Quantity
from experiments.artefacts.values import with_interval
from fedjax_opt import (
  ClientData,
  delta_sgd,
  evaluation,
  fed_avg,
  grad_fn_of,
  grid_points,
  partition,
  plots,
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

  The growth branch is off in the first step; gamma and delta are 1.

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
  """The potential of Lemma 4 at each step, as a share of its first value.

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
      # For t = 1, ..., T - 1: after the step with eta_t.
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

  As the theorem requires, gamma is scale / (K sqrt(T)) and eta_0 is gamma / 10.
  The model is a small network with tanh units. There are 20 clients with
  different labels, 5 in a round, and batches of 8.

  Args:
    rounds: the values of T.
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

  The draw depends only on the number of examples of a label, 5,000, so the data
  are not read.

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


# What is shown.


def _draw_lines(
  panels: Mapping[str, Mapping[str, np.ndarray]],
  x: Sequence[float],
  path: pathlib.Path,
  x_label: str,
  y_label: str,
  log_x: bool = False,
) -> None:
  """Draws means with ranges on a log axis.

  Args:
    panels: title -> line -> its values, [points, X].
    x: [X].
    path: of the file.
    x_label: of the axis.
    y_label: of the axis.
    log_x: whether the x axis is logarithmic too.
  """
  with plots.figure(len(panels)) as (figure, axes):
    for place, (title, lines) in zip(axes[0], panels.items(), strict=True):
      for i, (name, values) in enumerate(lines.items()):
        color = plots.COLORS[i]
        mean = values.mean(axis=0)
        place.plot(x, mean, color=color, label=name, linestyle=_STYLES[i])
        ends = values.min(axis=0), values.max(axis=0)
        place.fill_between(x, *ends, color=color, alpha=0.2, linewidth=0)
      place.set_title(title)
      place.set_xlabel(x_label)
      plots.log_scale(place.yaxis)
      if log_x:
        plots.log_scale(place.xaxis)
    axes[0, 0].set_ylabel(y_label)
    axes[0, -1].legend()
    figure.savefig(path)


_STYLES = ("-", "--", "-.")


def theorem1_shown(about: Any, found: Found) -> list[Block]:
  (record,) = found.values()
  history = record.history
  rounds = np.asarray(history.rounds, float)
  values = history.values("mean_grad_norm_sq")
  line = values[:, 0].mean() * np.sqrt(rounds[0] / rounds)
  lines = {"": {"measured": values, "1/√T": line[None]}}
  ratio = np.log(values[:, -2] / values[:, -1])
  exponent = ratio / np.log(rounds[-1] / rounds[-2])
  last = f"{rounds[-2]:g} to {rounds[-1]:g}"
  return [
    Table(
      ["rounds T", "mean squared gradient norm", "times √T"],
      [
        [
          f"{number:g}",
          with_interval(values[:, i], "grad_norm_sq"),
          f"{values[:, i].mean() * number**0.5:.3g}",
        ]
        for i, number in enumerate(rounds)
      ],
    ),
    Picture(
      "rate",
      lambda path: _draw_lines(
        lines, rounds, path, "Rounds T", "Mean squared gradient norm", True
      ),
      "Mean squared gradient norm over the number of rounds",
    ),
    Claim(
      "The mean squared gradient norm falls as 1/√T with γ and η0 as the "
      "theorem wants: the exponent is above 0.45",
      [
        Quantity(
          f"exponent from T = {last}, less 0.45",
          tuple((exponent - 0.45).tolist()),
        )
      ],
      is_ours=True,
    ),
  ]


_OF_THEOREM5 = {
  "gap": "f - f* at the averaged point",
  "bound": "D / (2 S)",
  "rate": "2 D L² / (2 L t + 1)",
}


def theorem5_shown(about: Any, found: Found) -> list[Block]:
  (record,) = found.values()
  history = record.history
  logs = {n: np.log10(history.metrics[n]) for n in _OF_THEOREM5}
  panels = {}
  for eta in dict.fromkeys(point["eta_0"] for point in record.points):
    rows = [i for i, p in enumerate(record.points) if p["eta_0"] == eta]
    panels[f"η0 = {eta:g}"] = {
      label: history.metrics[name][rows] for name, label in _OF_THEOREM5.items()
    }

  least = lambda a, b: tuple((logs[a] - logs[b]).min(axis=1).tolist())
  return [
    Picture(
      "bounds",
      lambda path: _draw_lines(panels, history.rounds, path, "Step", "f - f*"),
      "The averaged point's gap, its bound and its rate",
    ),
    Claim(
      "At every step f - f* of the averaged point is below D / (2 S), and "
      "that is below 2 D L² / (2 L t + 1)",
      [
        Quantity(
          "least log10 of bound to gap", least("bound", "gap"), "", True
        ),
        Quantity(
          "least log10 of rate to bound", least("rate", "bound"), "", True
        ),
      ],
    ),
  ]


def lyapunov_shown(about: Any, found: Found) -> list[Block]:
  (record,) = found.values()
  potential = record.history.metrics["potential"]
  gammas = np.array([point["gamma"] for point in record.points])
  rounds = record.history.rounds
  lines = {
    f"γ = {gamma:g}": potential[gammas == gamma] for gamma in np.unique(gammas)
  }
  # Relative to the step before, so that late steps count as early ones.
  growth = (potential[:, 1:] / potential[:, :-1]).max(axis=1)
  of_lemma = tuple((1 + 1e-6 - growth[gammas == 1]).tolist())

  return [
    Picture(
      "potential",
      lambda path: _draw_lines(
        {"": lines}, rounds, path, "Step", "Potential, a part of the first"
      ),
      "The potential over steps",
    ),
    Table(
      ["γ", "problems", "with a step in which the potential grew"],
      [
        [
          f"{gamma:g}",
          str(int(np.sum(gammas == gamma))),
          str(int(np.sum(growth[gammas == gamma] > 1 + 1e-6))),
        ]
        for gamma in np.unique(gammas)
      ],
    ),
    Claim(
      "With γ = 1 the potential never grows",
      [Quantity("1 less the largest ratio of two steps", of_lemma, "", True)],
    ),
  ]
