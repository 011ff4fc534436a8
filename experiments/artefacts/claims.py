"""Verdicts on what a paper claims, all by one rule.

A claim says of some quantities that they are positive: of the difference of two
methods' accuracies, of a bound less what was measured. Each quantity has a
value for each seed; two methods are compared seed by seed.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from fedjax_opt.results import statistics

HELD, NOT_HELD, UNDECIDED = "held", "not held", "undecided"
RULE = (
  "A claim is *held* if the 95 % interval of the mean over seeds of every "
  "quantity that it says is positive is above zero, *not held* if that of at "
  "least one is below zero, and *undecided* otherwise, so always with one "
  "seed. Methods are compared seed by seed. What diverged is worse than what "
  "did not. Where no chance is involved, the values themselves decide."
)
_SHOWN = 3  # So many quantities of a claim are written out.


class Quantity(NamedTuple):
  """What a claim says is positive.

  Attributes:
    name: in words, such as 'DOMO over FedAvg, s = 5 %'.
    values: one for each seed; infinite where one of two diverged, NaN where
      both did.
    unit: such as 'points', or ''.
    is_exact: whether no chance is involved.
  """

  name: str
  values: Sequence[float]
  unit: str = ""
  is_exact: bool = False

  @property
  def mean(self) -> float:
    """The mean over the seeds that have a value; infinity if none has."""
    values = [value for value in self.values if not np.isnan(value)]
    return float(np.mean(values)) if values else np.inf

  @property
  def verdict(self) -> str:
    """'held', 'not held' or 'undecided'; see `RULE`."""
    values = np.asarray(self.values, float)
    if not values.size or np.isnan(values).any():
      return UNDECIDED
    if values.size == 1 and not self.is_exact:
      return UNDECIDED
    if self.is_exact or np.isinf(values).all():
      return HELD if (values > 0).all() else NOT_HELD
    _, low, high = statistics.mean_interval(values)
    return HELD if low > 0 else NOT_HELD if high < 0 else UNDECIDED

  def __str__(self) -> str:
    values = np.asarray(self.values, float)
    unit = f" {self.unit}" if self.unit else ""
    if not values.size:
      return f"{self.name}: not run"
    if not np.isfinite(values).all():
      lost = int(np.sum(~np.isfinite(values)))
      return f"{self.name}: {lost} of {len(values)} seeds diverged"
    mean, low, high = statistics.mean_interval(values)
    text = f"{self.name}: {mean:.3g}{unit}"
    if len(values) == 1 or self.is_exact:
      return text
    return f"{text} ({low:.3g} to {high:.3g})"


class Claim(NamedTuple):
  """What a paper claims.

  Attributes:
    text: the claim.
    quantities: what it says is positive.
  """

  text: str
  quantities: Sequence[Quantity]

  @property
  def verdict(self) -> str:
    """'held', 'not held' or 'undecided'; see `RULE`."""
    found = [quantity.verdict for quantity in self.quantities]
    if not found:
      return UNDECIDED
    if NOT_HELD in found:
      return NOT_HELD
    return HELD if set(found) == {HELD} else UNDECIDED

  @property
  def reason(self) -> str:
    """The quantities that decide, with their intervals."""
    verdict = self.verdict
    deciding = [q for q in self.quantities if q.verdict == verdict]
    deciding.sort(key=lambda quantity: quantity.mean)
    shown = [str(quantity) for quantity in deciding[:_SHOWN]]
    more = len(deciding) - len(shown)
    if more:
      shown.append(f"and {more} more")
    if verdict != HELD and len(deciding) < len(self.quantities):
      shown.append(
        f"{_count(self.quantities, HELD)} of {len(self.quantities)} are held"
      )
    return "; ".join(shown) or "not run"


def _count(quantities: Iterable[Quantity], verdict: str) -> int:
  return sum(quantity.verdict == verdict for quantity in quantities)


def above(
  name: str,
  a: Sequence[float] | None,
  b: Sequence[float] | None,
  unit: str = "",
  scale: float = 1.0,
) -> Quantity:
  """That `a` is above `b`, seed by seed.

  Args:
    name: of the quantity.
    a: one value for each seed, NaN where it diverged; None if it was not run.
    b: those of the other, for the same seeds.
    unit: of the difference.
    scale: of the difference; -1 where smaller is better, 100 for percents.
  """
  if a is None or b is None:
    return Quantity(name, (), unit)
  first, second = np.asarray(a, float), np.asarray(b, float)
  difference = scale * (first - second)
  lost_first, lost_second = np.isnan(first), np.isnan(second)
  difference = np.where(lost_first & ~lost_second, -np.inf, difference)
  difference = np.where(lost_second & ~lost_first, np.inf, difference)
  return Quantity(name, tuple(difference.tolist()), unit)
