"""The pictures of a study: one for each question, where it has the data.

Each is described by a `Picture`, which says in its caption what it draws.
"""

import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fedjax_opt.results.metric_names import COSTS, direction, is_accuracy
from fedjax_opt.results.names import name_of
from fedjax_opt.results.selection import Criterion
from fedjax_opt.study import plots, statistics, words
from fedjax_opt.study.cells import Cell
from fedjax_opt.study.plots import frame
from fedjax_opt.study.plots.metric_axis import (
  as_curve,
  panels_axis,
  profiles_axis,
)
from fedjax_opt.study.plots.step_size_trace import FIELDS
from fedjax_opt.study.report import drawing
from fedjax_opt.study.report.drawing import Picture, StudyPictures
from fedjax_opt.study.report.study_tables import axes_of
from fedjax_opt.study.study_cells import StudyCells
from fedjax_opt.study.tuning import seed_scores
from fedjax_opt.study.verdicts import DIVERGED
from fedjax_opt.study.words import condition_label

_NUM_THRESHOLDS = 101


def of_study(study: StudyCells) -> list[Picture]:
  """The pictures of a study; the first one is the main one."""
  labels = drawing.legend_labels(study.labels)
  album = StudyPictures(study, labels, plots.method_styles(labels.values()))
  pictures = [
    *_against_conditions(album),
    *_learning_curves(album),
    *_profiles(album),
    *_of_tuning(album),
    *_clients(album),
    *_step_sizes(album),
    *_client_labels(album),
  ]
  names = [re.sub(r"[^A-Za-z0-9_-]+", "_", each.name) for each in pictures]
  names = words.unique(names, "{}_{}")
  return [
    each._replace(name=name) for each, name in zip(pictures, names, strict=True)
  ]


def _against_conditions(album: StudyPictures) -> Iterator[Picture]:
  """The final value against each condition that is a number and varies."""
  metric, numbers = album.study.metric, album.num_seeds
  for name in axes_of(album.study):
    distinct_values = dict.fromkeys(c.get(name) for c in album.study.conditions)
    if len(distinct_values) < 2 or not frame.are_numbers(distinct_values):
      continue
    values = sorted(distinct_values)
    panels = _panels_against(album, name, values)
    if not panels:
      continue
    panel_methods = {method for panel in panels.values() for method in panel}
    facts = drawing.about_curves(metric, panels, numbers, by_value=True) | {
      "condition": name,
      "missing": sorted(set(album.labels.values()) - panel_methods),
      "has_lost": any(v.kind == DIVERGED for v in album.study.verdicts),
    }
    yield album.picture(
      "against",
      {t: {m: c[1:] for m, c in panel.items()} for t, panel in panels.items()},
      facts,
      f"against_{name}",
      metric=metric,
      x_name=drawing.in_picture(name),
      x_values=values,
    )


def _panels_against(
  album: StudyPictures, name: str, values: list[Any]
) -> dict[str, dict[str, plots.Curve]]:
  """Other conditions -> method -> its values; only methods with all of them."""
  by_title: dict[str, dict[str, dict[Any, Any]]] = {}
  for verdict in album.study.verdicts:
    condition = dict(verdict.cell.condition)
    value = condition.pop(name, None)
    panel = by_title.setdefault(album.panel_title(condition), {})
    by_value = panel.setdefault(album.labels[verdict.cell.method], {})
    by_value[value] = verdict.value
  panels: dict[str, dict[str, plots.Curve]] = {}
  for title, panel in by_title.items():
    for label, by_value in panel.items():
      if set(by_value) == set(values):
        intervals = np.transpose([by_value[value] for value in values])
        curve = plots.Curve(np.array(values), *intervals)
        panels.setdefault(title, {})[label] = curve
  return panels


def _learning_curves(album: StudyPictures) -> Iterator[Picture]:
  """Curves against rounds, and against other costs in which methods differ.

  Time is first: methods with schedules of their own have rounds of their own.
  """
  study, metric = album.study, album.study.metric
  lost = {c.method for c in study.cells if c.report_runs is None}
  for x in sorted(COSTS, key=lambda cost: cost != "time"):
    if x != "rounds" and not _differs(study, x):
      continue
    panels = album.panels(functools.partial(_curve, metric=metric, x=x))
    if not panels:
      continue
    facts = drawing.about_curves(metric, panels, album.num_seeds)
    facts["lost"] = [text for m, text in study.labels.items() if m in lost]
    kind = "learning_curves"
    name = kind if x == "rounds" else f"{kind}_{x}"
    yield album.picture(kind, panels, facts, name, metric=metric, x_label=x)


