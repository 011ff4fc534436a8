"""The progress of a run, on stderr."""

import sys
import time
from collections.abc import Sequence

import numpy as np
import tqdm

from experiments import live_table
from fedjax_opt import Report, metrics

_SECONDS_BETWEEN_LINES = 10.0


class Progress:
  """Rounds done, rounds per second, and the latest loss and accuracy.

  In a terminal it is a bar; below that of a grid are its best settings so far,
  see `live_table`. Elsewhere, such as in a log file, it is a line every ten
  seconds. Of a grid it shows the best value of all points that are finite.
  Rounds per second do not count compilation, which has a line of its own.
  """

  def __init__(
    self,
    rounds: int,
    criterion: metrics.Criterion,
    enabled: bool,
    points: Sequence[metrics.Point] = (),
  ):
    """Begins, which a terminal shows.

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
    self._bar = None
    self._last_line = 0.0  # when it was written, in seconds
    if enabled and self._terminal:
      self._print("compiling ...", end="")

  def show(self, report: Report, history: metrics.History) -> None:
    """Shows an evaluated round.

    Args:
      report: of that round.
      history: the metrics until then.
    """
    if not self._enabled:
      return
    if report.round == 0:
      self._last_line = time.monotonic()
      back = "\r" if self._terminal else ""
      self._print(f"{back}compiled in {report.compile_seconds:.1f} s")
    if self._terminal:
      self._move_bar(report, history)
    else:
      self._write_line(report)

  def close(self) -> None:
    """Ends the bar, which stays on the screen; the settings below it do not."""
    if self._bar is not None:
      self._bar.close()

  def _move_bar(self, report: Report, history: metrics.History) -> None:
    if self._bar is None:
      self._bar = self._new_bar()
    if isinstance(self._bar, live_table.Bar):
      self._bar.rank(history)
    self._bar.update(report.round - self._bar.n)
    self._bar.set_postfix_str(self._latest(report))

  def _new_bar(self) -> tqdm.tqdm:
    settings = {"total": self._rounds, "unit": " rounds", "dynamic_ncols": True}
    if live_table.is_shown(self._points):
      return live_table.Bar(self._points, self._criterion, **settings)
    return tqdm.tqdm(**settings)

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
        text = live_table.value_text(name, best(values))
        shown.append(f"{name.replace('_', ' ')} {text}")
    return ", ".join(shown) or "no finite point"

  def _print(self, text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)
