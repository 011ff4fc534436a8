"""Pictures of a run: learning curves, clients' labels, step sizes.

Needs matplotlib, which only these functions import. Figures are made with the
object interface, so no state of `pyplot` is read or changed.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt import metrics as metrics_lib
from fedjax_opt.registry import check_choice

# Okabe and Ito's colours without the yellow: told apart by colour-blind
# readers, and dark enough on white.
COLORS = (
  "#0072B2",
  "#D55E00",
  "#009E73",
  "#CC79A7",
  "#E69F00",
  "#56B4E9",
  "#000000",
)
LINE_STYLES = ("-", "--", ":")
# Paul Tol's "muted" and a grey for up to ten classes side by side.
CLASS_COLORS = (
  "#332288",
  "#88CCEE",
  "#44AA99",
  "#117733",
  "#999933",
  "#DDCC77",
  "#CC6677",
  "#882255",
  "#AA4499",
  "#BBBBBB",
)
_STYLE = {
  "font.size": 9,
  "axes.titlesize": 9,
  "axes.spines.top": False,
  "axes.spines.right": False,
  "axes.grid": True,
  "grid.color": "#E4E4E4",
  "grid.linewidth": 0.6,
  "axes.axisbelow": True,
  "legend.frameon": False,
  "legend.fontsize": 8,
  "legend.title_fontsize": 8,
}
_DPI = 200
_MAX_LINES = 12
_NAMED_LINES = 6
_MAX_CLIENTS = 100
_NAMES = {
  "train_loss": "Training loss",
  "regularized_train_loss": "Regularized training loss",
  "regularized_test_loss": "Regularized test loss",
  "optimality_gap": "Gap to the optimum",
  "test_loss": "Test loss",
  "test_accuracy": "Test accuracy (%)",
  "worst_decile_accuracy": "Accuracy, worst 10 % of clients (%)",
  "f1": "F1",
  "grad_norm_sq": "Squared gradient norm",
}


@contextlib.contextmanager
def figure(
  columns: int, rows: int = 1, scale: tuple[float, float] = (1, 1)
) -> Iterator[tuple[Any, np.ndarray]]:
  """An empty figure in the style of all pictures.

  Args:
    columns: panels side by side.
    rows: panels one above the other.
    scale: of width and height, for panels that are not of the usual size.

  Yields:
    The matplotlib figure and its axes, [rows, columns].
  """
  check_installed()
  import matplotlib
  from matplotlib.figure import Figure

  with matplotlib.rc_context(_STYLE | {"savefig.dpi": _DPI}):
    size = (2.8 * columns * scale[0], 2.4 * rows * scale[1] + 0.3)
    new = Figure(figsize=size, layout="constrained")
    yield new, new.subplots(rows, columns, squeeze=False)


def check_installed() -> None:
  """Raises one clear line if matplotlib is missing.

  Raises:
    ImportError: that says what to install.
  """
  try:
    import matplotlib.figure  # noqa: F401
  except ImportError as error:
    raise ImportError(
      "pictures need matplotlib: pip install 'fedjax_opt[run]'"
    ) from error


# Learning curves.


def curves(
  history: metrics_lib.History,
  points: Sequence[metrics_lib.Point],
  path: str | os.PathLike,
  *,
  criterion: metrics_lib.Criterion | None = None,
  panels: Sequence[str] | None = None,
  title: str | None = None,
  x_axis: str = "rounds",
) -> None:
  """Draws metrics against rounds or cost, one line for each setting.

  Points that differ only by seed become one line, their mean, in a band from
  the lowest to the highest seed. A line ends, with a cross, where a seed
  diverges. Of more than 12 settings the best 6 are coloured and named.

  Args:
    history: what was measured.
    points: hyperparameters of every grid point. [S] mappings.
    path: where to write; the ending chooses the format (png, pdf, svg).
    criterion: how the best settings are told; by default the last value of
      the last panel's metric.
    panels: metrics to draw; by default the training loss and the test
      accuracy, or the test loss where accuracy has no meaning.
    title: above the panels.
    x_axis: 'rounds', or what they cost a client of the cohort on average:
      'gradient_evaluations' (in examples) or 'bytes' (down and up).

  Raises:
    ValueError: if no round was evaluated, or a panel or the cost was not
      measured.
    ImportError: if matplotlib is missing.
  """
  check_installed()
  import matplotlib
  from matplotlib.figure import Figure

  check_choice("x_axis", x_axis, X_AXES)
  if not history.rounds:
    raise ValueError("history: no round was evaluated; there is no curve")
  panels = list(panels or _default_panels(history))
  criterion = criterion or metrics_lib.Criterion(
    panels[-1], metrics_lib.direction(panels[-1]) or "min"
  )
  lines = _lines(history, points, criterion)
  labels = [line.label for line in lines if line.label]
  seeds = max(len(line.points) for line in lines)
  columns = _legend_columns(labels, 58 * len(panels))
  legend_rows = -(-len(labels) // columns) + 1 if labels else 0

  with matplotlib.rc_context(_STYLE):
    figure = Figure(
      figsize=(3.5 * len(panels), 2.6 + 0.17 * legend_rows),
      layout="constrained",
    )
    all_axes = np.atleast_1d(figure.subplots(1, len(panels)))
    for axes, name in zip(all_axes, panels, strict=True):
      _panel(axes, history, name, lines, x_axis)
    if title:
      figure.suptitle(title, fontsize=10)
    if labels or seeds > 1:
      legend_title = _legend_title(points, seeds)
      handles, names = all_axes[0].get_legend_handles_labels()
      figure.legend(
        handles,
        names,
        title=legend_title,
        loc="outside lower center",
        ncols=columns,
      )
    figure.savefig(path, dpi=_DPI)


def _default_panels(history: metrics_lib.History) -> list[str]:
  second = (
    "test_accuracy" if "test_accuracy" in history.metrics else "test_loss"
  )
  found = [n for n in ("train_loss", second) if n in history.metrics]
  return found or list(history.metrics)[:2]


class _Line(NamedTuple):
  """One setting: its points, its text in the legend and its look."""

  points: list[int]
  label: str | None
  diverged: bool  # One of its seeds at least.
  look: dict[str, Any]


def _lines(history, points, criterion) -> list[_Line]:
  settings = metrics_lib.group_by_seed(points)
  names = metrics_lib.varying([s.hyperparameters for s in settings])
  named = len(settings)
  if len(settings) > _MAX_LINES:
    settings = metrics_lib.rank(history, points, criterion)
    named = _NAMED_LINES
  lines = []
  for i, setting in enumerate(settings):
    lost = [p for p in setting.points if history.status(p) == "diverged"]
    label, look = None, {"color": "#BDBDBD", "linewidth": 0.7, "zorder": 2}
    if i < named:
      label = _label(setting, names, len(lost))
      look = {
        "color": COLORS[i % len(COLORS)],
        "linestyle": LINE_STYLES[i // len(COLORS)],
        "linewidth": 1.5,
        "zorder": 3,
      }
    elif i == named:
      label = f"{len(settings) - named} other settings"
    lines.append(_Line(setting.points, label, bool(lost), look))
  return lines


def _label(setting, names: Sequence[str], num_lost: int) -> str | None:
  values = [
    metrics_lib.format_value(setting.hyperparameters.get(name))
    for name in names
  ]
  if len(names) > 1:
    values = [f"{n}={v}" for n, v in zip(names, values, strict=True)]
  text = ", ".join(values)
  if num_lost and len(setting.points) == 1:
    text += " (diverged)"
  elif num_lost:
    text += f" ({num_lost} of {len(setting.points)} seeds diverged)"
  return text.strip() or None


def _legend_columns(labels: Sequence[str], width: int) -> int:
  """As many columns as fit into `width` characters."""
  for columns in range(min(len(labels), 6), 1, -1):
    # The legend fills columns one after the other, the longer ones first.
    filled = np.array_split(np.asarray(labels), columns)
    if sum(max(map(len, column)) + 10 for column in filled) <= width:
      return columns
  return 1


def _legend_title(points, seeds: int) -> str | None:
  names = [n for n in metrics_lib.varying(points) if n != "seed"]
  name = names[0] if len(names) == 1 else ""
  if seeds > 1:
    note = f"mean and range over {seeds} seeds"
    return f"{name} ({note})" if name else note
  return name or None


# x axis -> what is written below it.
X_AXES = {
  "rounds": "Communication round",
  "gradient_evaluations": "Gradient evaluations of a client",
  "bytes": "Exchanged with a client (MB)",
}


def _places(history, line: _Line, x_axis: str) -> np.ndarray:
  """[E], where the values of a line stand; seeds may differ a little in it."""
  if x_axis == "rounds":
    return np.asarray(history.rounds)
  parts = [x_axis] if x_axis != "bytes" else ["bytes_down", "bytes_up"]
  if not set(parts) <= set(history.metrics):
    raise ValueError(f"x_axis={x_axis!r}: {parts[0]} was not measured")
  spent = sum(history.metrics[part][line.points] for part in parts)
  return spent.mean(axis=0) / (1e6 if x_axis == "bytes" else 1)


def _panel(axes, history, name: str, lines, x_axis: str) -> None:
  scale = 100.0 if metrics_lib.is_fraction(name) else 1.0
  values = scale * history.values(name)
  places = [_places(history, line, x_axis) for line in lines]
  marker = "o" if len(history.rounds) == 1 else None
  # NaN where any seed is lost: the mean of the others would flatter.
  means = [values[line.points].mean(axis=0) for line in lines]
  for line, x, mean in zip(lines, places, means, strict=True):
    axes.plot(x, mean, label=line.label, marker=marker, **line.look)
    if len(line.points) > 1:
      axes.fill_between(
        x,
        values[line.points].min(axis=0),
        values[line.points].max(axis=0),
        color=line.look["color"],
        alpha=0.18,
        linewidth=0,
        zorder=line.look["zorder"] - 1,
      )
  _vertical_range(axes, history, name, values)
  if name == "rank":
    axes.yaxis.get_major_locator().set_params(integer=True)
  for line, x, mean in zip(lines, places, means, strict=True):
    if line.diverged:
      _mark_divergence(axes, x, mean, line.look["color"])
  axes.set_xlabel(X_AXES[x_axis])
  axes.set_ylabel(_axis_name(name))


def _vertical_range(axes, history, name, values: np.ndarray) -> None:
  """Scales to the points that did not diverge, so those stay readable."""
  ok = values[~history.diverged()[:, -1]]
  kept = ok[np.isfinite(ok)]
  if not kept.size:
    kept = values[np.isfinite(values)]
  if not kept.size:
    return
  low, high = kept.min(), kept.max()
  if low > 0 and high > 100 * low and not metrics_lib.is_fraction(name):
    log_scale(axes.yaxis)
    axes.set_ylim(low / 1.3, high * 1.3)
  elif high > low:
    margin = 0.05 * (high - low)
    axes.set_ylim(low - margin, high + margin)


def log_scale(axis: Any) -> None:
  """Makes an axis logarithmic, its numbers written out: 0.1 and not 10⁻¹.

  Args:
    axis: `axes.xaxis` or `axes.yaxis` of matplotlib.
  """
  from matplotlib.ticker import LogFormatter

  class Plain(LogFormatter):
    """A plain number where the axis wants a label at all."""

    def __call__(self, x, pos=None):
      return f"{x:g}" if super().__call__(x, pos) else ""

  set_scale = {"x": axis.axes.set_xscale, "y": axis.axes.set_yscale}
  set_scale[axis.axis_name]("log")
  axis.set_major_formatter(Plain())
  axis.set_minor_formatter(Plain(minor_thresholds=(1, 0.4)))


def _mark_divergence(axes, places, mean: np.ndarray, color: str) -> None:
  alive = np.flatnonzero(np.isfinite(mean))
  if not alive.size:
    return
  low, high = axes.get_ylim()
  axes.plot(
    places[alive[-1]],
    np.clip(mean[alive[-1]], low, high),
    marker="x",
    markersize=6,
    markeredgewidth=1.6,
    color=color,
    clip_on=False,
    zorder=4,
  )


def _axis_name(metric: str) -> str:
  plain = metric.replace("_", " ").capitalize()
  if metrics_lib.is_fraction(metric):
    plain += " (%)"
  return _NAMES.get(metric, plain)


def heat_map(
  values: np.ndarray,
  rows: tuple[str, Sequence[Any]],
  columns: tuple[str, Sequence[Any]],
  path: str | os.PathLike,
  *,
  label: str,
  precision: str = ".3g",
) -> None:
  """Draws a metric over two hyperparameters, with the numbers in the cells.

  Args:
    values: the metric, NaN where there is none. [rows, columns].
    rows: the name of the hyperparameter that runs downwards, and its values.
    columns: the same of the one that runs to the right.
    path: where to write; the ending chooses the format (png, pdf, svg).
    label: what the metric is called.
    precision: how its values are written, as in a format string.

  Raises:
    ValueError: if the shape is not that of the hyperparameters.
    ImportError: if matplotlib is missing.
  """
  values = np.asarray(values, float)
  shape = (len(rows[1]), len(columns[1]))
  if values.shape != shape:
    raise ValueError(f"values: shape is {values.shape}; must be {shape}")
  scale = (0.5 + 0.2 * shape[1], 0.5 + 0.12 * shape[0])
  with figure(columns=1, scale=scale) as (new, all_axes):
    axes = all_axes[0, 0]
    image = axes.imshow(values, cmap="viridis", aspect="auto")
    axes.grid(visible=False)
    axes.set_xticks(range(shape[1]), columns[1])
    axes.set_yticks(range(shape[0]), rows[1])
    axes.set_xlabel(columns[0])
    axes.set_ylabel(rows[0])
    there = values[np.isfinite(values)]
    middle = (there.min() + there.max()) / 2 if there.size else 0
    for (i, j), value in np.ndenumerate(values):
      text = "-" if np.isnan(value) else f"{value:{precision}}"
      dark = np.isnan(value) or value > middle
      color = "black" if dark else "white"
      axes.text(j, i, text, ha="center", va="center", color=color, fontsize=8)
    new.colorbar(image, label=label)
    new.savefig(path)


# Clients' labels.


def label_histogram(
  counts: np.ndarray,
  path: str | os.PathLike,
  *,
  title: str | None = None,
  class_names: Sequence[str] | None = None,
) -> None:
  """Draws how many examples of each class every client holds.

  One row for each client, its classes side by side as in Figure 8 of the
  Delta-SGD paper (Kim et al., "Adaptive Federated Learning with Auto-Tuned
  Clients"). Of more than 100 clients the first 100 are drawn.

  Args:
    counts: examples by client and class. [M, classes] int.
    path: where to write; the ending chooses the format (png, pdf, svg).
    title: such as `partition_title('dirichlet', alpha=0.1)`.
    class_names: names for the legend, by default 0, 1, ...

  Raises:
    ValueError: if `counts` is not a matrix of counts.
    ImportError: if matplotlib is missing.
  """
  check_installed()
  import matplotlib
  from matplotlib.figure import Figure
  from matplotlib.patches import Patch

  counts = np.asarray(counts)
  if counts.ndim != 2 or not counts.size or (counts < 0).any():
    raise ValueError(
      f"counts: shape {counts.shape} must be [clients, classes] with counts "
      "of at least 0"
    )
  total = len(counts)
  counts = counts[:_MAX_CLIENTS]
  num_clients, num_classes = counts.shape
  colors = _class_colors(num_classes)
  starts = np.cumsum(counts, axis=1) - counts

  with matplotlib.rc_context(_STYLE | {"axes.grid": False}):
    height = 1.1 + np.clip(0.045 * num_clients, 1.2, 4.5)
    figure = Figure(figsize=(4.8, height), layout="constrained")
    axes = figure.subplots()
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
    axes.set_xlabel("Examples")
    axes.set_ylabel("Client")
    parts = [title] if title else []
    if total > num_clients:
      parts.append(f"first {num_clients} of {total} clients")
    axes.set_title(", ".join(parts))
    if num_classes <= 20:
      figure.legend(
        [Patch(color=color) for color in colors],
        range(num_classes) if class_names is None else class_names,
        title="Class",
        loc="outside right upper",
        handlelength=1,
        handleheight=1,
      )
    else:
      _class_bar(figure, axes, num_classes)
    figure.savefig(path, dpi=_DPI)


def partition_title(partition: str, alpha: float | None = None) -> str:
  """`dirichlet, α = 0.1`."""
  if alpha is None:
    return partition
  return f"{partition}, α = {metrics_lib.format_value(alpha)}"


def _class_colors(num_classes: int) -> list[Any]:
  import matplotlib

  if num_classes <= len(CLASS_COLORS):
    return list(CLASS_COLORS[:num_classes])
  return list(matplotlib.colormaps["viridis"](np.linspace(0, 1, num_classes)))


def _class_bar(figure, axes, num_classes: int) -> None:
  from matplotlib.cm import ScalarMappable
  from matplotlib.colors import Normalize

  scale = ScalarMappable(Normalize(0, num_classes - 1), "viridis")
  figure.colorbar(scale, ax=axes, label="Class", pad=0.02)


# Step sizes.


def step_sizes(
  trace: Mapping[str, np.ndarray],
  path: str | os.PathLike,
  *,
  title: str | None = None,
) -> None:
  """Draws Delta-SGD's step size and the two branches it is the minimum of.

  The picture of Figure 7 of the Delta-SGD paper.

  Args:
    trace: `step_size`, `smoothness` and `growth` of one client at every local
      step: each [K], or [R, K] for several rounds, drawn one after the other
      with a line where a round (and with it the rule's state) starts anew.
      Steps that are not finite are left out: padding, and a first branch that
      does not exist before the client has moved.
    path: where to write; the ending chooses the format (png, pdf, svg).
    title: such as the client's number.

  Raises:
    ValueError: if an array is missing or the shapes differ.
    ImportError: if matplotlib is missing.
  """
  check_installed()
  import matplotlib
  from matplotlib.figure import Figure

  arrays = _trace_arrays(trace)
  with matplotlib.rc_context(_STYLE):
    figure = Figure(figsize=(4.6, 2.9), layout="constrained")
    axes = figure.subplots()
    num_rounds, num_steps = arrays["step_size"].shape
    if 1 < num_rounds <= 60:
      starts = np.arange(1, num_rounds) * num_steps
      for start in starts:
        axes.axvline(start - 0.5, color="#D0D0D0", linewidth=0.7, zorder=1)
    steps = np.arange(num_rounds * num_steps)
    # The minimum lies on top of one branch everywhere, so it is drawn wide
    # and first, the branches thin above it.
    looks = {
      "step_size": ("step size (minimum)", COLORS[1], 3.2, "-"),
      "smoothness": ("smoothness branch", COLORS[2], 1.1, "-"),
      "growth": ("growth branch", COLORS[0], 1.1, "--"),
    }
    for name, (label, color, width, style) in looks.items():
      values = arrays[name].ravel()
      seen = np.isfinite(values) & (values > 0)
      axes.plot(
        steps[seen],
        values[seen],
        label=label,
        color=color,
        linewidth=width,
        linestyle=style,
        alpha=0.55 if name == "step_size" else 1.0,
        marker="o" if seen.sum() <= 30 else None,
        markersize=2.5,
      )
    log_scale(axes.yaxis)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("Local step")
    axes.set_ylabel("Step size")
    if title:
      axes.set_title(title)
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=_DPI)


def _trace_arrays(trace: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  names = ("step_size", "smoothness", "growth")
  missing = [name for name in names if name not in trace]
  if missing:
    raise ValueError(f"trace: has no {missing[0]!r}; it needs {list(names)}")
  arrays = {n: np.atleast_2d(np.asarray(trace[n], float)) for n in names}
  shapes = {n: np.shape(trace[n]) for n in names}
  if len(set(shapes.values())) > 1 or arrays["step_size"].ndim != 2:
    raise ValueError(
      f"trace: shapes are {shapes}; all must be [steps] or [rounds, steps]"
    )
  return arrays
