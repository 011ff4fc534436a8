"""What a study says: values with intervals, and what can be told from chance.

The rule of every verdict is in words in report/templates/report.html.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.results.history import COSTS, direction
from fedjax_opt.results.names import shown_name
from fedjax_opt.study import seed_statistics as statistics
from fedjax_opt.study import words
from fedjax_opt.study.bootstrap import Interval
from fedjax_opt.study.cells import Cell
from fedjax_opt.study.setup import Clients

BEST, WORSE, TIED, DIVERGED = "best", "worse", "not told apart", "diverged"
# Means that differ by less, relative to the larger one, are the same: metrics
# are sums in float32.
_SAME = 1e-6
# If two methods are equal, all of six seeds or more are in favour of one of
# them with a probability below 5 %; of five, with 6 %.
MIN_SEEDS_WITHOUT_WIDTH = 6
_NONE = Interval(np.nan, np.nan, np.nan)


class Verdict(NamedTuple):
  """What is said of one cell.

  Attributes:
    cell: which.
    value: mean of the metric over the seeds of the report, with its interval.
    num_seeds: seeds of the report.
    num_diverged: of these, how many diverged; then `value` is NaN.
    verdict: 'best', 'worse', 'not told apart' or 'diverged'.
    num_shared: seeds that it has in common with the best; 0 for the best
      itself, and for one that diverged.
    behind: by how much it is worse than the best, the mean of the paired
      differences with its interval; NaN for the best itself. The ends are NaN
      where the interval would have no width. If several are best, it is the
      difference to the one from which this method is told apart least.
    probability: that a run of the best is better than one of this method. The
      ends are NaN where the interval would have no width, as where every run
      of the best is better: a few runs are no certainty.
    to_target: cost -> its mean over seeds until the metric reached the target,
      NaN if a seed never did or the cost was not measured; {} without a target.
  """

  cell: Cell
  value: Interval
  num_seeds: int
  num_diverged: int
  verdict: str
  num_shared: int
  behind: Interval
  probability: Interval
  to_target: dict[str, float]


@dataclasses.dataclass(frozen=True, repr=False)
class JudgedStudy:
  """The cells of a study, a verdict on each, and what they share.

  See `study.Study`.
  """

  cells: tuple[Cell, ...]
  metric: str
  title: str = "Study"
  target: float | None = None
  about: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  command: str = ""
  notes: tuple[str, ...] = ()
  clients: Mapping[str, Clients] = dataclasses.field(default_factory=dict)

  @property
  def methods(self) -> list[str]:
    """The labels of the methods, in order."""
    return list(dict.fromkeys(cell.method for cell in self.cells))

  @property
  def conditions(self) -> list[dict[str, Any]]:
    """The conditions, in order."""
    found: list[dict[str, Any]] = []
    for cell in self.cells:
      if dict(cell.condition) not in found:
        found.append(dict(cell.condition))
    return found

  @property
  def labels(self) -> dict[str, str]:
    """method -> its name for people, another one for each."""
    names = [shown_name(" ".join(m.split())) for m in self.methods]
    unique = words.unique(name or "(no name)" for name in names)
    return dict(zip(self.methods, unique, strict=True))

  @property
  def is_larger_better(self) -> bool:
    """Whether larger values of the metric are better."""
    return direction(self.metric) == "max"

  def cell(self, method: str, condition: Mapping[str, Any]) -> Cell | None:
    """The cell of a method under a condition, if it is there."""
    for cell in self.cells:
      if cell.method == method and dict(cell.condition) == dict(condition):
        return cell
    return None

  def under(self, condition: Mapping[str, Any]) -> dict[str, Cell]:
    """The cells of a condition, by method."""
    found = {m: self.cell(m, condition) for m in self.methods}
    return {method: cell for method, cell in found.items() if cell is not None}

  @functools.cached_property
  def verdicts(self) -> list[Verdict]:
    """The verdict on every cell, condition after condition."""
    found = []
    for condition in self.conditions:
      cells = list(self.under(condition).values())
      best = _best(self, cells)
      found += [_verdict(self, cell, best) for cell in cells]
    return found


def _best(study: JudgedStudy, cells: Sequence[Cell]) -> list[Cell]:
  """The cells with the best mean of those of which no seed diverged."""
  whole = [c for c in cells if np.isfinite(c.final(study.metric)).all()]
  if not whole:
    return []
  values = [cell.by_seed(study.metric) for cell in whole]
  # Over other seeds a mean may be better by their luck alone.
  shared = set.intersection(*map(set, values))
  means = [
    np.mean([v for s, v in each.items() if len(shared) < 2 or s in shared])
    for each in values
  ]
  top = max(means) if study.is_larger_better else min(means)
  return [c for c, mean in zip(whole, means, strict=True) if is_same(mean, top)]


def is_same(one: float, other: float) -> bool:
  """Whether two means differ by rounding at most."""
  return abs(one - other) <= _SAME * max(abs(one), abs(other))


def _verdict(study: JudgedStudy, cell: Cell, best: Sequence[Cell]) -> Verdict:
  values = cell.final(study.metric)
  is_lost = ~np.isfinite(values)
  behind, probability, num_shared, verdict = _NONE, _NONE, 0, BEST
  if is_lost.any():
    verdict = DIVERGED
  elif not any(cell is one for one in best):
    compared = [(*_compare(study, one, cell), one) for one in best]
    verdict, behind, num_shared, one = min(compared, key=_clearness)
    probability = statistics.probability_of_improvement(
      one.final(study.metric),
      values,
      direction="max" if study.is_larger_better else "min",
    )
    if not probability.high > probability.low:
      probability = Interval(probability.estimate, np.nan, np.nan)
  has_run = cell.measured is not None
  return Verdict(
    cell,
    statistics.mean_interval(values),
    len(values) if has_run else 0,
    int(is_lost.sum()) if has_run else 0,
    verdict,
    num_shared,
    behind,
    probability,
    _to_target(study, cell),
  )


def _clearness(found: tuple[str, Interval, int, Cell]) -> tuple[bool, float]:
  """How clearly two are told apart: least by a missing end, then a low one."""
  verdict, behind, *_ = found
  return verdict == WORSE, -np.inf if np.isnan(behind.low) else behind.low


def _compare(
  study: JudgedStudy, best: Cell, cell: Cell
) -> tuple[str, Interval, int]:
  """The verdict on a cell, its paired difference to the best, and its seeds.

  The difference is over the seeds that both have.
  """
  one, other = best.by_seed(study.metric), cell.by_seed(study.metric)
  shared = [seed for seed in one if seed in other]
  if not shared:
    return TIED, _NONE, 0
  sign = 1 if study.is_larger_better else -1
  ours, theirs = (
    np.array([sign * values[seed] for seed in shared])
    for values in (one, other)
  )
  behind = statistics.paired_difference(ours, theirs)
  # Rounding is no width.
  if np.ptp(ours - theirs) <= _SAME * np.abs([ours, theirs]).max():
    behind = Interval(behind.estimate, np.nan, np.nan)
  is_worse = behind.low > 0
  if np.isnan(behind.low):
    is_worse = behind.estimate > 0 and len(shared) >= MIN_SEEDS_WITHOUT_WIDTH
  return WORSE if is_worse else TIED, behind, len(shared)


def _to_target(study: JudgedStudy, cell: Cell) -> dict[str, float]:
  if study.target is None:
    return {}

  def needed(cost: str) -> float:
    if cell.spent(cost) is None:
      return np.nan
    history, target = cell.measured.history, study.target
    of_seeds = statistics.to_target(history, study.metric, target, cost)
    return float(of_seeds.mean())

  return {cost: needed(cost) for cost in COSTS}


# How settings were chosen.


def scores_of(cell: Cell) -> np.ndarray:
  """The scores of the settings that were tried. [seeds of tuning, settings]."""
  of_points = cell.criterion.scores(cell.tried.history)
  settings = cell.tuning.settings
  num = min(len(setting.points) for setting in settings)
  return np.stack([of_points[each.points[:num]] for each in settings], 1)


def num_near_ties(cell: Cell) -> int | None:
  """How many settings tuning does not tell apart from the chosen one.

  The 95 % interval of their paired difference over the seeds of tuning has 0 in
  it. None if nothing was chosen, or with one seed.
  """
  if cell.tuning is None or cell.tuning.best is None:
    return None
  scores = scores_of(cell)
  if len(scores) < 2:
    return None
  best = scores[:, [cell.tuning.settings.index(cell.tuning.best)]]
  sign = 1 if cell.criterion.direction == "max" else -1
  ahead = statistics.paired_difference(sign * best + 0 * scores, sign * scores)
  return max(int(np.sum(ahead.low <= 0)) - 1, 0)  # Without the best itself.


# Over all conditions.


def matrices_of(study: JudgedStudy) -> dict[str, np.ndarray]:
  """method -> the metric, [seeds, conditions]; {} if there is one condition.

  Of methods that ran under all conditions with as many seeds.
  """
  conditions, found = study.conditions, {}
  for method in study.methods if len(conditions) > 1 else ():
    cells = [study.cell(method, condition) for condition in conditions]
    if all(cell is not None and cell.measured is not None for cell in cells):
      columns = [cell.final(study.metric) for cell in cells]
      if len(set(map(len, columns))) == 1:
        found[method] = np.stack(columns, 1)
  return found


def overall(study: JudgedStudy) -> dict[str, Interval]:
  """method -> interquartile mean over all conditions and seeds."""
  matrices = matrices_of(study)
  return {m: statistics.interquartile_mean(v) for m, v in matrices.items()}


# In words.


def numbers_of(study: JudgedStudy) -> words.Numbers:
  """How the values of a study are written, everywhere."""
  return words.numbers_of(study.metric, [v.value for v in study.verdicts])


def names_of(study: JudgedStudy) -> dict[str, str]:
  """method -> its name in a sentence."""
  return {m: words.name(label) for m, label in study.labels.items()}


def compared(study: JudgedStudy) -> list[dict[str, Any]]:
  """The conditions under which several methods ran."""
  return [each for each in study.conditions if len(study.under(each)) > 1]
