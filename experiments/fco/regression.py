"""Sparse and low-rank least squares: Figures 3, 4 and 6 to 11, and optima."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.artefacts import definitions
from experiments.artefacts.artefact import (
  Block,
  Cell,
  Computed,
  Found,
  Key,
  Plan,
  Table,
)
from experiments.fco import grids, solutions

# Task -> its name in titles, and what else of it is recovered.
_TASKS = {
  "lasso": ("Sparse least squares", "f1"),
  "low_rank": ("Low-rank least squares", "rank"),
}


def cells(about: Mapping[str, Any], plan: Plan) -> dict[Key, Cell]:
  """All algorithms, what data set I is compared with, and the optimum."""
  found = definitions.cells(about, plan)
  on_one = definitions.merged(about, {"flags": ["--variant=I"]})
  for key, cell in definitions.cells(on_one, plan).items():
    if key[0] in about.get("beside_one", ()):
      found[key[0], "I"] = cell
  if plan.size != "smoke" or about["task"] == "lasso":
    parts = about["task"], about["variant"], about["strengths"]
    found[grids.OPTIMUM] = _optimum(plan, *parts)
  return found


def _optimum(
  plan: Plan, task: str, variant: str, strengths: Sequence[float]
) -> Computed:
  """The minimizers, at all strengths that are looked at."""
  options: dict[str, Any] = {"task": task, "variant": variant}
  if plan.size == "smoke":
    options |= {"variant": "I", "strengths": [0.1], "max_iterations": 5}
  else:
    options["strengths"] = strengths
  return Computed(solutions.optima, options)


def strength_cells(about: Mapping[str, Any], plan: Plan) -> dict[Key, Cell]:
  """The optimum of each problem."""
  smoke = plan.size == "smoke"
  return {
    (task, variant): _optimum(plan, task, variant, strengths)
    for task, strengths in about["strengths"].items()
    for variant in ("I", "II", "III", "IV")
    if not smoke or (task, variant) == ("lasso", "I")
  }


def strength(about: Mapping[str, Any], found: Found) -> list[Block]:
  """What the optima recover, and their error, over the strength."""
  del about
  blocks: list[Block] = []
  for task, (name, recovered) in _TASKS.items():
    own = {k[1]: r for k, r in found.items() if k[0] == task}
    for metric in (recovered, "recovery_error", "validation_loss"):
      rows = [
        [variant, *(f"{number:.4g}" for number in record.final(metric))]
        for variant, record in own.items()
      ]
      title = f"{name}, {metric.replace('_', ' ')} of the optimum"
      if own:
        points = next(iter(own.values())).points
        heads = ["", *(f"λ = {point['strength']:g}" for point in points)]
        blocks.append(Table(heads, rows, title))
  return blocks
