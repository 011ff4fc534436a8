"""Learning curves: metrics against rounds or cost, a line for each setting."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.checks.values import check_choice
from fedjax_opt.results.history import COSTS, History, direction
from fedjax_opt.results.names import name_of, number, sentence, value_of
from fedjax_opt.results.selection import (
  Criterion,
  Point,
  Setting,
  group_by_seed,
  rank,
  varying,
)
from fedjax_opt.study.plots.frame import (
  COLORS,
  LINE_STYLES,
  Path,
  finish,
  paths_of,
)
from fedjax_opt.study.plots.metric_axis import MetricAxis, metric_axis
from fedjax_opt.study.plots.panels import (
  add_below,
  draw_band,
  mark_divergence,
  panel_figure,
)

# Of more settings than `_MAX_LINES`, the best `_NUM_NAMED` are in colour and in
# the legend; the others are summarized behind them.
_MAX_LINES = 12
_NUM_NAMED = 6


class Line(NamedTuple):
  """One line of a plot.

  Attributes:
    points: indices of the setting's grid points, one for each seed.
    label: text in the legend; None for a line that is not in it.
    diverged: whether at least one of the seeds diverged.
    look: arguments of matplotlib's `plot`.
  """

  points: list[int]
  label: str | None
  diverged: bool
  look: dict[str, Any]


def lines_of(
  history: History, points: Sequence[Point], criterion: Criterion
) -> tuple[list[Line], list[Line]]:
  """One line for each setting: those with a name, and those behind them.

  Args:
    history: the metrics of every point.
    points: hyperparameters of every grid point. [S] mappings.
    criterion: by which the best settings are chosen where there are many.

  Returns:
    The named lines, which are all of up to 12 settings and the best 6 of more;
    and the other lines.
  """
  settings = group_by_seed(points)
  names = varying([s.hyperparameters for s in settings])
  num_named = len(settings)
  if len(settings) > _MAX_LINES:
    settings = rank(history, points, criterion)
    num_named = _NUM_NAMED
  named, others = [], []
  for i, setting in enumerate(settings):
    lost = [p for p in setting.points if history.status(p) == "diverged"]
    if i < num_named:
      look = {
        "color": COLORS[i % len(COLORS)],
        "linestyle": LINE_STYLES[i // len(COLORS)],
        "linewidth": 1.3,
        "zorder": 3,
      }
      label = _label(setting, names, len(lost))
      named.append(Line(setting.points, label, bool(lost), look))
    else:
      look = {"color": "#BDBDBD", "linewidth": 0.6, "zorder": 2}
      others.append(Line(setting.points, None, bool(lost), look))
  return named, others


def _label(
  setting: Setting, names: Sequence[str], num_diverged: int
) -> str | None:
  """The values of the hyperparameters that vary, and what diverged."""
  values = [value_of(setting.hyperparameters.get(name)) for name in names]
  text = ", ".join(values)
  if num_diverged and len(setting.points) == 1:
    text += " (diverged)"
  elif num_diverged:
    text += f" ({num_diverged} of {len(setting.points)} seeds diverged)"
  return text.strip() or None


def others_label(others: Sequence[Line], summary: str = "") -> str:
  """The legend's text for the lines without a name of their own."""
  lost = sum(line.diverged for line in others)
  text = f"{len(others)} other settings"
  if lost:
    text += f" ({lost} diverged)"
  return f"{text}{summary}"


def title_of(points: Sequence[Point], num_seeds: int) -> str | None:
  """The legend's title: the hyperparameters that vary, and the seeds.

  Args:
    points: hyperparameters of every grid point. [S] mappings.
    num_seeds: the largest number of seeds of a setting.
  """
  names = [name_of(n) for n in varying(points) if n != "seed"]
  text = sentence(", ".join(names))
  if num_seeds > 1:
    note = f"mean and range over {num_seeds} seeds"
    return f"{text} ({note})" if text else sentence(note)
  return text or None


