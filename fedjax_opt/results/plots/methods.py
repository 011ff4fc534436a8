"""Methods in the pictures of a study: their looks, their curves, their panels.

Every picture of a study takes `method -> data`, for one panel, or
`condition -> method -> data`, for one panel each. Axis letters: `E` places on
the x axis of a curve.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.results.names import number, sentence, shown_name
from fedjax_opt.results.plots import files, legends
from fedjax_opt.results.plots.frame import COLORS, LINE_STYLES
from fedjax_opt.results.plots.metric_axis import MetricAxis
from fedjax_opt.results.plots.panels import (
  by_condition,
  draw_band,
  mark_divergence,
  panel_figure,
)

_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")
# Entries of the legend that are no methods.
DIVERGED, OUTSIDE = "diverged", "outside the axis"


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
    ends = (values.min(0), values.max(0)) if len(values) > 1 else (None, None)
    data = Curve(np.asarray(data[0]), values.mean(axis=0), *ends)
  arrays = [np.asarray(each, float) for each in data if each is not None]
  shapes = [array.shape for array in arrays]
  if arrays[0].ndim != 1 or not arrays[0].size or len(set(shapes)) > 1:
    raise ValueError(
      f"{name}: shapes of x and its values are {shapes}; all must be the same "
      "[E], with at least one value"
    )
  if (data.low is None) != (data.high is None):
    raise ValueError(f"{name}: has low or high; must have both or neither")
  return Curve(*arrays)


def curves_by_condition(name: str, curves: Any) -> dict[str, dict[str, Curve]]:
  """condition -> method -> `Curve`, of what a picture was given."""
  return {
    condition: {
      method: as_curve(f"{name}[{method!r}]", data)
      for method, data in of_method.items()
    }
    for condition, of_method in by_condition(name, curves).items()
  }


def all_of(conditions: Mapping[str, Mapping[str, Any]]) -> list[Any]:
  """The data of all methods under all conditions."""
  return [
    data for of_method in conditions.values() for data in of_method.values()
  ]


def draw_panels(
  conditions: Mapping[str, Mapping[str, Any]],
  path: files.Path,
  draw: Callable[[Any, Mapping[str, Any], Styles], dict[str, Any]],
  *,
  styles: Styles | None,
  x_label: str,
  y_label: str,
  title: str | None = None,
  interval: str | None = None,
  panel: tuple[float, float] = (3.3, 2.3),
) -> Any:
  """Draws one panel for each condition, with one y axis and one legend.

  Args:
    conditions: condition -> method -> data.
    path: as the pictures take it.
    draw: `axes, method -> data, styles -> {label: entry of the legend}`, which
      draws one panel.
    styles: of all methods of the study; by default those of these methods.
    x_label: name of the x axes.
    y_label: name of the y axis.
    title: text above the panels.
    interval: what bands or error bars are, above the legend.
    panel: width and height of a panel in inches, if the page has room.
  """
  files.paths_of(path)
  names = list(dict.fromkeys(m for each in conditions.values() for m in each))
  styles = styles or method_styles(names)
  missing = [name for name in names if name not in styles]
  if missing:
    raise ValueError(
      f"styles: has no {missing[0]!r}; must have every method, as "
      "method_styles(all methods) has"
    )
  legend_title = sentence(interval) if interval else None
  with panel_figure(
    len(conditions),
    panel,
    [*names, DIVERGED],
    title=title,
    legend_title=legend_title,
    share_y=True,
  ) as (new, all_axes, width):
    entries: dict[str, Any] = {}
    for axes, (condition, of_method) in zip(
      all_axes, conditions.items(), strict=True
    ):
      entries |= draw(axes, of_method, styles)
      axes.set_title(shown_name(condition))
      axes.set_xlabel(x_label)
      is_first = axes.get_subplotspec().is_first_col()
      axes.set_ylabel(y_label if is_first else "")
    legends.add_below(new, _in_order(entries, names), width, legend_title)
    return files.finish(new, path)


def _in_order(entries: dict[str, Any], names: list[str]) -> dict[str, Any]:
  """The methods in the order of the study, then what else is to be said."""
  methods = {shown_name(n): entries[n] for n in names if n in entries}
  return methods | {n: e for n, e in entries.items() if n not in names}


def draw_curves(
  axes: Any,
  curves: Mapping[str, Curve],
  styles: Styles,
  axis: MetricAxis,
  markers: bool = False,
  mark_ends: bool = True,
) -> dict[str, Any]:
  """Draws the curves of a panel.

  Args:
    axes: of matplotlib.
    curves: of each method.
    styles: of each method.
    axis: of the metric.
    markers: whether each value has a marker.
    mark_ends: whether a curve that ends as NaN has a cross there, and one that
      ends outside the axis a triangle.

  Returns:
    The entries of the legend.
  """
  axis.apply(axes, label=False)
  entries: dict[str, Any] = {}
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
      draw_band(axes, curve.x, *ends, style.color)
    if mark_ends and not np.isfinite(mean[-1]):
      mark_divergence(axes, curve.x, mean, style.color)
      entries[DIVERGED] = diverged_entry()
    elif mark_ends and axis.is_outside(curve.mean[-1]):
      entries[OUTSIDE] = entry = outside_entry(axis)
      look = {"marker": entry.get_marker(), "markersize": 5, "zorder": 5}
      end = (curve.x[-1], axis.worse_end)
      axes.plot(*end, color=style.color, clip_on=False, **look)
  return entries


def diverged_entry() -> Any:
  """What the legend shows for the crosses of diverged values."""
  from matplotlib.lines import Line2D

  return Line2D([], [], color="#606060", linestyle="", marker="x", markersize=5)


def outside_entry(axis: MetricAxis) -> Any:
  """What the legend shows for the triangles of values outside the axis."""
  from matplotlib.lines import Line2D

  marker = "v" if axis.is_better_high else "^"
  return Line2D(
    [], [], color="#606060", linestyle="", marker=marker, markersize=5
  )
