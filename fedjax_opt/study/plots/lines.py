"""Lines of figures with their intervals, how they look, and their axis.

Axis letters: `E` places on the x axis of a curve.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.results.names import number
from fedjax_opt.study.plots.frame import COLORS, LINE_STYLES
from fedjax_opt.study.plots.metric_axis import MetricAxis, metric_axis

_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")


# Entries of the legend that are no methods.
DIVERGED, OUTSIDE = "diverged", "outside the axis"


# Of marks at the end of the axis that are stacked, as a share of the axis.
_MARK_HEIGHT = 0.06


class Style(NamedTuple):
  """How a method looks in every picture of a study.

  Attributes:
    color: of its line, band and markers.
    linestyle: of its line.
    marker: where single values are drawn.
  """

  color: str
  linestyle: str
  marker: str


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


Styles = Mapping[str, Style]


Panels = Mapping[str, Mapping[str, Any]]  # Condition -> method -> data.


def method_styles(labels: Iterable[str]) -> dict[str, Style]:
  """One look for each method, to be used in all pictures of a study.

  Up to seven methods have a colour of their own; more have the colours again,
  with other lines. No two of 77 look the same.

  Args:
    labels: of all methods of the study; the order gives the looks.

  Returns:
    label -> its style.
  """
  return {
    label: Style(
      COLORS[i % len(COLORS)],
      LINE_STYLES[i // len(COLORS) % len(LINE_STYLES)],
      _MARKERS[i % len(_MARKERS)],
    )
    for i, label in enumerate(dict.fromkeys(labels))
  }


def as_curve(name: str, data: Any) -> Curve:
  """A curve, of a `Curve` or of `(x, values)`.

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
    values = np.atleast_2d(np.asarray(data[1], float))
    ends = (values.min(0), values.max(0)) if len(values) > 1 else ()
    data = Curve(data[0], values.mean(axis=0), *ends)
  if (data.low is None) != (data.high is None):
    raise ValueError(f"{name}: has low or high; must have both or neither")
  arrays = [np.asarray(each, float) for each in data if each is not None]
  shapes = [array.shape for array in arrays]
  if arrays[0].ndim != 1 or not arrays[0].size or len(set(shapes)) > 1:
    raise ValueError(
      f"{name}: shapes of x and its values are {shapes}; all must be the same "
      "[E], with at least one value"
    )
  return Curve(*arrays)


def curves_axis(
  metric: str, curves: Sequence[Curve], whole: bool = False
) -> MetricAxis:
  """The axis of curves, of those that did not diverge if there are any."""
  ok = [c for c in curves if np.isfinite(c.mean[-1])] or list(curves)
  around = [[c.mean] if c.low is None else [c.low, c.high] for c in ok]
  return metric_axis(metric, [curve.mean for curve in ok], around, whole)


def panels_axis(
  metric: str, panels: Panels, whole: bool = False, by_value: bool = False
) -> MetricAxis:
  """The axis of panels, of which each shows its good curves.

  Under a hard condition all methods can be far behind those of an easy one.

  Args:
    metric: identifier of what is drawn.
    panels: condition -> method -> `Curve`.
    whole: whether all of the curves is visible.
    by_value: whether each value counts as the end of a curve: a rate is no
      better for being the last one.
  """
  parts = _values if by_value else lambda curve: [curve]
  of_panels = [
    [part for curve in of_method.values() for part in parts(curve)]
    for of_method in panels.values()
  ]
  everything = [curve for curves in of_panels for curve in curves]
  axis = curves_axis(metric, everything, whole)
  if whole or axis.is_error or axis.is_log or axis.limits is None:
    return axis
  own = [curves_axis(metric, curves) for curves in of_panels]
  same = [x.limits for x in own if not (x.is_error or x.is_log) and x.limits]
  lows, highs = zip(axis.limits, *same, strict=True)
  return axis._replace(limits=(min(lows), max(highs)))


def _values(curve: Curve) -> list[Curve]:
  """A curve of each value."""
  parts = [part for part in curve if part is not None]
  return [Curve(*each) for each in np.transpose(parts)[:, :, None]]


def is_log_axis(name: str, values: np.ndarray, wanted: bool | None) -> bool:
  """Whether the axis of these values is logarithmic.

  Args:
    name: of the values, for messages.
    values: of any number.
    wanted: what was asked for; None for an axis that is logarithmic if positive
      values are a factor of at least 10 apart.

  Raises:
    ValueError: if it was asked for and a value is not positive.
  """
  low, high = float(values.min()), float(values.max())
  if wanted and low <= 0:
    raise ValueError(f"log_x=True: {name} has {low:g}; must be positive")
  return low > 0 and high >= 10 * low if wanted is None else wanted


