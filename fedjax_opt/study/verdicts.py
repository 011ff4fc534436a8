"""What a study says: values with intervals, and what can be told from chance.

The rule of every verdict is in words in report/templates/report.html.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.results import history as histories
from fedjax_opt.results.names import shown_name
from fedjax_opt.study import bootstrap, pairs, statistics, words
from fedjax_opt.study.bootstrap import Interval
from fedjax_opt.study.cells import Cell
from fedjax_opt.study.pairs import LEVEL, SAME, Pair
from fedjax_opt.study.setup import Clients

BEST, WORSE, TIED = "best", "worse", "not told apart"
DIVERGED, COLLAPSED = "diverged", "collapsed"
# The default smallest difference of interest for accuracies: half a point.
_MIN_EFFECT_OF_SHARES = 0.005
_NONE = Interval(np.nan)


class Verdict(NamedTuple):
  """What is said of one cell.

  Attributes:
    cell: the cell.
    value: mean of the metric over the seeds of the report, with its interval,
      which is cut at the metric's limits, such as 0 and 1.
    num_seeds: number of seeds of the report.
    num_diverged: number of these that diverged; if any did, `value` is NaN.
    verdict: 'best', 'worse', 'not told apart', 'diverged' or 'collapsed'.
    pair: the best and this method, see `Pair`; None for the best itself, and
      for a method that diverged or collapsed. If several are best, the pair has
      the one from which this method is told apart least.
    remark: a further remark on the difference to the best, or "".
    probability: of a run of the best being better than a run of this method.
      The ends are NaN where the interval would have no width, for example if
      every run of the best is better: a few such runs prove no certainty.
    to_target: cost -> its mean over seeds until the metric reached the target,
      NaN if a seed never did or the cost was not measured; {} without a target.
  """

  cell: Cell
  value: Interval
  num_seeds: int
  num_diverged: int
  verdict: str
  pair: Pair | None
  remark: str
  probability: Interval
  to_target: dict[str, float]

  @property
  def behind(self) -> Interval:
    """By how much it is worse than the best; see `Pair.difference`."""
    return self.pair.difference if self.pair else _NONE


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
  min_effect: float | None = None

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
    """method -> its name for people, different for each method."""
    names = [shown_name(" ".join(m.split())) for m in self.methods]
    unique = words.unique(name or "(no name)" for name in names)
    return dict(zip(self.methods, unique, strict=True))

  @property
  def is_larger_better(self) -> bool:
    """Whether larger values of the metric are better."""
    return histories.direction(self.metric) == "max"

  def cell(self, method: str, condition: Mapping[str, Any]) -> Cell | None:
    """The cell of a method under a condition; None if there is none."""
    for cell in self.cells:
      if cell.method == method and dict(cell.condition) == dict(condition):
        return cell
    return None

  def under(self, condition: Mapping[str, Any]) -> dict[str, Cell]:
    """The cells of a condition, by method."""
    found = {m: self.cell(m, condition) for m in self.methods}
    return {method: cell for method, cell in found.items() if cell is not None}

  @property
  def smallest_effect(self) -> float:
    """The smallest difference of interest, in the metric's unit."""
    if self.min_effect is not None:
      return self.min_effect
    return _MIN_EFFECT_OF_SHARES if histories.is_fraction(self.metric) else 0.0

  @functools.cached_property
  def pairs(self) -> list[Pair]:
    """Every two methods under each condition, if no seed of theirs diverged."""
    groups = (self.under(condition).values() for condition in self.conditions)
    whole = ([c for c in cells if _is_whole(self, c)] for cells in groups)
    return pairs.of_conditions(whole, self.metric)

  @functools.cached_property
  def verdicts(self) -> list[Verdict]:
    """The verdict on every cell, condition after condition."""
    found = []
    for condition in self.conditions:
      cells = list(self.under(condition).values())
      best = _best(self, cells)
      found += [_verdict(self, cell, best) for cell in cells]
    return found


def check_min_effect(name: str, value: float | None, metric: str) -> None:
  """Checks a smallest effect of interest.

  Raises:
    ValueError: if it cannot be a difference of two values of the metric.
  """
  is_share = histories.is_fraction(metric)
  if value is None or 0 <= value < (1 if is_share else np.inf):
    return
  range_of = "in [0, 1), such as 0.005 for half a point"
  raise ValueError(
    f"{name}={value:g}: must be a difference of two values of {metric}, "
    f"{range_of if is_share else 'not below 0'}"
  )


def _is_whole(study: JudgedStudy, cell: Cell) -> bool:
  """Whether no seed of the report diverged."""
  return bool(np.isfinite(cell.final(study.metric)).all())


def _best(study: JudgedStudy, cells: Sequence[Cell]) -> list[Cell]:
  """The cells with the best mean, without those that diverged or collapsed."""
  usable = [
    cell
    for cell in cells
    if _is_whole(study, cell) and not cell.has_collapsed(study.metric)
  ]
  if not usable:
    return []
  values = [cell.by_seed(study.metric) for cell in usable]
  # A mean over other seeds may be better only by the luck of these seeds.
  shared = set.intersection(*map(set, values))
  means = [
    np.mean([v for s, v in each.items() if len(shared) < 2 or s in shared])
    for each in values
  ]
  top = max(means) if study.is_larger_better else min(means)
  return [
    c for c, mean in zip(usable, means, strict=True) if is_same(mean, top)
  ]


def mean_of(metric: str, values: Any) -> Interval:
  """The mean over seeds; its interval is cut at the metric's limits.

  Args:
    metric: its name.
    values: its values for each seed. [n, ...].
  """
  mean, *ends = statistics.mean_interval(values)
  return bootstrap.plain(
    mean, *(np.clip(x, *histories.bounds(metric)) for x in ends)
  )


