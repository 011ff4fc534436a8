"""Pictures of a study whose lines have a metric over something."""

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from fedjax_opt.checks import fields
from fedjax_opt.checks.values import checked_array
from fedjax_opt.results import names
from fedjax_opt.results.metric_names import direction
from fedjax_opt.study.plots.frame import Path, log_scale, tick_label
from fedjax_opt.study.plots.learning_curves import X_AXES
from fedjax_opt.study.plots.lines import GREY, draw_curves
from fedjax_opt.study.plots.metric_axis import (
  Curve,
  MetricAxis,
  Panels,
  are_numbers,
  as_curve,
  panels_axis,
  profiles_axis,
)
from fedjax_opt.study.plots.panels import (
  PictureOptions,
  by_condition,
  draw_conditions,
)

# The end of a condition's values at which clients differ more.
_HETEROGENEOUS = {
  "alpha": "low",
  "similarity": "low",
  "shards_per_client": "low",
  "class_fraction": "high",
  "size_sigma": "high",
  "zeta": "high",
}
# Rings that are closer than this share of the axis would hide each other.
_NEAR_RINGS = 0.05
# If two places are closer than this share of the axis, all are spaced evenly.
_LEAST_GAP = 0.06


@fields.checked()
def study_curves(
  curves: Any,
  path: Path,
  *,
  metric: str,
  x_label: str = "rounds",
  **look: Unpack[PictureOptions],
) -> Any:
  """Draws the learning curves of several methods, a panel for each condition.

  A line ends, with a cross, where a seed diverged. The range is that of the
  good curves, as in `curves`; the others have a triangle at its end, with the
  value at which they end. The axis of x is logarithmic if one line is twenty
  times as long as another, such as over the bytes of methods that send all of a
  model and of those that send a part.

  Args:
    curves: method -> `Curve`, or `(x [E], values [seeds, E])`, of which mean
      and range are drawn; or condition -> such a mapping, for one panel each.
      In the metric's own unit: accuracies from 0 to 1.
    path: file to write, or a list of files; the ending chooses the format (png,
      pdf, svg). None to get the figure.
    metric: its identifier, such as 'test_accuracy'.
    x_label: 'rounds', 'time', 'gradient_evaluations', 'bytes' (in MB), or any
      text.
    **look: `title`, text above the panels; `interval`, what bands or bars are,
      above the legend; `styles` of `method_styles`, if there are more methods.

  Returns:
    The matplotlib figure if `path` is None, else None.

  Raises:
    ValueError, TypeError: for curves that are empty or do not fit, a method
      without a style, or a file's ending.
    ImportError: if matplotlib is missing.
  """
  panels = by_condition("curves", curves, as_curve)
  lines = [line for panel in panels.values() for line in panel.values()]
  log_limits = _log_limits(lines)
  if log_limits is not None:
    panels = {
      condition: {method: _positive(line) for method, line in by_method.items()}
      for condition, by_method in panels.items()
    }
  axis = panels_axis(metric, panels)

  def draw(axes, condition, styles):
    entries = draw_curves(axes, panels[condition], styles, axis)
    x = np.concatenate([curve.x for curve in panels[condition].values()])
    if log_limits is not None:
      log_scale(axes.xaxis, log_limits)
      axes.set_xlim(log_limits)
    elif np.ptp(x):
      # As many numbers as fit beside one another, whole ones for rounds.
      is_whole = bool((x == x.round()).all())
      axes.xaxis.get_major_locator().set_params(nbins=5, integer=is_whole)
      axes.xaxis.set_major_formatter(tick_label)
    return entries

  label = X_AXES.get(x_label, x_label)
  return draw_conditions(panels, path, draw, label, axis.label, **look)


# If one line is so many times as long as another, the shorter is not seen on a
# linear axis.
_UNSEEN = 20


def _log_limits(curves: Sequence[Curve]) -> tuple[float, float] | None:
  """Limits of a logarithmic axis, if lines differ much in length."""
  positive = [_positive(curve).x for curve in curves]
  if not all(x.size for x in positive):
    return None
  ends = [float(x.max()) for x in positive]
  if max(ends) < _UNSEEN * min(ends):
    return None
  return 0.9 * min(float(x.min()) for x in positive), 1.1 * max(ends)


def _positive(curve: Curve) -> Curve:
  """The part of a curve that a logarithmic axis shows: no start at zero."""
  return Curve(*(part[curve.x > 0] for part in curve))


