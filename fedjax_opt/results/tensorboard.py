"""TensorBoard events of a run: one sub-run of scalars for each grid point."""

import math
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from fedjax_opt.results.history import History, Unread
from fedjax_opt.results.selection import Point, format_value, varying

# An open sub-run holds a file and a thread. A grid with more points than this
# writes its events at the end of the run, one sub-run after the other.
_MAX_OPEN = 64


def open_events(
  folder: pathlib.Path, points: Sequence[Point]
) -> "Events | None":
  """The writer of a run's events, or None without tensorboardX.

  Args:
    folder: of all sub-runs; created with the first event.
    points: hyperparameters of every grid point. [S] mappings.
  """
  try:
    import tensorboardX
  except ImportError:
    return None
  return Events(tensorboardX.SummaryWriter, folder, points)


class Events:
  """Writes every metric of every grid point as TensorBoard scalars.

  Attributes:
    is_open: whether sub-runs stay open, so that events can be written during
      the run; if not, they are written at its end.
  """

  def __init__(
    self,
    make_writer: Callable[[str], Any],
    folder: pathlib.Path,
    points: Sequence[Point],
  ):
    """Chooses the names of the sub-runs; writes nothing.

    Args:
      make_writer: folder -> tensorboardX's writer of one sub-run.
      folder: of all sub-runs.
      points: hyperparameters of every grid point. [S] mappings.
    """
    self._make_writer = make_writer
    self._folders = [str(folder / name) for name in _sub_run_names(points)]
    self.is_open = len(points) <= _MAX_OPEN
    self._open: dict[int, Any] = {}
    self._unread = Unread()

  def write(self, history: History) -> None:
    """Appends the evaluated rounds that are not written yet."""
    rounds, values = self._unread.read(history)
    if not rounds:
      return
    for point in range(history.num_points):
      if point not in self._open:
        self._open[point] = self._make_writer(self._folders[point])
      for name, array in values.items():
        for column, round_number in enumerate(rounds):
          if math.isfinite(array[point, column]):
            self._open[point].add_scalar(
              name, array[point, column], round_number
            )
      if self.is_open:
        self._open[point].flush()
      else:
        self._open.pop(point).close()
    self._unread.done()

  def close(self) -> None:
    """Closes the files; harmless when repeated."""
    while self._open:
      self._open.popitem()[1].close()


def _sub_run_names(points: Sequence[Point]) -> list[str]:
  """Names such as `07,client_lr=0.1`, at most 120 characters each."""
  names = varying(points)
  digits = len(str(max(len(points) - 1, 0)))
  sub_runs = []
  for i, point in enumerate(points):
    settings = [f"{name}={format_value(point.get(name))}" for name in names]
    sub_run = ",".join([f"{i:0{digits}d}", *settings])
    sub_runs.append(re.sub(r"[^\w.=,+-]", "_", sub_run)[:120])
  return sub_runs