def draw_curves(
  axes: Any,
  curves: Mapping[Any, Curve],
  styles: Mapping[Any, Style],
  axis: MetricAxis,
  *,
  markers: bool = False,
  bars: bool = False,
  mark_ends: bool = True,
) -> dict[Any, Any]:
  """Draws the curves of a panel.

  Args:
    axes: of matplotlib.
    curves: of each method.
    styles: of each method.
    axis: of the metric.
    markers: whether each value has a marker.
    bars: whether intervals are bars, not bands.
    mark_ends: whether a curve that ends as NaN has a cross there, and one that
      ends outside the axis a triangle, with the value of its end.

  Returns:
    The entries of the legend.
  """
  axis.apply(axes, label=False)
  entries: dict[Any, Any] = {}
  places = np.unique(np.concatenate([curve.x for curve in curves.values()]))
  if places.size == 1:
    axes.set_xticks(places, [number(places[0])])
  for method, curve in curves.items():
    style = styles[method]
    mean = axis.units(curve.mean)
    is_single = np.isfinite(mean).sum() == 1
    (entries[method],) = axes.plot(
      curve.x,
      mean,
      color=style.color,
      linestyle=style.linestyle,
      marker=style.marker if markers or is_single else None,
      markersize=3.5,
      linewidth=1.3,
      zorder=3,
    )
    if curve.low is not None:
      ends = np.sort([axis.units(curve.low), axis.units(curve.high)], axis=0)
      if bars:
        axes.vlines(curve.x, *ends, color=style.color, lw=1.1, zorder=3)
      else:
        band = {"alpha": 0.18, "linewidth": 0, "zorder": 2.5}
        axes.fill_between(curve.x, *ends, color=style.color, **band)
    if mark_ends:
      entries |= _mark_end(axes, curve, style.color, axis)
  return entries


def _mark_end(
  axes: Any, curve: Curve, color: str, axis: MetricAxis
) -> dict[str, Any]:
  """Draws a cross where a curve diverged, or a triangle and where it ends."""
  finite = np.flatnonzero(np.isfinite(curve.mean))
  is_lost = not np.isfinite(curve.mean[-1])
  if not is_lost and not axis.is_outside(curve.mean[-1]):
    return {}
  kind = DIVERGED if is_lost else OUTSIDE
  if finite.size:
    last = finite[-1]
    end = axis.units(curve.mean[last])
    place = (curve.x[last], np.clip(end, *sorted(axes.get_ylim())))
    _mark(axes, place, kind, color, axis)
    if kind == OUTSIDE:
      # Inside the axis, one above the other where several curves leave it.
      height = 6 + 8 * len(axes.texts)
      axes.annotate(
        number(float(f"{end:.3g}")),
        place,
        xytext=(-4, height if axis.is_better_high else -height),
        textcoords="offset points",
        color=color,
        bbox={"pad": 0.5, "color": "white", "alpha": 0.7},
        **{"size": 7, "ha": "right", "va": "center", "zorder": 5},
      )
  return {kind: _entry(kind, axis)}


def mark_values(
  axes: Any, curves: Mapping[str, Curve], styles: Styles, axis: MetricAxis
) -> dict[str, Any]:
  """Marks what diverged, or is outside, at the worse end of the axis.

  Several marks at one place are stacked.

  Returns:
    The entries of the legend.
  """
  entries: dict[str, Any] = {}
  num_marks: dict[float, int] = {}
  for method, curve in curves.items():
    for x, value in zip(curve.x.tolist(), curve.mean, strict=True):
      if np.isfinite(value) and not axis.is_outside(value):
        continue
      kind = OUTSIDE if np.isfinite(value) else DIVERGED
      height = _MARK_HEIGHT * num_marks.get(x, 0)
      num_marks[x] = num_marks.get(x, 0) + 1
      place = (x, height if axis.is_better_high else 1 - height)
      look = {"transform": axes.get_xaxis_transform()}
      _mark(axes, place, kind, styles[method].color, axis, **look)
      entries[kind] = _entry(kind, axis)
  return entries


def _mark(
  axes: Any,
  place: tuple[float, float],
  kind: str,
  color: str,
  axis: MetricAxis,
  **look: Any,
) -> None:
  """Draws a cross or a triangle, also at the very end of the axis."""
  marker = _entry(kind, axis).get_marker()
  size = {"markersize": 5.5, "markeredgewidth": 1.5 if marker == "x" else 0.5}
  look |= {"marker": marker, "clip_on": False, "zorder": 5, **size}
  axes.plot(*place, color=color, linestyle="", **look)


def _entry(kind: str, axis: MetricAxis) -> Any:
  """What the legend shows for crosses, or for triangles."""
  from matplotlib.lines import Line2D

  worse = "v" if axis.is_better_high else "^"
  marker = "x" if kind == DIVERGED else worse
  look = {"color": "#606060", "linestyle": "", "markersize": 5}
  return Line2D([], [], marker=marker, **look)
