"""The writer of a run's output folder.

config.json         every resolved option, package versions, device
flags.txt           a flagfile that repeats the run (optional)
metrics.csv         a row for each point and evaluated round; grows with the run
checkpoints/        to resume from, see checkpoint.py (optional)
params.safetensors  the final model of the selected point
summary.json        final and best values, the selected point, timing, cost
digests.json        what each of these files may hold, see folder_digests.py
tensorboard/        events, see event_files.py (optional)

docs/results.md says what is in them.
"""

import dataclasses
import os
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_opt.base import Params
from fedjax_opt.files import folders
from fedjax_opt.files.json_files import encoded, encoded_text, to_json
from fedjax_opt.results import (
  environment,
  folder_digests,
  model_file,
  selection,
)
from fedjax_opt.results.event_files import EventFiles
from fedjax_opt.results.history import History
from fedjax_opt.results.metric_names import direction
from fedjax_opt.results.metrics_file import MetricsFile
from fedjax_opt.results.selection import Criterion, Point

# Written before the first file that is whole, `config.json`.
_FIRST_FILES = (
  "config.json.tmp",
  folder_digests.DIGESTS_FILE,
  f"{folder_digests.DIGESTS_FILE}.tmp",
)
# Files that other modules write once, at the end of a run; they get digests.
_FILES_OF_OTHER_MODULES = (
  "per_client.csv", "heldout_clients.csv", "traces.npz", "timetable.csv",
)  # fmt: skip
# Removed when a run goes on, until its end. The picture is among them because
# not every end of a run draws it again.
_LAST_FILES = (
  "summary.json", "params.safetensors", "per_client.png",
  *_FILES_OF_OTHER_MODULES,
)  # fmt: skip


def checked_output_dir(
  output_dir: str | os.PathLike, resume: bool = False
) -> pathlib.Path:
  """Checks that a run may write to a folder, without writing anything.

  Args:
    output_dir: a folder that is new or empty; with `resume` also that of a run.
    resume: whether a run is resumed in the folder, if there is one.

  Returns:
    The folder's path.

  Raises:
    ValueError: if it is a file, holds anything else, or cannot be written.
  """
  folder, names = folders.contents("output_dir", output_dir)
  if "config.json" in names:
    if resume:
      return folder
    raise ValueError(
      f"output_dir={str(folder)!r}: holds a run already (it has a "
      "config.json); give a folder that is new or empty, or resume=True to go "
      "on with that run"
    )
  if resume:  # A kill may have come before the first file was complete.
    names = [name for name in names if name not in _FIRST_FILES]
  folders.check_empty("output_dir", folder, names)
  return folder


