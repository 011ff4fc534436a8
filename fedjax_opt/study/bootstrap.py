"""The bootstrap over seeds: resamples, and intervals made of them.

Runs with the same options and setting differ by their seed. The bootstrap draws
as many runs as there are, with replacement, and computes a statistic of them.
Many such resamples show how far the statistic may be from its true value. With
several tasks, the seeds of each task are drawn separately ("stratified"), as in
Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical
precipice".

Axis letters: `n` seeds, `T` tasks.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np

from fedjax_opt.checks import memory
from fedjax_opt.checks.fields import checked, integer, one_of
from fedjax_opt.checks.values import as_array, checked_array

NUM_RESAMPLES = 10_000
DIRECTION = one_of("max", "min")
# The most resampled means in memory at a time, 80 MB.
_MEANS_AT_ONCE = 10_000_000


class Interval(NamedTuple):
  """A statistic with the ends of its interval: floats, or arrays of one shape.

  Attributes:
    estimate: the statistic of the runs themselves.
    low: lower end; NaN if there is no interval.
    high: upper end; NaN if there is no interval.
  """

  estimate: Any
  low: Any = np.nan
  high: Any = np.nan

  @property
  def has_ends(self) -> bool:
    """Whether there is an interval, not only the statistic."""
    return bool(np.isfinite([self.low, self.high]).all())

  def within(self, low: float, high: float) -> "Interval":
    """The interval, its ends cut at the limits of what it is about."""
    ends = (np.clip(end, low, high) for end in (self.low, self.high))
    return as_floats(self.estimate, *ends)


@checked(num=integer(1), size=integer(1), num_tasks=integer(1))
def resamples(
  num: int, size: int, seed: int = 0, *, num_tasks: int | None = None
) -> np.ndarray:
  """Which runs each resample consists of, drawn with replacement.

  Args:
    num: number of resamples.
    size: n, the number of runs to draw from; as many are drawn.
    seed: the seed of NumPy's generator.
    num_tasks: T, to draw for each task on its own; None for one draw.

  Returns:
    [num, n] int64, or [num, n, T], indices from 0 to n - 1.

  Raises:
    TypeError: if an argument is no whole number.
    ValueError: if an argument is too small.
  """
  shape = (num, size) if num_tasks is None else (num, size, num_tasks)
  # `_counts`, how often each run is in each resample, takes memory too.
  memory.check_memory(f"{num} resamples take", 32 * math.prod(map(int, shape)))
  return np.random.default_rng(seed).integers(size, size=shape)


class Resampling(TypedDict, total=False):
  """The options of every interval; see `statistics.mean_interval`."""

  method: str
  num_resamples: int
  seed: int


@checked(
  confidence="(0, 1)",
  method=one_of("student", "percentile"),
  num_resamples=integer(1),
)
class Bootstrap(NamedTuple):
  """How intervals are made; see `statistics.mean_interval`."""

  confidence: float
  method: str = "student"
  num_resamples: int = NUM_RESAMPLES
  seed: int = 0

  def mean_ends(self, deviations: np.ndarray) -> Sequence[np.ndarray]:
    """The ends of the intervals of means, as distances from the means.

    Args:
      deviations: [n, P], differences of P quantities from their means over
        seeds.

    Returns:
      The distances below and above, [P] each; NaN with one seed.
    """
    num_seeds = len(deviations)
    if num_seeds == 1:
      return np.full((2, deviations.shape[1]), np.nan)
    counts = _kept_counts(self.num_resamples, num_seeds, self.seed, num_tasks=1)
    weights = counts[..., 0] / num_seeds
    step = max(_MEANS_AT_ONCE // len(weights), 1)
    ends = [
      self._tails(weights @ deviations[:, start : start + step])
      for start in range(0, deviations.shape[1], step)
    ]
    low, high = np.concatenate(ends, axis=1)
    if self.method == "percentile":
      return low, high
    error = deviations.std(axis=0, ddof=1) / np.sqrt(num_seeds)
    width = 2 * student_quantile(self.confidence, num_seeds - 1) * error
    # Student's width, divided below and above the mean as the bootstrap's is.
    spread = high - low
    wide = spread > 0
    below = np.where(wide, -low / np.where(wide, spread, 1), 0.5).clip(0, 1)
    return -below * width, (1 - below) * width

  def of_tasks(
    self,
    estimate: Any,
    resampled: Callable[..., np.ndarray],
    *scores: np.ndarray,
    counted: bool = False,
  ) -> Interval:
    """The interval of a statistic of runs of several tasks.

    The method "student" multiplies the distances of the resampled percentiles
    from the estimate by sqrt(n / (n - 1)) t / z. The root is there because the
    variance of resampled runs is too small by the factor (n - 1) / n. The ratio
    of Student's quantile t to the normal one z is there because that variance
    is itself an estimate. With one seed there is no interval.

    Args:
      estimate: a number, or [L].
      resampled: function from the resamples of each of `scores`,
        [num_resamples, n, T], to the statistic of each resample,
        [num_resamples] or [num_resamples, L].
      *scores: [n, T] each; the seeds of each are drawn separately.
      counted: whether `resampled` takes how often each run was drawn instead.
    """
    num_seeds = min(map(len, scores))
    if num_seeds == 1:
      return as_floats(estimate, estimate * np.nan, estimate * np.nan)
    draw = resamples
    if counted:
      draw = _kept_counts if scores[0].shape[1] == 1 else _counts
    drawn = (
      draw(self.num_resamples, len(x), self.seed + i, num_tasks=x.shape[1])
      for i, x in enumerate(scores)
    )
    low, high = self._tails(resampled(*drawn))
    if self.method == "percentile":
      return as_floats(estimate, low, high)
    freedom = sum((len(x) - 1) * x.shape[1] for x in scores)
    factor = np.sqrt(num_seeds / (num_seeds - 1)) * (
      student_quantile(self.confidence, freedom)
      / student_quantile(self.confidence, np.inf)
    )
    return as_floats(
      estimate,
      np.minimum(estimate - factor * (estimate - low), estimate),
      np.maximum(estimate + factor * (high - estimate), estimate),
    )

  def _tails(self, resampled: np.ndarray) -> np.ndarray:
    """[2, ...], the percentiles of [num, ...] that cut off equal tails."""
    tail = (1 - self.confidence) / 2
    return np.quantile(resampled, [tail, 1 - tail], axis=0)


def _counts(num: int, size: int, seed: int, num_tasks: int) -> np.ndarray:
  """[num, n, T] float64, how often each run is in each of the `resamples`."""
  indices = resamples(num, size, seed, num_tasks=num_tasks)
  at = (np.arange(len(indices))[:, None, None] * size + indices) * num_tasks
  at += np.arange(num_tasks)
  totals = np.bincount(at.ravel(), minlength=indices.size)
  return totals.reshape(indices.shape).astype(np.float64)


# Those of one task are small, and all methods of a study have the same.
_kept_counts = functools.lru_cache(maxsize=4)(_counts)


def as_floats(estimate: Any, low: Any, high: Any) -> Interval:
  """An interval whose scalars are Python floats."""
  return Interval(
    *(float(x) if np.ndim(x) == 0 else x for x in (estimate, low, high))
  )


@functools.cache
def student_quantile(confidence: float, freedom: float) -> float:
  """Half the width of Student's interval, in standard errors.

  Args:
    confidence: such as 0.95.
    freedom: degrees of freedom; infinity for the normal distribution.
  """
  from scipy import stats  # Slow to import.

  return float(stats.t.ppf((1 + confidence) / 2, freedom))


def number_array(name: str, values: Any, axes: str = "[n, ...]") -> np.ndarray:
  """The values as a float64 array that is not empty; see `checked_array`."""
  array = checked_array(name, values, axes)
  if not array.size:
    raise ValueError(f"{name}: is empty; must hold at least one number")
  return array.astype(np.float64)


def score_array(name: str, scores: Any, tasks: int | str = "T") -> np.ndarray:
  """The scores, given as [n] or [n, T], as [n, T] float64.

  Args:
    name: the argument's name.
    scores: value of the argument.
    tasks: how many tasks there must be; "T" for any number.
  """
  wanted = f"numbers of shape [n, {tasks}]"
  array = np.asarray(as_array(name, scores, wanted))
  array = array[:, None] if array.ndim == 1 else array
  return number_array(name, array, f"[n, {tasks}]")
