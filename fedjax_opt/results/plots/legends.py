"""The lines of a plot and their legend: one line for each setting."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.results.history import History
from fedjax_opt.results.names import name_of, sentence, value_of
from fedjax_opt.results.plots.frame import COLORS, LINE_STYLES
from fedjax_opt.results.selection import (
  Criterion,
  Point,
  Setting,
  group_by_seed,
  rank,
  varying,
)

# Of more settings than `_MAX_LINES`, the best `_NUM_NAMED` are in colour and in
# the legend; the others are summarized behind them.
_MAX_LINES = 12
_NUM_NAMED = 6
_CHARACTERS_PER_INCH = 16.5


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


def num_columns(labels: Sequence[str], width: float) -> int:
  """The number of legend columns that fit into `width` inches."""
  characters = _CHARACTERS_PER_INCH * width
  for columns in range(min(len(labels), 6), 1, -1):
    # As matplotlib fills a legend: column by column, the longer ones first.
    filled = np.array_split(np.asarray(labels), columns)
    if sum(max(map(len, column)) + 8 for column in filled) <= characters:
      # No longer columns than needed: 4 and 3 instead of 2 and five times 1.
      return -(-len(labels) // -(-len(labels) // columns))
  return 1


def add_below(
  figure: Any,
  entries: dict[str, Any],
  width: float,
  title: str | None = None,
) -> None:
  """Adds a legend below the panels.

  Args:
    figure: a matplotlib figure.
    entries: label -> line or patch that shows it.
    width: of the figure, in inches.
    title: of the legend.
  """
  figure.legend(
    list(entries.values()),
    list(entries),
    title=title,
    loc="outside lower center",
    ncols=num_columns(list(entries), width),
    columnspacing=1.4,
    handlelength=1.8,
  )


def num_rows(
  labels: Sequence[str], width: float, title: str | None = None
) -> int:
  """The number of rows of the legend that `add_below` adds."""
  if not labels and not title:
    return 0
  return -(-len(labels) // num_columns(labels, width)) + bool(title)
