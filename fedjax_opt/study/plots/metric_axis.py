"""Curves, and the y axis of their metric: its unit, range and scale.

Axis letters: `E` places on the x axis of a curve.
"""

import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.checks import fields
from fedjax_opt.checks.values import checked_array, is_real
from fedjax_opt.results.metric_names import direction, is_accuracy
from fedjax_opt.results.names import metric_name

# If all curves end above this many percent, the error is drawn instead.
_HIGH = 90.0
# The axis of errors, and that of other metrics, is logarithmic if the highest
# value is this many times the lowest.
_FACTORS = {True: 1.4, False: 100.0}
_ROUNDING = 1e-9
# The beginning of a curve that may be outside the axis, as a share of it.
_BEGINNING = 0.2
# A log axis of errors begins at the lowest error of the curves divided by this,
# to show intervals.
_BELOW = 3.0
# A beginning that takes less than this share of the range stays inside.
_WORTH_CUTTING = 0.3


@fields.checked()
class Curve(NamedTuple):
  """A line with the interval around it.

  Attributes:
    x: increasing places. [E]
    mean: NaN where there is no value, as after a divergence. [E]
    low: lower end of the interval; None for no interval. [E]
    high: upper end of the interval. [E]
  """

  x: np.ndarray
  mean: np.ndarray
  low: np.ndarray | None = None
  high: np.ndarray | None = None


Panels = Mapping[str, Mapping[str, Any]]  # Condition -> method -> data.


def are_numbers(values: Iterable[Any]) -> bool:
  """Whether all values can be on an axis of numbers."""
  largest = sys.float_info.max
  return all(is_real(value) and abs(value) <= largest for value in values)


