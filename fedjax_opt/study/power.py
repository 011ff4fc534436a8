"""How large a difference seeds can show, and how many seeds one needs.

Of the two-sided paired t-test, by the noncentral t distribution. Public as
`statistics.smallest_difference` and `statistics.seeds_needed`.
"""

import bisect

import numpy as np

from fedjax_opt.checks.fields import checked, number, whole

LEVEL = 0.05  # At which two methods are told apart.
POWER = 0.8  # The share of studies in which a true difference is to be found.
_MAX_SEEDS = 1_000_000
_POSITIVE, _SHARE = number("(0, inf)"), number("(0, 1)")


@checked(
  num_seeds=whole(2),
  sd=number("[0, inf)"),
  num_pairs=whole(1),
  level=_SHARE,
  power=_SHARE,
)
def smallest_difference(
  num_seeds: int,
  sd: float,
  *,
  num_pairs: int = 1,
  level: float = LEVEL,
  power: float = POWER,
) -> float:
  """The smallest true difference of two methods that is found with this power.

  Args:
    num_seeds: n, that both methods ran with.
    sd: standard deviation over seeds of their paired differences, in the
      metric's unit.
    num_pairs: how many pairs of methods the study compares; the test is at
      `level / num_pairs`, which is the first and hardest step of Holm's method.
    level: of the whole study.
    power: probability that the difference is found.

  Returns:
    In the metric's unit.

  Raises:
    TypeError: if an argument has another type.
    ValueError: if an argument is out of range.
  """
  from scipy import special

  freedom = num_seeds - 1
  quantile = special.stdtrit(freedom, 1 - level / num_pairs / 2)
  shift = special.nctdtrinc(freedom, 1 - power, quantile)
  return float(shift * sd / np.sqrt(num_seeds))


@checked(
  difference=_POSITIVE,
  sd=number("[0, inf)"),
  num_pairs=whole(1),
  level=_SHARE,
  power=_SHARE,
)
def seeds_needed(
  difference: float,
  sd: float,
  *,
  num_pairs: int = 1,
  level: float = LEVEL,
  power: float = POWER,
) -> int:
  """How many seeds find a true difference of two methods with this power.

  Args:
    difference: that is to be found, in the metric's unit.
    sd: as of `smallest_difference`; from a pilot or a stored study.
    num_pairs: as of `smallest_difference`.
    level: of the whole study.
    power: probability that the difference is found.

  Returns:
    At least 2.

  Raises:
    TypeError: if an argument has another type.
    ValueError: if an argument is out of range, or a million seeds are too few.

  Example:

    >>> statistics.seeds_needed(0.01, sd=0.008)
    8
  """
  how = {"num_pairs": num_pairs, "level": level, "power": power}
  found = 2 + bisect.bisect_left(
    range(2, _MAX_SEEDS + 1),
    -difference,
    key=lambda num: -smallest_difference(num, sd, **how),
  )
  if found > _MAX_SEEDS:
    raise ValueError(
      f"difference={difference:g}: needs more than {_MAX_SEEDS:,} seeds with "
      f"sd={sd:g}; must be larger"
    )
  return found