class RunWriter:
  """Writes the output folder of one run.

  A process that is killed leaves no file with a part of its content:
  `metrics.csv` grows by whole rows, and `summary.json` is written in one piece.
  A value of a diverged point is an empty cell in `metrics.csv`, and null in
  `summary.json`.

      writer = RunWriter(output_dir, config, points)
      for ...:
        history.append(round_number, values)
        writer.write(history)
      writer.finish(history, criterion)
  """

  def __init__(
    self,
    output_dir: str | os.PathLike,
    config: Mapping[str, Any],
    points: Sequence[Point],
    resume: bool = False,
    flags: str = "",
  ):
    """Creates the folder and writes `config.json` and `flags.txt`.

    Args:
      output_dir: a folder that is new or empty, or that of the run to resume.
      config: every resolved option by name.
      points: hyperparameters of every grid point. [S] mappings.
      resume: whether to write to the folder of a run, if there is one. Then the
        first call of `write` replaces its rows by those of the given history.
      flags: text of the flagfile that repeats the run; '' for none.

    Raises:
      ValueError: if `checked_output_dir` refuses, or the folder cannot be made.
    """
    self.folder = checked_output_dir(output_dir, resume)
    self._points = [dict(point) for point in points]
    self._config = to_json(dict(config) | environment.record())
    self._flags = flags
    self._metrics = MetricsFile(self.folder / "metrics.csv", self._points)
    self._is_resumed = os.path.exists(self.folder / "config.json")
    self._events = EventFiles(self.folder / "tensorboard", self._points)
    with folders.writing("output_dir", self.folder):
      self.folder.mkdir(parents=True, exist_ok=True)
      if not self._is_resumed:
        self._write_flags()
    # Evaluated rounds in the files, and the points that have diverged by then.
    self._num_written, self._diverged = 0, np.zeros(len(points), bool)

  def _write_flags(self) -> None:
    """Writes the run's configuration and flags."""
    folder_digests.write(self.folder / "config.json", encoded(self._config))
    if self._flags:
      flags = encoded_text(self._flags)
      folder_digests.write(self.folder / "flags.txt", flags)

  def _begin_again(self) -> None:
    """Turns the folder of a resumed run into that of an unfinished run."""
    if self._is_resumed:
      self._is_resumed = False
      for name in _LAST_FILES:
        folder_digests.remove(self.folder / name)
      self._write_flags()
      shutil.rmtree(self.folder / "tensorboard", ignore_errors=True)

  def write(self, history: History) -> None:
    """Appends the evaluated rounds that are not in the files yet.

    The cost of a call does not grow with the history.
    """
    first = self._num_written
    if first >= len(history.rounds):
      return
    if history.num_points != len(self._points):
      raise ValueError(
        f"history: has {history.num_points} points; this run has "
        f"{len(self._points)}"
      )
    self._begin_again()
    new = history.take(rounds=slice(first, None))
    before = self._diverged[:, None]
    values = {n: np.where(before, np.nan, new.values(n)) for n in new.metrics}
    self._metrics.append(new.rounds, values)
    self._num_written = len(history.rounds)
    self._diverged = self._diverged | new.diverged()[:, -1]
    if self._events.is_open:
      self._events.write(new.rounds, values)

  def finish(
    self,
    history: History,
    criterion: Criterion,
    run_entries: Mapping[str, Any] | None = None,
    *,
    params: Callable[[int], Params] | None = None,
    point_entries: Sequence[Mapping[str, Any]] = (),
  ) -> dict[str, Any]:
    """Writes the remaining rounds, the model and `summary.json`; closes files.

    Args:
      history: the metrics of every point, also of an interrupted run.
      criterion: by which `select` chooses the selected point.
      run_entries: further entries on the run, by name. The default says that it
        went to its last round.
      params: function from a point to its final model; None to save none.
      point_entries: further entries on each point. [S] mappings, or none.

    Returns:
      The content of `summary.json`.
    """
    self._begin_again()
    self.write(history)
    selected = selection.select(history, self._points, criterion)
    further_entries = point_entries or [{}] * len(self._points)
    points = [
      _point_summary(history, index, point) | dict(entries)
      for index, (point, entries) in enumerate(
        zip(self._points, further_entries, strict=True)
      )
    ]
    has_events = self._events.is_installed
    summary = {
      "config": self._config,
      "points": points,
      "selected": selected,
      "criterion": dataclasses.asdict(criterion),
      "rounds_done": history.rounds[-1] if history.rounds else 0,
      "stopped_by": "rounds",
      "tensorboard": "tensorboard" if has_events else None,
    }
    summary = to_json(summary | dict(run_entries or {}))
    if not self._events.is_open:
      values = {name: history.values(name) for name in history.metrics}
      self._events.write(history.rounds, values)
    self.close()
    path = self.folder / "params.safetensors"
    if selected is None or params is None:
      folder_digests.remove(path)
    else:
      metadata = {
        "point": selected,
        "round": summary["rounds_done"],
        "hyperparameters": self._points[selected],
      }
      model = model_file.encoded(params(selected), metadata)
      folder_digests.write(path, model)
    folder_digests.add(self.folder, *_FILES_OF_OTHER_MODULES)
    folder_digests.write(self.folder / "summary.json", encoded(summary))
    folder_digests.settle(self.folder)
    return summary

  def close(self) -> None:
    """Closes the files of events; harmless when repeated."""
    self._events.close()

  def closing_line(self) -> str:
    """A line with the folder, and why it has no events if there are none."""
    line = f"wrote {self.folder}"
    if not self._events.is_installed:
      line += (
        " (no TensorBoard events: "
        "pip install 'fedjax_opt[tensorboard]' adds them)"
      )
    return line


def _point_summary(
  history: History, index: int, point: Point
) -> dict[str, Any]:
  """The entry of one grid point in `summary.json`."""
  best = {
    name: history.best(index, name) or (None, None)
    for name in history.metrics
    if direction(name)
  }
  summary = {
    "hyperparameters": point,
    "final": history.final(index),
    "best": {name: value for name, (value, _) in best.items()},
    "best_round": {name: round for name, (_, round) in best.items()},
    "status": history.status(index),
  }
  if summary["status"] == "diverged":
    summary["diverged_round"] = history.diverged_round(index)
  return summary
