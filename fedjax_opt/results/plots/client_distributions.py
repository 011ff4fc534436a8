"""Picture of a study: how a metric is spread over the clients."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedjax_opt.results.history import direction, is_fraction, worst_mean
from fedjax_opt.results.names import metric_name
from fedjax_opt.results.plots import files
from fedjax_opt.results.plots.methods import Styles, draw_panels
from fedjax_opt.results.plots.panels import by_condition

_WORST = "mean of the worst 10 %"
_MEAN = "mean"


def client_distribution(
  values: Any,
  path: files.Path,
  *,
  metric: str,
  sizes: Any = None,
  title: str | None = None,
  styles: Styles | None = None,
) -> Any:
  """Draws how a metric is spread over the clients, and the worst 10 % of them.

  Of one method a histogram, of several the share of clients that have at most
  each value. The mean of the worst 10 % of the clients is that of
  `metrics.worst_decile`: of the `ceil(n / 10)` worst of n.

  Args:
    values: method -> the metric of each client, [M], NaN for a client without
      examples; or condition -> such a mapping, for one panel each. In the
      metric's own unit: accuracies from 0 to 1.
    path: file to write, or a list of files; the ending chooses the format (png,
      pdf, svg). None to get the figure.
    metric: its identifier, such as 'client_test_accuracy'.
    sizes: examples of each client, [M]; those with 0 are left out, as those
      with NaN are.
    title: text above the panels.
    styles: looks of `method_styles`, if the study has more methods.

  Returns:
    The matplotlib figure if `path` is None, else None.

  Raises:
    ValueError, TypeError: for values that are empty or do not fit, a method
      without a look, or a file's ending.
    ImportError: if matplotlib is missing.
  """
  conditions = _by_condition(values, sizes, 100 if is_fraction(metric) else 1)
  is_histogram = max(map(len, conditions.values())) == 1
  limits = _limits(conditions)
  worst_is_low = direction(metric) != "min"

  def draw(axes, of_method, looks):
    draw_all = _draw_histogram if is_histogram else _draw_shares
    entries = draw_all(axes, of_method, looks, limits, worst_is_low)
    axes.set_xlim(limits)
    return entries

  return draw_panels(
    conditions,
    path,
    draw,
    styles=styles,
    x_label=metric_name(metric),
    y_label="Clients" if is_histogram else "Clients with at most this (%)",
    title=title,
  )


def _by_condition(
  values: Any, sizes: Any, factor: int
) -> dict[str, dict[str, np.ndarray]]:
  """condition -> method -> values in increasing order, times a factor."""
  return {
    condition: {
      method: factor * _checked(method, each, sizes)
      for method, each in of_method.items()
    }
    for condition, of_method in by_condition("values", values).items()
  }


def _limits(
  conditions: Mapping[str, Mapping[str, np.ndarray]],
) -> tuple[float, float]:
  joined = np.concatenate([v for c in conditions.values() for v in c.values()])
  low, high = float(joined.min()), float(joined.max())
  margin = 0.03 * (high - low) or 0.5
  return low - margin, high + margin


def _checked(method: str, values: Any, sizes: Any) -> np.ndarray:
  """The values of the clients that have one, in increasing order."""
  values = np.asarray(values, float)
  if values.ndim != 1:
    raise ValueError(
      f"values[{method!r}]: shape is {values.shape}; must be [clients]"
    )
  if sizes is not None:
    if np.shape(sizes) != values.shape:
      raise ValueError(
        f"sizes: shape is {np.shape(sizes)}; must be {values.shape}, as "
        f"values[{method!r}]"
      )
    values = values[np.asarray(sizes) > 0]
  values = np.sort(values[np.isfinite(values)])
  if not values.size:
    raise ValueError(f"values[{method!r}]: no client has a value")
  return values


def _draw_shares(
  axes: Any,
  of_method: Mapping[str, np.ndarray],
  styles: Styles,
  limits: tuple[float, float],
  worst_is_low: bool,
) -> dict[str, Any]:
  """Draws the share of clients that have at most each value."""
  from matplotlib.lines import Line2D

  entries: dict[str, Any] = {}
  level = 0.0 if worst_is_low else 100.0
  mark = {
    "marker": "^" if worst_is_low else "v",
    "markersize": 6,
    "markeredgecolor": "white",
    "markeredgewidth": 0.5,
    "linestyle": "",
  }
  for method, ascending in of_method.items():
    style = styles[method]
    share = 100 * np.arange(len(ascending) + 1) / len(ascending)
    (entries[method],) = axes.step(
      [limits[0], *ascending, limits[1]],
      [*share, 100.0],
      where="post",
      color=style.color,
      linestyle=style.linestyle,
      linewidth=1.3,
    )
    worst = worst_mean(ascending, worst_is_low)
    axes.plot(worst, level, color=style.color, clip_on=False, zorder=5, **mark)
  axes.set_ylim(0, 100)
  return entries | {_WORST: Line2D([], [], color="#606060", **mark)}


def _draw_histogram(
  axes: Any,
  of_method: Mapping[str, np.ndarray],
  styles: Styles,
  limits: tuple[float, float],
  worst_is_low: bool,
) -> dict[str, Any]:
  """Draws how many clients have which value, of the only method."""
  from matplotlib.patches import Patch

  entries: dict[str, Any] = {}
  for method, ascending in of_method.items():
    color = styles[method].color
    bins = int(np.clip(np.sqrt(len(ascending)) * 2, 5, 25))
    edges = np.linspace(*limits, bins + 1)
    axes.hist(ascending, edges, color=color, alpha=0.55)
    entries[method] = Patch(color=color, alpha=0.55, linewidth=0)
    worst = worst_mean(ascending, worst_is_low)
    look = {"color": "black", "linewidth": 1.2}
    entries[_MEAN] = axes.axvline(ascending.mean(), **look)
    entries[_WORST] = axes.axvline(worst, linestyle="--", **look)
  axes.yaxis.get_major_locator().set_params(integer=True)
  return entries