def is_same(one: float, other: float) -> bool:
  """Whether two means differ by rounding at most."""
  return abs(one - other) <= SAME * max(abs(one), abs(other))


def _verdict(study: JudgedStudy, cell: Cell, best: Sequence[Cell]) -> Verdict:
  values = cell.final(study.metric)
  pair, remark, wins, verdict = None, "", _NONE, BEST
  if not _is_whole(study, cell):
    verdict = DIVERGED
  elif cell.has_collapsed(study.metric):
    verdict = COLLAPSED
  elif not any(cell is one for one in best):
    # Those that are told apart least: without a test, or with the largest p.
    closeness = lambda pair: np.nan_to_num(pair.adjusted, nan=np.inf)
    pair = max((_against(study, one, cell) for one in best), key=closeness)
    is_worse = _is_clear(pair) and _is_of_interest(study, pair)
    verdict = WORSE if is_worse else TIED
    remark = _remark(study, pair)
    wins = probability(study.metric, pair.first.final(study.metric), values)
  has_run = cell.measured is not None
  return Verdict(
    cell,
    mean_of(study.metric, values),
    len(values) if has_run else 0,
    int((~np.isfinite(values)).sum()) if has_run else 0,
    verdict,
    pair,
    remark,
    wins,
    _to_target(study, cell),
  )


def _against(study: JudgedStudy, best: Cell, cell: Cell) -> Pair:
  """The pair of these two, the best first."""
  for pair in study.pairs:
    if pair.first is best and pair.second is cell:
      return pair
    if pair.first is cell and pair.second is best:
      return pair.turned()
  raise AssertionError("every pair of a condition is compared")


def _is_clear(pair: Pair) -> bool:
  """Whether the first one is better by more than chance."""
  return pair.difference.estimate > 0 and pair.adjusted < LEVEL


def _is_of_interest(study: JudgedStudy, pair: Pair) -> bool:
  least = study.smallest_effect
  return pair.difference.estimate >= least * (1 - SAME)


def _remark(study: JudgedStudy, pair: Pair) -> str:
  said = []
  if _is_clear(pair) and not _is_of_interest(study, pair):
    said.append("differs by less than the smallest effect of interest")
  known, size = pair.second.examples_of(study.metric), pair.difference.estimate
  if abs(size) < pair.second.grain(study.metric) * (1 - SAME):
    said.append(f"less than one of {known.size} examples")
  return "; ".join(said)


def probability(metric: str, one: np.ndarray, other: np.ndarray) -> Interval:
  """How probable it is that a run of one is better than a run of the other.

  An interval without a width becomes NaN: a few runs prove no certainty.

  Args:
    metric: the metric that says which run is better.
    one: values of one method's runs, [n] or [n, conditions].
    other: values of the other method's runs.
  """
  found = statistics.probability_of_improvement(
    one, other, direction=histories.direction(metric) or "min"
  )
  return found if found.high > found.low else Interval(found.estimate)


def _to_target(study: JudgedStudy, cell: Cell) -> dict[str, float]:
  if study.target is None:
    return {}

  def needed(cost: str) -> float:
    if cell.spent(cost) is None:
      return np.nan
    history, target = cell.measured.history, study.target
    of_seeds = statistics.to_target(history, study.metric, target, cost)
    return float(of_seeds.mean())

  has = lambda cost: (
    cost != histories.TIME or cell.spent(histories.TIME) is not None
  )
  return {cost: needed(cost) for cost in filter(has, histories.COSTS)}


# How settings were chosen.


def scores_of(cell: Cell) -> np.ndarray:
  """The scores of the settings that were tried. [seeds of tuning, settings]."""
  of_points = cell.criterion.scores(cell.tried.history)
  settings = cell.tuning.settings
  num = min(len(setting.points) for setting in settings)
  return np.stack([of_points[each.points[:num]] for each in settings], 1)


def num_near_ties(cell: Cell) -> int | None:
  """How many settings tuning does not tell apart from the chosen one.

  Such a setting has 0 in the 95 % interval of its paired difference over the
  seeds of tuning, or its accuracy differs by less than one example. None if
  nothing was chosen, or with one seed.
  """
  if cell.tuning is None or cell.tuning.best is None:
    return None
  scores = scores_of(cell)
  if len(scores) < 2:
    return None
  best = scores[:, [cell.tuning.settings.index(cell.tuning.best)]]
  sign = 1 if cell.criterion.direction == "max" else -1
  ahead = statistics.paired_difference(sign * best + 0 * scores, sign * scores)
  least = cell.grain(cell.criterion.metric) * (1 - SAME)
  is_near = (ahead.low <= 0) | (ahead.estimate < least)
  return max(int(is_near.sum()) - 1, 0)  # The best itself does not count.


# Over all conditions.


def matrices_of(study: JudgedStudy) -> dict[str, np.ndarray]:
  """method -> the metric, [seeds, conditions]; {} if there is one condition.

  Only methods that ran under all conditions, with the same number of seeds.
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


def effect(study: JudgedStudy) -> str:
  """The smallest effect of interest in words: 0.5 points."""
  least = study.smallest_effect
  numbers = words.Numbers(study.metric)
  return f"{numbers.value(least)} points" if numbers.unit else f"{least:g}"


def compared(study: JudgedStudy) -> list[dict[str, Any]]:
  """The conditions under which several methods ran."""
  return [each for each in study.conditions if len(study.under(each)) > 1]