@fields.checked()
def tuning_curves(
  curves: Any, path: Path, *, metric: str, **look: Unpack[PictureOptions]
) -> Any:
  """Draws the expected best of n settings that are tried.

  Args:
    curves: method -> `(n [N], value [N])` or `Curve`; or condition -> such a
      mapping, for one panel each. In the metric's own unit.
    path: as of `study_curves`.
    metric: its identifier, such as 'validation_accuracy'.
    **look: `title`, text above the panels; `interval`, what bands or bars are,
      above the legend; `styles` of `method_styles`, if there are more methods.

  Returns:
    As `study_curves`.

  Raises:
    As `study_curves`.
  """
  panels = by_condition("curves", curves, as_curve)
  axis = panels_axis(metric, panels, shows_all=True)

  def draw(axes, condition, styles):
    is_few = max(curve.x.size for curve in panels[condition].values()) <= 20
    entries = draw_curves(axes, panels[condition], styles, axis, markers=is_few)
    if any(curve.x.size > 1 for curve in panels[condition].values()):
      axes.xaxis.get_major_locator().set_params(integer=True)
    return entries

  # Three axis names of this length do not fit beside one another.
  label = "Settings tried" + " (expected best of them)" * (len(panels) < 3)
  return draw_conditions(panels, path, draw, label, axis.label, **look)


@fields.checked()
def performance_profiles(
  profiles: Any, path: Path, *, metric: str, **look: Unpack[PictureOptions]
) -> Any:
  """Draws the share of runs that are better than each value.

  The values are errors, on a log axis, if more than half of the runs of each
  method have an accuracy above 90 %.

  Args:
    profiles: method -> `Curve` of shares, from 0 to 1, over values of the
      metric in its own unit; or condition -> such a mapping.
    path: as of `study_curves`.
    metric: its identifier, such as 'test_accuracy'.
    **look: `title`, text above the panels; `interval`, what bands or bars are,
      above the legend; `styles` of `method_styles`, if there are more methods.

  Returns:
    As `study_curves`.

  Raises:
    As `study_curves`; ValueError for shares below 0 or above 1.
  """

  def checked(name: str, data: Any) -> Curve:
    curve = as_curve(name, data)
    checked_array(name, curve.mean, "[E]", interval="[0, 1]")
    return curve

  panels = by_condition("profiles", profiles, checked)
  of_x = profiles_axis(metric, [c for p in panels.values() for c in p.values()])
  panels = {
    condition: {m: c._replace(x=of_x.units(c.x)) for m, c in of.items()}
    for condition, of in panels.items()
  }
  shares = MetricAxis("", factor=100.0, limits=(0.0, 102.0))

  def draw(axes, condition, styles):
    entries = draw_curves(axes, panels[condition], styles, shares)
    if of_x.is_log:
      x = np.concatenate([c.x for c in panels[condition].values()])
      log_scale(axes.xaxis, (x[x > 0].min(), x.max()))
    return entries

  way = "less" if of_x.is_error or direction(metric) == "min" else "more"
  what = "error" if of_x.is_error else "value"
  label = f"Runs with {way} than this {what} (%)"
  return draw_conditions(panels, path, draw, of_x.label, label, **look)


# Single values: over a hyperparameter, or over a condition.


@fields.checked()
def sensitivity(
  curves: Any,
  path: Path,
  *,
  metric: str,
  x_name: str,
  chosen: Any = None,
  **look: Unpack[PictureOptions],
) -> Any:
  """Draws the final value over one hyperparameter, and what was chosen.

  Values that diverged have a cross at the worse end of the axis. The x axis is
  logarithmic if the values are a factor of at least 10 apart.

  Args:
    curves: method -> `Curve`, or `(x [X], values [seeds, X])`, NaN where a seed
      diverged; or condition -> such a mapping. In the metric's own unit.
    path: as of `study_curves`.
    metric: its identifier, such as 'validation_accuracy'.
    x_name: identifier of the hyperparameter, such as 'client_lr'.
    chosen: method -> chosen value of the hyperparameter, or condition -> such a
      mapping, as `curves`; it gets a ring.
    **look: `title`, text above the panels; `interval`, what bands or bars are,
      above the legend; `styles` of `method_styles`, if there are more methods.

  Returns:
    As `study_curves`.

  Raises:
    As `study_curves`; ValueError if a chosen value is none of x.
  """
  panels = by_condition("curves", curves, as_curve)
  rings = _chosen_places(panels, chosen)
  axis = panels_axis(metric, panels, by_value=True)
  x = np.concatenate([c.x for panel in panels.values() for c in panel.values()])

  ring = {"marker": "o", "linestyle": ""}
  ring |= {"markerfacecolor": "none", "markeredgewidth": 1.3}

  def draw(axes, condition, styles):
    from matplotlib.lines import Line2D

    curves, options = panels[condition], {"markers": True, "by_value": True}
    entries = draw_curves(axes, curves, styles, axis, **options)
    drawn: list[tuple[float, float]] = []
    for method, place in rings.get(condition, {}).items():
      # Around the value, or around its mark if it diverged.
      curve, color = curves[method], styles[method].color
      y = axis.units(curve.mean[place])
      if not np.isfinite(y) or axis.is_outside(curve.mean[place]):
        y = axis.worse_end
      # Of rings at one place, each is around those before it.
      ring_place = curve.x[place], float(axis.shares(curve.mean[place]))
      size = 9 + 3.5 * sum(_is_near(ring_place, other) for other in drawn)
      drawn.append(ring_place)
      look = {"color": color, "markersize": size, "zorder": 4, "clip_on": False}
      axes.plot(curve.x[place], y, **look, **ring)
      entries["chosen"] = Line2D([], [], color=GREY, markersize=9, **ring)
    if _is_log(x):
      log_scale(axes.xaxis)
    return entries

  label = names.capitalized(names.name_of(x_name))
  return draw_conditions(panels, path, draw, label, axis.label, **look)


