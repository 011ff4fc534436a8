"""The progress of a run, on stderr."""

import sys
import time

import numpy as np
import tqdm

from fedjax_opt import Report, metrics

_SECONDS_BETWEEN_LINES = 10.0


class Progress:
  """Rounds done, rounds per second, and the latest loss and accuracy.

  In a terminal it is a bar; elsewhere, such as in a log file, a line every ten
  seconds. Of a grid it shows the best value of all points that are finite.
  Rounds per second do not count compilation, which has a line of its own.
  """

  def __init__(self, rounds: int, criterion: metrics.Criterion, enabled: bool):
    self._rounds = rounds
    self._criterion = criterion
    self._enabled = enabled
    self._terminal = sys.stderr.isatty()
    self._bar = None
    self._last_line = 0.0  # when it was written, in seconds
    if enabled and self._terminal:
      self._print("compiling ...", end="")

  def show(self, report: Report) -> None:
    """Shows an evaluated round."""
    if not self._enabled:
      return
    if report.round == 0:
      self._last_line = time.monotonic()
      back = "\r" if self._terminal else ""
      self._print(f"{back}compiled in {report.compile_seconds:.1f} s")
    if self._terminal:
      self._move_bar(report)
    else:
      self._write_line(report)

  def close(self) -> None:
    """Ends the bar, which stays on the screen."""
    if self._bar is not None:
      self._bar.close()

  def _move_bar(self, report: Report) -> None:
    if self._bar is None:
      self._bar = tqdm.tqdm(
        total=self._rounds, unit=" rounds", dynamic_ncols=True
      )
    self._bar.update(report.round - self._bar.n)
    self._bar.set_postfix_str(self._latest(report))

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
        shown.append(f"{name.replace('_', ' ')} {_text(name, best(values))}")
    return ", ".join(shown) or "no finite point"

  def _print(self, text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)


def _text(metric: str, value: float) -> str:
  if metrics.is_fraction(metric):
    return f"{100 * value:.1f} %"
  return f"{value:.4g}"
