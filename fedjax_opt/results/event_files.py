"""The folder `tensorboard/` of a run, with a sub-run for each grid point."""

import math
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_opt.results.names import format_value
from fedjax_opt.results.selection import Point, varying

# An open sub-run holds a file and a thread. So a grid with more points than
# this writes its events at the end of the run, one sub-run after the other.
_MAX_OPEN = 64


class EventFiles:
  """Writes every metric of every grid point as TensorBoard scalars.

  Attributes:
    is_installed: whether tensorboardX is; without it nothing is written.
    is_open: whether sub-runs stay open, so that events can be written during
      the run; if not, they are written at its end.
  """

  def __init__(self, folder: pathlib.Path, points: Sequence[Point]):
    """Chooses the names of the sub-runs; writes nothing.

    Args:
      folder: of all sub-runs; created with the first event.
      points: hyperparameters of every grid point. [S] mappings.
    """
    try:
      import tensorboardX
    except ImportError:
      tensorboardX = None
    self._library = tensorboardX
    self._folders = [str(folder / name) for name in sub_run_names(points)]
    self.is_installed = tensorboardX is not None
    self.is_open = len(points) <= _MAX_OPEN
    self._open: dict[int, Any] = {}

  def write(
    self, rounds: Sequence[int], values: Mapping[str, np.ndarray]
  ) -> None:
    """Appends evaluated rounds, as `MetricsFile.append` does."""
    if not (self.is_installed and rounds):
      return
    for point, folder in enumerate(self._folders):
      if point not in self._open:
        self._open[point] = self._library.SummaryWriter(folder)
      events = self._open[point]
      for name, array in values.items():
        for round_number, value in zip(rounds, array[point], strict=True):
          if math.isfinite(value):
            events.add_scalar(name, value, round_number)
      if self.is_open:
        events.flush()
      else:
        self._open.pop(point).close()

  def close(self) -> None:
    """Closes the files; harmless when repeated."""
    while self._open:
      self._open.popitem()[1].close()


def sub_run_names(points: Sequence[Point]) -> list[str]:
  """Names such as `07,client_lr=0.1`, at most 120 characters each."""
  names = varying(points)
  digits = len(str(max(len(points) - 1, 0)))
  sub_runs = []
  for i, point in enumerate(points):
    settings = [f"{name}={format_value(point.get(name))}" for name in names]
    sub_run = ",".join([f"{i:0{digits}d}", *settings])
    sub_runs.append(re.sub(r"[^\w.=,+-]", "_", sub_run)[:120])
  return sub_runs
