"""How classes and metrics are spread over the clients."""

import types
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy as np

from fedjax_opt.checks import fields
from fedjax_opt.checks.values import checked_array
from fedjax_opt.results.client_metrics import worst_mean
from fedjax_opt.results.metric_names import direction, is_accuracy
from fedjax_opt.results.names import format_number, metric_name, name_of
from fedjax_opt.study.plots import frame
from fedjax_opt.study.plots.lines import GREY
from fedjax_opt.study.plots.panels import (
  PictureOptions,
  by_condition,
  draw_conditions,
  draw_panels,
)

_MAX_CLIENTS = 100
_MAX_NAMES = 25  # The most clients that are named.
# With more classes than this, a colour bar replaces the legend.
_MAX_LEGEND = 20


@fields.checked(counts=fields.array("[M, classes]", interval="[0, inf)"))
def label_histogram(
  counts: np.ndarray,
  path: frame.Path,
  *,
  title: str | None = None,
) -> Any:
  """Draws how many examples of each class every client holds.

  One row for each client, its classes one after the other, as in Figure 8 of
  the Δ-SGD paper (Kim et al., "Adaptive Federated Learning with Auto-Tuned
  Clients"). Of more than 100 clients the first 100 are drawn.

  Args:
    counts: examples by client and class. [M, classes] int.
    path: file to write, or a list of files; the ending chooses the format (png,
      pdf, svg). None to get the figure.
    title: such as `partition_title('dirichlet', alpha=0.1)`.

  Returns:
    The matplotlib figure if `path` is None, else None.

  Raises:
    ValueError: if `counts` is not a matrix of counts, or the ending of a file
      is another.
    ImportError: if matplotlib is missing.
  """
  counts = np.asarray(counts)
  total, num_classes = counts.shape
  if not counts.size:
    raise ValueError("counts: is empty; must have clients and classes")
  counts = counts[:_MAX_CLIENTS]
  parts = [title] if title else []
  if total > len(counts):
    parts.append(f"first {len(counts)} of {total} clients")
  height = 1.1 + np.clip(0.045 * len(counts), 1.2, 4.5)
  with frame.styled_figure(4.8, height, **{"axes.grid": False}) as figure:
    axes = figure.subplots()
    colors = _class_colors(num_classes)
    _draw_clients(axes, counts, colors)
    axes.set(title=", ".join(parts), xlabel="Examples", ylabel="Client")
    _name_classes(figure, colors)
    return frame.finish(figure, path)


def client_labels(
  counts: Mapping[str, np.ndarray],
  path: frame.Path,
  names: Mapping[str, Sequence[str]] = types.MappingProxyType({}),
  labels: Sequence[str] = (),
) -> Any:
  """Draws the examples of clients, a panel for each condition.

  One row for each of the first 100 clients, as in `label_histogram`.

  Args:
    counts: condition -> examples by client and label, [M, labels]; [M, 1]
      without labels.
    path: as of `label_histogram`.
    names: condition -> the names of its clients, shown where they have room.
    labels: the names of the labels; () for their numbers.

  Returns:
    As `label_histogram`.
  """
  from matplotlib.patches import Patch

  num_labels = max(np.shape(matrix)[1] for matrix in counts.values())
  colors = _class_colors(num_labels) if num_labels > 1 else [GREY]

  def draw(axes, panel):
    client_counts = np.asarray(counts[panel])[:_MAX_CLIENTS]
    _draw_clients(axes, client_counts, colors[: client_counts.shape[1]])
    axes.grid(visible=False)
    is_first = axes.get_subplotspec().is_first_col()
    axes.set(title=panel, xlabel="Examples", ylabel="Client" * is_first)
    shown = names.get(panel, ())
    if len(shown) == len(client_counts) <= _MAX_NAMES:
      axes.set_yticks(range(len(shown)), shown)
    return legend

  has_legend = 1 < num_labels <= _MAX_LEGEND
  numbers = list(map(str, range(num_labels)))
  shown_labels = list(labels or numbers)[:num_labels] if has_legend else []
  legend = {
    label: Patch(color=color)
    for label, color in zip(shown_labels, colors, strict=False)
  }
  head = "Label" if has_legend else None
  return draw_panels(list(counts), path, draw, shown_labels, legend_title=head)


@fields.checked()
def partition_title(partition: str, alpha: float | None = None) -> str:
  """The name of a partition with its concentration: `Dirichlet, α = 0.1`.

  Args:
    partition: name of a scheme of `fedjax_opt.partition`.
    alpha: its concentration; None if it has none.

  Returns:
    The title.
  """
  if alpha is None:
    return name_of(partition)
  return f"{name_of(partition)}, α = {format_number(alpha)}"


def _class_colors(num_classes: int) -> Sequence[Any]:
  import matplotlib

  if num_classes <= len(frame.CLASS_COLORS):
    return frame.CLASS_COLORS[:num_classes]
  return matplotlib.colormaps["viridis"](np.linspace(0, 1, num_classes))


