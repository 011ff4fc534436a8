"""Picture of a study: the final value over one hyperparameter."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedjax_opt.results.names import name_of, sentence
from fedjax_opt.results.plots import files
from fedjax_opt.results.plots.frame import log_scale
from fedjax_opt.results.plots.methods import (
  DIVERGED,
  OUTSIDE,
  Curve,
  Styles,
  all_of,
  curves_by_condition,
  diverged_entry,
  draw_curves,
  draw_panels,
  outside_entry,
)
from fedjax_opt.results.plots.metric_axis import MetricAxis
from fedjax_opt.results.plots.panels import by_condition, is_log_axis
from fedjax_opt.results.plots.study_curves import panels_axis

# Of marks at the end of the axis that are stacked, as a share of the axis.
_MARK_HEIGHT = 0.06


def sensitivity(
  curves: Any,
  path: files.Path,
  *,
  metric: str,
  x_name: str,
  chosen: Any = None,
  log_x: bool | None = None,
  title: str | None = None,
  interval: str | None = None,
  styles: Styles | None = None,
) -> Any:
  """Draws the final value over one hyperparameter, and what was chosen.

  Values that diverged have a cross at the worse end of the axis.

  Args:
    curves: method -> `Curve`, or `(x [X], values [seeds, X])`, NaN where a seed
      diverged; or condition -> such a mapping. In the metric's own unit.
    path: as of `study_curves`.
    metric: its identifier, such as 'validation_accuracy'.
    x_name: identifier of the hyperparameter, such as 'client_lr'.
    chosen: method -> chosen value of the hyperparameter, or condition -> such a
      mapping, as `curves`; it gets a ring.
    log_x: whether the x axis is logarithmic; by default if the values are a
      factor of at least 10 apart.
    title: text above the panels.
    interval: what the bands are, above the legend.
    styles: looks of `method_styles`, if the study has more methods.

  Returns:
    As `study_curves`.

  Raises:
    As `study_curves`; ValueError if a chosen value is none of x, or a log axis
      cannot have a value.
  """
  conditions = curves_by_condition("curves", curves)
  places = _chosen_places(conditions, chosen)
  parts = all_of(conditions)
  axis = panels_axis(
    metric,
    {c: _single_values(of_method) for c, of_method in conditions.items()},
  )
  is_log = is_log_axis(x_name, np.concatenate([c.x for c in parts]), log_x)
  rings = iter(places)

  def draw(axes, of_method, looks):
    options = {"markers": True, "mark_ends": False}
    entries = draw_curves(axes, of_method, looks, axis, **options)
    rings_here = next(rings)
    entries |= _mark_lost(axes, of_method, looks, axis)
    for method, place in rings_here.items():
      color = looks[method].color
      entries |= _mark_chosen(axes, of_method[method], place, axis, color)
    if is_log:
      log_scale(axes.xaxis)
    return entries

  return draw_panels(
    conditions,
    path,
    draw,
    styles=styles,
    x_label=sentence(name_of(x_name)),
    y_label=axis.label,
    title=title,
    interval=interval,
  )


def _single_values(curves: Mapping[str, Curve]) -> dict[str, Curve]:
  """A curve of each value: a rate is no better for being the last one."""
  return {
    f"{method} {i}": Curve(*(part[[i]] for part in curve if part is not None))
    for method, curve in curves.items()
    for i in range(curve.x.size)
  }


def _chosen_places(
  conditions: Mapping[str, Mapping[str, Curve]], chosen: Any
) -> list[dict[str, int]]:
  """For each condition: method -> index of the chosen value."""
  if chosen is None:
    return [{} for _ in conditions]
  given = by_condition("chosen", chosen)
  if set(given) - set(conditions):
    raise ValueError(
      f"chosen: conditions are {list(given)}; must be among {list(conditions)}"
    )
  places = []
  for condition, of_method in conditions.items():
    places.append({})
    for method, value in given.get(condition, {}).items():
      if method not in of_method:
        raise ValueError(
          f"chosen: has {method!r}, which has no curve; must be among "
          f"{list(of_method)}"
        )
      found = np.flatnonzero(np.isclose(of_method[method].x, value, rtol=1e-6))
      if not found.size:
        shown = [f"{x:g}" for x in of_method[method].x]
        raise ValueError(
          f"chosen[{method!r}]={value}: must be one of {', '.join(shown)}"
        )
      places[-1][method] = int(found[0])
  return places


def _mark_lost(
  axes: Any, curves: Mapping[str, Curve], styles: Styles, axis: MetricAxis
) -> dict[str, Any]:
  """Marks what diverged, or is outside, at the worse end of the axis.

  Several marks at one place are stacked.
  """
  entries: dict[str, Any] = {}
  num_marks: dict[float, int] = {}
  for method, curve in curves.items():
    for x, value in zip(curve.x, curve.mean, strict=True):
      kind = None if np.isfinite(value) else DIVERGED
      if kind is None and axis.is_outside(value):
        kind = OUTSIDE
      if kind is None:
        continue
      entry = diverged_entry() if kind == DIVERGED else outside_entry(axis)
      entries[kind] = entry
      height = _MARK_HEIGHT * num_marks.get(float(x), 0)
      num_marks[float(x)] = num_marks.get(float(x), 0) + 1
      axes.plot(
        x,
        height if axis.is_better_high else 1 - height,
        color=styles[method].color,
        marker=entry.get_marker(),
        markersize=5,
        linestyle="",
        transform=axes.get_xaxis_transform(),
        clip_on=False,
        zorder=5,
      )
  return entries


def _mark_chosen(
  axes: Any, curve: Curve, place: int, axis: MetricAxis, color: str
) -> dict[str, Any]:
  from matplotlib.lines import Line2D

  look = {
    "marker": "o",
    "linestyle": "",
    "markersize": 9,
    "markerfacecolor": "none",
    "markeredgewidth": 1.3,
  }
  y = axis.units(curve.mean[place])
  if not np.isfinite(y) or axis.is_outside(curve.mean[place]):
    y = axis.worse_end
  axes.plot(curve.x[place], y, color=color, zorder=4, clip_on=False, **look)
  return {"chosen": Line2D([], [], color="#606060", **look)}
