"""Learning curves: metrics against rounds or cost, a line for each setting."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_opt.checks import fields
from fedjax_opt.checks.values import check_choice, check_count
from fedjax_opt.results.history import History
from fedjax_opt.results.metric_names import COSTS, direction
from fedjax_opt.results.names import capitalized, name_of, value_of
from fedjax_opt.results.selection import (
  Criterion,
  Point,
  group_by_seed,
  rank,
  varying,
)
from fedjax_opt.study import words
from fedjax_opt.study.plots.frame import Path
from fedjax_opt.study.plots.lines import DIVERGED, draw_curves, method_styles
from fedjax_opt.study.plots.metric_axis import (
  Curve,
  MetricAxis,
  as_curve,
  metric_axis,
)
from fedjax_opt.study.plots.panels import draw_panels

# Choice of `x_axis` -> the label of the axis.
X_AXES = {
  "rounds": "Communication round",
  "time": "Simulated time (s)",
  "gradient_evaluations": "Gradient evaluations of a client",
  "bytes": "Exchanged with a client (MB)",
}
# With more settings than `_MAX_LINES`, the best `_NUM_NAMED` are in colour and
# in the legend. The others are thin lines behind them.
_MAX_LINES, _NUM_NAMED = 12, 6

_Lines = Mapping[str, Sequence[int]]  # Label -> its points, one for each seed.


@fields.checked()
def curves(
  history: History,
  points: Sequence[Point],
  path: Path,
  *,
  criterion: Criterion | None = None,
  panels: Sequence[str] | None = None,
  title: str | None = None,
  x_axis: str = "rounds",
) -> Any:
  """Draws metrics against rounds or cost, one line for each setting.

  Points that differ only by seed become one line, their mean, in a band from
  the lowest to the highest seed. A line ends, with a cross, where a seed
  diverges. Of more than 12 settings the best 6 are coloured and named; the
  others are thin lines behind them.

  Accuracies that all end above 90 % are drawn as errors on a log axis. The
  range of an axis is that of the good curves; where a curve ends outside, it
  has a triangle there, and the value at which it ends.

  Args:
    history: the metrics of every point.
    points: hyperparameters of every grid point. [S] mappings.
    path: file to write, or a list of files; the ending chooses the format (png,
      pdf, svg). None to get the figure.
    criterion: by which the best settings are chosen; by default the last value
      of the last panel's metric.
    panels: metrics to draw; by default the training loss and the test
      accuracy, or the test loss where no accuracy was measured.
    title: text above the panels.
    x_axis: 'rounds', 'time' (simulated seconds), or the cost of a client of the
      cohort on average: 'gradient_evaluations' (in examples) or 'bytes' (down
      and up).

  Returns:
    The matplotlib figure if `path` is None, else None.

  Raises:
    ValueError: if no round was evaluated, a panel or the cost was not measured,
      or the ending of a file is another.
    ImportError: if matplotlib is missing.
  """
  check_choice("x_axis", x_axis, X_AXES)
  if not history.rounds:
    raise ValueError("history: no round was evaluated; there is no curve")
  is_lost = history.diverged()[:, -1]
  check_count("points", points, len(is_lost), "points of the history")
  panels = list(panels or _default_panels(history))
  criterion = criterion or Criterion(panels[-1], direction(panels[-1]) or "min")
  spent = history.spent(x_axis)
  if spent is None:
    raise ValueError(f"x_axis={x_axis!r}: {COSTS[x_axis][0]} was not measured")
  named_lines, other_lines = _lines_of(history, points, criterion)
  num_lost = sum(is_lost[indices].any() for indices in other_lines.values())
  summary = f"{len(other_lines)} other settings"
  summary += f" ({num_lost} diverged)" * bool(num_lost)

  def curves_of(metric: str, lines: _Lines) -> dict[str, Curve]:
    values = history.values(metric)
    x = spent / (1e6 if x_axis == "bytes" else 1)
    return {
      label: as_curve(metric, (x[indices].mean(axis=0), values[indices]))
      for label, indices in lines.items()
    }

  def draw(axes, metric):
    front, back = curves_of(metric, named_lines), curves_of(metric, other_lines)
    # The axis of the named lines, or of all lines if each named one diverged.
    axis_curves = list(front.values())
    if not any(np.isfinite(curve.mean[-1]) for curve in axis_curves):
      axis_curves += back.values()
    axis = metric_axis(metric, axis_curves)
    axes.xaxis.get_major_locator().set_params(integer=x_axis == "rounds")
    entries = draw_curves(axes, front, method_styles(front), axis)
    if back:
      entries[summary] = _draw_others(axes, back.values(), axis)
    if metric == "rank":
      axes.yaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel=X_AXES[x_axis], ylabel=axis.label)
    # Labels say which settings diverged; a single setting has no label.
    return {key: entries[key] for key in entries if key not in ("", DIVERGED)}

  return draw_panels(
    panels,
    path,
    draw,
    [label for label in (*named_lines, summary * bool(other_lines)) if label],
    width=3.4,
    title=title,
    legend_title=_title_of(points, max(map(len, named_lines.values()))),
  )


def _default_panels(history: History) -> list[str]:
  kinds = ("test_accuracy", "validation_accuracy", "test_loss")
  second = [name for name in kinds if name in history.metrics][:1]
  panels = [n for n in ("train_loss", *second) if n in history.metrics]
  return panels or list(history.metrics)[:2]


def _lines_of(
  history: History, points: Sequence[Point], criterion: Criterion
) -> tuple[_Lines, _Lines]:
  """The lines with a name: all, or the best of many; and those behind them.

  Labels have the values that vary, and say what diverged.
  """
  settings = group_by_seed(points)
  names = varying([s.hyperparameters for s in settings])
  num_named = len(settings)
  if len(settings) > _MAX_LINES:
    settings, num_named = rank(history, points, criterion), _NUM_NAMED
  is_lost = history.diverged()[:, -1]
  labels = []
  for hyperparameters, indices in settings:
    text = ", ".join(value_of(hyperparameters.get(name)) for name in names)
    num_lost = is_lost[indices].sum()
    seeds = f"{num_lost} of {len(indices)} seeds " * (len(indices) > 1)
    labels.append(f"{text} ({seeds}diverged)".strip() if num_lost else text)
  points_of = [setting.points for setting in settings]
  lines = list(zip(words.unique(labels), points_of, strict=True))
  return dict(lines[:num_named]), dict(lines[num_named:])


def _title_of(points: Sequence[Point], num_seeds: int) -> str | None:
  """The legend's title: the hyperparameters that vary, and the seeds."""
  names = [name_of(n) for n in varying(points) if n != "seed"]
  text = capitalized(", ".join(names))
  if num_seeds > 1:
    note = f"mean and range over {num_seeds} seeds"
    return f"{text} ({note})" if text else capitalized(note)
  return text or None


def _draw_others(axes: Any, curves: Iterable[Curve], axis: MetricAxis) -> Any:
  """Draws the lines without a name; the legend has the last of them."""
  look = {"color": "#BDBDBD", "linewidth": 0.6, "markersize": 3, "zorder": 2}
  for curve in curves:
    marker = "o" if curve.x.size == 1 else None
    mean = axis.units(curve.mean)
    (line,) = axes.plot(curve.x, mean, marker=marker, **look)
  return line
