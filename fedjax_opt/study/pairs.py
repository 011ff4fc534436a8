"""Every two methods of a study, compared seed by seed.

Under each condition each pair of methods has a paired t-test over the seeds
that both ran with. The p-values of all pairs of the whole study, over all
conditions, are adjusted by Holm's method: where all methods are equal, at most
5 % of the studies then call any two of them different.

Axis letters: `n` seeds, `P` pairs.
"""

import itertools
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.results.metric_names import bounds, direction
from fedjax_opt.study.bootstrap import Interval, student_quantile
from fedjax_opt.study.cells import Cell
from fedjax_opt.study.power import LEVEL, smallest_difference

# Values whose difference, relative to the larger one, is smaller than this
# count as equal: metrics are sums in float32.
CLOSE = 1e-6


class Pair(NamedTuple):
  """Two methods under one condition.

  Attributes:
    first: cell of one method.
    second: cell of the other.
    difference: how much better the first is: the mean over the seeds that both
      have, with its 95 % t interval. The interval is for this pair alone, not
      adjusted. The ends are NaN where the differences have no width.
    sd: standard deviation of the differences, NaN where they have no width.
    num_seeds: how many seeds both have.
    p: two-sided p-value that the difference is 0; NaN with fewer than two
      seeds.
    adjusted: the p-value adjusted by Holm's method over all pairs of the study.
    detectable: the smallest true difference that the t-test finds with 80 %
      power at the level of Holm's first step, 0.05 / pairs; NaN without `sd`.
  """

  first: Cell
  second: Cell
  difference: Interval
  sd: float
  num_seeds: int
  p: float
  adjusted: float = np.nan
  detectable: float = np.nan

  @property
  def has_test(self) -> bool:
    """Whether there is a p-value."""
    return bool(np.isfinite(self.p))

  def swapped(self) -> "Pair":
    """The same pair in the other order."""
    estimate, low, high = self.difference
    return self._replace(
      first=self.second,
      second=self.first,
      difference=Interval(-estimate, -high, -low),
    )


def all_pairs(groups: Iterable[Sequence[Cell]], metric: str) -> list[Pair]:
  """All pairs of a study.

  Args:
    groups: for each condition, the cells that are compared.
    metric: the metric by which they are compared.
  """
  couples = [
    couple for cells in groups for couple in itertools.combinations(cells, 2)
  ]
  values = [_shared_values(*couple, metric) for couple in couples]
  p = np.full(len(couples), np.nan)
  num_seeds = np.array([len(a) for a, _ in values], int)
  for number in set(num_seeds) - {0}:  # A call for each pair takes long.
    of_number = np.flatnonzero(num_seeds == number)
    p[of_number] = p_values(*np.stack([values[i] for i in of_number], axis=-1))
  pairs = [
    _pair(*couple, metric, *of_pair)
    for couple, *of_pair in zip(couples, values, p, strict=True)
  ]
  adjusted = holm(p)
  num_tests = max(int(np.isfinite(adjusted).sum()), 1)
  return [
    pair._replace(adjusted=float(p), detectable=_detectable(pair, num_tests))
    for pair, p in zip(pairs, adjusted, strict=True)
  ]


def t_interval(values: np.ndarray, level: float = LEVEL) -> Interval:
  """The mean over seeds with Student's t interval.

  Args:
    values: [n], at least two.
    level: 1 less the confidence.
  """
  mean, num = np.mean(values), len(values)
  error = np.std(values, ddof=1) / np.sqrt(num)
  half = student_quantile(1 - level, num - 1) * error
  return Interval(float(mean), float(mean - half), float(mean + half))


def _shared_values(first: Cell, second: Cell, metric: str) -> np.ndarray:
  """[2, n], values of both with the seeds that they share; larger is better."""
  by_seed = first.by_seed(metric), second.by_seed(metric)
  seeds = [seed for seed in by_seed[0] if seed in by_seed[1]]
  sign = 1 if direction(metric) == "max" else -1
  return sign * np.array([[of[seed] for seed in seeds] for of in by_seed])


def _pair(
  first: Cell, second: Cell, metric: str, values: np.ndarray, p: float
) -> Pair:
  a, b = values
  if not a.size:
    return Pair(first, second, Interval(np.nan), np.nan, 0, np.nan)
  sd, difference = np.nan, Interval(float(np.mean(a - b)))
  if len(a) > 1 and _has_width(a, b):
    sd = float(np.std(a - b, ddof=1))
    low, high = bounds(metric)
    difference = t_interval(a - b).within(low - high, high - low)
  return Pair(first, second, difference, sd, len(a), float(p))


def _detectable(pair: Pair, num_pairs: int) -> float:
  if np.isnan(pair.sd):
    return np.nan
  return smallest_difference(pair.num_seeds, pair.sd, num_pairs=num_pairs)


def _has_width(a: np.ndarray, b: np.ndarray) -> np.ndarray:
  """Whether values vary by more than rounding. [n, ...] -> [...]."""
  return np.ptp(a - b, axis=0) > CLOSE * _size(a, b)


def _size(a: np.ndarray, b: np.ndarray) -> np.ndarray:
  """The largest absolute value. [n, ...] -> [...]."""
  return np.abs([a, b]).max(axis=(0, 1))


def p_values(a: Any, b: Any) -> np.ndarray:
  """Two-sided p-values that two methods have the same mean.

  They are from the paired t-test. Where the differences have no width, t does
  not exist, and they are from the sign test: 2^(1 - n) if all n differences
  have the same sign, and 1 if all are 0.

  Args:
    a: values of one method. [n, ...].
    b: values of the other method with the same seeds. [n, ...].

  Returns:
    [...], NaN with fewer than two seeds.
  """
  from scipy import stats  # Slow to import.

  a, b = np.asarray(a, float), np.asarray(b, float)
  if len(a) < 2:
    return np.full(a.shape[1:], np.nan)
  with warnings.catch_warnings(action="ignore"):  # Where there is no width.
    p = stats.ttest_rel(a, b).pvalue
  differs = np.abs((a - b).mean(axis=0)) > CLOSE * _size(a, b)
  of_signs = np.where(differs, 2.0 ** (1 - len(a)), 1.0)
  return np.where(_has_width(a, b), p, of_signs)


def holm(p: Any) -> np.ndarray:
  """p-values of one family, adjusted by Holm's step-down method.

  Args:
    p: [..., P], NaN where there is no test; NaN does not count.

  Returns:
    [..., P], at most 1. If all pairs with a value below a level are called
    different, the probability of any false call is at most that level.

  Source: Holm 1979, "A simple sequentially rejective multiple test procedure".
  """
  p = np.asarray(p, float)
  order = np.argsort(p, axis=-1)  # NaN is last.
  num = np.isfinite(p).sum(axis=-1, keepdims=True)
  factors = num - np.arange(p.shape[-1])
  ascending = np.take_along_axis(p, order, -1) * factors
  steps = np.minimum(np.maximum.accumulate(ascending, axis=-1), 1)
  adjusted = np.empty_like(p)
  np.put_along_axis(adjusted, order, steps, -1)
  return adjusted
