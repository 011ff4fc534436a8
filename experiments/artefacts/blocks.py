"""What is shown of an artefact: tables, pictures, and claims with verdicts.

A claim says that some quantities are above a limit, mostly 0, such as the
difference of two methods' accuracies, or a bound less the measured value. Each
quantity has a value for each seed; two methods are compared seed by seed. All
verdicts are by one rule, which docs/papers/index.md has for readers.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.study import pairs, power
from fedjax_opt.study.bootstrap import Interval

VERDICTS = HELD, NOT_HELD, UNDECIDED = "held", "not held", "undecided"
IN_PART = "in part"  # The verdict on a claim that has several cases.
_MAX_SEEDS = 1_000


class Table(NamedTuple):
  """A table of an artefact.

  Attributes:
    columns: their heads.
    rows: cells, as text.
    title: a line above it, or ''.
  """

  columns: Sequence[str]
  rows: Sequence[Sequence[str]]
  title: str = ""


class Picture(NamedTuple):
  """A picture of an artefact.

  Attributes:
    name: the file's name, without its ending.
    draw: `() -> figure`, one of matplotlib.
    alt: what it shows, for readers who cannot see it.
  """

  name: str
  draw: Callable[[], Any]
  alt: str


class Quantity(NamedTuple):
  """What a claim says is above a limit.

  Attributes:
    name: in words, such as 'DOMO minus FedAvg, s = 5 %'.
    values: one for each seed; infinite where one of two diverged, NaN where
      both did.
    unit: such as 'points', or ''.
    lost: in words, which sides have no number at how many seeds; '' if nothing
      is compared.
    limit: what the values must be above.
    at_chance: in words, which sides ended at chance at how many seeds; '' if
      none did.
  """

  name: str
  values: Sequence[float]
  unit: str = ""
  lost: str = ""
  limit: float = 0.0
  at_chance: str = ""

  @property
  def margin(self) -> float:
    """By how much the mean over seeds that have a value is above the limit.

    Infinity if none has; -infinity if each of two methods diverged at a seed,
    so that values are infinite on both sides.
    """
    values = [value for value in self.values if not np.isnan(value)]
    if -np.inf in values:
      return -np.inf
    return float(np.mean(values)) - self.limit if values else np.inf

  def verdict(self, among: int) -> str:
    """'held', 'not held' or 'undecided', as one of so many."""
    values = np.asarray(self.values, float)
    if values.size < 2:
      return UNDECIDED
    if np.isinf(values).all():
      return HELD if (values > 0).all() else NOT_HELD
    if not np.isfinite(values).all():
      return UNDECIDED
    if pairs.t_interval(values).low > self.limit:
      return HELD
    is_below = self._widened(among).high < self.limit
    return NOT_HELD if is_below else UNDECIDED

  def _widened(self, among: int) -> Interval:
    """The interval that refutes, as one of so many.

    All must be above, so only what one of them refutes needs Holm's method,
    whose first step this is.
    """
    return pairs.t_interval(np.asarray(self.values), power.LEVEL / among)

  def text(self, among: int, is_brief: bool = False) -> str:
    """The mean with its interval, or why there is none.

    Args:
      among: the number of quantities of the claim.
      is_brief: whether what would decide the undecided is left out.
    """
    values = np.asarray(self.values, float)
    unit = f" {self.unit}" if self.unit else ""
    if not values.size:
      return "not run"
    if not np.isfinite(values).all():
      num_lost = int(np.sum(~np.isfinite(values)))
      return self.lost or f"no number at {num_lost} of {len(values)} seeds"
    text = f"{np.mean(values):.3g}{unit}"
    rule = f", must lie above {self.limit:g}" if self.limit else ""
    if len(values) == 1:
      return text + rule
    interval = pairs.t_interval(values)
    if self.verdict(among) != UNDECIDED:
      return f"{text} ({interval.low:.3g} to {interval.high:.3g}{rule})"
    widened = ""
    if interval.high < self.limit:
      interval, widened = self._widened(among), " widened"
    ends = f"{interval.low:.3g} to {interval.high:.3g}{widened}"
    seeds = f"{np.sum(values > self.limit)} of {len(values)} seeds above"
    by_median = ""
    if self.at_chance:
      by_median = f"; {self.at_chance}; the median is {np.median(values):.3g}"
    needed = f"; {seeds}; {self._seeds_needed(among)}" * (not is_brief)
    return f"{text} ({ends}{rule}{needed}{by_median})"

  def _seeds_needed(self, among: int) -> str:
    """How many seeds would decide what is undecided, in 80 % of cases."""
    sd = float(np.std(self.values, ddof=1))
    num = among if self.margin < 0 else 1
    difference = power.smallest_difference(_MAX_SEEDS, sd, num_pairs=num)
    if difference >= abs(self.margin):
      return f"more than {_MAX_SEEDS:,} seeds would decide"
    num_seeds = power.seeds_needed(abs(self.margin), sd, num_pairs=num)
    return f"{num_seeds} seeds would decide"


class Claim(NamedTuple):
  """A claim of the paper, or one that we test beside these.

  Attributes:
    text: the claim.
    quantities: the quantities that it says are above their limits.
    is_ours: whether the claim, or its number, is ours and not the paper's.
    of: the claim that this is one case of; '' if it is the only one.
    uncounted: why the claim is shown, but not counted; '' if it is counted.
  """

  text: str
  quantities: Sequence[Quantity]
  is_ours: bool = False
  of: str = ""
  uncounted: str = ""

  @property
  def verdict(self) -> str:
    """'held', 'not held' or 'undecided'."""
    verdicts = set(self._verdicts)
    if NOT_HELD in verdicts:
      return NOT_HELD
    return HELD if verdicts == {HELD} else UNDECIDED

  @property
  def _verdicts(self) -> list[str]:
    """The verdict on each quantity."""
    return [q.verdict(len(self.quantities)) for q in self.quantities]

  @property
  def deciding(self) -> list[Quantity]:
    """The quantities with the claim's verdict; the least margin comes first."""
    verdict = self.verdict
    judged = zip(self.quantities, self._verdicts, strict=True)
    deciding = [quantity for quantity, own in judged if own == verdict]
    return sorted(deciding, key=lambda quantity: quantity.margin)

  def because(self, most: int) -> str:
    """The quantities that decide; at most so many are written out."""
    among, verdict = len(self.quantities), self.verdict
    verdicts, deciding = self._verdicts, self.deciding
    texts = [f"{q.name}: {q.text(among)}" for q in deciding[:most]]
    more = len(deciding) - len(texts)
    if more and len(deciding) == among:
      texts.append(f"and {more} more {verdict}")
    elif deciding and len(texts) < among:
      counted = [f"{verdicts.count(v)} {v}" for v in VERDICTS if v in verdicts]
      texts.append(f"of {among} quantities {', '.join(counted)}")
    return "; ".join(texts) or "not run"


def verdict_of_cases(verdicts: Collection[str]) -> str:
  """The verdict on a claim, by the verdicts on its cases."""
  if HELD in verdicts and NOT_HELD in verdicts:
    return IN_PART
  if NOT_HELD in verdicts:
    return NOT_HELD
  return UNDECIDED if UNDECIDED in verdicts else HELD


Block = Table | Picture | Claim
