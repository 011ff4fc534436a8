"""Pictures of a study whose lines have a metric over something."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_opt.results.history import direction, is_fraction
from fedjax_opt.results.names import metric_name, number
from fedjax_opt.results.plots import files
from fedjax_opt.results.plots.learning_curves import X_AXES
from fedjax_opt.results.plots.methods import (
  Curve,
  Styles,
  all_of,
  curves_by_condition,
  draw_curves,
  draw_panels,
)
from fedjax_opt.results.plots.metric_axis import MetricAxis, metric_axis


def study_curves(
  curves: Any,
  path: files.Path,
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
  path: files.Path,
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
  path: files.Path,
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