def _curve(cell: Cell, metric: str, x: str) -> plots.Curve | None:
  places = cell.spent(x)
  if places is None or metric not in cell.report_runs.history.metrics:
    return None
  values = cell.report_runs.history.values(metric)
  return drawing.curve(metric, places / (1e6 if x == "bytes" else 1), values)


def _differs(study: StudyCells, cost: str) -> bool:
  """Whether a round costs 1 % more in some methods, and all measured the cost.

  The sum of all rounds would not tell: a time limit ends all runs alike. A
  method that diverged under every setting does not count: it is not drawn.
  """
  groups = [[c for c in cells if c.report_runs] for cells in study.groups]
  if any(c.spent(cost) is None for cells in groups for c in cells):
    return False
  round_cost = lambda c: c.spent(cost)[-1] / max(c.spent("rounds")[-1], 1)
  by_group = [list(map(round_cost, cells)) for cells in groups if cells]
  return any(max(costs) > 1.01 * min(costs) for costs in by_group)


def _profiles(album: StudyPictures) -> Iterator[Picture]:
  """The share of all runs that are better than each value."""
  study, metric = album.study, album.study.metric
  runs = np.concatenate([[], *map(np.ravel, study.matrices.values())])
  runs = runs[np.isfinite(runs)]
  if not is_accuracy(metric) or not runs.size:
    return
  margin = 0.02 * np.ptp(runs) or 0.01
  ends = max(runs.min() - margin, 0), min(runs.max() + margin, 1)
  profiles = _profiles_at(album, np.linspace(*ends, _NUM_THRESHOLDS))
  axis = profiles_axis(metric, profiles.values())
  errors = 1 - runs[runs < 1]
  if axis.is_error and errors.size:
    places = np.geomspace(
      1.05 * errors.max(), errors.min() / 1.05, _NUM_THRESHOLDS
    )
    profiles = _profiles_at(album, 1 - places)
  yield album.picture(
    "performance_profile",
    profiles,
    {"axis": axis},
    metric=metric,
    interval="share of runs and 95 % interval",
  )


def _profiles_at(
  album: StudyPictures, levels: np.ndarray
) -> dict[str, plots.Curve]:
  """method -> the share of its runs that are better than each level."""
  way, profiles = direction(album.study.metric), {}
  for method, scores in album.study.matrices.items():
    shares = statistics.performance_profile(scores, levels, direction=way)
    profiles[album.labels[method]] = plots.Curve(levels, *shares)
  return profiles


def _clients(album: StudyPictures) -> Iterator[Picture]:
  """How the accuracy of each kind of model is spread over the clients."""
  files = [cell.files for cell in album.study.cells]
  for kind in dict.fromkeys(kind for of in files for kind in of.per_client):
    panels = album.panels(functools.partial(_accuracies, kind=kind))
    if not panels:
      continue
    facts = {
      "model": kind,
      "num_clients": next(iter(next(iter(panels.values())).values())).size,
    }
    name, metric = f"clients_{kind}", "client_test_accuracy"
    yield album.picture("clients", panels, facts, name, metric=metric)


def _accuracies(cell: Cell, kind: str) -> np.ndarray | None:
  accuracies = np.asarray(cell.files.per_client.get(kind, ()), float)
  accuracies = accuracies[np.isfinite(accuracies)]
  return accuracies if accuracies.size else None


def _step_sizes(album: StudyPictures) -> Iterator[Picture]:
  """The step sizes of each cell in which they were recorded."""
  for cell in album.study.cells:
    trace = cell.files.step_sizes
    if not set(FIELDS.values()) <= set(trace):
      continue
    method = album.study.labels[cell.method]
    label = ", ".join(filter(None, [method, condition_label(cell.condition)]))
    facts = {"method": method, "label": label}
    arrays = {name: trace[key] for name, key in FIELDS.items()}
    title = drawing.in_picture(label)
    yield album.picture("step_sizes", arrays, facts, title=title)


def _client_labels(album: StudyPictures) -> Iterator[Picture]:
  """The examples of the clients, under each condition that changes them."""
  clients = album.study.clients
  if not clients:
    return
  counts = {drawing.in_picture(c): entry.counts for c, entry in clients.items()}
  facts = {
    "num_clients": max(map(len, counts.values())),
    "num_labels": max(matrix.shape[1] for matrix in counts.values()),
  }
  names = {
    drawing.in_picture(condition): drawing.short_labels(entry.names, 12)
    for condition, entry in clients.items()
  }
  labels = max((entry.labels for entry in clients.values()), key=len)
  labels = drawing.short_labels(labels)
  yield album.picture(
    "client_labels", counts, facts, names=names, labels=labels
  )