def as_curve(name: str, data: Any) -> Curve:
  """A curve whose four parts are arrays, NaN where it has no interval.

  Args:
    name: name of the argument, for messages.
    data: `Curve`, or x, [E], with values of one seed in each row, [seeds, E],
      whose mean and range are drawn.

  Raises:
    TypeError: if it is neither.
    ValueError: if the shapes do not fit.
  """
  if not isinstance(data, Curve):
    if not isinstance(data, tuple | list) or len(data) != 2:
      raise TypeError(
        f"{name}: is {type(data).__name__}; must be a Curve or (x, values)"
      )
    values = np.atleast_2d(checked_array(name, data[1], "[...]"))
    ends = (values.min(0), values.max(0)) if len(values) > 1 else ()
    data = Curve(data[0], values.mean(axis=0), *ends)
  if (data.low is None) != (data.high is None):
    raise ValueError(f"{name}: has low or high; must have both or neither")
  x, *values = (part for part in data if part is not None)
  x = checked_array(f"{name}: x", x, "[E]").astype(float)
  if not x.size:
    raise ValueError(f"{name}: x is empty; must have at least one place")
  values = [checked_array(name, v, f"[{x.size}]").astype(float) for v in values]
  no_end = np.full(x.size, np.nan)
  return Curve(x, *[*values, no_end, no_end][:3])


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

  def of_errors(self) -> "MetricAxis":
    """This axis of an accuracy, with the error in its place."""
    label = self.label.replace("accuracy", "error")
    label = label.replace("Accuracy", "Error")
    return self._replace(label=label, is_error=True)

  @property
  def worse_end(self) -> float:
    """The end of the axis where bad values are; NaN without limits."""
    if self.limits is None:
      return np.nan
    return self.limits[0 if self.is_better_high else 1]

  @property
  def is_better_high(self) -> bool:
    """Whether higher places on the axis are better."""
    return self.is_larger_better and not self.is_error

  def shares(self, values: Any) -> np.ndarray:
    """How high values of the metric are on the axis: 0 to 1; NaN if unknown."""
    if self.limits is None:
      return np.full(np.shape(values), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
      scale = np.log if self.is_log else np.asarray
      places, (low, high) = scale(self.units(values)), scale(self.limits)
      return (places - low) / (high - low)

  def is_cut(self, curves: Iterable[Curve]) -> bool:
    """Whether a part of curves or of their intervals is outside of the axis."""
    values = [
      part for curve in curves for part in curve[1:] if part is not None
    ]
    places = self.shares(np.concatenate([[], *values]))
    places = places[np.isfinite(places)]
    return bool(((places < -_ROUNDING) | (places > 1 + _ROUNDING)).any())

  def is_outside(self, values: Any) -> np.ndarray:
    """Whether values of the metric are beyond the worse end of the axis."""
    if self.limits is None or self.is_error:
      return np.zeros(np.shape(values), bool)
    places, end = self.units(values), self.worse_end
    return places < end if self.is_better_high else places > end


def metric_axis(
  metric: str, curves: Sequence[Curve], shows_all: bool = False
) -> MetricAxis:
  """The axis on which the good curves of a metric can be told apart.

  It shows the curves that did not diverge, if there are any. Accuracies that
  all end above 90 % become errors on a log axis. The range of other accuracies
  leaves out the first fifth of the curves, if that gives the rest more room,
  and curves that end far below the others. The axis of a loss goes from its
  lowest value to the highest value of the curves that do not end far above the
  others. It is logarithmic if these two are more than a factor of 100 apart.

  Args:
    metric: name of the metric.
    curves: what `as_curve` returned, one for each setting. The intervals of the
      last fifth of the rounds will be visible.
    shows_all: whether all curves and intervals are wholly visible, however
      little room that leaves for the best.
  """
  label, is_percent = metric_name(metric), is_accuracy(metric)
  factor, is_larger = 100.0 if is_percent else 1.0, direction(metric) == "max"
  axis = MetricAxis(label, factor=factor, is_larger_better=is_larger)
  finite_curves = [curve for curve in curves if np.isfinite(curve.mean[-1])]
  curves = finite_curves or [c for c in curves if np.isfinite(c.mean).any()]
  lines = [_in_units(curve, axis) for curve in curves]
  if not lines:
    return axis
  is_error = is_percent and _are_high(lines)
  if is_error:
    axis = axis.of_errors()
    lines = [_in_units(curve, axis) for curve in curves]
  good_lines = lines
  if not (shows_all or is_error or metric == "rank"):
    way = "max" if is_larger else "min"
    good_lines = _good(lines, way, at_least=10.0 if is_percent else 0.0)
  low, high = _ends([line.mean for line in good_lines])
  is_log = low > _ROUNDING * is_error and high > _FACTORS[is_error] * low
  if is_percent and not is_error:
    is_log = False
    tails = [line.mean[int(_BEGINNING * line.x.size) :] for line in good_lines]
    start = np.quantile(np.concatenate(tails), 0.02)
    is_worth = start - low > _WORTH_CUTTING * (high - low)
    if is_worth and len(good_lines) > 1 and not shows_all:
      low = start
  least = low / _BELOW  # A log axis has no zero, as an interval may.
  low, high = _ends(
    [[low, high], *(_last(line, shows_all) for line in good_lines)]
  )
  if is_log:
    low, high = max(low, least) / 1.2, high * 1.2
  else:
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
    low, high = low - margin, high + margin
  if is_percent:
    high = min(high, 100.0 if is_log else 100.5)
  return axis._replace(is_log=is_log, limits=(low, high))


def _in_units(curve: Curve, axis: MetricAxis) -> Curve:
  """A curve in the unit of the axis, without its NaN values."""
  x, *values = (part[np.isfinite(curve.mean)] for part in curve)
  return Curve(x, *map(axis.units, values))


def _are_high(lines: Sequence[Curve]) -> bool:
  """Whether all percents end high, but not all at 100."""
  has_error = any((line.mean < 100 - _ROUNDING).any() for line in lines)
  return has_error and min(line.mean[-1] for line in lines) > _HIGH


def _good(lines: list[Curve], direction: str, at_least: float) -> list[Curve]:
  """The lines that do not end far behind the others.

  A line ends far behind if its distance from the best end is more than four
  times that of the median, and more than `at_least`.
  """
  ends = np.array([line.mean[-1] for line in lines])
  distances = ends.max() - ends if direction == "max" else ends - ends.min()
  limit = max(4 * float(np.median(distances)), at_least)
  is_near = distances <= limit
  if direction == "min":
    # Lines that are never above the beginning of the others take no room.
    start = np.max([x.mean[0] for x in lines], where=is_near, initial=-np.inf)
    is_near |= np.array([line.mean.max() <= start for line in lines])
  return [line for line, near in zip(lines, is_near, strict=True) if near]


def _last(line: Curve, is_whole: bool) -> np.ndarray:
  """The interval around the last fifth of a line, or around all of it."""
  size = line.x.size if is_whole else max(1, line.x.size // 5)
  intervals = np.array(line[1:])[:, -size:]
  return intervals[np.isfinite(intervals)]


def _ends(parts: Sequence[Any]) -> tuple[float, float]:
  joined = np.concatenate([np.asarray(part, float) for part in parts])
  return float(joined.min()), float(joined.max())


def profiles_axis(metric: str, profiles: Iterable[Curve]) -> MetricAxis:
  """The axis of the values over which the shares of better runs are drawn.

  It is a log axis of errors if more than half of the runs of each method are
  above 90 %.

  Args:
    metric: identifier of these values.
    profiles: shares over values of the metric, in its own unit.
  """
  profiles = list(profiles)
  label, is_percent = metric_name(metric), is_accuracy(metric)
  axis = MetricAxis(label, factor=100.0 if is_percent else 1.0)
  high = _HIGH / 100
  is_high = all(np.interp(high, p.x, p.mean) > 0.5 for p in profiles)
  if not is_percent or not is_high:
    return axis
  return axis.of_errors()._replace(is_log=True)


def panels_axis(
  metric: str, panels: Panels, shows_all: bool = False, by_value: bool = False
) -> MetricAxis:
  """The axis of panels, of which each shows its good curves.

  The good curves are chosen in each panel: under a hard condition all methods
  can be far behind those of an easy one.

  Args:
    metric: identifier of what is drawn.
    panels: condition -> method -> `Curve`, of `as_curve`.
    shows_all: whether all curves are wholly visible.
    by_value: whether each value counts as the end of a curve. So it is for
      curves over a hyperparameter, whose last value is no better than others.
  """
  parts = _values if by_value else lambda curve: [curve]
  of_panels = [
    [part for curve in by_method.values() for part in parts(curve)]
    for by_method in panels.values()
  ]
  axis = metric_axis(metric, list(itertools.chain(*of_panels)), shows_all)
  if shows_all or axis.is_error or axis.is_log or axis.limits is None:
    return axis
  axes = [metric_axis(metric, curves) for curves in of_panels]
  limits = [x.limits for x in axes if not (x.is_error or x.is_log) and x.limits]
  lows, highs = zip(axis.limits, *limits, strict=True)
  return axis._replace(limits=(min(lows), max(highs)))


def _values(curve: Curve) -> list[Curve]:
  """A curve for each value, which is its end."""
  return [Curve(*point) for point in np.transpose(curve)[:, :, None]]
