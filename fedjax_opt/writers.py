"""The output folder of a run and the table that closes it in the terminal.

config.json    every resolved flag, package versions, device
metrics.csv    point,round,<metrics>; grows while the run goes on
checkpoints/   to go on from, see checkpoint.py (optional)
summary.json   final and best values, the selected point, timing, cost
tensorboard/   events, one sub-run for each grid point (optional)
"""

import dataclasses
import importlib.metadata
import json
import math
import os
import pathlib
import platform
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

import fedjax_opt
from fedjax_opt import folders
from fedjax_opt import metrics as metrics_lib

PACKAGES = (
  "jax",
  "jaxlib",
  "flax",
  "optax",
  "numpy",
  "dm-pix",
  "orbax-checkpoint",
)

# A sub-run keeps a file and a thread open; larger grids write at the end.
_LIVE_SUB_RUNS = 64


def check_output_dir(
  output_dir: str | os.PathLike, resume: bool = False
) -> pathlib.Path:
  """Says whether a run may write here, without writing anything.

  Args:
    output_dir: a folder that is new or empty.
    resume: whether it must be that of a run, instead.

  Returns:
    The folder's path.

  Raises:
    ValueError: if it is a file, holds anything, or cannot be written.
  """
  folder, inside = folders.contents("output_dir", output_dir)
  if resume:
    if "config.json" not in inside:
      raise ValueError(
        f"resume=True: output_dir={str(folder)!r} holds no run to go on with "
        "(it has no config.json); give the folder of one"
      )
    return folder
  if "config.json" in inside:
    raise ValueError(
      f"output_dir={str(folder)!r}: holds another run (it has a config.json); "
      "give a folder that is new or empty"
    )
  folders.check_empty("output_dir", folder, inside)
  return folder


class RunWriter:
  """Writes one run's folder.

  What is in the folder is complete at any moment: `metrics.csv` begins with the
  first evaluated round and grows by whole rows, `summary.json` appears at once.
  A value that a diverged point measured is an empty cell there, and null here.

      writer = RunWriter(output_dir, flags, points)
      for ...:
        history.append(round_number, measured)
        writer.write(history)
      writer.finish(history, criterion, timing, cost, waste)
  """

  def __init__(
    self,
    output_dir: str | os.PathLike,
    config: Mapping[str, Any],
    points: Sequence[metrics_lib.Point],
    resume: bool = False,
  ):
    """Creates the folder and writes `config.json`.

    Args:
      output_dir: a folder that is new or empty, or that of the run to resume.
      config: every resolved flag by name.
      points: hyperparameters of every grid point. [S] mappings.
      resume: whether to write into the folder of a run. Its metrics and events
        are written anew, from the history that is given.

    Raises:
      ValueError: if `check_output_dir` refuses, or the folder cannot be made.
    """
    self.folder = check_output_dir(output_dir, resume)
    self._points = [dict(point) for point in points]
    self._config = plain(
      dict(config) | {"versions": versions(), "device": device()}
    )
    self._rows: Any = None
    self._written = 0
    self._resume = resume
    try:
      self.folder.mkdir(parents=True, exist_ok=True)
      if not resume:
        _write_json(self.folder / "config.json", self._config)
    except OSError as error:
      raise ValueError(
        f"output_dir={str(self.folder)!r}: cannot be written "
        f"({error.strerror}); give a folder that you may write"
      ) from error
    self._events = _events(self.folder / "tensorboard", self._points)

  @property
  def has_events(self) -> bool:
    """Whether TensorBoard events are written (tensorboardX is installed)."""
    return self._events is not None

  def write(self, history: metrics_lib.History) -> None:
    """Appends the evaluated rounds that are not in the files yet."""
    new = range(self._written, len(history.rounds))
    if not new:
      return
    if history.num_points != len(self._points):
      raise ValueError(
        f"history: has {history.num_points} points; this run has "
        f"{len(self._points)}"
      )
    values = {name: history.values(name) for name in history.metrics}
    lines = []
    if self._rows is None:
      if self._resume:  # Not before there is something to put in its place.
        shutil.rmtree(self.folder / "tensorboard", ignore_errors=True)
      # One large buffer: a block of rows leaves in a single write.
      self._rows = open(  # noqa: SIM115
        self.folder / "metrics.csv", "wb", buffering=1 << 20
      )
      lines.append(",".join(["point", "round", *values]))
    for column in new:
      for point in range(history.num_points):
        cells = [_cell(array[point, column]) for array in values.values()]
        lines.append(
          ",".join([str(point), str(history.rounds[column]), *cells])
        )
    self._append(("\n".join(lines) + "\n").encode())
    self._written = len(history.rounds)
    if self._events and self._events.live:
      self._events.write(history)

  def _append(self, rows: bytes) -> None:
    """Writes rows whole or, where the disk is full, not at all."""
    end = self._rows.tell()
    try:
      self._rows.write(rows)
      self._rows.flush()
    except OSError:
      os.truncate(self.folder / "metrics.csv", end)
      raise

  def finish(
    self,
    history: metrics_lib.History,
    criterion: metrics_lib.Criterion,
    timing: Mapping[str, float],
    cost: Mapping[str, float],
    waste: Any = None,
  ) -> dict[str, Any]:
    """Writes what is left and `summary.json`, and closes the files.

    Args:
      history: what was measured, if only until an interruption.
      criterion: how the selected point is chosen, see `metrics.select`.
      timing: `compile_seconds`, `run_seconds`, `rounds_per_second`.
      cost: per client and round `bytes_down`, `bytes_up`,
        `gradient_evaluations` (in examples).
      waste: what padding cost, as the simulator reports it.

    Returns:
      What `summary.json` says.
    """
    self.write(history)
    summary = {
      "config": self._config,
      "points": [
        _point_summary(history, index, point)
        for index, point in enumerate(self._points)
      ],
      "selected": metrics_lib.select(history, self._points, criterion),
      "criterion": dataclasses.asdict(criterion),
      "timing": dict(timing),
      "cost": dict(cost),
      "padding_waste": waste,
      "tensorboard": "tensorboard" if self.has_events else None,
    }
    summary = plain(summary)
    _write_json(self.folder / "summary.json", summary)
    if self._events:
      self._events.write(history)
    self.close()
    return summary

  def close(self) -> None:
    """Closes the files; harmless when repeated."""
    if self._rows is not None:
      self._rows.close()
    if self._events:
      self._events.close()

  def closing_line(self) -> str:
    """Where the files are, and why there are no events if there are none."""
    line = f"wrote {self.folder}"
    if not self.has_events:
      line += (
        " (no TensorBoard events: "
        "pip install 'fedjax_opt[tensorboard]' adds them)"
      )
    return line


