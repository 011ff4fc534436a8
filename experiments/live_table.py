"""A bar in a terminal, with the best settings of a grid so far below it."""

import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tqdm

from fedjax_opt import metrics

_MAX_ROWS = 5
_SECONDS_BETWEEN_TABLES = 0.2
_UP, _ERASE_LINE, _ERASE_BELOW = "\x1b[{}A", "\x1b[K", "\x1b[J"


def is_shown(points: Sequence[metrics.Point]) -> bool:
  """Whether there are settings to compare, and a terminal that can show it."""
  is_able = os.environ.get("TERM", "") not in ("", "dumb")
  return is_able and len(metrics.group_by_seed(points)) > 1


class Bar(tqdm.tqdm):
  """A bar, and below it the table of the last `rank`.

  Both are drawn as one frame, in place of the one before. The cursor then
  stands at the start of the line below, so that whatever ends the program, its
  last words come after the frame.
  """

  def __init__(
    self,
    points: Sequence[metrics.Point],
    criterion: metrics.Criterion,
    **settings: Any,
  ):
    """As `tqdm.tqdm`.

    Args:
      points: hyperparameters of every grid point. [S] mappings.
      criterion: by which settings are compared.
      **settings: of `tqdm.tqdm`.
    """
    self._points, self._criterion = points, criterion
    self._table: list[str] = []
    self._drawn: list[int] = []  # characters of each line of the frame
    self._ranked = -np.inf  # when, in seconds
    super().__init__(position=0, **settings)

  def __del__(self):
    # tqdm would close it here, below what may have been printed since.
    pass

  def rank(self, history: metrics.History) -> None:
    """Makes the table anew, but for one that is not yet old."""
    now = time.monotonic()
    if now < self._ranked + _SECONDS_BETWEEN_TABLES:
      return
    self._ranked = now
    self._table = table(history, self._points, self._criterion)

  def display(self, msg: str | None = None, pos: int | None = None) -> bool:
    """Draws the frame; called by tqdm."""
    if msg is not None or not self._table:
      return super().display(msg, pos)
    width, height = _size(self.fp)
    # Below the frame there is the line of the cursor.
    lines = [str(self), *self._table][: max(1, height - 1)]
    lines = [line[: width - 1] for line in lines]
    body = "".join(f"{line}{_ERASE_LINE}\n" for line in lines)
    self.fp.write(f"{self._to_start(width)}{body}{_ERASE_BELOW}")
    self.fp.flush()
    self._drawn = [len(line) for line in lines]
    return True

  def close(self) -> None:
    """Leaves the bar alone on the screen."""
    if not self.disable and self._drawn:
      self.fp.write(f"{self._to_start(_size(self.fp)[0])}{_ERASE_BELOW}")
      self._table, self._drawn = [], []
    super().close()

  def _to_start(self, width: int) -> str:
    """Moves to the start of the frame, whose lines wrap in a narrower one."""
    above = sum(max(1, -(-length // width)) for length in self._drawn)
    return "\r" + (_UP.format(above) if above else "")


def table(
  history: metrics.History,
  points: Sequence[metrics.Point],
  criterion: metrics.Criterion,
) -> list[str]:
  """The best settings so far; [] if the criterion was not measured.

  Args:
    history: the metrics of every point.
    points: hyperparameters of every grid point. [S] mappings.
    criterion: its score is shown, the mean over seeds that did not diverge.
  """
  if not history.rounds or criterion.metric not in history.metrics:
    return []
  settings = metrics.rank(history, points, criterion)
  scores = criterion.scores(history)
  shown = settings[:_MAX_ROWS]
  names = metrics.varying([s.hyperparameters for s in settings])
  rows = [[*names, criterion.metric, ""]]
  for setting in shown:
    values = scores[setting.points]
    finite = values[np.isfinite(values)]
    lost, seeds = values.size - finite.size, values.size
    mean = value_text(criterion.metric, finite.mean()) if finite.size else "-"
    rows.append(
      [
        *(metrics.format_value(setting.hyperparameters[n]) for n in names),
        mean,
        f"{lost} of {seeds} diverged" if lost else "",
      ]
    )
  title = f"best {len(shown)} of {len(settings)} settings"
  if len(points) > len(settings):
    title += f", mean of {len(points) // len(settings)} seeds"
  diverged = int(history.diverged()[:, -1].sum())
  return [
    f"{title}; {diverged} of {len(points)} points diverged",
    *_align(rows),
  ]


def value_text(metric: str, value: float) -> str:
  """A value of a metric, such as `93.1 %`."""
  if metrics.is_fraction(metric):
    return f"{100 * value:.1f} %"
  return f"{value:.4g}"


def _align(rows: Sequence[Sequence[str]]) -> list[str]:
  """Columns flush right, but the last one."""
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  lines = []
  for *cells, note in rows:
    right = zip(cells, widths, strict=False)
    line = "  ".join(f"{cell:>{width}}" for cell, width in right)
    lines.append(f"  {line}  {note}".rstrip())
  return lines


def _size(file: Any) -> tuple[int, int]:
  """Columns and lines of a terminal."""
  try:
    width, height = os.get_terminal_size(file.fileno())
  except (OSError, ValueError):
    width, height = 0, 0
  return max(width or 80, 2), height or 24