def _draw_clients(axes: Any, counts: np.ndarray, colors: Sequence[Any]) -> None:
  """Draws one bar for each client, the first one at the top."""
  num_clients = len(counts)
  starts = np.cumsum(counts, axis=1) - counts
  thickness = 1.0 if num_clients > 30 else 0.85
  look = {"facecolors": colors, "linewidth": 0}
  for client, (start, count) in enumerate(zip(starts, counts, strict=True)):
    place = (client - thickness / 2, thickness)
    axes.broken_barh(np.column_stack([start, count]), place, **look)
  axes.set_ylim(num_clients - 0.5, -0.5)
  axes.set_xlim(0, max(counts.sum(axis=1).max(), 1))
  axes.yaxis.get_major_locator().set_params(integer=True)


def _name_classes(figure: Any, colors: Sequence[Any]) -> None:
  """Adds a legend of the classes, or a colour bar of many."""
  from matplotlib.cm import ScalarMappable
  from matplotlib.colors import Normalize
  from matplotlib.patches import Patch

  if len(colors) > _MAX_LEGEND:
    scale = ScalarMappable(Normalize(0, len(colors) - 1), "viridis")
    figure.colorbar(scale, ax=figure.axes, label="Class", pad=0.02)
    return
  look = {"loc": "outside right upper", "handlelength": 1, "handleheight": 1}
  patches = [Patch(color=color) for color in colors]
  figure.legend(patches, range(len(colors)), title="Class", **look)


_WORST = "mean of the worst 10 %"


@fields.checked()
def client_distribution(
  values: Any,
  path: frame.Path,
  *,
  metric: str,
  sizes: Any = None,
  **look: Unpack[PictureOptions],
) -> Any:
  """Draws how a metric is spread over the clients, and the worst 10 % of them.

  A line is the share of clients that have at most each value. A mark is the
  mean of the worst 10 % of the clients, as `evaluation.worst_decile` has it: of
  the `ceil(n / 10)` worst of n.

  Args:
    values: method -> the metric of each client, [M], NaN for a client without
      examples; or condition -> such a mapping, for one panel each. In the
      metric's own unit: accuracies from 0 to 1.
    path: file to write, or a list of files; the ending chooses the format (png,
      pdf, svg). None to get the figure.
    metric: its identifier, such as 'client_test_accuracy'.
    sizes: examples of each client, [M]; those with 0 are left out, as those
      with NaN are.
    **look: `title`, text above the panels; `interval`, what bands or bars are,
      above the legend; `styles` of `method_styles`, if there are more methods.

  Returns:
    The matplotlib figure if `path` is None, else None.

  Raises:
    ValueError, TypeError: for values that are empty or do not fit, a method
      without a style, or a file's ending.
    ImportError: if matplotlib is missing.
  """
  factor = 100 if is_accuracy(metric) else 1

  def checked(name: str, data: Any) -> np.ndarray:
    return factor * _ascending(name, data, sizes)

  panels = by_condition("values", values, checked)
  joined = np.concatenate([v for of in panels.values() for v in of.values()])
  margin = 0.03 * np.ptp(joined) or 0.5
  limits = joined.min() - margin, joined.max() + margin
  worst_is_low = direction(metric) != "min"
  mark = {"marker": "^" if worst_is_low else "v", "markersize": 6}
  mark |= {"markeredgecolor": "white", "markeredgewidth": 0.5, "linestyle": ""}

  def draw(axes, condition, styles):
    from matplotlib.lines import Line2D

    entries: dict[str, Any] = {}
    for method, ascending in panels[condition].items():
      color, linestyle, _ = styles[method]
      share = np.linspace(0, 100, len(ascending) + 1)
      x, y = [limits[0], *ascending, limits[1]], [*share, 100.0]
      of_line = {"color": color, "linestyle": linestyle, "linewidth": 1.3}
      (entries[method],) = axes.step(x, y, where="post", **of_line)
      worst = worst_mean(ascending, worst_is_low)
      level = 0.0 if worst_is_low else 100.0
      axes.plot(worst, level, color=color, clip_on=False, zorder=5, **mark)
    axes.set(xlim=limits, ylim=(0, 100))
    return entries | {_WORST: Line2D([], [], color=GREY, **mark)}

  label = "Clients with at most this value (%)"
  return draw_conditions(panels, path, draw, metric_name(metric), label, **look)


def _ascending(name: str, values: Any, sizes: Any) -> np.ndarray:
  """The values that are not NaN, in increasing order."""
  values = checked_array(name, values, "[clients]")
  if sizes is not None:
    values = values[checked_array("sizes", sizes, f"[{values.size}]") > 0]
  values = np.sort(values[np.isfinite(values)])
  if not values.size:
    raise ValueError(f"{name}: no client has a value")
  return values