def _is_near(first: tuple[float, float], second: tuple[float, float]) -> bool:
  """Whether rings at (x, share of the axis) would hide each other."""
  far = abs(first[1] - second[1]) > _NEAR_RINGS
  return first[0] == second[0] and not far


def _chosen_places(panels: Panels, chosen: Any) -> dict[str, dict[str, int]]:
  """condition -> method -> index of the chosen value."""
  choices = {} if chosen is None else by_condition("chosen", chosen)
  places: dict[str, dict[str, int]] = {}
  for condition, by_method in choices.items():
    for method, value in by_method.items():
      if method not in panels.get(condition, {}):
        raise ValueError(
          f"chosen: has {', '.join(filter(None, [condition, repr(method)]))}, "
          "which has no curve; must be as curves"
        )
      x = panels[condition][method].x
      indices = np.flatnonzero(np.isclose(x, value, rtol=1e-6))
      if not indices.size:
        text = ", ".join(f"{number:g}" for number in x)
        raise ValueError(f"chosen[{method!r}]={value}: must be one of {text}")
      places.setdefault(condition, {})[method] = int(indices[0])
  return places


def _is_log(values: np.ndarray) -> bool:
  """Whether values are positive and a factor of at least 10 apart."""
  low, high = float(values.min()), float(values.max())
  return low > 0 and high >= 10 * low


@fields.checked(
  x_values=fields.sequence_of(fields.ANYTHING, "a list of values", 1)
)
def study_values(
  values: Any,
  path: Path,
  *,
  metric: str,
  x_name: str,
  x_values: Sequence[Any],
  **look: Unpack[PictureOptions],
) -> Any:
  """Draws a value of each method against a condition, with intervals.

  Where one end of the condition's values means that clients differ more, such
  as the low one of alpha, it is on the right, and the axis says so. The x axis
  is logarithmic if the values are a factor of at least 10 apart.

  Args:
    values: method -> `(mean [X], low [X], high [X])`, NaN where the method
      diverged; or condition -> such a mapping, for one panel each. In the
      metric's own unit: accuracies from 0 to 1.
    path: file to write, or a list of files; the ending chooses the format (png,
      pdf, svg). None to get the figure.
    metric: its identifier, such as 'test_accuracy'.
    x_name: identifier of the condition, such as 'alpha' or 'local_steps'.
    x_values: its values: numbers, or words, which are spaced evenly. [X]
    **look: `title`, text above the panels; `interval`, what bands or bars are,
      above the legend; `styles` of `method_styles`, if there are more methods.

  Returns:
    The matplotlib figure if `path` is None, else None.

  Raises:
    ValueError, TypeError: for values that are empty or do not fit, a method
      without a style, or a file's ending.
    ImportError: if matplotlib is missing.
  """
  way = _HETEROGENEOUS.get(x_name)
  places = _places(x_values) * (-1 if way == "low" else 1)
  order = np.argsort(places)

  def checked(name: str, data: Any) -> Curve:
    intervals = checked_array(name, data, f"[3, {places.size}]")
    return Curve(places[order], *intervals[:, order])

  panels = by_condition("values", values, checked)
  axis = panels_axis(metric, panels, shows_all=True, by_value=True)
  span = float(np.ptp(places)) or 1.0
  gap = float(np.diff(places[order]).min()) if places.size > 1 else span

  def draw(axes, condition, styles):
    # Methods are side by side at each value.
    curves = panels[condition]
    step = min(0.5 * gap / len(curves), 0.025 * span)
    shifted_curves = {
      method: curve._replace(x=curve.x + step * (i - (len(curves) - 1) / 2))
      for i, (method, curve) in enumerate(curves.items())
    }
    options = dict.fromkeys(("markers", "bars", "by_value"), True)
    entries = draw_curves(axes, shifted_curves, styles, axis, **options)
    axes.set_xticks(places, map(names.value_of, x_values))
    axes.grid(visible=False, axis="x")
    margin = max(0.08 * span, step * len(curves))
    axes.set_xlim(places.min() - margin, places.max() + margin)
    return entries

  label = names.capitalized(names.name_of(x_name))
  label += " (clients differ more →)" * bool(way)
  return draw_conditions(panels, path, draw, label, axis.label, **look)


def _places(x_values: Sequence[Any]) -> np.ndarray:
  """[X], where the values are on the x axis, in increasing order."""
  if not are_numbers(x_values):
    return np.arange(len(x_values), dtype=float)
  x = np.array(x_values, float)
  places = np.log10(x) if _is_log(x) else x
  gaps = np.diff(np.sort(places))
  if gaps.size and gaps.min() < _LEAST_GAP * np.ptp(places):
    return np.argsort(np.argsort(x)).astype(float)
  return places
