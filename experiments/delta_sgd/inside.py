"""Figures 7 and 8 of the Delta-SGD paper: step sizes and data of clients."""

import numpy as np

from experiments.artefacts import views
from experiments.artefacts.base import (
  Artefact,
  Block,
  Cell,
  Computed,
  Found,
  Key,
  Picture,
  Plan,
)
from experiments.artefacts.claims import Claim, Quantity
from experiments.artefacts.record import Kept
from experiments.delta_sgd import settings, theory
from experiments.delta_sgd.settings import ALPHAS, OURS
from fedjax_opt import Run, plots

# Figure 7: the two terms of the minimum.

_TRACED, _DETAIL = 300, 12  # Rounds that are kept, and drawn step by step.
_TRACE = {
  "step_size": "step_size",
  "smoothness_step": "smoothness",
  "growth_step": "growth",
}


def _figure7(plan: Plan) -> dict[Key, Cell]:
  column = settings.columns(plan, "CIFAR-10")[0]
  flags = ("--alpha=0.1", "--trace")
  if plan.size == "paper":
    flags = (*flags, "--rounds=300")
  return {(OURS,): settings.run(plan, column, OURS, *flags, seeds="5821")}


def _kept_trace(run: Run) -> Kept:
  """The step sizes of the first client of each round, [rounds, steps]."""
  arrays = {}
  with np.load(run.folder / "traces.npz") as file:
    for name in _TRACE:
      arrays[name] = file[name][0, :_TRACED, 0]
  return Kept((views.ACCURACY,), arrays=arrays)


def _figure7_blocks(found: Found) -> list[Block]:
  if (OURS,) not in found:
    return []
  arrays = found[(OURS,)].arrays
  trace = {name: arrays[kept] for kept, name in _TRACE.items()}
  first = {name: values[:_DETAIL] for name, values in trace.items()}
  smoothness, growth = trace["smoothness"], trace["growth"]
  is_step = np.isfinite(growth) & (trace["step_size"] > 0)
  share = 100 * np.mean(smoothness[is_step] < growth[is_step])
  shares = {"smoothness": share, "growth": 100 - share}
  return [
    Picture(
      "first",
      lambda path: plots.step_sizes(first, path, title=f"{_DETAIL} rounds"),
      "Both terms of the step size at each local step of one client a round",
    ),
    Picture(
      "rounds",
      lambda path: plots.step_sizes(trace, path),
      "Step sizes over rounds, and the share of steps with each term",
    ),
    Claim(
      "Both terms are needed: each is the smaller one at some steps",
      [
        Quantity(f"steps with the {name} term", (float(value),), "%")
        for name, value in shares.items()
      ],
    ),
  ]


# Figure 8: who has which labels.


def _figure8(plan: Plan) -> dict[Key, Cell]:
  del plan
  options = {"num_clients": 100, "examples": 500, "seed": 5821}
  return {
    (alpha,): Computed(theory.label_counts, {"alpha": float(alpha), **options})
    for alpha in ALPHAS
  }


def _figure8_blocks(found: Found) -> list[Block]:
  counts = {
    key[0]: np.concatenate(list(record.history.metrics.values()), axis=1)
    for key, record in found.items()
  }
  pictures = [
    Picture(
      f"alpha_{alpha}",
      lambda path, alpha=alpha: plots.label_histogram(
        counts[alpha].astype(int),
        path,
        title=plots.partition_title("dirichlet", float(alpha)),
      ),
      f"Labels of each client, α = {alpha}",
    )
    for alpha in ALPHAS
    if alpha in counts
  ]
  claims = []
  if "0.01" in counts:
    classes = (counts["0.01"] > 0).sum(axis=1)
    share = 100 * np.mean(classes <= 2)
    claims.append(
      Claim(
        "Many clients have one or two classes, α = 0.01: more than half",
        [Quantity("share less 50 %", (float(share - 50),), "%")],
      )
    )
  return [*pictures, *claims]


ARTEFACTS = (
  Artefact(
    "delta_sgd/figure7",
    "Step sizes of Delta-SGD, and the two terms of their minimum",
    "the first 300 rounds; the paper does not say of which task, here "
    "CIFAR-10, α = 0.1",
    _figure7,
    _figure7_blocks,
    _kept_trace,
  ),
  Artefact(
    "delta_sgd/figure8",
    "Labels of each client, by α",
    "CIFAR-10, 100 clients of 500 examples, α = 1, 0.1, 0.01",
    _figure8,
    _figure8_blocks,
  ),
)
