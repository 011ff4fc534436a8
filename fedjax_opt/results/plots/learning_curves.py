"""Learning curves: metrics against rounds or cost."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedjax_opt.registry import check_choice
from fedjax_opt.results.history import History, direction, is_fraction
from fedjax_opt.results.plots import legends
from fedjax_opt.results.plots.frame import axis_name, log_scale, styled_figure
from fedjax_opt.results.selection import Criterion, Point

# What `x_axis` may be -> the label of the axis.
X_AXES = {
  "rounds": "Communication round",
  "gradient_evaluations": "Gradient evaluations of a client",
  "bytes": "Exchanged with a client (MB)",
}


def curves(
  history: History,
  points: Sequence[Point],
  path: str | os.PathLike,
  *,
  criterion: Criterion | None = None,
  panels: Sequence[str] | None = None,
  title: str | None = None,
  x_axis: str = "rounds",
) -> None:
  """Draws metrics against rounds or cost, one line for each setting.

  Points that differ only by seed become one line, their mean, in a band from
  the lowest to the highest seed. A line ends, with a cross, where a seed
  diverges. Of more than 12 settings the best 6 are coloured and named.

  Args:
    history: the metrics of every point.
    points: hyperparameters of every grid point. [S] mappings.
    path: file to write; the ending chooses the format (png, pdf, svg).
    criterion: by which the best settings are chosen; by default the last value
      of the last panel's metric.
    panels: metrics to draw; by default the training loss and the test
      accuracy, or the test loss where no accuracy was measured.
    title: text above the panels.
    x_axis: 'rounds', or the cost of a client of the cohort on average:
      'gradient_evaluations' (in examples) or 'bytes' (down and up).

  Raises:
    ValueError: if no round was evaluated, or a panel or the cost was not
      measured.
    ImportError: if matplotlib is missing.
  """
  check_choice("x_axis", x_axis, X_AXES)
  if not history.rounds:
    raise ValueError("history: no round was evaluated; there is no curve")
  panels = list(panels or _default_panels(history))
  criterion = criterion or Criterion(panels[-1], direction(panels[-1]) or "min")
  lines = legends.lines_of(history, points, criterion)
  labels = [line.label for line in lines if line.label]
  num_seeds = max(len(line.points) for line in lines)
  columns = legends.num_columns(labels, 58 * len(panels))
  legend_rows = -(-len(labels) // columns) + 1 if labels else 0

  with styled_figure(3.5 * len(panels), 2.6 + 0.17 * legend_rows) as new:
    all_axes = np.atleast_1d(new.subplots(1, len(panels)))
    for axes, name in zip(all_axes, panels, strict=True):
      _draw_panel(axes, history, name, lines, x_axis)
    if title:
      new.suptitle(title, fontsize=10)
    if labels or num_seeds > 1:
      handles, names = all_axes[0].get_legend_handles_labels()
      new.legend(
        handles,
        names,
        title=legends.title_of(points, num_seeds),
        loc="outside lower center",
        ncols=columns,
      )
    new.savefig(path)


def _default_panels(history: History) -> list[str]:
  second = (
    "test_accuracy" if "test_accuracy" in history.metrics else "test_loss"
  )
  found = [n for n in ("train_loss", second) if n in history.metrics]
  return found or list(history.metrics)[:2]


def _draw_panel(
  axes: Any,
  history: History,
  name: str,
  lines: Sequence[legends.Line],
  x_axis: str,
) -> None:
  """Draws one metric of all lines."""
  scale = 100.0 if is_fraction(name) else 1.0
  values = scale * history.values(name)  # [S, E]
  xs = [_x_values(history, line, x_axis) for line in lines]
  marker = "o" if len(history.rounds) == 1 else None
  # NaN where any seed diverged: the mean of the others would be too good.
  means = [values[line.points].mean(axis=0) for line in lines]
  for line, x, mean in zip(lines, xs, means, strict=True):
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
  _set_y_range(axes, history, name, values)
  if name == "rank":
    axes.yaxis.get_major_locator().set_params(integer=True)
  for line, x, mean in zip(lines, xs, means, strict=True):
    if line.diverged:
      _mark_divergence(axes, x, mean, line.look["color"])
  axes.set_xlabel(X_AXES[x_axis])
  axes.set_ylabel(axis_name(name))


def _x_values(history: History, line: legends.Line, x_axis: str) -> np.ndarray:
  """[E], where a line's values are on the x axis; the mean over its seeds."""
  if x_axis == "rounds":
    return np.asarray(history.rounds)
  parts = [x_axis] if x_axis != "bytes" else ["bytes_down", "bytes_up"]
  if not set(parts) <= set(history.metrics):
    raise ValueError(f"x_axis={x_axis!r}: {parts[0]} was not measured")
  spent = sum(history.metrics[part][line.points] for part in parts)
  return spent.mean(axis=0) / (1e6 if x_axis == "bytes" else 1)


def _set_y_range(
  axes: Any, history: History, name: str, values: np.ndarray
) -> None:
  """Sets the range of the points that did not diverge, if there are any."""
  ok = values[~history.diverged()[:, -1]]
  kept = ok[np.isfinite(ok)]
  if not kept.size:
    kept = values[np.isfinite(values)]
  if not kept.size:
    return
  low, high = kept.min(), kept.max()
  if low > 0 and high > 100 * low and not is_fraction(name):
    log_scale(axes.yaxis)
    axes.set_ylim(low / 1.3, high * 1.3)
  elif high > low:
    margin = 0.05 * (high - low)
    axes.set_ylim(low - margin, high + margin)


def _mark_divergence(
  axes: Any, x: np.ndarray, mean: np.ndarray, color: str
) -> None:
  """Draws a cross at a line's last finite value."""
  finite = np.flatnonzero(np.isfinite(mean))
  if not finite.size:
    return
  last = finite[-1]
  axes.plot(
    x[last],
    np.clip(mean[last], *axes.get_ylim()),
    marker="x",
    markersize=6,
    markeredgewidth=1.6,
    color=color,
    clip_on=False,
    zorder=4,
  )
