"""The bootstrap over seeds: resamples, and intervals made of them.

Runs with the same settings differ by their seed. The bootstrap draws as many of
them, with replacement, and computes a statistic again; many such resamples show
how far it may be from its true value. Over several tasks the seeds of each task
are drawn on their own ("stratified"), as in Agarwal et al. 2021, "Deep
reinforcement learning at the edge of the statistical precipice".

Axis letters: `n` seeds, `T` tasks.
"""

from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.checks import values as checks
from fedjax_opt.checks.fields import checked, choice, number, whole

NUM_RESAMPLES = 10_000
METHODS = ("student", "percentile")
# What the arguments of all intervals may be.
OPTIONS = {
  "confidence": number("(0, 1)"),
  "method": choice(*METHODS),
  "num_resamples": whole(1),
  "seed": whole(),
}
DIRECTION = choice("max", "min")
# So many resampled means are held at a time, 80 MB.
_BLOCK = 10_000_000


class Interval(NamedTuple):
  """A statistic with the ends of its interval: floats, or arrays of a shape.

  Attributes:
    estimate: the statistic of the runs themselves.
    low: lower end; NaN if there is no interval.
    high: upper end; NaN if there is no interval.
  """

  estimate: Any
  low: Any
  high: Any


@checked(num=whole(1), size=whole(1), num_tasks=whole(1))
def resamples(
  num: int, size: int, seed: int = 0, *, num_tasks: int | None = None
) -> np.ndarray:
  """Which runs each resample consists of, drawn with replacement.

  Args:
    num: number of resamples.
    size: n, the number of runs to draw from; as many are drawn.
    seed: of NumPy's generator.
    num_tasks: T, to draw for each task on its own; None for one draw.

  Returns:
    [num, n] int64, or [num, n, T], indices from 0 to n - 1.

  Raises:
    TypeError: if an argument is no whole number.
    ValueError: if an argument is too small.
  """
  shape = (num, size) if num_tasks is None else (num, size, num_tasks)
  return np.random.default_rng(seed).integers(size, size=shape)


def given_or_drawn(
  indices: Any, num: int, seed: int, size: int, num_tasks: int | None
) -> np.ndarray:
  """The caller's resamples after a check, or new ones if there are none.

  Args:
    indices: None, or [num, n] or [num, n, T] whole numbers.
    num: number of resamples, if they are drawn.
    seed: of the draw.
    size: n.
    num_tasks: T, which need not be an axis if it is 1; None for resamples
      without that axis.

  Raises:
    TypeError: if the indices are no whole numbers.
    ValueError: if their shape is another, or one is no index of a run.
  """
  if indices is None:
    return resamples(num, size, seed, num_tasks=num_tasks)
  found = np.asarray(indices)
  if num_tasks == 1 and found.ndim == 2:
    found = found[..., None]
  shape = (size,) if num_tasks is None else (size, num_tasks)
  if found.dtype.kind not in "iu":
    raise TypeError(
      f"indices={checks.shown(indices)}: must be whole numbers, as "
      "`resamples` returns them"
    )
  if found.ndim < 2 or not len(found) or found.shape[1:] != shape:
    wanted = ", ".join(map(str, shape))
    raise ValueError(
      f"indices: the shape is {list(found.shape)}; must be [number of "
      f"resamples, {wanted}]"
    )
  if found.min() < 0 or found.max() >= size:
    raise ValueError(
      f"indices: go from {found.min()} to {found.max()}; must be from 0 to "
      f"{size - 1}, one less than the number of runs"
    )
  return found


def counts(indices: np.ndarray, size: int) -> np.ndarray:
  """How often each run was drawn.

  Args:
    indices: [num, n] or [num, n, T], see `resamples`.
    size: n.

  Returns:
    [num, n] or [num, n, T] float64.
  """
  num, tasks = len(indices), int(np.prod(indices.shape[2:]))
  flat = indices.reshape(num, -1, tasks)
  at = (np.arange(num)[:, None, None] * size + flat) * tasks + np.arange(tasks)
  found = np.bincount(at.ravel(), minlength=num * size * tasks)
  return found.reshape(num, size, *indices.shape[2:]).astype(np.float64)


