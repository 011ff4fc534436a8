"""Studies written out by hand, without any run."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_opt.results.history import History
from fedjax_opt.results.selection import Criterion
from fedjax_opt.study.cells import Cell, PointResults
from fedjax_opt.study.study import Study

NAN = float("nan")
ROUNDS = [0, 10, 20]
CRITERION = Criterion("validation_accuracy", "max")


def history(finals: Sequence[float], bytes_per_round: int = 1000) -> History:
  """Curves from 0.1 to these values, [S]; a NaN diverges after round 10."""
  finals = np.array(finals, float)
  ends = np.where(np.isfinite(finals), finals, 0.5)
  curves = np.stack([0 * ends + 0.1, (0.1 + ends) / 2, ends], 1)
  losses = 1 - curves
  losses[~np.isfinite(finals), 2] = np.nan
  rounds = np.tile(np.array(ROUNDS, float), (len(finals), 1))
  metrics = {f"{part}_accuracy": curves for part in ("validation", "test")}
  metrics |= {f"{part}_loss": losses for part in ("train", "test")}
  metrics["bytes_down"] = metrics["bytes_up"] = rounds * bytes_per_round / 2
  metrics["gradient_evaluations"] = 5 * rounds
  return History(ROUNDS, metrics)


def cell(
  method: str,
  finals: Sequence[float],
  condition: Mapping[str, Any] | None = None,
  *,
  tried: Mapping[float, Sequence[float]] | None = None,
  seeds: Sequence[int] = (10, 11, 12, 13, 14, 15, 16, 17, 18, 19),
  **more: Any,
) -> Cell:
  """A cell with these values, [seeds].

  Args:
    method: label.
    finals: test accuracy of each seed of the report; [] if every setting
      diverged.
    condition: name -> value.
    tried: learning rate -> validation accuracy of each seed of tuning, the best
      one for the report; None if nothing was tuned.
    seeds: of the report.
    **more: `Cell`'s other fields; `name` instead of 'client_lr', `criterion`,
      `seconds` of the report and `bytes_per_round`.
  """
  name, seconds = more.pop("name", "client_lr"), more.pop("seconds", 0.0)
  criterion = more.pop("criterion", CRITERION)
  grid, chosen = None, 0.1
  if tried is not None:
    points = [
      {name: rate, "seed": seed}
      for rate, values in tried.items()
      for seed in range(len(values))
    ]
    values = [value for each in tried.values() for value in each]
    grid = PointResults(points, history(values), criterion)
    chosen = max(tried, key=lambda rate: np.nan_to_num(tried[rate]).mean())
  measured = None
  if len(finals):
    points = [{name: chosen, "seed": s} for s in seeds[: len(finals)]]
    bytes_per_round = more.pop("bytes_per_round", 1000)
    found = history(finals, bytes_per_round)
    measured = PointResults(points, found, criterion, seconds)
  return Cell(method, condition or {}, grid, measured, **more)


def study(*cells: Cell, **more: Any) -> Study:
  """A study of these cells by test accuracy."""
  return Study(cells, **({"metric": "test_accuracy"} | more))


def plain() -> Study:
  """Three methods under two conditions: best, not told apart, worse."""
  spread = np.array([-0.01, 0.0, 0.01, 0.005, -0.005])
  tried = {0.01: [0.5] * 3, 0.1: [0.8] * 3, 1.0: [0.6, NAN, 0.6]}
  cells = []
  for alpha, drop in ((1.0, 0.0), (0.1, 0.2)):
    condition = {"alpha": alpha}
    cells += [
      cell("FedAvg", 0.7 - drop + np.roll(spread, 1), condition, tried=tried,
           seconds=1.5),
      cell("SCAFFOLD", 0.8 - drop + spread, condition, tried=tried),
      cell("Δ-SGD", 0.799 - drop + spread[::-1], condition),
    ]  # fmt: skip
  about = {"rounds": 20, "versions": {"jax": "1.2"}}
  return study(*cells, title="Plain", target=0.75, about=about)


HOSTILE = (
  "<b>&\"x'</b>",
  "a_b|c*d`e` $\\alpha$ 100%",
  "_lead $x {[*~^#\\}] \n twice",
  "",
  "L" * 90,
)


def hostile() -> Study:
  """Labels that are HTML, LaTeX, Markdown and mathematics."""
  values = [0.7, 0.71, 0.72]
  cells = [
    cell(label, values, {"al<pha&": value}, tried={0.1: [0.5], 1.0: [0.6]},
         name="l<r>$^b$")
    for value in ("<i>$y^$", "b & c_%")
    for label in HOSTILE
  ]  # fmt: skip
  return study(
    *cells,
    title="<script>alert('x')</script> & \"T\"",
    about={"<k>&": '<v>&"'},
    command="python <x> && 'a'",
  )


def grid(*settings: tuple[float, float]) -> Cell:
  """A cell whose settings (rate, mu) have the scores 0.1, 0.2, ..."""
  points = [{"client_lr": a, "mu": b, "seed": 0} for a, b in settings]
  scores = 0.1 * np.arange(1, len(points) + 1)
  tried = PointResults(points, history(scores), CRITERION)
  return dataclasses.replace(cell("a", [0.5, 0.6]), tuning_runs=tried)


def many() -> Study:
  """Thirty methods with long names under seven conditions."""
  cells = [
    cell(f"method {i} with a name", [0.5, 0.6], {"alpha": a, "k": 20})
    for a in range(7)
    for i in range(30)
  ]
  return study(*cells)
