"""The y axis of a metric: its unit, its range, and where a log axis helps."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.results.history import direction, is_fraction
from fedjax_opt.results.names import metric_name
from fedjax_opt.study.plots.frame import log_scale

# Where all curves end above so many percent, the error is drawn.
_HIGH = 90.0
# The axis of errors, and of other metrics, is logarithmic if the highest value
# is so many times the lowest.
_FACTORS = {True: 1.4, False: 100.0}
_ROUNDING = 1e-9
# The beginning of a curve that may leave the axis, as a share of it.
_BEGINNING = 0.2
# A log axis of errors goes so far below those of the curves, to show intervals.
_BELOW = 3.0
# A beginning that fills less than this share of the range stays in it.
_WORTH_CUTTING = 0.3


class MetricAxis(NamedTuple):
  """How the values of a metric are drawn.

  Attributes:
    label: name of the axis, with its unit.
    is_error: whether 1 minus the metric is drawn.
    factor: 100 for what is shown in percent, else 1.
    is_log: whether the axis is logarithmic.
    limits: lowest and highest value of the axis, in its unit; None for those
      of matplotlib.
    is_larger_better: whether larger values of the metric are better.
  """

  label: str
  is_error: bool = False
  factor: float = 1.0
  is_log: bool = False
  limits: tuple[float, float] | None = None
  is_larger_better: bool = False

  def units(self, values: Any) -> np.ndarray:
    """Values of the metric in the unit of the axis."""
    values = np.asarray(values, float)
    return self.factor * (1 - values if self.is_error else values)

  @property
  def worse_end(self) -> float:
    """The end of the axis where bad values are; NaN without limits."""
    if self.limits is None:
      return np.nan
    return self.limits[0 if self.is_better_high else 1]

  @property
  def is_better_high(self) -> bool:
    """Whether what is higher on the axis is better."""
    return self.is_larger_better and not self.is_error

  def apply(self, axes: Any, label: bool = True) -> None:
    """Sets scale, range and name of matplotlib's y axis."""
    if self.is_log:
      log_scale(axes.yaxis, self.limits)
    if self.limits is not None:
      axes.set_ylim(self.limits)
    if label:
      axes.set_ylabel(self.label)

  def is_outside(self, value: float) -> bool:
    """Whether a value of the metric is worse than the axis shows."""
    if self.limits is None or self.is_error or not np.isfinite(value):
      return False
    low, high = self.limits
    shown = float(self.units(value))
    return shown < low if self.is_better_high else shown > high


def metric_axis(
  metric: str,
  curves: Sequence[np.ndarray],
  spread: Sequence[np.ndarray] | None = None,
  whole: bool = False,
) -> MetricAxis:
  """The axis on which the good curves of a metric can be told apart.

  Accuracies that all end above 90 % become errors on a log axis. Other
  accuracies have a range without the first fifth of the curves, if that leaves
  more room for the rest, and without curves that end far below the others.
  Losses begin at the lowest value and end at the highest of the curves that do
  not end far above the others; where these are more than a factor of 100 apart,
  the axis is logarithmic.

  Args:
    metric: name of the metric.
    curves: one for each setting that did not diverge, NaN where it has no
      value. [E] each, in the metric's own unit; E may differ.
    spread: of each curve, the values around it, such as those of single seeds.
      [any, E] each. Those of the last fifth of the rounds will be visible.
    whole: whether all of the curves and of their spread is visible, whatever
      room that leaves for the best.
  """
  label, is_percent = metric_name(metric), is_fraction(metric)
  factor, is_larger = 100.0 if is_percent else 1.0, direction(metric) == "max"
  spread = curves if spread is None else spread
  lines = [_line(*pair, factor) for pair in zip(curves, spread, strict=True)]
  lines = [line for line in lines if line.curve.size]
  if not lines:
    return MetricAxis(label, factor=factor, is_larger_better=is_larger)
  is_error = is_percent and _are_high([line.curve for line in lines])
  if is_error:
    label = label.replace("accuracy", "error").replace("Accuracy", "Error")
    lines = [_Line(100 - curve, 100 - around) for curve, around in lines]
  good = lines
  if not (whole or is_error or metric == "rank"):
    way = "max" if is_larger else "min"
    good = _good(lines, way, at_least=10.0 if is_percent else 0.0)
  low, high = _ends([line.curve for line in good])
  least = _ROUNDING if is_error else 0.0
  is_log = low > least and high > _FACTORS[is_error] * low
  if is_percent and not is_error:
    is_log = False
    rest = [line.curve[int(_BEGINNING * line.curve.size) :] for line in good]
    start = np.quantile(np.concatenate(rest), 0.02)
    is_worth = start - low > _WORTH_CUTTING * (high - low)
    if is_worth and len(good) > 1 and not whole:
      low = start
  least = low / _BELOW  # A log axis has no zero, as an interval may.
  low, high = _ends([[low, high], *_last(good, whole)])
  if is_log:
    low, high = max(low, least) / 1.2, high * 1.2
  else:
    low, high = _margin(low, high)
  if is_percent:
    high = min(high, 100.0 if is_log else 100.5)
  return MetricAxis(label, is_error, factor, is_log, (low, high), is_larger)


class _Line(NamedTuple):
  """A curve where it has a value, and the values around it."""

  curve: np.ndarray  # [E]
  spread: np.ndarray  # [any, E]


def _line(curve: Any, spread: Any, factor: float) -> _Line:
  curve = factor * np.asarray(curve, float)
  spread = factor * np.atleast_2d(np.asarray(spread, float))
  has_value = np.isfinite(curve)
  return _Line(curve[has_value], spread[:, has_value])


def _are_high(curves: Sequence[np.ndarray]) -> bool:
  """Whether all percents end high, and not all of them are 100."""
  has_error = any((curve < 100 - _ROUNDING).any() for curve in curves)
  return has_error and min(curve[-1] for curve in curves) > _HIGH


def _good(lines: list[_Line], way: str, at_least: float = 0.0) -> list[_Line]:
  """The lines that do not end far behind the others.

  Far is more than four times as far from the best end as the median is, and
  more than `at_least`.
  """
  ends = np.array([line.curve[-1] for line in lines])
  behind = ends.max() - ends if way == "max" else ends - ends.min()
  limit = max(4 * float(np.median(behind)), at_least)
  is_near = behind <= limit
  if way == "min":
    # Those that are never above the beginning of the others take no room.
    start = np.max([x.curve[0] for x in lines], where=is_near, initial=-np.inf)
    is_near |= np.array([line.curve.max() <= start for line in lines])
  return [line for line, near in zip(lines, is_near, strict=True) if near]


def _last(lines: Sequence[_Line], whole: bool) -> list[np.ndarray]:
  """What lies around the last fifth of the lines, or around all of them."""
  size = lambda line: line.curve.size if whole else line.curve.size // 5
  last = [line.spread[:, -max(1, size(line)) :].ravel() for line in lines]
  return [values[np.isfinite(values)] for values in last]


def _ends(parts: Sequence[Any]) -> tuple[float, float]:
  joined = np.concatenate([np.asarray(part, float) for part in parts])
  return float(joined.min()), float(joined.max())


def _margin(low: float, high: float) -> tuple[float, float]:
  margin = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
  return low - margin, high + margin
