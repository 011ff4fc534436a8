"""Lines of figures with their intervals, how they look, and their marks."""

import collections
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.checks import fields
from fedjax_opt.checks.values import check_strings
from fedjax_opt.results.names import format_number, shown_name
from fedjax_opt.study.plots.frame import COLORS, LINE_STYLES, log_scale
from fedjax_opt.study.plots.metric_axis import Curve, MetricAxis

_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")
# Entries of the legend that are not methods.
DIVERGED, OUTSIDE = "diverged", "outside the axis"
# Distance of stacked marks at the end of the axis, as a share of the axis.
_MARK_HEIGHT = 0.06
# What later curves would hide is larger by so many points for each of them:
# markers of values that differ by less than this share of the axis, and lines
# of which almost all values do.
_WIDER, _LARGER = 1.4, 2.2
_NEAR, _ALMOST_ALL = 0.01, 0.9
_MOST_ABOVE = 3
# The colour of legend entries that concern all methods.
GREY = "#606060"


@fields.checked()
class Style(NamedTuple):
  """How a method looks in every picture of a study.

  Attributes:
    color: the color of its line, band and markers.
    linestyle: the style of its line.
    marker: where single values are drawn.
  """

  color: str
  linestyle: str
  marker: str


Styles = Mapping[str, Style]


# Methods that look the same in every picture, and the number of their style.
# Methods drawn together differ in colour or, if related, in the line's style.
_STYLE_NUMBERS = {
  **dict.fromkeys(("FedAvg", "FedAvg(∂)", "Local SGD", "SGD"), 0),
  **dict.fromkeys(("SCAFFOLD", "FedMiD", "FedAvgLM", "SGDM"), 1),
  **dict.fromkeys(("DOMO", "FedDualAvg", "Adam"), 2),
  **dict.fromkeys(("Δ-SGD", "FedDualAvg-OSP"), 3),
  **dict.fromkeys(("FedProx", "FedMiD-OSP", "Minibatch SARAH", "Adagrad"), 4),
  **dict.fromkeys(("FedAvgSLM-Z", "Minibatch SGD"), 5),
  **dict.fromkeys(("BVR-L-SGD", "FedAvgSM", "SPS"), 6),
  "SGD(↓)": 7,
  "SGDM(↓)": 8,
  "FedAvgLM-Z": 10,
  "DOMO-S": 11,
  **dict.fromkeys(("FedAvgSLM", "Δ-SGD, η₀ = 0.02"), 12),
}


@fields.checked()
def method_styles(labels: Iterable[str]) -> dict[str, Style]:
  """One style for each method, to be used in all pictures of a study.

  Methods of the four papers look the same in every study. Up to seven others
  have a colour of their own; further ones have the same colours with other
  lines. All of 77 methods look different.

  Args:
    labels: all methods of the study; their order gives the styles.

  Returns:
    label -> its style.
  """
  labels = list(labels)
  check_strings("labels", labels)
  numbers: dict[str, int] = {}
  for label in labels:
    number = _STYLE_NUMBERS.get(shown_name(label))
    if number is not None and number not in numbers.values():
      numbers[label] = number
  fixed = set(numbers.values())
  others = (i for i in itertools.count() if i not in fixed)
  for label in labels:
    if label not in numbers:
      numbers[label] = next(others)
  return {label: _look(numbers[label]) for label in labels}