def mean_interval_ends(
  deviations: np.ndarray,
  indices: np.ndarray,
  confidence: float,
  method: str,
) -> tuple[np.ndarray, np.ndarray]:
  """The ends of the intervals of means, as distances from the means.

  Args:
    deviations: [n, P], of P quantities from their means over the seeds; n > 1.
    indices: [num, n], see `resamples`.
    confidence: such as 0.95.
    method: one of `METHODS`, see `statistics.mean_interval`.

  Returns:
    Two of [P].
  """
  num_seeds = len(deviations)
  weights = counts(indices, num_seeds) / num_seeds  # [num, n]
  step = max(_BLOCK // len(weights), 1)
  ends = [
    _tails(weights @ deviations[:, start : start + step], confidence)
    for start in range(0, deviations.shape[1], step)
  ]
  low, high = np.concatenate(ends, axis=1)
  if method == "percentile":
    return low, high
  error = deviations.std(axis=0, ddof=1) / np.sqrt(num_seeds)
  width = 2 * student_quantile(confidence, num_seeds - 1) * error
  # The bootstrap says which part of Student's width is below the mean.
  spread = high - low
  known = spread > 0
  below = np.where(known, -low / np.where(known, spread, 1), 0.5).clip(0, 1)
  return -below * width, (1 - below) * width


def interval(
  estimate: Any,
  resampled: np.ndarray,
  confidence: float,
  method: str,
  num_seeds: int,
  freedom: int,
) -> Interval:
  """The interval of a statistic that is no mean.

  With the method "student" the distances of the resampled percentiles from the
  estimate are multiplied by sqrt(n / (n - 1)) t / z: the root because resampled
  runs vary too little by (n - 1) / n, Student's quantile over the normal one
  because their variance is itself estimated. With one seed there is no
  interval.

  Args:
    estimate: a number, or [L].
    resampled: [num] or [num, L].
    confidence: such as 0.95.
    method: one of `METHODS`.
    num_seeds: n, the smallest number of seeds.
    freedom: degrees of freedom of Student's quantile.
  """
  if num_seeds == 1:
    return plain(estimate, estimate * np.nan, estimate * np.nan)
  low, high = _tails(resampled, confidence)
  if method == "percentile":
    return plain(estimate, low, high)
  factor = np.sqrt(num_seeds / (num_seeds - 1)) * (
    student_quantile(confidence, freedom) / student_quantile(confidence, np.inf)
  )
  return plain(
    estimate,
    np.minimum(estimate - factor * (estimate - low), estimate),
    np.maximum(estimate + factor * (high - estimate), estimate),
  )


def plain(estimate: Any, low: Any, high: Any) -> Interval:
  """An interval with Python's floats for scalars."""
  return Interval(
    *(float(x) if np.ndim(x) == 0 else x for x in (estimate, low, high))
  )


def student_quantile(confidence: float, freedom: float) -> float:
  """Half the width of Student's interval, in standard errors.

  Args:
    confidence: such as 0.95.
    freedom: degrees of freedom; infinity for the normal distribution.
  """
  from scipy import special  # jax requires SciPy; it is slow to import.

  probability = (1 + confidence) / 2
  if np.isinf(freedom):
    return float(special.ndtri(probability))
  return float(special.stdtrit(freedom, probability))


def check_numbers(name: str, values: Any) -> np.ndarray:
  """The values as a float64 array.

  Raises:
    TypeError: if they are no real numbers.
    ValueError: if they have no axis or no element, or rows of unequal lengths.
  """
  try:
    found = np.asarray(values)
  except ValueError:
    raise ValueError(
      f"{name}={checks.shown(values)}: its rows have unequal lengths"
    ) from None
  if found.dtype.kind in "bcmMOSU":
    raise TypeError(
      f"{name}={checks.shown(values)}: must be real numbers, NaN for a run "
      "that diverged"
    )
  if not found.ndim or not found.size:
    raise ValueError(
      f"{name}={checks.shown(values)}: must hold at least one number"
    )
  return found.astype(np.float64)


def check_scores(name: str, scores: Any) -> np.ndarray:
  """The scores as [n, T] float64, of [n] or [n, T].

  Raises:
    TypeError: if they are no real numbers.
    ValueError: if they have another shape.
  """
  found = check_numbers(name, scores)
  if found.ndim > 2:
    raise ValueError(
      f"{name}: the shape is {list(found.shape)}; must be [seeds] or [seeds, "
      "tasks]"
    )
  return found.reshape(len(found), -1)


def _tails(resampled: np.ndarray, confidence: float) -> np.ndarray:
  """[2, ...], the percentiles of [num, ...] that cut off equal tails."""
  tail = (1 - confidence) / 2
  return np.quantile(resampled, [tail, 1 - tail], axis=0)
