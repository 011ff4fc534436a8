"""The pictures of a study that show how settings were chosen.

A grid of one hyperparameter is drawn as lines, one of two as a heat map, and
all of them as tuning curves: what trying more settings is worth.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fedjax_opt.results.names import name_of, sentence
from fedjax_opt.results.selection import Criterion, Setting
from fedjax_opt.study import plots, words
from fedjax_opt.study import seed_statistics as statistics
from fedjax_opt.study.cells import Cell
from fedjax_opt.study.plots.heat_maps import Grid
from fedjax_opt.study.plots.metric_axis import as_curve, panels_axis
from fedjax_opt.study.report import drawing
from fedjax_opt.study.report.drawing import Drawn, Picture
from fedjax_opt.study.verdicts import scores_of

_RULES = {
  "last": "after the last round",
  "best": "at its best evaluated round",
  "mean_last_n": "as the mean of the last {} evaluated rounds",
  "worst_last_n": "as the worst of the last {} evaluated rounds",
}


def pictures(drawn: Drawn) -> Iterator[Picture]:
  """Those of which the study has the data."""
  tuned = [c for c in drawn.study.cells if c.tried is not None and c.tuned]
  for criterion in dict.fromkeys(c.criterion for c in tuned):
    here = [c for c in tuned if c.criterion == criterion]
    for draw in (_sensitivity, _heat_maps, _tuning_curves):
      yield from draw(drawn, criterion, here)


def score_words(criterion: Criterion) -> str:
  """A score: 'accuracy on the validation examples after the last round'."""
  rule = _RULES[criterion.rule].format(criterion.n)
  return f"{words.on_examples(criterion.metric)} {rule}"


# Grids of one hyperparameter.


def _sensitivity(
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
    yield _sensitivity_to(drawn, criterion, name, of_name)


def _sensitivity_to(
  drawn: Drawn, criterion: Criterion, name: str, cells: Sequence[Cell]
) -> Picture:
  def of_cell(cell: Cell) -> plots.Curve:
    x = [each.hyperparameters[name] for each in cell.tuning.settings]
    order = np.argsort(x)
    return drawing.curve(np.array(x, float)[order], scores_of(cell)[:, order])

  panels = drawn.panels(of_cell, cells)
  rings = drawn.panels(lambda cell: cell.chosen.get(name), cells)
  numbers = (len(cell.tried.seeds) for cell in cells)
  legend, seeds = drawing.seeds_text(numbers, "of tuning")
  axis = panels_axis(criterion.metric, panels, by_value=True)
  means = [m for p in panels.values() for each in p.values() for m in each.mean]
  caption = [
    f"{sentence(score_words(criterion))} against {name_of(name)}"
    f"{drawing.panels_text(panels)}: {seeds}. A ring marks the value that was "
    "chosen.",
    drawing.error_text(axis),
    drawing.cross_text(means),
  ]
  return drawn.picture(
    f"sensitivity_{name}",
    f"How sensitive is each method to its {name_of(name)}?",
    caption,
    plots.sensitivity,
    panels,
    metric=criterion.metric,
    x_name=drawing.in_picture(name),
    chosen=rings or None,
    interval=legend,
    styles=drawn.looks,
  )


# Grids of two hyperparameters.


def _heat_maps(
  drawn: Drawn, criterion: Criterion, cells: Sequence[Cell]
) -> Iterator[Picture]:
  grids = drawn.panels(_grid, cells)
  if not grids:
    return
  pairs = dict.fromkeys(
    (g.rows[0], g.columns[0]) for p in grids.values() for g in p.values()
  )
  and_condition = " and condition" if len(grids) > 1 else ""
  axes = [f"{name_of(row)} and {name_of(column)}" for row, column in pairs]
  caption = [
    f"{sentence(score_words(criterion))} over {words.listed(axes)}: the mean "
    f"over the seeds of tuning, a panel for each method{and_condition}.",
    "Lighter is better. The outlined setting was chosen. Of hatched settings "
    "a seed or more diverged.",
  ]
  title, metric = "Where in its grid is each method good?", criterion.metric
  plot = functools.partial(plots.heat_maps, metric=metric)
  yield drawn.picture("heat_maps", title, caption, plot, grids)


def _grid(cell: Cell) -> Grid | None:
  """The grid of a cell, if it has two hyperparameters and is complete."""
  if len(cell.tuned) != 2:
    return None
  places = [_place(s, cell) for s in cell.tuning.settings]
  axes = [_axis(name, cell) for name in cell.tuned]
  values = np.full(list(map(len, axes)), np.nan)
  if len(places) != values.size:
    return None
  values[tuple(np.transpose(places))] = cell.tuning.scores
  best = cell.tuning.best
  names = map(drawing.in_picture, cell.tuned)
  return Grid(
    values, *zip(names, axes, strict=True), best and _place(best, cell)
  )


def _axis(name: str, cell: Cell) -> list[Any]:
  """The values of a hyperparameter, in increasing order if they have one."""
  settings = cell.tuning.settings
  values = list(dict.fromkeys(s.hyperparameters[name] for s in settings))
  return sorted(values) if drawing.are_numbers(values) else values


def _place(setting: Setting, cell: Cell) -> tuple[int, ...]:
  """The row and the column of a setting."""
  return tuple(
    _axis(name, cell).index(setting.hyperparameters[name])
    for name in cell.tuned
  )


# Tuning curves.


def _tuning_curves(
  drawn: Drawn, criterion: Criterion, cells: Sequence[Cell]
) -> Iterator[Picture]:
  def of_cell(cell: Cell) -> plots.Curve | None:
    expected = statistics.expected_best(
      cell.tuning.scores,
      direction=criterion.direction,
      replace=False,
      if_diverged=_if_diverged(cell),
    )
    if not np.isfinite(expected).all():
      return None
    places = np.arange(1, len(expected) + 1)
    return as_curve("scores", plots.Curve(places, expected))

  panels = drawn.panels(of_cell, cells)
  if not panels:
    return
  caption = [
    f"{sentence(score_words(criterion))} that the best of n settings has on "
    "average, if n different ones of the grid are tried in random order"
    f"{drawing.panels_text(panels)}. The scores are means over the seeds of "
    "tuning.",
    drawing.error_text(panels_axis(criterion.metric, panels, True), "end"),
    "A setting of which a seed diverged counts as the model before training "
    "or, if that was not evaluated, as the worst setting that did not diverge."
    * any(c.tuning.num_diverged for c in cells),
  ]
  yield drawn.picture(
    "tuning_curves",
    "What is trying more settings worth?",
    caption,
    plots.tuning_curves,
    panels,
    metric=criterion.metric,
    styles=drawn.looks,
  )


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
