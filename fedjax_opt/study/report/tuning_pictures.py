"""The pictures of a study that show how settings were chosen.

A grid of one hyperparameter is drawn as lines, one of two as a heat map, and
all of them as tuning curves: what trying more settings is worth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fedjax_opt.results.names import name_of
from fedjax_opt.results.selection import Criterion
from fedjax_opt.study import plots
from fedjax_opt.study import seed_statistics as statistics
from fedjax_opt.study.cells import Cell
from fedjax_opt.study.plots.metric_axis import as_curve, panels_axis
from fedjax_opt.study.report import drawing
from fedjax_opt.study.report.drawing import Drawn, Picture
from fedjax_opt.study.verdicts import scores_of


def pictures(drawn: Drawn) -> Iterator[Picture]:
  """Those of which the study has the data."""
  tuned = [c for c in drawn.cells if c.tried is not None and c.tuned]
  for criterion in dict.fromkeys(c.criterion for c in tuned):
    here = [c for c in tuned if c.criterion == criterion]
    for draw in (_sensitivities, _heat_maps, _tuning_curves):
      yield from draw(drawn, criterion, here)


def _sensitivities(
  drawn: Drawn, criterion: Criterion, cells: Sequence[Cell]
) -> Iterator[Picture]:
  """For each hyperparameter that is alone in a grid."""
  alone: dict[str, list[Cell]] = {}
  for cell in cells:
    name, *others = cell.tuned
    values = [point[name] for point in cell.tried.points]
    if not others and drawing.are_numbers(values):
      alone.setdefault(name, []).append(cell)
  for name, of_name in alone.items():
    yield _sensitivity(drawn, criterion, name, of_name)


def _sensitivity(
  drawn: Drawn, criterion: Criterion, name: str, cells: Sequence[Cell]
) -> Picture:
  metric = criterion.metric

  def of_cell(cell: Cell) -> plots.Curve:
    x = [each.hyperparameters[name] for each in cell.tuning.settings]
    order = np.argsort(x)
    x, scores = np.array(x, float)[order], scores_of(cell)[:, order]
    return drawing.curve(metric, x, scores)

  panels = drawn.panels(of_cell, cells)
  numbers = [len(cell.tried.seeds) for cell in cells]
  facts = drawing.about_curves(metric, panels, numbers, by_value=True)
  return drawn.picture(
    "sensitivity",
    panels,
    facts | {"criterion": criterion, "hyperparameter": name},
    f"sensitivity_{name}",
    metric=metric,
    x_name=drawing.in_picture(name),
    chosen=drawn.panels(lambda cell: cell.chosen.get(name), cells) or None,
  )


def _heat_maps(
  drawn: Drawn, criterion: Criterion, cells: Sequence[Cell]
) -> Iterator[Picture]:
  """The grids of two hyperparameters."""
  grids = drawn.panels(_grid, cells)
  pairs = dict.fromkeys(
    (g.rows[0], g.columns[0]) for p in grids.values() for g in p.values()
  )
  axes = [f"{name_of(row)} and {name_of(column)}" for row, column in pairs]
  facts = {"criterion": criterion, "axes": axes}
  if grids:
    metric = criterion.metric
    yield drawn.picture("heat_maps", grids, facts, metric=metric)


def _grid(cell: Cell) -> plots.Grid | None:
  """The grid of a cell, if it has two hyperparameters and is complete."""
  if len(cell.tuned) != 2:
    return None
  place = lambda setting: tuple(setting.hyperparameters[n] for n in cell.tuned)
  scores = dict(
    zip(map(place, cell.tuning.settings), cell.tuning.scores, strict=True)
  )
  axes = [list(dict.fromkeys(values)) for values in zip(*scores, strict=True)]
  rows, columns = (
    sorted(axis) if drawing.are_numbers(axis) else axis for axis in axes
  )
  if len(scores) != len(rows) * len(columns):
    return None
  best, chosen = cell.tuning.best, None
  if best:
    row, column = place(best)
    chosen = rows.index(row), columns.index(column)
  values = np.array([[scores[row, of] for of in columns] for row in rows])
  names = map(drawing.in_picture, cell.tuned)
  return plots.Grid(values, *zip(names, (rows, columns), strict=True), chosen)


def _tuning_curves(
  drawn: Drawn, criterion: Criterion, cells: Sequence[Cell]
) -> Iterator[Picture]:
  """What the best of n settings has on average."""

  def of_cell(cell: Cell) -> plots.Curve | None:
    expected = statistics.expected_best(
      cell.tuning.scores,
      direction=criterion.direction,
      replace=False,
      if_diverged=_if_diverged(cell),
    )
    places = np.arange(1, len(expected) + 1)
    is_whole = np.isfinite(expected).all()
    return as_curve("", plots.Curve(places, expected)) if is_whole else None

  panels, metric = drawn.panels(of_cell, cells), criterion.metric
  facts = {
    "axis": panels_axis(metric, panels),
    "criterion": criterion,
    "num_diverged": sum(c.tuning.num_diverged for c in cells),
  }
  if panels:
    yield drawn.picture("tuning_curves", panels, facts, metric=metric)


def _if_diverged(cell: Cell) -> float | None:
  """What counts for a setting that diverged; None if nothing can."""
  history, scores = cell.tried.history, cell.tuning.scores
  if history.rounds and history.rounds[0] == 0:
    start = history.values(cell.criterion.metric)[:, 0]
    if np.isfinite(start).any():
      return float(np.nanmean(start))
  finite = scores[np.isfinite(scores)]
  if not finite.size:
    return None
  worst = np.min if cell.criterion.direction == "max" else np.max
  return float(worst(finite))
