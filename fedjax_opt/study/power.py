"""The power of the paired t-test: how large a difference seeds can show.

And how many seeds a difference needs. The test is two-sided; its power is that
of the noncentral t distribution.
"""

import bisect

import numpy as np

from fedjax_opt.checks.fields import checked, integer, plain_number

LEVEL = 0.05  # The level at which two methods are told apart.
_POWER = 0.8  # The share of studies in which a true difference is to be found.
MAX_SEEDS = 1_000_000  # The most that `seeds_needed` tries.


@checked(
  num_seeds=integer(2),
  sd=plain_number("[0, inf)"),
  num_pairs=integer(1),
)
def smallest_difference(
  num_seeds: int,
  sd: float,
  *,
  num_pairs: int = 1,
) -> float:
  """The smallest true difference of two methods found with 80 % power.

  Args:
    num_seeds: n, the seeds with which both methods ran.
    sd: standard deviation over seeds of their paired differences, in the
      metric's unit.
    num_pairs: how many pairs of methods the study compares; the test is at
      0.05 / `num_pairs`, which is the first and hardest step of Holm's method.

  Returns:
    In the metric's unit.

  Raises:
    TypeError: if an argument has another type.
    ValueError: if an argument is out of range.
  """
  from scipy import special

  freedom = num_seeds - 1
  quantile = special.stdtrit(freedom, 1 - LEVEL / num_pairs / 2)
  shift = special.nctdtrinc(freedom, 1 - _POWER, quantile)
  return float(shift * sd / np.sqrt(num_seeds))


@checked(
  difference=plain_number("(0, inf)"),
  sd=plain_number("[0, inf)"),
  num_pairs=integer(1),
)
def seeds_needed(
  difference: float,
  sd: float,
  *,
  num_pairs: int = 1,
) -> int:
  """How many seeds find a true difference of two methods with 80 % power.

  Args:
    difference: the true difference to be found, in the metric's unit.
    sd: as of `smallest_difference`; from a pilot or a stored study.
    num_pairs: as of `smallest_difference`.

  Returns:
    At least 2.

  Raises:
    TypeError: if an argument has another type.
    ValueError: if an argument is out of range, or a million seeds are too few.

  Example:

    >>> statistics.seeds_needed(0.01, sd=0.008)
    8
  """
  num_seeds = 2 + bisect.bisect_left(
    range(2, MAX_SEEDS + 1),
    -difference,
    key=lambda num: -smallest_difference(num, sd, num_pairs=num_pairs),
  )
  if num_seeds > MAX_SEEDS:
    raise ValueError(
      f"difference={difference:g}: needs more than {MAX_SEEDS:,} seeds with "
      f"sd={sd:g}; must be larger"
    )
  return num_seeds
