"""Pictures of a study whose lines have a metric over something."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_opt.results.history import direction, is_fraction
from fedjax_opt.results.names import metric_name, name_of, number, sentence
from fedjax_opt.study.plots.frame import Path, log_scale
from fedjax_opt.study.plots.learning_curves import X_AXES
from fedjax_opt.study.plots.metric_axis import MetricAxis, metric_axis
from fedjax_opt.study.plots.panels import (
  DIVERGED,
  OUTSIDE,
  Curve,
  Styles,
  all_of,
  by_condition,
  curves_by_condition,
  diverged_entry,
  draw_curves,
  draw_panels,
  is_log_axis,
  outside_entry,
)


def study_curves(
  curves: Any,
  path: Path,
  *,
  metric: str,
  x_label: str = "rounds",
  title: str | None = None,
  interval: str | None = None,
  styles: Styles | None = None,
) -> Any:
  """Draws the learning curves of several methods, a panel for each condition.

  A line ends, with a cross, where a seed diverged. The range is that of the
  good curves, as in `curves`; the others have a triangle where they leave it.

  Args:
    curves: method -> `Curve`, or `(x [E], values [seeds, E])`, of which mean
      and range are drawn; or condition -> such a mapping, for one panel each.
      In the metric's own unit: accuracies from 0 to 1.
    path: file to write, or a list of files; the ending chooses the format (png,
      pdf, svg). None to get the figure.
    metric: its identifier, such as 'test_accuracy'.
    x_label: 'rounds', 'gradient_evaluations', 'bytes' (in MB), or any text.
    title: text above the panels.
    interval: what the bands are, above the legend, such as 'mean and 95 %
      interval over 5 seeds'.
    styles: looks of `method_styles`, if the study has more methods.

  Returns:
    The matplotlib figure if `path` is None, else None.

  Raises:
    ValueError, TypeError: for curves that are empty or do not fit, a method
      without a look, or a file's ending.
    ImportError: if matplotlib is missing.
  """
  conditions = curves_by_condition("curves", curves)
  axis = panels_axis(metric, conditions)

  def draw(axes, of_method, looks):
    entries = draw_curves(axes, of_method, looks, axis)
    x = np.concatenate([curve.x for curve in of_method.values()])
    if np.ptp(x):
      # As many numbers as fit beside one another, and no half rounds.
      is_whole = bool((x == x.round()).all())
      axes.xaxis.get_major_locator().set_params(nbins=5, integer=is_whole)
      axes.xaxis.set_major_formatter(lambda value, _: number(value))
    return entries

  return draw_panels(
    conditions,
    path,
    draw,
    styles=styles,
    x_label=X_AXES.get(x_label, x_label),
    y_label=axis.label,
    title=title,
    interval=interval,
  )


def tuning_curves(
  curves: Any,
  path: Path,
  *,
  metric: str,
  title: str | None = None,
  interval: str | None = None,
  styles: Styles | None = None,
) -> Any:
  """Draws the expected best of n settings that are tried.

  Args:
    curves: method -> `(n [N], value [N])` or `Curve`; or condition -> such a
      mapping, for one panel each. In the metric's own unit.
    path: as of `study_curves`.
    metric: its identifier, such as 'validation_accuracy'.
    title: text above the panels.
    interval: what the bands are, above the legend.
    styles: looks of `method_styles`, if the study has more methods.

  Returns:
    As `study_curves`.

  Raises:
    As `study_curves`.
  """
  conditions = curves_by_condition("curves", curves)
  axis = curves_axis(metric, all_of(conditions), whole=True)
  num_panels = len(conditions)

  def draw(axes, of_method, looks):
    few = max(curve.x.size for curve in of_method.values()) <= 20
    entries = draw_curves(axes, of_method, looks, axis, markers=few)
    axes.xaxis.get_major_locator().set_params(integer=True)
    return entries

  return draw_panels(
    conditions,
    path,
    draw,
    styles=styles,
    # Three such names do not fit beside one another.
    x_label="Settings tried" + " (expected best of them)" * (num_panels < 3),
    y_label=axis.label,
    title=title,
    interval=interval,
  )


def performance_profiles(
  profiles: Any,
  path: Path,
  *,
  metric: str,
  title: str | None = None,
  interval: str | None = None,
  styles: Styles | None = None,
) -> Any:
  """Draws the share of runs that are better than each value.

  Args:
    profiles: method -> `Curve` of shares, from 0 to 1, over values of the
      metric in its own unit; or condition -> such a mapping.
    path: as of `study_curves`.
    metric: its identifier, such as 'test_accuracy'.
    title: text above the panels.
    interval: what the bands are, above the legend.
    styles: looks of `method_styles`, if the study has more methods.

  Returns:
    As `study_curves`.

  Raises:
    As `study_curves`; ValueError for shares below 0 or above 1.
  """
  conditions = curves_by_condition("profiles", profiles)
  factor = 100 if is_fraction(metric) else 1
  for of_method in conditions.values():
    for method, curve in of_method.items():
      if (curve.mean < 0).any() or (curve.mean > 1).any():
        raise ValueError(
          f"profiles[{method!r}]: shares are from {curve.mean.min():g} to "
          f"{curve.mean.max():g}; must be from 0 to 1"
        )
      of_method[method] = curve._replace(x=factor * curve.x)
  axis = MetricAxis("", factor=100.0, limits=(0.0, 102.0))
  way = "less than" if direction(metric) == "min" else "more than"
  return draw_panels(
    conditions,
    path,
    lambda axes, of_method, looks: draw_curves(axes, of_method, looks, axis),
    styles=styles,
    x_label=metric_name(metric),
    y_label=f"Runs with {way} this value (%)",
    title=title,
    interval=interval,
  )


def curves_axis(
  metric: str, curves: Sequence[Curve], whole: bool = False
) -> MetricAxis:
  """The axis of curves, of those that did not diverge if there are any."""
  ok = [c for c in curves if np.isfinite(c.mean[-1])] or list(curves)
  around = [
    [curve.mean] if curve.low is None else [curve.low, curve.high]
    for curve in ok
  ]
  return metric_axis(metric, [curve.mean for curve in ok], around, whole)


def panels_axis(
  metric: str, conditions: Mapping[str, Mapping[str, Curve]]
) -> MetricAxis:
  """The axis of panels, of which each shows its good curves.

  Under a hard condition all methods can be far behind those of an easy one.
  """
  axis = curves_axis(metric, all_of(conditions))
  if axis.is_error or axis.is_log or axis.limits is None:
    return axis
  panels = [curves_axis(metric, list(c.values())) for c in conditions.values()]
  ends = [axis.limits]
  ends += [
    panel.limits
    for panel in panels
    if panel.limits and not panel.is_error and not panel.is_log
  ]
  low, high = np.transpose(ends)
  return axis._replace(limits=(float(low.min()), float(high.max())))


# Of marks at the end of the axis that are stacked, as a share of the axis.
_MARK_HEIGHT = 0.06


def sensitivity(
  curves: Any,
  path: Path,
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