def _point_summary(
  history: metrics_lib.History, index: int, point: metrics_lib.Point
) -> dict[str, Any]:
  best = {
    name: history.best(index, name) or (None, None)
    for name in history.metrics
    if metrics_lib.direction(name)
  }
  summary = {
    "hyperparameters": point,
    "final": history.final(index),
    "best": {name: value for name, (value, _) in best.items()},
    "best_round": {name: at for name, (_, at) in best.items()},
    "status": history.status(index),
  }
  if summary["status"] == "diverged":
    summary["diverged_round"] = history.diverged_round(index)
  return summary


def _cell(value: float) -> str:
  return repr(float(value)) if math.isfinite(value) else ""


def _write_json(path: pathlib.Path, content: Any) -> None:
  text = json.dumps(content, indent=2, allow_nan=False) + "\n"
  unfinished = path.with_name(path.name + ".tmp")
  unfinished.write_text(text, encoding="utf-8")
  os.replace(unfinished, path)


def plain(value: Any) -> Any:
  """JSON has no infinity: a flag keeps it as text, a NaN is null."""
  if isinstance(value, Mapping):
    return {str(name): plain(item) for name, item in value.items()}
  if isinstance(value, np.ndarray | jax.Array):
    return plain(np.asarray(value).tolist())
  if isinstance(value, list | tuple | set | frozenset):
    return [plain(item) for item in value]
  if isinstance(value, np.generic):
    return plain(value.item())
  if isinstance(value, float):
    if math.isnan(value):
      return None
    return value if math.isfinite(value) else str(value)
  if value is None or isinstance(value, str | bool | int):
    return value
  return str(value)


def versions() -> dict[str, str | None]:
  found: dict[str, str | None] = {
    "python": platform.python_version(),
    "fedjax_opt": fedjax_opt.__version__,
  }
  for package in PACKAGES:
    try:
      found[package] = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
      found[package] = None
  return found


def device() -> dict[str, Any]:
  devices = jax.devices()
  return {
    "platform": devices[0].platform,
    "kind": devices[0].device_kind,
    "count": len(devices),
  }


# TensorBoard.


def _events(folder: pathlib.Path, points: Sequence[metrics_lib.Point]):
  try:
    import tensorboardX
  except ImportError:
    return None
  return _Events(tensorboardX.SummaryWriter, folder, points)


class _Events:
  """Scalars of every grid point, each in its own sub-run."""

  def __init__(self, factory, folder, points):
    self._factory = factory
    self._folders = [str(folder / name) for name in _sub_run_names(points)]
    self.live = len(points) <= _LIVE_SUB_RUNS
    self._open: dict[int, Any] = {}
    self._written = 0

  def write(self, history: metrics_lib.History) -> None:
    new = range(self._written, len(history.rounds))
    if not new:
      return
    values = {name: history.values(name) for name in history.metrics}
    for point in range(history.num_points):
      if point not in self._open:
        self._open[point] = self._factory(self._folders[point])
      for name, array in values.items():
        for column in new:
          if math.isfinite(array[point, column]):
            self._open[point].add_scalar(
              name, array[point, column], history.rounds[column]
            )
      if self.live:
        self._open[point].flush()
      else:
        self._open.pop(point).close()
    self._written = len(history.rounds)

  def close(self) -> None:
    while self._open:
      self._open.popitem()[1].close()