# How settings were chosen. A grid of one hyperparameter is drawn as lines, a
# grid of two as a heat map. All grids are also drawn as tuning curves, which
# show what trying more settings is worth.


def _of_tuning(album: StudyPictures) -> Iterator[Picture]:
  """The pictures of tuning for which the study has the data."""
  tuned = [c for c in album.cells if c.tuning_runs is not None and c.tuned]
  for criterion in dict.fromkeys(c.criterion for c in tuned):
    cells = [c for c in tuned if c.criterion == criterion]
    for draw in (_sensitivities, _heat_maps, _tuning_curves):
      yield from draw(album, criterion, cells)


def _sensitivities(
  album: StudyPictures, criterion: Criterion, cells: Sequence[Cell]
) -> Iterator[Picture]:
  """Lines for each hyperparameter that is the only one of a grid."""
  by_name: dict[str, list[Cell]] = {}
  for cell in cells:
    name, *other_names = cell.tuned
    values = [point[name] for point in cell.tuning_runs.points]
    if not other_names and frame.are_numbers(values):
      by_name.setdefault(name, []).append(cell)
  for name, of_name in by_name.items():
    yield _sensitivity(album, criterion, name, of_name)


def _sensitivity(
  album: StudyPictures, criterion: Criterion, name: str, cells: Sequence[Cell]
) -> Picture:
  metric = criterion.metric

  def of_cell(cell: Cell) -> plots.Curve:
    x = [setting.hyperparameters[name] for setting in cell.tuning.settings]
    order = np.argsort(x)
    x, scores = np.array(x, float)[order], seed_scores(cell)[:, order]
    return drawing.curve(metric, x, scores)

  panels = album.panels(of_cell, cells)
  numbers = [len(cell.tuning_runs.seeds) for cell in cells]
  facts = drawing.about_curves(metric, panels, numbers, by_value=True)
  chosen = album.panels(lambda cell: cell.chosen.get(name), cells)
  facts |= {"criterion": criterion, "hyperparameter": name, "chosen": chosen}
  return album.picture(
    "sensitivity",
    panels,
    facts,
    f"sensitivity_{name}",
    metric=metric,
    x_name=drawing.in_picture(name),
    chosen=chosen or None,
  )


def _heat_maps(
  album: StudyPictures, criterion: Criterion, cells: Sequence[Cell]
) -> Iterator[Picture]:
  """Heat maps of the grids of two hyperparameters."""
  grids = album.panels(_grid, cells)
  pairs = dict.fromkeys(
    (g.rows[0], g.columns[0]) for p in grids.values() for g in p.values()
  )
  axes = [f"{name_of(row)} and {name_of(column)}" for row, column in pairs]
  chosen = [g.chosen for p in grids.values() for g in p.values() if g.chosen]
  facts = {"criterion": criterion, "axes": axes, "chosen": chosen}
  if grids:
    metric = criterion.metric
    yield album.picture("heat_maps", grids, facts, metric=metric)


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
    sorted(axis) if frame.are_numbers(axis) else axis for axis in axes
  )
  if len(scores) != len(rows) * len(columns):
    return None
  best, chosen = cell.tuning.best, None
  if best:
    row, column = place(best)
    chosen = rows.index(row), columns.index(column)
  values = np.array([[scores[row, col] for col in columns] for row in rows])
  names = map(drawing.in_picture, cell.tuned)
  return plots.Grid(values, *zip(names, (rows, columns), strict=True), chosen)


def _tuning_curves(
  album: StudyPictures, criterion: Criterion, cells: Sequence[Cell]
) -> Iterator[Picture]:
  """The expected score of the best of n settings."""

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

  panels, metric = album.panels(of_cell, cells), criterion.metric
  facts = {
    "axis": panels_axis(metric, panels),
    "criterion": criterion,
    "num_diverged": sum(c.tuning.num_diverged for c in cells),
  }
  if panels:
    yield album.picture("tuning_curves", panels, facts, metric=metric)


def _if_diverged(cell: Cell) -> float | None:
  """The value that counts for a setting that diverged, or None."""
  history, scores = cell.tuning_runs.history, cell.tuning.scores
  if history.rounds and history.rounds[0] == 0:
    start = history.values(cell.criterion.metric)[:, 0]
    if np.isfinite(start).any():
      return float(np.nanmean(start))
  finite = scores[np.isfinite(scores)]
  if not finite.size:
    return None
  worst = np.min if cell.criterion.direction == "max" else np.max
  return float(worst(finite))
