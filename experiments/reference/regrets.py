"""How far a setting carries: chosen under some conditions, run under another.

Nothing runs for it: every setting of a grid ran under every condition. Choices
are made on validation examples. The regret of a choice is the test accuracy
that it loses to the best tuned method under the condition where it runs, with
the seeds of tuning.

Axis letters: `T` conditions, `H` settings.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from experiments.reference.standing import Leaderboard
from fedjax_opt.results import selection
from fedjax_opt.results.metric_names import is_accuracy
from fedjax_opt.study import statistics
from fedjax_opt.study.cells import Cell
from fedjax_opt.study.numbers import NumberFormat
from fedjax_opt.study.report.study_tables import Entry, ReportTable

# The values of a setting -> its validation score and its test accuracy.
Means = dict[tuple[str, ...], tuple[float, float]]


class MeanGrid(NamedTuple):
  """A method's settings that ran under all conditions by an accuracy.

  Attributes:
    validation: their mean scores, 0 if a seed diverged. [T, H]
    test: their mean test accuracies, 0 if a seed diverged. [T, H]
  """

  validation: np.ndarray
  test: np.ndarray

  @property
  def best_here(self) -> np.ndarray:
    """The choice under each condition. [T] int"""
    return self.validation.argmax(1)

  @property
  def of_others(self) -> np.ndarray:
    """The choice by the mean over all other conditions. [T] int"""
    sums = self.validation.sum(0) - self.validation
    return sums.argmax(1)


def grids(standing: Leaderboard) -> dict[str, MeanGrid]:
  """method -> its grid, of those with settings that ran under all conditions.

  Only conditions that are compared by an accuracy count.
  """
  studies = {n: s for n, s in standing.studies.items() if is_accuracy(s.metric)}
  means_by_method: dict[str, list[Means]] = {}
  for name, study in studies.items():
    scale = standing.condition(name).scale
    for cell in study.cells:
      if cell.tuning_runs is not None:
        means = _means(cell, study.metric, scale)
        means_by_method.setdefault(cell.method, []).append(means)
  by_method = {
    method: _grid(means)
    for method, means in means_by_method.items()
    if len(means) == len(studies)
  }
  return {method: grid for method, grid in by_method.items() if grid.test.size}


def _grid(means: list[Means]) -> MeanGrid:
  keys = [key for key in means[0] if all(key in row for row in means)]
  values = np.array([[row[key] for key in keys] for row in means])
  values = values.reshape(len(means), len(keys), 2)  # Also if none is shared.
  return MeanGrid(values[..., 0], values[..., 1])


def _means(cell: Cell, metric: str, scale: Mapping[str, float]) -> Means:
  """The means of each setting over the seeds of tuning.

  A condition may multiply hyperparameters, see `scale`. Settings are identified
  by their values before that.
  """
  runs, names = cell.tuning_runs, cell.tuned
  scores = cell.criterion.scores(runs.history)
  test = runs.history.values(metric)[:, -1]
  return {
    tuple(
      f"{setting.hyperparameters[name] / scale.get(name, 1):g}"
      for name in names
    ): tuple(np.nan_to_num(v[setting.points].mean()) for v in (scores, test))
    for setting in selection.group_by_seed(runs.points)
  }


def regrets(found: dict[str, MeanGrid]) -> dict[str, dict[str, np.ndarray]]:
  """The regrets of each method, in points; the first axis is where it runs.

  Args:
    found: what `grids` returns.

  Returns:
    method -> 'tuned' there, [T]; tuned under one 'other' condition, [T, T - 1];
    one setting for 'all others', [T].
  """
  best = np.max([_at(grid.test, grid.best_here) for grid in found.values()], 0)
  return {
    method: {
      "tuned": 100 * (best - _at(grid.test, grid.best_here)),
      "other": 100 * (best[:, None] - _elsewhere(grid)),
      "all others": 100 * (best - _at(grid.test, grid.of_others)),
    }
    for method, grid in found.items()
  }


def _at(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
  """The value of each condition's setting, [T], of values [T, H]."""
  return np.take_along_axis(values, chosen[:, None], 1)[:, 0]


def _elsewhere(grid: MeanGrid) -> np.ndarray:
  """Test accuracies of the settings that other conditions chose. [T, T - 1]"""
  carried = grid.test[:, grid.best_here]  # [where it runs, where it was chosen]
  size = len(carried)
  return carried[~np.eye(size, dtype=bool)].reshape(size, size - 1)


def table(standing: Leaderboard) -> ReportTable | None:
  """Mean regrets over the conditions, with 95 % intervals over these."""
  by_method = grids(standing)
  if not by_method or len(next(iter(by_method.values())).test) < 2:
    return None
  rows, numbers = [], NumberFormat("regret", 2)
  for method, kinds in regrets(by_method).items():
    by_condition = kinds["tuned"], kinds["other"].mean(1), kinds["all others"]
    means = [statistics.mean_interval(values) for values in by_condition]
    names = ("Tuned there", "Tuned under another", "Tuned under all others")
    row = {
      name: Entry(*numbers.texts(mean))
      for name, mean in zip(names, means, strict=True)
    }
    worst = {"Worst": numbers.value(kinds["other"].max())}
    rows.append((means[1].estimate, {"Method": method} | row | worst))
  return ReportTable([row for _, row in sorted(rows, key=lambda r: r[0])], 1)
