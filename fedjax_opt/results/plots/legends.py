"""The lines of a plot and their legend: one line for each setting."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.results.history import History
from fedjax_opt.results.plots.frame import COLORS, LINE_STYLES
from fedjax_opt.results.selection import (
  Criterion,
  Point,
  Setting,
  format_value,
  group_by_seed,
  rank,
  varying,
)

# Of more settings than `_MAX_LINES`, the best `_NUM_NAMED` are in colour and in
# the legend; the others are grey.
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
) -> list[Line]:
  """One line for each setting.

  Args:
    history: the metrics of every point.
    points: hyperparameters of every grid point. [S] mappings.
    criterion: by which the best settings are chosen where there are many.
  """
  settings = group_by_seed(points)
  names = varying([s.hyperparameters for s in settings])
  num_named = len(settings)
  if len(settings) > _MAX_LINES:
    settings = rank(history, points, criterion)
    num_named = _NUM_NAMED
  lines = []
  for i, setting in enumerate(settings):
    lost = [p for p in setting.points if history.status(p) == "diverged"]
    label, look = None, {"color": "#BDBDBD", "linewidth": 0.7, "zorder": 2}
    if i < num_named:
      label = _label(setting, names, len(lost))
      look = {
        "color": COLORS[i % len(COLORS)],
        "linestyle": LINE_STYLES[i // len(COLORS)],
        "linewidth": 1.5,
        "zorder": 3,
      }
    elif i == num_named:
      label = f"{len(settings) - num_named} other settings"
    lines.append(Line(setting.points, label, bool(lost), look))
  return lines


def _label(
  setting: Setting, names: Sequence[str], num_diverged: int
) -> str | None:
  """The values of the hyperparameters that vary, and what diverged."""
  values = [format_value(setting.hyperparameters.get(name)) for name in names]
  if len(names) > 1:
    values = [f"{n}={v}" for n, v in zip(names, values, strict=True)]
  text = ", ".join(values)
  if num_diverged and len(setting.points) == 1:
    text += " (diverged)"
  elif num_diverged:
    text += f" ({num_diverged} of {len(setting.points)} seeds diverged)"
  return text.strip() or None


def num_columns(labels: Sequence[str], width: int) -> int:
  """The number of legend columns that fit into `width` characters."""
  for columns in range(min(len(labels), 6), 1, -1):
    # As matplotlib fills a legend: column by column, the longer ones first.
    filled = np.array_split(np.asarray(labels), columns)
    if sum(max(map(len, column)) + 10 for column in filled) <= width:
      return columns
  return 1


def title_of(points: Sequence[Point], num_seeds: int) -> str | None:
  """The legend's title: the only hyperparameter that varies, and the seeds.

  Args:
    points: hyperparameters of every grid point. [S] mappings.
    num_seeds: the largest number of seeds of a setting.
  """
  names = [n for n in varying(points) if n != "seed"]
  name = names[0] if len(names) == 1 else ""
  if num_seeds > 1:
    note = f"mean and range over {num_seeds} seeds"
    return f"{name} ({note})" if name else note
  return name or None
