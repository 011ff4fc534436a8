"""The pictures of a study that show how settings were chosen.

A grid of one hyperparameter is drawn as lines, one of two as a heat map, and
all of them as tuning curves: what trying more settings is worth.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedjax_opt.comparison import drawing, words
from fedjax_opt.comparison.cells import Cell
from fedjax_opt.comparison.drawing import Drawn, Picture
from fedjax_opt.results import plots, statistics
from fedjax_opt.results.names import name_of, sentence
from fedjax_opt.results.plots.heat_maps import Grid
from fedjax_opt.results.plots.metric_axis import metric_axis
from fedjax_opt.results.plots.study_curves import curves_axis
from fedjax_opt.results.selection import Criterion

_RULES = {
  "last": "after the last round",
  "best": "at its best evaluated round",
  "mean_last_n": "as the mean of the last {} evaluated rounds",
  "worst_last_n": "as the worst of the last {} evaluated rounds",
}


def pictures(drawn: Drawn) -> list[Picture]:
  """Those of which the study has the data."""
  tuned = [c for c in drawn.study.cells if c.tried is not None and c.tuned]
  found = []
  for criterion in dict.fromkeys(c.criterion for c in tuned):
    here = [c for c in tuned if c.criterion == criterion]
    found += _sensitivity(drawn, criterion, here)
    found += _heat_maps(drawn, criterion, here)
    found += _tuning_curves(drawn, criterion, here)
  return found


def score_words(criterion: Criterion) -> str:
  """A score: 'accuracy on the validation examples after the last round'."""
  rule = _RULES[criterion.rule].format(criterion.n)
  return f"{words.on_examples(criterion.metric)} {rule}"


def _scores(cell: Cell) -> tuple[list[dict[str, Any]], np.ndarray]:
  """The settings of a grid and their scores, [seeds, settings]."""
  tuning = cell.tuning
  of_points = cell.criterion.scores(cell.tried.history)
  num = min(len(setting.points) for setting in tuning.settings)
  scores = [of_points[setting.points[:num]] for setting in tuning.settings]
  return [s.hyperparameters for s in tuning.settings], np.stack(scores, 1)


# Grids of one hyperparameter.


def _sensitivity(
  drawn: Drawn, criterion: Criterion, cells: Sequence[Cell]
) -> list[Picture]:
  """For each hyperparameter that is alone in a grid."""
  found = []
  alone = [c for c in cells if len(c.tuned) == 1 and _has_numbers(c)]
  for name in dict.fromkeys(c.tuned[0] for c in alone):
    here = [c for c in alone if c.tuned[0] == name]
    found.append(_sensitivity_to(drawn, criterion, name, here))
  return found


def _has_numbers(cell: Cell) -> bool:
  values = [point[cell.tuned[0]] for point in cell.tried.points]
  return all(map(drawing.is_number, values))


def _sensitivity_to(
  drawn: Drawn, criterion: Criterion, name: str, cells: Sequence[Cell]
) -> Picture:
  def of_cell(cell: Cell) -> plots.Curve | None:
    if not _is_among(cell, cells):
      return None
    settings, scores = _scores(cell)
    x = np.array([setting[name] for setting in settings], float)
    order = np.argsort(x)
    interval = statistics.mean_interval(scores[:, order])
    return drawing.curve(x[order], *map(np.atleast_1d, interval))

  def chosen(cell: Cell) -> float | None:
    return cell.chosen.get(name) if _is_among(cell, cells) else None

  panels, rings = drawn.panels(of_cell), drawn.panels(chosen)
  numbers = (len(cell.tried.seeds) for cell in cells)
  legend, seeds = drawing.seeds(numbers, "of tuning")
  means = [m for p in panels.values() for each in p.values() for m in each.mean]
  is_lost = not np.isfinite(means).all()
  is_error = metric_axis(
    criterion.metric, [np.array([mean]) for mean in means]
  ).is_error
  caption = (
    f"{sentence(score_words(criterion))} against {name_of(name)}"
    f"{drawing.panels_text(len(panels))}: {seeds}. A ring marks the "
    f"value that was chosen.{drawing.error_text(is_error)}"
    f"{drawing.CROSS if is_lost else ''}"
  )
  draw = functools.partial(
    plots.sensitivity,
    drawing.flat(panels),
    metric=criterion.metric,
    x_name=drawing.in_picture(name),
    chosen=drawing.flat(rings) if rings else None,
    interval=legend,
    styles=drawn.looks,
  )
  title = f"How sensitive is each method to its {name_of(name)}?"
  return Picture(f"sensitivity_{name}", title, caption, draw)


def _is_among(cell: Cell, cells: Sequence[Cell]) -> bool:
  return any(cell is each for each in cells)


# Grids of two hyperparameters.


def _heat_maps(
  drawn: Drawn, criterion: Criterion, cells: Sequence[Cell]
) -> list[Picture]:
  grids = drawn.panels(lambda c: _grid(c) if _is_among(c, cells) else None)
  if not grids:
    return []
  pairs = dict.fromkeys(
    (g.rows[0], g.columns[0]) for p in grids.values() for g in p.values()
  )
  and_condition = " and condition" if len(grids) > 1 else ""
  axes = [f"{name_of(row)} and {name_of(column)}" for row, column in pairs]
  caption = (
    f"{sentence(score_words(criterion))} over {words.listed(axes)}: the mean "
    f"over the seeds of tuning, a panel for each method{and_condition}. "
    "Lighter is better; the outlined setting was chosen; of hatched ones a "
    "seed or more diverged."
  )
  draw = functools.partial(
    plots.heat_maps, drawing.flat(grids), metric=criterion.metric
  )
  title = "Where in its grid is each method good?"
  return [Picture("heat_maps", title, caption, draw)]


def _grid(cell: Cell) -> Grid | None:
  """The grid of a cell, if it has two hyperparameters and is complete."""
  if len(cell.tuned) != 2:
    return None
  tuning = cell.tuning
  axes = []
  for name in cell.tuned:
    values = list(
      dict.fromkeys(s.hyperparameters[name] for s in tuning.settings)
    )
    axes.append(
      sorted(values) if all(map(drawing.is_number, values)) else values
    )
  shape = [len(values) for values in axes]
  if tuning.budget != shape[0] * shape[1]:
    return None
  place = lambda setting: tuple(
    values.index(setting[name])
    for name, values in zip(cell.tuned, axes, strict=True)
  )
  values = np.full(shape, np.nan)
  for setting, score in zip(tuning.settings, tuning.scores, strict=True):
    values[place(setting.hyperparameters)] = score
  chosen = place(tuning.best.hyperparameters) if tuning.best else None
  names = map(drawing.in_picture, cell.tuned)
  rows, columns = zip(names, axes, strict=True)
  return Grid(values, rows, columns, chosen)


# Tuning curves.


def _tuning_curves(
  drawn: Drawn, criterion: Criterion, cells: Sequence[Cell]
) -> list[Picture]:
  def of_cell(cell: Cell) -> plots.Curve | None:
    if not _is_among(cell, cells):
      return None
    scores = cell.tuning.scores
    expected = statistics.expected_best(
      scores,
      direction=criterion.direction,
      replace=False,
      if_diverged=_if_diverged(cell),
    )
    if not np.isfinite(expected).all():
      return None
    return plots.Curve(np.arange(1, len(scores) + 1), expected)

  panels = drawn.panels(of_cell)
  if not panels:
    return []
  lost = any(c.tuning.num_diverged for c in cells)
  all_curves = [each for p in panels.values() for each in p.values()]
  is_error = curves_axis(criterion.metric, all_curves, whole=True).is_error
  caption = (
    f"{sentence(score_words(criterion))} that the best of n settings has on "
    "average, if n different ones of the grid are tried in random order"
    f"{drawing.panels_text(len(panels))}. The scores are means over the seeds "
    f"of tuning.{drawing.error_text(is_error, 'end')}"
  )
  if lost:
    caption += (
      " A setting of which a seed diverged counts as the model before "
      "training or, if that was not evaluated, as the worst setting that did "
      "not diverge."
    )
  draw = functools.partial(
    plots.tuning_curves,
    drawing.flat(panels),
    metric=criterion.metric,
    styles=drawn.looks,
  )
  title = "What is trying more settings worth?"
  return [Picture("tuning_curves", title, caption, draw)]


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
