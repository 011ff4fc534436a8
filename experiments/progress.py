"""The progress of a run, on stderr: a bar with a table below it, or lines."""

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tqdm

from fedjax_opt import Report, metrics
from fedjax_opt.results.selection import over_seeds
from fedjax_opt.results.tables import aligned

_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_TABLES = 0.2
_MAX_ROWS = 5
_UP, _ERASE_LINE, _ERASE_BELOW = "\x1b[{}A", "\x1b[K", "\x1b[J"


class Progress:
  """Rounds done, rounds per second, and the latest loss and accuracy.

  In a terminal it is a bar; for a grid, the best settings so far are below it.
  Elsewhere, such as in a log file, it is a line every ten seconds. For a grid
  it shows the best finite value of all points. Rounds per second do not count
  compilation, which has a line of its own.
  """

  def __init__(
    self,
    rounds: int,
    criterion: metrics.Criterion,
    enabled: bool,
    points: Sequence[metrics.Point] = (),
  ):
    """Begins the display; a terminal shows it at once.

    Args:
      rounds: R.
      criterion: by which settings are compared.
      enabled: whether to show anything.
      points: hyperparameters of every grid point. [S] mappings.
    """
    self._rounds = rounds
    self._criterion = criterion
    self._enabled = enabled
    self._points = points
    self._terminal = sys.stderr.isatty()
    self._bar: Bar | None = None
    self._last_line = 0.0  # when it was written, in seconds
    if enabled and self._terminal:
      self._print("compiling ...", end="")

  def show(self, report: Report, history: metrics.History) -> None:
    """Shows an evaluated round.

    Args:
      report: of that round.
      history: the metrics up to that round.
    """
    if not self._enabled:
      return
    if report.round == 0:
      self._last_line = time.monotonic()
      back = "\r" if self._terminal else ""
      self._print(f"{back}compiled in {report.compile_seconds:.1f} s")
    if self._terminal:
      if self._bar is None:
        self._bar = Bar(self._points, self._criterion, self._rounds)
      self._bar.rank(history)
      self._bar.update(report.round - self._bar.n)
      self._bar.set_postfix_str(self._latest(report))
    else:
      self._write_line(report)

  def close(self) -> None:
    """Ends the bar. It stays on the screen, without the settings below it."""
    if self._bar is not None:
      self._bar.close()

  def _write_line(self, report: Report) -> None:
    now = time.monotonic()
    if now < self._last_line + _SECONDS_BETWEEN_LINES:
      return
    self._last_line = now
    rate = report.round / max(report.run_seconds, 1e-9)
    self._print(
      f"round {report.round} of {self._rounds}, {rate:.1f} rounds/s, "
      f"{self._latest(report)}"
    )

  def _latest(self, report: Report) -> str:
    shown = []
    for name in dict.fromkeys(["train_loss", self._criterion.metric]):
      values = report.metrics.get(name, np.array([]))
      values = values[np.isfinite(values)]
      if values.size:
        best = max if metrics.direction(name) == "max" else min
        text = _value_text(name, best(values))
        shown.append(f"{name.replace('_', ' ')} {text}")
    return ", ".join(shown) or "no finite point"

  def _print(self, text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)


class Bar(tqdm.tqdm):
  """A bar in a terminal, and below it the table of the last `rank`.

  Both are drawn as one frame, in place of the previous one. Then the cursor
  stands at the start of the line below. So whatever ends the program, its last
  output comes after the frame.
  """

  def __init__(
    self,
    points: Sequence[metrics.Point],
    criterion: metrics.Criterion,
    rounds: int,
  ):
    """Shows no round yet.

    Args:
      points: hyperparameters of every grid point. [S] mappings.
      criterion: by which settings are compared.
      rounds: R.
    """
    self._points, self._criterion = points, criterion
    self._table: list[str] = []
    self._drawn: list[int] = []  # characters of each line of the frame
    # The time of the last table, in seconds. There is never a table if there is
    # nothing to compare, or if the terminal cannot show it.
    has_table = len(metrics.group_by_seed(points)) > 1
    is_able = os.environ.get("TERM", "") not in ("", "dumb")
    self._ranked = -np.inf if has_table and is_able else np.inf
    super().__init__(
      total=rounds, unit=" rounds", dynamic_ncols=True, position=0
    )

  def __del__(self):
    # tqdm would close the bar here, below text that was printed since.
    pass

  def rank(self, history: metrics.History) -> None:
    """Makes a new table, unless the present one is recent."""
    now = time.monotonic()
    if now >= self._ranked + _SECONDS_BETWEEN_TABLES:
      self._ranked = now
      self._table = table(history, self._points, self._criterion)

  def display(self, msg: str | None = None, pos: int | None = None) -> bool:
    """Draws the frame; called by tqdm."""
    if msg is not None or not self._table:
      return super().display(msg, pos)
    width, height = _size(self.fp)
    # The line of the cursor is below the frame.
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
    """Moves to the start of the frame; a narrower terminal wraps its lines."""
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
  columns = [
    [name, *(metrics.format_value(s.hyperparameters[name]) for s in shown)]
    for name in metrics.varying([s.hyperparameters for s in settings])
  ]
  means, notes = [criterion.metric], [""]
  for setting in shown:
    lost, mean = over_seeds(scores[setting.points])
    means.append(_value_text(criterion.metric, mean))
    notes.append(f"{lost} of {len(setting.points)} diverged" if lost else "")
  lines = aligned([*columns, means, notes], [len(columns) + 1])
  title = f"best {len(shown)} of {len(settings)} settings"
  if len(points) > len(settings):
    title += f", mean of {len(points) // len(settings)} seeds"
  diverged = int(history.diverged()[:, -1].sum())
  title += f"; {diverged} of {len(points)} points diverged"
  return [title, *(f"  {line}" for line in lines)]


def _value_text(metric: str, value: float) -> str:
  """A value of a metric, such as `93.1 %`."""
  if np.isnan(value):
    return "-"
  if metrics.is_fraction(metric):
    return f"{100 * value:.1f} %"
  return f"{value:.4g}"


def _size(file: Any) -> tuple[int, int]:
  """Columns and lines of a terminal."""
  try:
    width, height = os.get_terminal_size(file.fileno())
  except (OSError, ValueError):
    width, height = 0, 0
  return max(width or 80, 2), height or 24
