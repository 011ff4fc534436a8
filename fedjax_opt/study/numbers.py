"""How values of a metric are written: their decimals, unit and interval."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from fedjax_opt.results.metric_names import bounds, is_accuracy
from fedjax_opt.results.names import format_number
from fedjax_opt.study.bootstrap import Interval
from fedjax_opt.study.pairs import CLOSE
from fedjax_opt.study.words import NOTHING

# Percents whose intervals are shorter than this have two decimals.
_SHORT_INTERVAL = 0.01
# Shares below this are 0.
_SMALLEST_SHARE = 1e-12
# From this size on, a value has four digits and a power of ten.
_LONGEST = 1e9
# Decimals that a number may have more than the others.
_MORE_DECIMALS = 5


class NumberFormat(NamedTuple):
  """How values of a metric are written.

  Attributes:
    metric: its identifier.
    decimals: how many decimals percents or values have; None for four digits
      of a value of any size.
  """

  metric: str
  decimals: int | None = None

  def value(self, value: float) -> str:
    """A value without its unit: 91.2."""
    if not np.isfinite(value):
      return NOTHING
    is_rounding = is_accuracy(self.metric) and abs(value) < _SMALLEST_SHARE
    if not value or is_rounding:
      return "0"
    if is_accuracy(self.metric):
      return f"{100 * value:z.{1 if self.decimals is None else self.decimals}f}"
    if self.decimals is not None and abs(value) < _LONGEST:
      return f"{value:z.{self.decimals}f}"
    text = f"{value:#.4g}"
    return format_number(float(text)) if "e" in text else text.rstrip(".")

  def as_given(self, value: float) -> str:
    """All digits of a value that a person chose, without its unit: 85.25."""
    return f"{100 * value if is_accuracy(self.metric) else value:g}"

  @property
  def unit(self) -> str:
    """What follows a value: ' %', or nothing."""
    return " %" if is_accuracy(self.metric) else ""

  def texts(
    self, interval: Interval, is_difference: bool = False
  ) -> tuple[str, str]:
    """A mean and the ends of its interval: ('91.2', '90.1 to 92.3').

    The ends are '' if there are none. All three get more decimals if one of
    them is not zero but would read as zero, or if the decimals that others
    chose hide the length of this interval.
    """
    if not is_difference:
      interval = interval.within(*bounds(self.metric))
    estimate, low, high = interval
    values = [estimate, *([low, high] if interval.has_ends else [])]
    has_length = high - low > CLOSE * abs(high) and self.decimals is not None
    finer = self._without_zeros(values, high - low if has_length else np.inf)
    text, *ends = map(finer.value, values)
    return text, " to ".join(ends)

  def difference(self, value: float) -> str:
    """A difference or deviation, without its unit; only zero reads as zero."""
    return self.texts(Interval(value), is_difference=True)[0]

  def _without_zeros(
    self, values: Sequence[float], length: float
  ) -> "NumberFormat":
    """With so many decimals that only zero reads as zero, if a few are enough.

    A unit of the last one is then not longer than the length either. A value
    that needs more decimals is rounding error.
    """
    decimals = 1 if self.decimals is None else self.decimals
    shown_length = 100 * length if is_accuracy(self.metric) else length
    for more in range(_MORE_DECIMALS + 1):
      finer = self._replace(decimals=decimals + more) if more else self
      texts = [finer.value(v) for v in values if v and np.isfinite(v)]
      if all(map(float, texts)) and shown_length >= 10 ** -(decimals + more):
        return finer
    return self

  def with_interval(self, interval: Interval, name: str = "") -> str:
    """A mean with its interval, perhaps named: 91.2 % (90.1 to 92.3)."""
    text, ends = self.texts(interval)
    text += self.unit if text != NOTHING else ""
    return f"{text} ({name}{ends})" if ends else text


def format_of(metric: str, intervals: Iterable[Interval]) -> NumberFormat:
  """How the values of a study are written.

  Args:
    metric: its identifier.
    intervals: all intervals to be written. If most are short, percents have two
      decimals. Other values get as many decimals as give most lengths two
      digits; of two lengths, the shorter one.
  """
  finite = [interval for interval in intervals if np.isfinite(interval).all()]
  lengths = [interval.high - interval.low for interval in finite]
  length = float(np.median(lengths)) if lengths else 0.0
  if is_accuracy(metric):
    return NumberFormat(metric, 2 if 0 < length < _SHORT_INTERVAL else 1)
  if not length:
    return NumberFormat(metric)
  # A long one, of a method that is not stable, takes no digits from another.
  length = max((x for x in lengths if 0 < x <= length), default=length)
  decimals = max(1 - int(np.floor(np.log10(length))), 0)
  is_lost = any(abs(interval.estimate) < 10**-decimals for interval in finite)
  return NumberFormat(metric, None if is_lost or decimals > 5 else decimals)
