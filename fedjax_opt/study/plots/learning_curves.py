"""Learning curves: metrics against rounds or cost, a line for each setting."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.checks.values import check_choice
from fedjax_opt.results.history import COSTS, History, direction
from fedjax_opt.results.names import name_of, sentence, value_of
from fedjax_opt.results.selection import (
  Criterion,
  Point,
  Setting,
  group_by_seed,
  rank,
  varying,
)
from fedjax_opt.study.plots.frame import Path, finish, paths_of
from fedjax_opt.study.plots.lines import (
  OUTSIDE,
  Curve,
  draw_curves,
  method_styles,
)
from fedjax_opt.study.plots.metric_axis import MetricAxis, metric_axis
from fedjax_opt.study.plots.panels import (
  add_below,
  panel_figure,
)

# What `x_axis` may be -> the label of the axis.
X_AXES = {
  "rounds": "Communication round",
  "gradient_evaluations": "Gradient evaluations of a client",
  "bytes": "Exchanged with a client (MB)",
}
# Of more settings than `_MAX_LINES`, the best `_NUM_NAMED` are in colour and in
# the legend; the others are behind them, from `_MIN_FOR_BANDS` on as quantiles.
_MAX_LINES, _NUM_NAMED, _MIN_FOR_BANDS = 12, 6, 12
_BANDS = {"10–90 %": (0.1, 0.9, "#E3E3E3"), "25–75 %": (0.25, 0.75, "#C9C9C9")}


class Line(NamedTuple):
  """The line of a setting.

  Attributes:
    points: indices of its grid points, one for each seed.
    label: text in the legend; "" for none.
    is_lost: whether a seed diverged.
  """

  points: list[int]
  label: str
  is_lost: bool


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
  named, others = _lines_of(history, points, criterion)
  axes_of = {name: _axis_of(history, name, named, others) for name in panels}
  legend_title = _title_of(points, max(len(line.points) for line in named))
  labels = [line.label for line in named if line.label]
  labels += [_others_label(others)] if others else []
  with panel_figure(
    len(panels), (3.4, 2.3), labels, title=title, legend_title=legend_title
  ) as (new, all_axes, width):
    entries: dict[str, Any] = {}
    for axes, name in zip(all_axes, panels, strict=True):
      axis = axes_of[name]
      entries |= _draw(axes, history, name, axis, named, others, x_axis)
      axes.set(xlabel=X_AXES[x_axis], ylabel=axis.label)
    if entries or legend_title:
      add_below(new, entries, width, legend_title)
    return finish(new, path)


def _default_panels(history: History) -> list[str]:
  kinds = ("test_accuracy", "validation_accuracy", "test_loss")
  second = [name for name in kinds if name in history.metrics][:1]
  found = [n for n in ("train_loss", *second) if n in history.metrics]
  return found or list(history.metrics)[:2]


# Which lines there are, and what they are called.


def _lines_of(
  history: History, points: Sequence[Point], criterion: Criterion
) -> tuple[list[Line], list[Line]]:
  """The lines with a name: all, or the best of many; and those behind them."""
  settings = group_by_seed(points)
  names = varying([s.hyperparameters for s in settings])
  num_named = len(settings)
  if len(settings) > _MAX_LINES:
    settings, num_named = rank(history, points, criterion), _NUM_NAMED
  lines = [_line(history, setting, names) for setting in settings]
  return lines[:num_named], lines[num_named:]


def _line(history: History, setting: Setting, names: Sequence[str]) -> Line:
  """A line with the values that vary, and what diverged, as its label."""
  points = setting.points
  lost = sum(history.status(point) == "diverged" for point in points)
  text = ", ".join(value_of(setting.hyperparameters.get(n)) for n in names)
  if lost and len(points) == 1:
    text += " (diverged)"
  elif lost:
    text += f" ({lost} of {len(points)} seeds diverged)"
  return Line(points, text.strip(), bool(lost))


def _others_label(others: Sequence[Line]) -> str:
  lost = sum(line.is_lost for line in others)
  return f"{len(others)} other settings" + (f" ({lost} diverged)" * bool(lost))


def _title_of(points: Sequence[Point], num_seeds: int) -> str | None:
  """The legend's title: the hyperparameters that vary, and the seeds."""
  names = [name_of(n) for n in varying(points) if n != "seed"]
  text = sentence(", ".join(names))
  if num_seeds > 1:
    note = f"mean and range over {num_seeds} seeds"
    return f"{text} ({note})" if text else sentence(note)
  return text or None


