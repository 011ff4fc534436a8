"""Panels and legends of figures, and how methods look in those of a study.

Every picture of a study takes `method -> data`, for one panel, or
`condition -> method -> data`, for one panel each. Axis letters: `E` places on
the x axis of a curve.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.results.names import number, sentence, shown_name
from fedjax_opt.study.plots.frame import (
  COLORS,
  LINE_STYLES,
  Path,
  finish,
  paths_of,
  styled_figure,
)
from fedjax_opt.study.plots.metric_axis import MetricAxis

_CHARACTERS_PER_INCH = 16.5


def num_columns(labels: Sequence[str], width: float) -> int:
  """The number of legend columns that fit into `width` inches."""
  characters = _CHARACTERS_PER_INCH * width
  for columns in range(min(len(labels), 6), 1, -1):
    # As matplotlib fills a legend: column by column, the longer ones first.
    filled = np.array_split(np.asarray(labels), columns)
    if sum(max(map(len, column)) + 8 for column in filled) <= characters:
      # No longer columns than needed: 4 and 3 instead of 2 and five times 1.
      return -(-len(labels) // -(-len(labels) // columns))
  return 1


def add_below(
  figure: Any,
  entries: dict[str, Any],
  width: float,
  title: str | None = None,
) -> None:
  """Adds a legend below the panels.

  Args:
    figure: a matplotlib figure.
    entries: label -> line or patch that shows it.
    width: of the figure, in inches.
    title: of the legend.
  """
  figure.legend(
    list(entries.values()),
    list(entries),
    title=title,
    loc="outside lower center",
    ncols=num_columns(list(entries), width),
    columnspacing=1.4,
    handlelength=1.8,
  )


def num_rows(
  labels: Sequence[str], width: float, title: str | None = None
) -> int:
  """The number of rows of the legend that `add_below` adds."""
  if not labels and not title:
    return 0
  return -(-len(labels) // num_columns(labels, width)) + bool(title)


# The width of a page's text in inches, at which figures are not shrunk.
PAGE_WIDTH = 6.8
# Positive values that are so many times apart have a log axis.
_SPREAD = 10


def grid_shape(num_panels: int) -> tuple[int, int]:
  """Rows and columns for so many panels: at most three in a row."""
  columns = 2 if num_panels in (2, 4) else min(num_panels, 3)
  return -(-num_panels // columns), columns


@contextlib.contextmanager
def panel_figure(
  num_panels: int,
  panel: tuple[float, float],
  labels: Sequence[str],
  *,
  title: str | None,
  legend_title: str | None,
  share_y: bool = False,
) -> Iterator[tuple[Any, list[Any], float]]:
  """A figure of panels with room for a legend below them.

  Args:
    num_panels: at least 1.
    panel: width and height of a panel in inches, if the page has room.
    labels: of the legend.
    title: text above the panels.
    legend_title: text above the legend.
    share_y: whether the panels have one y axis.

  Yields:
    The figure, the axes of its panels, and its width in inches.
  """
  rows, columns = grid_shape(num_panels)
  width = min(columns * panel[0], PAGE_WIDTH)
  height = rows * (panel[1] if rows == 1 else 0.9 * panel[1])
  height += 0.15 + 0.2 * bool(title)
  height += 0.16 * num_rows(labels, width, legend_title)
  with styled_figure(width, height) as new:
    all_axes = new.subplots(rows, columns, squeeze=False, sharey=share_y)
    new.get_layout_engine().set(hspace=0.05)
    first, *rest = np.split(all_axes.ravel(), [num_panels])
    for unused in np.concatenate(rest):
      unused.remove()
    if title:
      new.suptitle(title, fontsize=9)
    yield new, list(first), width


def draw_band(
  axes: Any, x: np.ndarray, low: np.ndarray, high: np.ndarray, color: str
) -> None:
  """Draws the band of a line, [E] each, behind all lines."""
  axes.fill_between(
    x, low, high, color=color, alpha=0.18, linewidth=0, zorder=2.5
  )


def mark_divergence(
  axes: Any, x: np.ndarray, mean: np.ndarray, color: str
) -> None:
  """Draws a cross at a line's last finite value."""
  finite = np.flatnonzero(np.isfinite(mean))
  if not finite.size:
    return
  last = finite[-1]
  axes.plot(
    x[last],
    np.clip(mean[last], *sorted(axes.get_ylim())),
    marker="x",
    markersize=5.5,
    markeredgewidth=1.5,
    color=color,
    clip_on=False,
    zorder=4,
  )


def by_condition(name: str, values: Any) -> dict[str, dict[str, Any]]:
  """One entry for each condition, also where there is but one.

  Args:
    name: name of the argument, for messages.
    values: condition -> method -> anything, or method -> anything.

  Returns:
    condition -> method -> anything; the only condition is "".

  Raises:
    TypeError: if it is no mapping.
    ValueError: if it is empty.
  """
  if not isinstance(values, Mapping):
    raise TypeError(
      f"{name}: is {type(values).__name__}; must be a mapping from labels"
    )
  nested = any(isinstance(each, Mapping) for each in values.values())
  conditions = values if nested else {"": values}
  for condition, of_method in conditions.items():
    if not isinstance(of_method, Mapping):
      raise TypeError(
        f"{name}[{condition!r}]: is {type(of_method).__name__}; must be a "
        "mapping from methods, as the others are"
      )
    if not of_method:
      where = f"{name}[{condition!r}]" if nested else name
      raise ValueError(f"{where}: is empty; must have at least one method")
  return {str(c): dict(of_method) for c, of_method in conditions.items()}


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
  return low > 0 and high >= _SPREAD * low if wanted is None else wanted


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
  path: Path,
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
  paths_of(path)
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
    add_below(new, _in_order(entries, names), width, legend_title)
    return finish(new, path)


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
