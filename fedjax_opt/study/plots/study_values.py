"""Picture of a study: the final value against a condition."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from fedjax_opt.results.names import name_of, sentence, value_of
from fedjax_opt.study.plots.frame import Path
from fedjax_opt.study.plots.metric_axis import MetricAxis, metric_axis
from fedjax_opt.study.plots.panels import (
  DIVERGED,
  Styles,
  all_of,
  by_condition,
  diverged_entry,
  draw_panels,
  is_log_axis,
)

# At which end of a condition's values clients differ more.
_HETEROGENEOUS = {
  "alpha": "low",
  "similarity": "low",
  "shards_per_client": "low",
  "class_fraction": "high",
  "size_sigma": "high",
  "zeta": "high",
}
# Places that are closer, as a share of the axis, are spaced evenly instead.
_LEAST_GAP = 0.06


class _Interval(NamedTuple):
  mean: np.ndarray  # [X]
  low: np.ndarray  # [X]
  high: np.ndarray  # [X]


def study_values(
  values: Any,
  path: Path,
  *,
  metric: str,
  x_name: str,
  x_values: Sequence[Any],
  log_x: bool | None = None,
  heterogeneous: Literal["low", "high"] | None = None,
  title: str | None = None,
  interval: str | None = None,
  styles: Styles | None = None,
) -> Any:
  """Draws a value of each method against a condition, with intervals.

  Where one end of the condition's values means that clients differ more, it is
  on the right, and the axis says so.

  Args:
    values: method -> `(mean [X], low [X], high [X])`, NaN where the method
      diverged; or condition -> such a mapping, for one panel each. In the
      metric's own unit: accuracies from 0 to 1.
    path: file to write, or a list of files; the ending chooses the format (png,
      pdf, svg). None to get the figure.
    metric: its identifier, such as 'test_accuracy'.
    x_name: identifier of the condition, such as 'alpha' or 'local_steps'.
    x_values: its values: numbers, or words, which are spaced evenly. [X]
    log_x: whether the x axis is logarithmic; by default if the values are a
      factor of at least 10 apart.
    heterogeneous: at which end of the values clients differ more; by default
      that of the partitions' own parameters, such as 'low' for alpha.
    title: text above the panels.
    interval: what the error bars are, above the legend.
    styles: looks of `method_styles`, if the study has more methods.

  Returns:
    The matplotlib figure if `path` is None, else None.

  Raises:
    ValueError, TypeError: for values that are empty or do not fit, a method
      without a look, a log axis that is not possible, or a file's ending.
    ImportError: if matplotlib is missing.
  """
  if heterogeneous not in (None, "low", "high"):
    raise ValueError(
      f"heterogeneous={heterogeneous!r}: must be 'low', 'high' or None"
    )
  conditions = _by_condition(values, len(x_values))
  way = heterogeneous or _HETEROGENEOUS.get(x_name)
  places = _places(x_name, x_values, log_x)
  if way == "low":
    places = -places
  axis = _axis_of(metric, all_of(conditions))
  label = sentence(name_of(x_name))
  return draw_panels(
    conditions,
    path,
    lambda axes, *of_panel: _draw(axes, *of_panel, axis, places, x_values),
    styles=styles,
    x_label=f"{label} (clients differ more →)" if way else label,
    y_label=axis.label,
    title=title,
    interval=interval,
  )


def _by_condition(values: Any, size: int) -> dict[str, dict[str, _Interval]]:
  return {
    condition: {
      method: _checked(method, each, size) for method, each in of_method.items()
    }
    for condition, of_method in by_condition("values", values).items()
  }


def _checked(method: str, value: Any, size: int) -> _Interval:
  shapes = [np.shape(each) for each in value]
  if shapes != [(size,)] * 3 or not size:
    raise ValueError(
      f"values[{method!r}]: shapes are {shapes}; must be mean, low and high, "
      f"each {(max(size, 1),)}, one for each of x_values"
    )
  return _Interval(*(np.asarray(each, float) for each in value))


def _places(
  name: str, x_values: Sequence[Any], log_x: bool | None
) -> np.ndarray:
  """[X], where the values are on the x axis, in increasing order."""
  evenly = np.arange(len(x_values), dtype=float)
  numbers = [isinstance(x, int | float | np.number) for x in x_values]
  if not all(numbers) or not np.isfinite(np.array(x_values, float)).all():
    return evenly
  x = np.array(x_values, float)
  places = np.log10(x) if is_log_axis(name, x, log_x) else x
  gaps = np.diff(np.sort(places))
  if gaps.size and gaps.min() < _LEAST_GAP * np.ptp(places):
    return np.argsort(np.argsort(x)).astype(float)
  return places


def _axis_of(metric: str, intervals: Sequence[_Interval]) -> MetricAxis:
  # Each value is an end.
  means = [mean[None] for each in intervals for mean in each.mean]
  around = [
    np.array([[low], [high]])
    for each in intervals
    for low, high in zip(each.low, each.high, strict=True)
  ]
  return metric_axis(metric, means, around, whole=True)


def _draw(
  axes: Any,
  of_method: Mapping[str, _Interval],
  styles: Styles,
  axis: MetricAxis,
  places: np.ndarray,
  x_values: Sequence[Any],
) -> dict[str, Any]:
  """Draws one panel, methods side by side at each value."""
  axis.apply(axes, label=False)
  entries: dict[str, Any] = {}
  span = float(np.ptp(places)) or 1.0
  gap = float(np.diff(np.sort(places)).min()) if len(places) > 1 else span
  step = min(0.5 * gap / len(of_method), 0.025 * span)
  order = np.argsort(places)
  for i, (method, interval) in enumerate(of_method.items()):
    style = styles[method]
    x = (places + step * (i - (len(of_method) - 1) / 2))[order]
    mean, *ends = (axis.units(each)[order] for each in interval)
    low, high = np.sort(ends, axis=0)
    axes.vlines(x, low, high, color=style.color, linewidth=1.1, zorder=3)
    (entries[method],) = axes.plot(
      x,
      mean,
      color=style.color,
      linestyle=style.linestyle,
      marker=style.marker,
      markersize=4,
      linewidth=1.0,
      zorder=3,
    )
    lost = ~np.isfinite(mean)
    if lost.any():
      axes.plot(
        x[lost],
        np.full(lost.sum(), axis.worse_end),
        color=style.color,
        linestyle="",
        marker="x",
        markersize=5,
        clip_on=False,
        zorder=5,
      )
      entries[DIVERGED] = diverged_entry()
  axes.set_xticks(places, [value_of(value) for value in x_values])
  axes.grid(visible=False, axis="x")
  margin = max(0.08 * span, step * len(of_method))
  axes.set_xlim(places.min() - margin, places.max() + margin)
  return entries