def _axis_of(
  history: History, name: str, named: Sequence[Line], others: Sequence[Line]
) -> MetricAxis:
  """The axis of a metric: of the named lines that did not diverge, if any."""
  whole = [[x for x in of if not x.is_lost] for of in (named, others)]
  values = [
    history.values(name)[line.points] for line in whole[0] or whole[1] or named
  ]
  return metric_axis(name, [each.mean(axis=0) for each in values], values)


# Drawing.


def _draw(
  axes: Any,
  history: History,
  name: str,
  axis: MetricAxis,
  named: Sequence[Line],
  others: Sequence[Line],
  x_axis: str,
) -> dict[str, Any]:
  """Draws one metric of all lines; returns the entries of the legend."""
  curves = [_curve(history, line, name, x_axis) for line in named]
  looks = method_styles(range(len(named)))
  found = draw_curves(axes, dict(enumerate(curves)), looks, axis)
  entries = {x.label: found[i] for i, x in enumerate(named) if x.label}
  if others:
    behind = [_curve(history, line, name, x_axis) for line in others]
    entries |= _draw_others(axes, behind, axis, _others_label(others))
  if OUTSIDE in found:
    entries[OUTSIDE] = found[OUTSIDE]
  if name == "rank":
    axes.yaxis.get_major_locator().set_params(integer=True)
  return entries


def _curve(history: History, line: Line, name: str, x_axis: str) -> Curve:
  """The mean over seeds, with their range; NaN once a seed has diverged."""
  spent = history.spent(x_axis)
  if spent is None:
    raise ValueError(f"x_axis={x_axis!r}: {COSTS[x_axis][0]} was not measured")
  x = spent[line.points].mean(axis=0) / (1e6 if x_axis == "bytes" else 1)
  values = history.values(name)[line.points]  # [seeds, E]
  ends = (values.min(axis=0), values.max(axis=0)) if len(values) > 1 else ()
  return Curve(x, values.mean(axis=0), *ends)


def _draw_others(
  axes: Any, curves: Sequence[Curve], axis: MetricAxis, label: str
) -> dict[str, Any]:
  """Draws the lines without a name, or their quantiles."""
  from matplotlib.patches import Patch

  means = np.stack([axis.units(curve.mean) for curve in curves])  # [lines, E]
  x, is_single = curves[0].x, means.shape[1] == 1
  is_same_x = all(np.array_equal(curve.x, x) for curve in curves)
  if len(curves) < _MIN_FOR_BANDS or not is_same_x or is_single:
    look = {"color": "#BDBDBD", "linewidth": 0.6, "zorder": 2}
    look |= {"marker": "o" if is_single else None, "markersize": 3}
    for curve, mean in zip(curves, means, strict=True):
      (drawn,) = axes.plot(curve.x, mean, **look)
    return {label: drawn}
  has_value = np.isfinite(means).any(axis=0)
  entries = {}
  for share, (low, high, color) in _BANDS.items():
    ends = np.nanquantile(means[:, has_value], [low, high], axis=0)
    axes.fill_between(x[has_value], *ends, color=color, lw=0, zorder=1.5)
    entries[share if entries else f"{label}: {share}"] = Patch(
      color=color, linewidth=0
    )
  return entries