def _look(number: int) -> Style:
  return Style(
    COLORS[number % len(COLORS)],
    LINE_STYLES[number // len(COLORS) % len(LINE_STYLES)],
    _MARKERS[number % len(_MARKERS)],
  )


def draw_curves(
  axes: Any,
  curves: Mapping[str, Curve],
  styles: Styles,
  axis: MetricAxis,
  *,
  markers: bool = False,
  bars: bool = False,
  by_value: bool = False,
) -> dict[str, Any]:
  """Draws the curves of a panel, with marks for what diverged or is outside.

  A curve that ends as NaN has a cross where it ends, and one that ends outside
  the axis a triangle, with the value of its end.

  Args:
    axes: matplotlib's axes.
    curves: each method's curve, from `as_curve`.
    styles: each method's style.
    axis: the axis of the metric.
    markers: whether each value has a marker; if not, some of several curves
      have.
    bars: whether intervals are bars, not bands.
    by_value: whether each value that diverged or is outside has a mark at the
      worse end of the axis; if not, the end of a curve has it.

  Returns:
    The entries of the legend.
  """
  from matplotlib.lines import Line2D

  if axis.is_log:
    log_scale(axes.yaxis, axis.limits)
  if axis.limits is not None:
    axes.set_ylim(axis.limits)
  entries: dict[str, Any] = {}
  places = np.unique(np.concatenate([curve.x for curve in curves.values()]))
  if places.size == 1:
    axes.set_xticks(places, [format_number(places[0])])
  for number, (method, curve) in enumerate(curves.items()):
    color, linestyle, marker = styles[method]
    mean = axis.units(curve.mean)
    later_curves = list(curves.values())[number + 1 :]
    num_above, on_line = _num_above(curve, later_curves, axis)
    look = {"color": color, "linestyle": linestyle, "linewidth": 1.3}
    if markers or np.isfinite(mean).sum() == 1:
      look |= {"marker": marker, "markersize": 3.5}
    elif len(curves) > 1:
      # Lines have markers at different places, so that none hides another.
      every = max(len(curves), mean.size // 4)
      first = (number + 1) * every // len(curves) % mean.size
      look |= {"marker": marker, "markersize": 4, "markevery": (first, every)}
    entries[method] = Line2D([], [], **look)
    look["linewidth"] += _WIDER * on_line
    # Dashes do not hide the line that they lie on.
    look["zorder"] = 3 if linestyle == LINE_STYLES[0] else 3.1
    axes.plot(curve.x, mean, **look)
    for num in np.unique(num_above[num_above > 0]) if markers else ():
      larger = {"linestyle": "", "markersize": 3.5 + _LARGER * num}
      is_below = num_above == num
      axes.plot(curve.x[is_below], mean[is_below], **look | larger)
    ends = np.sort([axis.units(curve.low), axis.units(curve.high)], axis=0)
    if bars:
      axes.vlines(curve.x, *ends, color=color, lw=1.1, zorder=3)
    elif np.isfinite(ends).any():
      band = {"alpha": 0.18, "linewidth": 0, "zorder": 2.5}
      axes.fill_between(curve.x, *ends, color=color, **band)
  mark = _mark_values if by_value else _mark_ends
  for kind in mark(axes, curves, styles, axis):
    look = {"color": GREY, "markersize": 5, "markeredgewidth": 1}
    entries[kind] = Line2D([], [], **_mark_of(kind, axis) | look)
  return entries


def _num_above(
  curve: Curve, later_curves: Sequence[Curve], axis: MetricAxis
) -> tuple[np.ndarray, int]:
  """How many later curves lie on each value, [E], and on the line."""
  at_value, on_line = np.zeros(curve.x.size, int), 0
  places = axis.shares(curve.mean)
  for other in later_curves:
    if not np.array_equal(curve.x, other.x):
      continue
    other_places = axis.shares(other.mean)
    is_shown = ((places >= 0) & (places <= 1)) | (
      (other_places >= 0) & (other_places <= 1)
    )
    is_near = is_shown & (np.abs(places - other_places) < _NEAR)
    at_value += is_near
    on_line += is_near.sum() >= _ALMOST_ALL * max(is_shown.sum(), 1)
  return np.minimum(at_value, _MOST_ABOVE), min(on_line, _MOST_ABOVE)


def _mark_ends(
  axes: Any, curves: Mapping[str, Curve], styles: Styles, axis: MetricAxis
) -> list[str]:
  """Marks where a curve diverged, or ends outside, with the value there.

  Returns:
    The kinds of marks that there are, as `_mark_values` does.
  """
  kinds = []
  for method, curve in curves.items():
    is_lost = not np.isfinite(curve.mean[-1])
    if not is_lost and not axis.is_outside(curve.mean[-1]):
      continue
    kind, color = DIVERGED if is_lost else OUTSIDE, styles[method].color
    kinds.append(kind)
    finite = np.flatnonzero(np.isfinite(curve.mean))
    if not finite.size:
      continue
    end = axis.units(curve.mean[finite[-1]])
    place = (curve.x[finite[-1]], np.clip(end, *sorted(axes.get_ylim())))
    axes.plot(*place, color=color, **_mark_of(kind, axis))
    if kind == OUTSIDE:
      # The values are right of the panel, where no curve is, and stacked.
      height = 8 * len(axes.texts)
      axes.annotate(
        format_number(float(f"{end:.3g}")),
        (1, place[1]),
        xycoords=("axes fraction", "data"),
        xytext=(3, height if axis.is_better_high else -height),
        textcoords="offset points",
        color=color,
        annotation_clip=False,
        **{"size": 7, "ha": "left", "va": "center", "zorder": 5},
      )
  return kinds


def _mark_values(
  axes: Any, curves: Mapping[str, Curve], styles: Styles, axis: MetricAxis
) -> list[str]:
  """Marks values at the worse end of the axis, stacked if at the same place."""
  kinds = []
  num_marks: collections.Counter[float] = collections.Counter()
  for method, curve in curves.items():
    is_lost = ~np.isfinite(curve.mean)
    for i in np.flatnonzero(is_lost | axis.is_outside(curve.mean)):
      kinds.append(DIVERGED if is_lost[i] else OUTSIDE)
      height = _MARK_HEIGHT * num_marks[curve.x[i]]
      num_marks[curve.x[i]] += 1
      look = _mark_of(kinds[-1], axis) | {"color": styles[method].color}
      place = (curve.x[i], height if axis.is_better_high else 1 - height)
      axes.plot(*place, transform=axes.get_xaxis_transform(), **look)
  return kinds


def _mark_of(kind: str, axis: MetricAxis) -> dict[str, Any]:
  """The look of a cross or triangle; it is not cut off at the axis' end."""
  look = {"linestyle": "", "markersize": 5.5, "clip_on": False, "zorder": 5}
  if kind == DIVERGED:
    return look | {"marker": "x", "markeredgewidth": 1.5}
  marker = "v" if axis.is_better_high else "^"
  return look | {"marker": marker, "markeredgewidth": 0.5}
