"""Selection of the best grid point of a run.

Axis letters: `S` grid points (hyperparameters x seeds).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.checks.fields import NAME, checked, integer, one_of
from fedjax_opt.results import metric_names
from fedjax_opt.results.history import History

# The hyperparameters of one grid point by name, the seed among them.
Point = Mapping[str, Any]
_RULES = ("last", "best", "mean_last_n", "worst_last_n")


class Setting(NamedTuple):
  """One choice of hyperparameters, and the points that ran it.

  Attributes:
    hyperparameters: by name, without the seed.
    points: indices of the grid points, one for each seed, in the order of the
      seeds, so that points of two settings are paired by their places.
  """

  hyperparameters: dict[str, Any]
  points: list[int]


@checked()
def group_by_seed(points: Sequence[Point]) -> list[Setting]:
  """Groups grid points that differ in `seed` only, in order of appearance."""
  settings: dict[str, Setting] = {}
  for index, point in enumerate(points):
    setting = {name: value for name, value in point.items() if name != "seed"}
    key = repr(sorted(setting.items()))
    settings.setdefault(key, Setting(setting, [])).points.append(index)
  for setting in settings.values():
    setting.points.sort(key=lambda index: points[index].get("seed", 0))
  return list(settings.values())


@checked()
def varying(points: Sequence[Point]) -> list[str]:
  """Names of the hyperparameters that are not the same at all points."""
  names = dict.fromkeys(name for point in points for name in point)
  return [n for n in names if len({repr(p.get(n)) for p in points}) > 1]


@checked(
  metric=NAME,
  direction=one_of("max", "min"),
  rule=one_of(*_RULES),
  n=integer(1),
)
@dataclasses.dataclass(frozen=True)
class Criterion:
  """The score by which settings of the hyperparameters are compared.

  Attributes:
    metric: name of the metric.
    direction: 'max' if larger values are better, 'min' if smaller ones are. By
      default what the metric's name says, such as 'min' of a loss; else 'max'.
    rule: how the score follows from the values at the evaluated rounds: the
      'last' value, the 'best' one, the mean of the last `n`, 'mean_last_n', or
      the worst of the last `n`, 'worst_last_n'. With fewer than `n` evaluated
      rounds, all of them count. Rules over several rounds leave out the model
      before the first round, which is that of all settings.
    n: evaluated rounds in 'mean_last_n' and 'worst_last_n'.
  """

  metric: str = "test_accuracy"
  direction: str | None = None
  rule: str = "last"
  n: int = 1

  def __post_init__(self):
    if self.direction is None:
      way = metric_names.direction(self.metric) or "max"
      object.__setattr__(self, "direction", way)

  def scores(self, history: History) -> np.ndarray:
    """The score of every point, NaN if it has diverged. [S] float64."""
    values = history.values(self.metric)
    best_of, worst_of = np.max, np.min
    if self.direction == "min":
      best_of, worst_of = worst_of, best_of
    trained = values[:, 1:] if history.rounds[:1] == [0] else values
    trained = trained if trained.size else values
    last_n = trained[:, -self.n :]
    if self.rule == "mean_last_n":
      return last_n.mean(axis=1)
    if self.rule == "worst_last_n":
      return worst_of(last_n, axis=1)
    if self.rule == "last":
      return values[:, -1]
    # A round without a value never wins; a diverged point has no score.
    worst_value = worst_of([-np.inf, np.inf])
    scores = best_of(np.where(np.isnan(trained), worst_value, trained), axis=1)
    no_score = history.diverged()[:, -1] | ~np.isfinite(scores)
    return np.where(no_score, np.nan, scores)

  def __str__(self) -> str:
    rule = self.rule.replace("_last_n", f" of last {self.n}")
    word = "highest" if self.direction == "max" else "lowest"
    return f"{word} {self.metric} ({rule})"


@checked()
def rank(
  history: History, points: Sequence[Point], criterion: Criterion
) -> list[Setting]:
  """All settings, best first.

  Settings are sorted first by the number of diverged seeds, fewest first,
  because the mean over only the other seeds would be too good. Then they are
  sorted by the mean of the score over the seeds that did not diverge. Ties keep
  the order of the grid.

  Args:
    history: the metrics of every point.
    points: hyperparameters of every grid point. [S] mappings.
    criterion: gives the score.

  Returns:
    The settings of `group_by_seed`, sorted.
  """
  scores = criterion.scores(history)
  sign = -1.0 if criterion.direction == "max" else 1.0

  def key(setting: Setting) -> tuple[int, float]:
    num_diverged, mean = over_seeds(scores[setting.points])
    return num_diverged, np.inf if np.isnan(mean) else sign * mean

  return sorted(group_by_seed(points), key=key)


def over_seeds(scores: np.ndarray) -> tuple[int, float]:
  """The number of seeds of a setting without a score, and the others' mean.

  Args:
    scores: the scores of the seeds, NaN for none. [n]

  Returns:
    The number, and the mean; NaN if there is no score.
  """
  finite = scores[np.isfinite(scores)]
  mean = float(finite.mean()) if finite.size else np.nan
  return scores.size - finite.size, mean


@checked()
def select(
  history: History, points: Sequence[Point], criterion: Criterion
) -> int | None:
  """The grid point to report: of the best setting, the first seed that is ok.

  Args:
    history: the metrics of every point.
    points: hyperparameters of every grid point. [S] mappings.
    criterion: gives the score by which `rank` sorts the settings.

  Returns:
    An index of `points`; None if every point diverged or no round was
    evaluated.
  """
  if not history.rounds:
    return None
  scores = criterion.scores(history)
  for setting in rank(history, points, criterion):
    for point in setting.points:
      if np.isfinite(scores[point]):
        return point
  return None
