"""Distributions of seconds, or of other positive numbers as bytes per second.

All of it is NumPy on the host.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedjax_opt.checks import fields
from fedjax_opt.checks.fields import NonNegativeFloat, PositiveFloat


class Distribution(NamedTuple):
  """A distribution of positive numbers, such as seconds or bytes per second.

  Attributes:
    quantile: the inverse of the distribution function: shares in [0, 1) to
      numbers, arrays of one shape.
  """

  quantile: Callable[[np.ndarray], np.ndarray]


fields.KINDS[Distribution] = fields.instance_of(
  Distribution, "a distribution of fedjax_opt.systems, such as constant(1.0)"
)


@fields.checked()
def constant(value: PositiveFloat) -> Distribution:
  """The same number for all.

  Args:
    value: seconds, the same for all; positive.
  """
  return Distribution(lambda u: np.full(np.shape(u), float(value)))


@fields.checked()
def uniform(low: PositiveFloat, high: PositiveFloat) -> Distribution:
  """Uniform in [low, high).

  Args:
    low: least seconds; positive.
    high: most seconds; not below `low`.

  Returns:
    The distribution.

  Raises:
    ValueError: if a number is out of range.
  """
  if high < low:
    raise ValueError(f"high={high:g}: must be at least low={low:g}")
  return Distribution(lambda u: low + (high - low) * np.asarray(u))


@fields.checked()
def lognormal(median: PositiveFloat, sigma: NonNegativeFloat) -> Distribution:
  r""":math:`m \exp(\sigma z)` with z standard normal.

  Args:
    median: median seconds; m, positive.
    sigma: standard deviation of the logarithm of the seconds; non-negative.

  Returns:
    The distribution.
  """
  return Distribution(lambda u: median * np.exp(sigma * _normal(_inside(u))))


@fields.checked()
def half_normal(scale: PositiveFloat) -> Distribution:
  r""":math:`s |z|` with z standard normal.

  Args:
    scale: scale of the seconds, 1.25 times their mean; s, positive.

  Returns:
    The distribution.
  """
  return Distribution(lambda u: -scale * _normal((1 - _inside(u)) / 2))


@fields.checked()
def exponential(mean: PositiveFloat) -> Distribution:
  """Exponential.

  Args:
    mean: mean seconds; positive.

  Returns:
    The distribution.
  """
  return Distribution(lambda u: -mean * np.log1p(-_inside(u)))


@fields.checked(most=fields.integer(1, most=10**7))
def zipf(exponent: NonNegativeFloat, most: int = 1000) -> Distribution:
  r"""Whole numbers k from 1 to `most`, in proportion to :math:`k^{-a}`.

  Args:
    exponent: how rare slow clients are; a, non-negative.
    most: most seconds.

  Returns:
    The distribution.
  """
  ends = np.cumsum(np.arange(1, most + 1, dtype=np.float64) ** -exponent)
  inner = ends[:-1] / ends[-1]
  return Distribution(
    lambda u: 1.0 + np.searchsorted(inner, u, side="right").astype(float)
  )


def _inside(u):
  """Shares without 0, at which nothing would take any time."""
  return np.clip(u, 2.0**-53, 1 - 2.0**-53)


def _normal(u):
  """The quantiles of the standard normal distribution."""
  from scipy import special  # A tenth of the time to import the package.

  return special.ndtri(u)
