"""Label histograms: the classes of every client's examples."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedjax_opt.results.names import name_of, number
from fedjax_opt.results.plots import files
from fedjax_opt.results.plots.frame import CLASS_COLORS, styled_figure

_MAX_CLIENTS = 100
# More classes have a colour bar instead of a legend.
_MAX_LEGEND = 20


def label_histogram(
  counts: np.ndarray,
  path: files.Path,
  *,
  title: str | None = None,
  class_names: Sequence[str] | None = None,
) -> Any:
  """Draws how many examples of each class every client holds.

  One row for each client, its classes one after the other, as in Figure 8 of
  the Delta-SGD paper (Kim et al., "Adaptive Federated Learning with Auto-Tuned
  Clients"). Of more than 100 clients the first 100 are drawn.

  Args:
    counts: examples by client and class. [M, classes] int.
    path: file to write, or a list of files; the ending chooses the format (png,
      pdf, svg). None to get the figure.
    title: such as `partition_title('dirichlet', alpha=0.1)`.
    class_names: names for the legend, by default 0, 1, ...

  Returns:
    The matplotlib figure if `path` is None, else None.

  Raises:
    ValueError: if `counts` is not a matrix of counts, or the ending of a file
      is another.
    ImportError: if matplotlib is missing.
  """
  files.paths_of(path)
  counts = np.asarray(counts)
  if counts.ndim != 2 or not counts.size or (counts < 0).any():
    raise ValueError(
      f"counts: shape {counts.shape} must be [clients, classes] with counts "
      "of at least 0"
    )
  total = len(counts)
  counts = counts[:_MAX_CLIENTS]
  num_clients, num_classes = counts.shape
  height = 1.1 + np.clip(0.045 * num_clients, 1.2, 4.5)
  with styled_figure(4.8, height, **{"axes.grid": False}) as new:
    axes = new.subplots()
    colors = _class_colors(num_classes)
    _draw_clients(axes, counts, colors)
    axes.set_xlabel("Examples")
    axes.set_ylabel("Client")
    parts = [title] if title else []
    if total > num_clients:
      parts.append(f"first {num_clients} of {total} clients")
    axes.set_title(", ".join(parts))
    if num_classes <= _MAX_LEGEND:
      names = range(num_classes) if class_names is None else class_names
      _add_legend(new, colors, names)
    else:
      _add_color_bar(new, axes, num_classes)
    return files.finish(new, path)


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
  return f"{name_of(partition)}, α = {number(alpha)}"


def _class_colors(num_classes: int) -> list[Any]:
  import matplotlib

  if num_classes <= len(CLASS_COLORS):
    return list(CLASS_COLORS[:num_classes])
  return list(matplotlib.colormaps["viridis"](np.linspace(0, 1, num_classes)))


def _draw_clients(axes: Any, counts: np.ndarray, colors: Sequence[Any]) -> None:
  """Draws one bar for each client, the first one at the top."""
  num_clients = len(counts)
  starts = np.cumsum(counts, axis=1) - counts
  thickness = 1.0 if num_clients > 30 else 0.85
  for client in range(num_clients):
    axes.broken_barh(
      np.column_stack([starts[client], counts[client]]),
      (client - thickness / 2, thickness),
      facecolors=colors,
      linewidth=0,
    )
  axes.set_ylim(num_clients - 0.5, -0.5)
  axes.set_xlim(0, max(counts.sum(axis=1).max(), 1))
  axes.yaxis.get_major_locator().set_params(integer=True)


def _add_legend(
  figure: Any, colors: Sequence[Any], names: Sequence[Any]
) -> None:
  from matplotlib.patches import Patch

  figure.legend(
    [Patch(color=color) for color in colors],
    names,
    title="Class",
    loc="outside right upper",
    handlelength=1,
    handleheight=1,
  )


def _add_color_bar(figure: Any, axes: Any, num_classes: int) -> None:
  from matplotlib.cm import ScalarMappable
  from matplotlib.colors import Normalize

  scale = ScalarMappable(Normalize(0, num_classes - 1), "viridis")
  figure.colorbar(scale, ax=axes, label="Class", pad=0.02)