# What `x_axis` may be -> the label of the axis.
X_AXES = {
  "rounds": "Communication round",
  "gradient_evaluations": "Gradient evaluations of a client",
  "bytes": "Exchanged with a client (MB)",
}
# So many lines without a name become bands of quantiles.
_MIN_FOR_BANDS = 12
_BANDS = ((0.1, 0.9, "#E3E3E3"), (0.25, 0.75, "#C9C9C9"))


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
  others are thin lines, or, from 12 on, bands of their 10 to 90 % and 25 to
  75 % quantiles in each round.

  Accuracies that all end above 90 % are drawn as errors on a log axis. The
  range of an axis is that of the good curves; where a curve ends outside, the
  legend says at which value.

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
    x_axis: 'rounds', or the cost of a client of the cohort on average:
      'gradient_evaluations' (in examples) or 'bytes' (down and up).

  Returns:
    The matplotlib figure if `path` is None, else None.

  Raises:
    ValueError: if no round was evaluated, a panel or the cost was not measured,
      or the ending of a file is another.
    ImportError: if matplotlib is missing.
  """
  check_choice("x_axis", x_axis, X_AXES)
  paths_of(path)
  if not history.rounds:
    raise ValueError("history: no round was evaluated; there is no curve")
  panels = list(panels or _default_panels(history))
  criterion = criterion or Criterion(panels[-1], direction(panels[-1]) or "min")
  named, others = lines_of(history, points, criterion)
  axes_of = {name: _axis_of(history, name, named, others) for name in panels}
  named = [_with_note(history, line, axes_of) for line in named]
  num_seeds = max(len(line.points) for line in named)
  legend_title = title_of(points, num_seeds)
  labels = [line.label for line in named if line.label]
  labels += [others_label(others)] if others else []
  with panel_figure(
    len(panels), (3.4, 2.3), labels, title=title, legend_title=legend_title
  ) as (new, all_axes, width):
    for axes, name in zip(all_axes, panels, strict=True):
      axis = axes_of[name]
      entries = _draw_panel(axes, history, name, axis, named, others, x_axis)
    if entries or legend_title:
      add_below(new, entries, width, legend_title)
    return finish(new, path)


def _default_panels(history: History) -> list[str]:
  kinds = ("test_accuracy", "validation_accuracy", "test_loss")
  second = [name for name in kinds if name in history.metrics][:1]
  found = [n for n in ("train_loss", *second) if n in history.metrics]
  return found or list(history.metrics)[:2]


def _axis_of(
  history: History,
  name: str,
  named: Sequence[Line],
  others: Sequence[Line],
) -> MetricAxis:
  """The axis of a metric: of the named lines that did not diverge, if any."""
  is_ok = lambda line: not line.diverged
  shown = [*filter(is_ok, named)] or [*filter(is_ok, others)] or list(named)
  values = history.values(name)
  return metric_axis(
    name,
    [values[line.points].mean(axis=0) for line in shown],
    [values[line.points] for line in shown],
  )


def _with_note(
  history: History, line: Line, axes_of: dict[str, MetricAxis]
) -> Line:
  """The line, whose label says where it ends if that is outside an axis."""
  if line.diverged or line.label is None:
    return line
  for name, axis in reversed(axes_of.items()):
    end = history.values(name)[line.points, -1].mean()
    if axis.is_outside(end):
      unit = " %" if axis.factor == 100 else ""
      shown = number(float(f"{float(axis.units(end)):.3g}"))
      return line._replace(label=f"{line.label} (ends at {shown}{unit})")
  return line


def _draw_panel(
  axes: Any,
  history: History,
  name: str,
  axis: MetricAxis,
  named: Sequence[Line],
  others: Sequence[Line],
  x_axis: str,
) -> dict[str, Any]:
  """Draws one metric of all lines; returns the entries of the legend."""
  values = axis.units(history.values(name))  # [S, E]
  x_of = lambda line: _x_values(history, line, x_axis)
  # NaN where any seed diverged: the mean of the others would be too good.
  mean_of = lambda line: values[line.points].mean(axis=0)
  axis.apply(axes)
  entries: dict[str, Any] = {}
  marker = "o" if len(history.rounds) == 1 else None
  for line in named:
    x = x_of(line)
    drawn = axes.plot(
      x, mean_of(line), marker=marker, markersize=4, **line.look
    )
    if line.label:
      entries[line.label] = drawn[0]
    if len(line.points) > 1:
      low, high = (
        values[line.points].min(axis=0),
        values[line.points].max(axis=0),
      )
      draw_band(axes, x, low, high, line.look["color"])
  if others:
    all_x = np.stack([x_of(line) for line in others])
    means = np.stack([mean_of(line) for line in others])
    entries |= _draw_others(axes, all_x, means, others, marker)
  if name == "rank":
    axes.yaxis.get_major_locator().set_params(integer=True)
  for line in named:
    if line.diverged:
      mark_divergence(axes, x_of(line), mean_of(line), line.look["color"])
  axes.set_xlabel(X_AXES[x_axis])
  return entries


def _draw_others(
  axes: Any,
  x: np.ndarray,
  means: np.ndarray,
  others: Sequence[Line],
  marker: str | None,
) -> dict[str, Any]:
  """Draws the lines without a name, or their quantiles. Both [lines, E]."""
  from matplotlib.patches import Patch

  is_same_x = np.array_equal(x, np.broadcast_to(x[0], x.shape))
  if len(others) < _MIN_FOR_BANDS or not is_same_x or marker:
    for line, at, mean in zip(others, x, means, strict=True):
      drawn = axes.plot(at, mean, marker=marker, markersize=3, **line.look)
    return {others_label(others): drawn[0]}
  finite = np.isfinite(means).any(axis=0)
  for low, high, color in _BANDS:
    ends = np.nanquantile(means[:, finite], [low, high], axis=0)
    axes.fill_between(x[0, finite], *ends, color=color, linewidth=0, zorder=1.5)
  summary = others_label(others, ": 10–90 %")
  colors = [color for _, _, color in _BANDS]
  return {
    summary: Patch(color=colors[0], linewidth=0),
    "25–75 %": Patch(color=colors[1], linewidth=0),
  }


def _x_values(history: History, line: Line, x_axis: str) -> np.ndarray:
  """[E], where a line's values are on the x axis; the mean over its seeds."""
  spent = history.spent(x_axis)
  if spent is None:
    raise ValueError(f"x_axis={x_axis!r}: {COSTS[x_axis][0]} was not measured")
  mean = spent[line.points].mean(axis=0)
  return mean / (1e6 if x_axis == "bytes" else 1)