def _sub_run_names(points: Sequence[metrics_lib.Point]) -> list[str]:
  names = metrics_lib.varying(points)
  digits = len(str(max(len(points) - 1, 0)))
  return [
    re.sub(
      r"[^\w.=,+-]",
      "_",
      ",".join(
        [
          f"{i:0{digits}d}",
          *(f"{n}={metrics_lib.format_value(p.get(n))}" for n in names),
        ]
      ),
    )[:120]
    for i, p in enumerate(points)
  ]


# The closing table.


def table(
  history: metrics_lib.History,
  points: Sequence[metrics_lib.Point],
  criterion: metrics_lib.Criterion,
) -> str:
  """The table that closes a run in the terminal.

  One row for each setting of the hyperparameters, mean and sample standard
  deviation where it ran with several seeds. Up to 20 settings stay in the
  order of the grid; of more, the best 10 are shown.

  Args:
    history: what was measured.
    points: hyperparameters of every grid point. [S] mappings.
    criterion: how the marked row is chosen, see `metrics.select`.

  Returns:
    Lines without a newline at the end.
  """
  if not history.rounds:
    return "no round was evaluated"
  settings = metrics_lib.group_by_seed(points)
  selected = metrics_lib.select(history, points, criterion)
  shown = settings
  if len(settings) > 20:
    shown = metrics_lib.rank(history, points, criterion)[:10]

  names = metrics_lib.varying([s.hyperparameters for s in settings])
  columns = [_hyperparameter_column(shown, name) for name in names]
  main = "test_accuracy"
  if main not in history.metrics:
    main = criterion.metric
  columns.append(_metric_column(history, shown, main, main))
  if metrics_lib.direction(main):
    columns.append(_best_column(history, shown, main))
  if criterion.metric != main:
    name = criterion.metric
    columns.append(_metric_column(history, shown, name, name))
  if "worst_decile_accuracy" in history.metrics:
    name = "worst_decile_accuracy"
    columns.append(_metric_column(history, shown, name, "worst decile"))
  columns.append(["status", *(_status(history, s.points) for s in shown)])
  if len(settings) > 1:
    marks = ["*" if selected in s.points else "" for s in shown]
    columns.insert(0, ["", *marks])

  lines = [f"after round {history.rounds[-1]}:", *_align(columns)]
  if selected is None:
    lines.append("none selected: every point diverged")
  elif len(settings) > 1:
    lines.append(f"* selected: {criterion}")
  if len(shown) < len(settings):
    lines.append(
      f"best {len(shown)} of {len(settings)} settings; metrics.csv and "
      f"summary.json have the other {len(settings) - len(shown)}"
    )
  if any(len(setting.points) > 1 for setting in shown):
    lines.append("± is the sample standard deviation over seeds")
  return "\n".join(lines)


def _hyperparameter_column(settings, name: str) -> list[str]:
  values = [s.hyperparameters.get(name) for s in settings]
  return [name, *map(metrics_lib.format_value, values)]


def _metric_column(history, settings, name: str, title: str) -> list[str]:
  final = history.values(name)[:, -1]
  return [title, *(_spread(final[s.points], name) for s in settings)]


def _best_column(history, settings, name: str) -> list[str]:
  column = ["best (round)"]
  for setting in settings:
    found = [history.best(point, name) for point in setting.points]
    found = [best for best in found if best is not None]
    text = _spread(np.array([value for value, _ in found]), name)
    # Seeds are best in different rounds: then there is no single one to name.
    column.append(f"{text} ({found[0][1]})" if len(found) == 1 else text)
  return column


def _spread(values: np.ndarray, metric: str) -> str:
  """`98.10 ± 0.12 %` over the seeds that have a value."""
  values = values[np.isfinite(values)]
  if not values.size:
    return "-"
  spread = values.std(ddof=1) if values.size > 1 else None
  if metrics_lib.is_fraction(metric):
    if spread is None:
      return f"{100 * values[0]:.2f} %"
    return f"{100 * values.mean():.2f} ± {100 * spread:.2f} %"
  if spread is None:
    return f"{values[0]:.4g}"
  return f"{values.mean():.4g} ± {spread:.2g}"


def _status(history, own: Sequence[int]) -> str:
  diverged = [r for r in map(history.diverged_round, own) if r is not None]
  if not diverged:
    return "ok" if len(own) == 1 else f"ok ({len(own)} seeds)"
  if len(own) == 1:
    return f"diverged at {diverged[0]}"
  return f"{len(diverged)} of {len(own)} diverged from {min(diverged)}"


def _align(columns: Sequence[Sequence[str]]) -> list[str]:
  """Rows of the table; the last column, which is words, to the left."""
  padded = []
  for column in columns:
    width = max(map(len, column))
    last = column is columns[-1]
    padded.append([c.ljust(width) if last else c.rjust(width) for c in column])
  return ["  ".join(row).rstrip() for row in zip(*padded, strict=True)]
