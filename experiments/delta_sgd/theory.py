"""A small problem for Theorem 1, and the partitions of Figure 8.

The theorem concerns several clients and any smooth loss. The tests of the rule
have Theorem 5 and the potential behind it.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

import fedjax_opt as fo
from experiments.artefacts import client_labels
from experiments.artefacts.artefact import Entries, Records
from experiments.artefacts.blocks import Block, Claim, Picture, Quantity, Table
from experiments.artefacts.values import with_interval
from fedjax_opt.results.history import History


def theorem1(
  rounds: Sequence[int], scale: float, local_steps: int, seeds: Sequence[int]
) -> tuple[History, list[dict[str, Any]]]:
  """The mean over T rounds of the squared gradient norm, for several T.

  As the theorem requires, gamma is scale / (K sqrt(T)) and eta_0 is gamma / 10.
  The model is a small network with tanh units. There are 20 clients with
  different labels, 5 in a round, and batches of 8.

  Args:
    rounds: the values of T.
    scale: the scale of gamma.
    local_steps: K.
    seeds: the runs' seeds.

  Returns:
    `mean_grad_norm_sq` at each T, and the points: the seeds.
  """
  rng = np.random.default_rng(0)
  x = rng.normal(size=(800, 8)).astype(np.float32)
  y = np.argmax(np.tanh(x @ rng.normal(size=(8, 8))) @ rng.normal(size=(8, 4)),
                axis=1).astype(np.int32)  # fmt: skip
  rows = fo.partition.dirichlet(
    y, 20, alpha=0.3, examples_per_client=40, seed=0
  )
  data = fo.ClientData.from_partition({"x": x, "y": y}, rows)
  draw = lambda *shape: jnp.asarray(0.5 * rng.normal(size=shape), jnp.float32)
  params = {"hidden": draw(8, 16), "output": draw(16, 4)}

  def loss_fn(params, batch, rng):
    del rng
    logits = jnp.tanh(batch["x"] @ params["hidden"]) @ params["output"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"])

  gammas = [scale / (local_steps * num**0.5) for num in rounds]
  result = fo.sweep(
    lambda gamma: fo.fed_avg(
      loss_fn, fo.delta_sgd(gamma=gamma, eta_0=gamma / 10)
    ),
    {"gamma": gammas},
    params,
    data,
    seeds=list(seeds),
    rounds=max(rounds),
    cohort_size=5,
    batch_size=8,
    local_steps=local_steps,
    evaluate=fo.evaluation.grad_norm_sq(loss_fn),
    eval_every=1,
  )
  points = fo.grid_points({"gamma": gammas}, list(seeds))
  norms = result.history.values("grad_norm_sq")
  by_seed = np.full((len(seeds), len(rounds)), np.nan)
  for point, values in zip(points, norms, strict=True):
    column = gammas.index(point["gamma"])
    row = list(seeds).index(point["seed"])
    by_seed[row, column] = values[: rounds[column]].mean()
  metrics = {"mean_grad_norm_sq": by_seed}
  return History(list(rounds), metrics), [{"seed": seed} for seed in seeds]


def label_counts(
  alpha: float, num_clients: int, examples: int, seeds: Sequence[int]
) -> tuple[History, list[dict[str, Any]]]:
  """How many examples of each label of CIFAR-10 every client draws.

  Args:
    alpha: concentration of the Dirichlet distribution.
    num_clients: M.
    examples: how many examples each client has.
    seeds: the seeds of partitions.

  Returns:
    `class_0` to `class_9` of each client, and the points: the clients of each
    partition.
  """
  draw = functools.partial(
    fo.partition.dirichlet,
    client_labels.CIFAR10, num_clients, alpha, examples_per_client=examples,
  )  # fmt: skip
  rows = [row for seed in seeds for row in draw(seed=seed)]
  points = [{"seed": s, "client": c} for s in seeds for c in range(num_clients)]
  return client_labels.history_of(rows), points


# What is shown.


def _draw_rate(lines: Mapping[str, np.ndarray], rounds: np.ndarray) -> Any:
  """Draws means with ranges on log axes.

  Args:
    lines: label -> its values, [points, T].
    rounds: [T].
  """
  with fo.plots.figure(1) as (figure, axes):
    panel = axes[0, 0]
    for i, (name, values) in enumerate(lines.items()):
      color = fo.plots.COLORS[i]
      mean = values.mean(axis=0)
      panel.plot(rounds, mean, color=color, label=name, linestyle=_STYLES[i])
      ends = values.min(axis=0), values.max(axis=0)
      panel.fill_between(rounds, *ends, color=color, alpha=0.2, linewidth=0)
    fo.plots.log_scale(panel.yaxis)
    fo.plots.log_scale(panel.xaxis)
    panel.set_xlabel("Rounds T")
    panel.set_ylabel("Mean squared gradient norm")
    panel.legend()
    return figure


_STYLES = ("-", "--")


def theorem1_shown(entries: Entries, records: Records) -> list[Block]:
  (record,) = records.values()
  history = record.history
  rounds = np.asarray(history.rounds, float)
  values = history.values("mean_grad_norm_sq")
  line = values[:, 0].mean() * np.sqrt(rounds[0] / rounds)
  lines = {"measured": values, "1/√T": line[None]}
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
      functools.partial(_draw_rate, lines, rounds),
      "Mean squared gradient norm over the number of rounds",
    ),
    Claim(
      "The mean squared gradient norm falls as 1/√T with γ and η0 as the "
      "theorem wants: the exponent is above 0.45",
      [
        Quantity(
          f"exponent from T = {last}", tuple(exponent.tolist()), limit=0.45
        )
      ],
      is_ours=True,
    ),
  ]
