"""The progress bar of a run."""

import numpy as np
import tqdm

from fedjax_opt.metrics import Criterion
from fedjax_opt.simulator import Report


class Bar:
  """Rounds done, rounds per second, and the latest loss and accuracy.

  Of a grid it shows the best point that is still finite. Compilation is shown
  apart and is in no rate.
  """

  def __init__(self, rounds: int, criterion: Criterion, enabled: bool):
    self._rounds = rounds
    self._criterion = criterion
    self._enabled = enabled
    self._bar = None
    if enabled:
      print("compiling ...", end="", flush=True)

  def show(self, report: Report) -> None:
    """Moves to what the report says."""
    if not self._enabled:
      return
    if self._bar is None:
      print(f"\rcompiled in {report.compile_seconds:.1f} s")
      self._bar = tqdm.tqdm(
        total=self._rounds, unit="round", dynamic_ncols=True
      )
    self._bar.update(report.round - self._bar.n)
    self._bar.set_postfix_str(self._latest(report))

  def _latest(self, report: Report) -> str:
    best = np.nanmax if self._criterion.direction == "max" else np.nanmin
    shown = []
    loss = report.metrics.get("train_loss")
    if loss is not None and np.isfinite(loss).any():
      shown.append(f"train_loss={np.nanmin(loss):.4g}")
    value = report.metrics.get(self._criterion.metric)
    if value is not None and np.isfinite(value).any():
      shown.append(f"{self._criterion.metric}={best(value):.4g}")
    return ", ".join(shown)

  def close(self) -> None:
    """Leaves the bar as it is."""
    if self._bar is not None:
      self._bar.close()
