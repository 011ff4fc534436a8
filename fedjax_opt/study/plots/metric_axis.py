"""The y axis of a metric: its unit, its range, and where a log axis helps."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.results.history import direction, is_fraction
from fedjax_opt.results.names import metric_name
from fedjax_opt.study.plots.frame import log_scale

# Where all curves end above it, an accuracy is drawn as an error.
_HIGH = 0.9
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
  pairs = zip(curves, curves if spread is None else spread, strict=True)
  lines = [_Line(*map(_floats, pair)) for pair in pairs]
  lines = [line.finite() for line in lines if np.isfinite(line.curve).any()]
  label, factor = metric_name(metric), 100.0 if is_fraction(metric) else 1.0
  if not lines:
    is_larger = direction(metric) == "max"
    return MetricAxis(label, factor=factor, is_larger_better=is_larger)
  if metric == "rank":
    ends = _ends([line.curve for line in lines])
    return MetricAxis(label, limits=_margin(*ends))
  if is_fraction(metric):
    return _accuracy_axis(label, lines, whole)
  way = direction(metric) or "min"
  good = lines if whole else _good(lines, way)
  low, high = _ends([line.curve for line in good])
  is_log = bool(low > 0 and high > 100 * low)
  least = low / _BELOW
  low, high = _ends([[low, high], *_last(good, whole)])
  # A log axis has no zero, as an interval may.
  factors = max(low, least) / 1.3, high * 1.3
  limits = factors if is_log else _margin(low, high)
  return MetricAxis(
    label, is_log=is_log, limits=limits, is_larger_better=way == "max"
  )


class _Line(NamedTuple):
  curve: np.ndarray  # [E]
  spread: np.ndarray  # [any, E]

  def finite(self) -> "_Line":
    has_value = np.isfinite(self.curve)
    return _Line(
      self.curve[has_value], np.atleast_2d(self.spread)[:, has_value]
    )


def _accuracy_axis(label: str, lines: list[_Line], whole: bool) -> MetricAxis:
  if min(line.curve[-1] for line in lines) > _HIGH:
    errors = np.concatenate([1 - line.curve for line in lines])
    positive = errors[errors > 1e-9]
    if positive.size:
      label = label.replace("accuracy", "error").replace("Accuracy", "Error")
      low, high = 100 * positive.min() / 1.2, 100 * errors.max() * 1.2
      is_log = bool(high > 2 * low and positive.size == errors.size)
      low = low if is_log else min(low, 100 * errors.min())
      around = [100 * (1 - values) for values in _last(lines, whole)]
      least = low / _BELOW if is_log else 0.0  # A log axis has no zero.
      low, high = _ends([[low, high], *around])
      low, high = max(low, least), min(high, 100.0)
      limits = (low, high) if is_log else _margin(low, high)
      return MetricAxis(label, True, 100.0, is_log, limits, True)
  good = lines if whole else _good(lines, "max", at_least=0.1)
  low, high = _ends([line.curve for line in good])
  rest = [line.curve[int(_BEGINNING * line.curve.size) :] for line in good]
  start = np.quantile(np.concatenate(rest), 0.02)
  is_worth = start - low > _WORTH_CUTTING * (high - low)
  if is_worth and len(good) > 1 and not whole:
    low = start
  low, high = _ends([[low, high], *_last(good, whole)])
  low, high = _margin(100 * low, 100 * high)
  limits = (low, min(high, 100.5))
  return MetricAxis(label, factor=100.0, limits=limits, is_larger_better=True)


def _good(lines: list[_Line], way: str, at_least: float = 0.0) -> list[_Line]:
  """The lines that do not end far behind the others.

  Far is more than four times as far from the best end as the median is, and
  more than `at_least`.
  """
  ends = np.array([line.curve[-1] for line in lines])
  behind = ends.max() - ends if way == "max" else ends - ends.min()
  limit = max(4 * float(np.median(behind)), at_least)
  good = [x for x, far in zip(lines, behind, strict=True) if far <= limit]
  if way == "min":
    # Those that are never above the beginning of the others take no room.
    start = max(float(line.curve[0]) for line in good)
    good += [
      x
      for x, far in zip(lines, behind, strict=True)
      if far > limit and x.curve.max() <= start
    ]
  return good


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


def _floats(values: Any) -> np.ndarray:
  return np.asarray(values, float)
