"""What is said of cells: values with intervals, and what is told from chance.

Of the cells of a condition, those that neither diverged nor collapsed are
usable. The best is the usable cell with the best mean m over seeds; cell c is

  worse            if  d > 0,  d >= min_effect  and  p < 0.05
  not told apart   otherwise

where d is by how much the best is better, on average over the seeds that both
have, and p is the p-value of their paired test, adjusted for all pairs of the
study (pairs.py).
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.results.metric_names import (
  COSTS,
  TIME,
  bounds,
  direction,
)
from fedjax_opt.study import statistics
from fedjax_opt.study.bootstrap import Interval
from fedjax_opt.study.cells import Cell
from fedjax_opt.study.pairs import CLOSE, LEVEL, Pair

BEST, WORSE, TIED = "best", "worse", "not told apart"
DIVERGED, COLLAPSED = "diverged", "collapsed"
_LITTLE = "differs by less than the smallest effect of interest"
_NONE = Interval(np.nan)


class Verdict(NamedTuple):
  """What is said of one cell.

  Attributes:
    cell: the cell.
    value: mean of the metric over the seeds of the report, with its interval,
      which is cut at the metric's limits, such as 0 and 1.
    num_seeds: number of seeds of the report.
    num_diverged: number of these that diverged; if any did, `value` is NaN.
    kind: 'best', 'worse', 'not told apart', 'diverged' or 'collapsed'.
    pair: the best and this method, see `Pair`; None for the best itself, and
      for a method that diverged or collapsed. If several are best: the pair
      with the largest p-value, or one without a test.
    is_little: whether it is clearly behind, but by less than is of interest.
    grain_words: that it is behind by less than one example, in words; "" if it
      is not.
    probability: how probable it is that the best's run beats this method's.
      The ends are NaN where the interval would have no width, for example if
      every run of the best is better: a few such runs prove no certainty.
    to_target: cost -> its mean over seeds until the metric reached the target,
      NaN if a seed never did or the cost was not measured; {} without a target.
  """

  cell: Cell
  value: Interval
  num_seeds: int
  num_diverged: int
  kind: str
  pair: Pair | None
  is_little: bool
  grain_words: str
  probability: Interval
  to_target: dict[str, float]

  @property
  def remark(self) -> str:
    """A further remark on the difference to the best, or ""."""
    little = _LITTLE if self.is_little else ""
    return "; ".join(filter(None, [little, self.grain_words]))

  @property
  def behind(self) -> Interval:
    """By how much it is worse than the best; see `Pair.difference`."""
    return self.pair.difference if self.pair else _NONE


def check_min_effect(value: float | None, metric: str) -> None:
  """Checks a smallest effect of interest.

  Raises:
    ValueError: if it cannot be a difference of two values of the metric.
  """
  is_share = bounds(metric) == (0, 1)
  if value is None or 0 <= value < (1 if is_share else np.inf):
    return
  range_of = "in [0, 1), such as 0.005 for half a point"
  raise ValueError(
    f"min_effect={value:g}: must be a difference of two values of {metric}, "
    f"{range_of if is_share else 'not below 0'}"
  )


def check_target(value: float | None, metric: str) -> None:
  """Checks a value of a metric whose cost is asked for.

  Raises:
    ValueError: if the metric cannot have it, or is a fraction and it is 0.
  """
  low, high = bounds(metric)
  is_share = (low, high) == (0, 1)
  if value is None or (low <= value <= high and not (is_share and value == 0)):
    return
  if is_share:
    raise ValueError(
      f"target={value:g}: {metric} is a fraction; must be in (0, 1], such as "
      "0.85 for 85 %"
    )
  raise ValueError(f"target={value:g}: {metric} is in [{low:g}, {high:g}]")


def verdicts_on(
  cells: Sequence[Cell],
  pairs: Sequence[Pair],
  metric: str,
  min_effect: float,
  target: float | None,
) -> list[Verdict]:
  """The verdicts on the cells of a condition.

  Args:
    cells: all of the condition.
    pairs: every two of them of which no seed diverged; perhaps others too.
    metric: the metric by which they are compared.
    min_effect: the smallest difference of interest.
    target: value of the metric whose cost is told; None for no such cost.
  """
  best = _best(cells, metric)
  return [
    _verdict(cell, best, pairs, metric, min_effect, target) for cell in cells
  ]


def _usable(cells: Sequence[Cell], metric: str) -> list[Cell]:
  """Those that neither diverged nor collapsed."""
  is_lost = lambda cell: cell.has_diverged(metric) or cell.has_collapsed(metric)
  return [cell for cell in cells if not is_lost(cell)]


def shared_seeds(cells: Sequence[Cell], metric: str) -> set[int]:
  """The seeds that decide which cell of a condition is best; empty for all.

  If seeds differ, two shared ones or more decide: other seeds may be better
  only by luck.
  """
  seeds = [set(cell.report_runs.seeds) for cell in _usable(cells, metric)]
  shared = set.intersection(*seeds) if seeds else set()
  return shared if len(shared) > 1 and shared != set.union(*seeds) else set()


def _best(cells: Sequence[Cell], metric: str) -> list[Cell]:
  """The cells with the best mean, without those that diverged or collapsed."""
  usable, shared = _usable(cells, metric), shared_seeds(cells, metric)
  if not usable:
    return []
  means = [
    np.mean([v for s, v in by_seed.items() if s in shared or not shared])
    for by_seed in (cell.by_seed(metric) for cell in usable)
  ]
  top = max(means) if direction(metric) == "max" else min(means)
  return [
    cell
    for cell, mean in zip(usable, means, strict=True)
    if math.isclose(mean, top, rel_tol=CLOSE)
  ]


def mean_within_bounds(metric: str, values: Any) -> Interval:
  """The mean over seeds; its interval is cut at the metric's limits.

  Args:
    metric: its name.
    values: its values for each seed. [n, ...].
  """
  return statistics.mean_interval(values).within(*bounds(metric))


def _verdict(cell, best, pairs, metric, min_effect, target) -> Verdict:
  values = cell.final(metric)
  pair, is_little, grain_words, wins, kind = None, False, "", _NONE, BEST
  if cell.has_diverged(metric):
    kind = DIVERGED
  elif cell.has_collapsed(metric):
    kind = COLLAPSED
  elif not any(cell is other for other in best):
    # The pair without a test, or with the largest p-value.
    closeness = lambda pair: np.nan_to_num(pair.adjusted, nan=np.inf)
    pair = max((_against(other, cell, pairs) for other in best), key=closeness)
    is_of_interest = pair.difference.estimate >= min_effect * (1 - CLOSE)
    is_clear = pair.difference.estimate > 0 and pair.adjusted < LEVEL
    kind = WORSE if is_clear and is_of_interest else TIED
    is_little = is_clear and not is_of_interest
    grain_words = _grain_words(pair, metric)
    wins = probability(metric, pair.first.final(metric), values)
  has_run = cell.report_runs is not None
  return Verdict(
    cell,
    mean_within_bounds(metric, values),
    len(values) if has_run else 0,
    int((~np.isfinite(values)).sum()) if has_run else 0,
    kind,
    pair,
    is_little,
    grain_words,
    wins,
    {} if target is None else _to_target(cell, metric, target),
  )


def _against(best: Cell, cell: Cell, pairs: Sequence[Pair]) -> Pair:
  """The pair of these two, the best first."""
  for pair in pairs:
    if pair.first is best and pair.second is cell:
      return pair
    if pair.first is cell and pair.second is best:
      return pair.swapped()
  raise AssertionError("every pair of a condition is compared")


def _grain_words(pair: Pair, metric: str) -> str:
  """That they differ by less than one example; "" if they do not."""
  example_set, size = pair.second.examples_of(metric), pair.difference.estimate
  if abs(size) < pair.second.grain(metric) * (1 - CLOSE):
    return f"less than one of {example_set.size} examples"
  return ""


def probability(metric: str, one: np.ndarray, other: np.ndarray) -> Interval:
  """How probable it is that a run of one is better than a run of the other.

  An interval without a width becomes NaN: a few runs prove no certainty.

  Args:
    metric: the metric that says which run is better.
    one: values of one method's runs, [n] or [n, conditions].
    other: values of the other method's runs.
  """
  wins = statistics.probability_of_improvement(
    one, other, direction=direction(metric) or "min"
  )
  return wins if wins.high > wins.low else Interval(wins.estimate)


def _to_target(cell: Cell, metric: str, target: float) -> dict[str, float]:
  def needed(cost: str) -> float:
    if cell.spent(cost) is None:
      return np.nan
    history = cell.report_runs.history
    return float(statistics.to_target(history, metric, target, cost).mean())

  is_shown = lambda cost: cost != TIME or cell.spent(TIME) is not None
  return {cost: needed(cost) for cost in filter(is_shown, COSTS)}
