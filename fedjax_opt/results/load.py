"""Reads the folder that a run left."""

import dataclasses
import os
import pathlib
import warnings
from collections.abc import Collection
from typing import Any

from fedjax_opt.base import Params
from fedjax_opt.checks import errors, memory
from fedjax_opt.checks.fields import checked
from fedjax_opt.files.folders import user_path
from fedjax_opt.files.json_files import read_json
from fedjax_opt.results import folder_digests
from fedjax_opt.results.history import History
from fedjax_opt.results.metrics_file import read_metrics
from fedjax_opt.results.model_file import read_model
from fedjax_opt.results.names import format_value
from fedjax_opt.results.selection import varying
from fedjax_opt.results.text_tables import html_table

# The parts of a point in summary.json.
_POINT_PARTS = ("hyperparameters", "final")
# The files of a folder that are read here.
_FILES = ("config.json", "summary.json", "metrics.csv", "params.safetensors")
_MANY_ROWS = 20  # The most points in a notebook's table: a screen of them.


@dataclasses.dataclass(eq=False, repr=False)
class Run:
  """A run, as read from its folder.

  Attributes:
    folder: where it is.
    config: `config.json`: every resolved option, `versions` and `device`.
    points: {name: value} of every grid point, with the seed. [S] mappings. A
      run without a summary has only the hyperparameters that vary, and the
      seed.
    history: metrics.csv: [S, E] arrays; NaN where a point has diverged.
    summary: summary.json; None for a run that was killed.
    params: the final model of the selected point, nested dictionaries of
      arrays; None if there is none.
    selected: the selected point, an index of `points`; None if there is none.
    is_verified: whether digests show that all files that were read are
      undamaged. A folder may lack them: older versions wrote none, and whoever
      changes a file by hand removes them.
  """

  folder: pathlib.Path
  config: dict[str, Any]
  points: list[dict[str, Any]]
  history: History
  summary: dict[str, Any] | None
  params: Params | None
  selected: int | None
  is_verified: bool

  @property
  def is_complete(self) -> bool:
    """Whether the run reached its last round, or a reason to stop earlier."""
    has_ended = self.summary is not None
    return has_ended and self.summary.get("stopped_by") != "signal"

  def to_pandas(self) -> Any:
    """A data frame: one row for each evaluated round and point.

    Its columns are `point`, `round`, the hyperparameters and the metrics.

    Raises:
      ImportError: if pandas is not installed.
    """
    errors.check_installed("pandas", "to_pandas needs pandas", "run")
    import pandas

    metrics = self.history.metrics
    return pandas.DataFrame(
      {"point": index, "round": round_number}
      | self.points[index]
      | {name: values[index, column] for name, values in metrics.items()}
      for column, round_number in enumerate(self.history.rounds)
      for index in range(self.history.num_points)
    )

  def __repr__(self) -> str:
    return f"Run({str(self.folder)!r}: {self._in_short()})"

  def _repr_html_(self) -> str:
    """A table of the points, for notebooks."""
    names = varying(self.points)
    metric = (self.summary or {}).get("criterion", {}).get("metric")
    columns = [metric] if metric in self.history.metrics else []
    columns += [n for n in ("train_loss",) if n in self.history.metrics]
    rows = []
    for index, point in enumerate(self.points[:_MANY_ROWS]):
      final = self.history.final(index)
      values = ["-" if final[n] is None else f"{final[n]:.4g}" for n in columns]
      point_cells = [format_value(point.get(name)) for name in names]
      mark = ", selected" * (index == self.selected)
      status = self.history.status(index) + mark
      rows.append([index, *point_cells, *values, status])
    num_more = len(self.points) - _MANY_ROWS
    return html_table(
      f"{self.folder}: {self._in_short()}",
      ["point", *names, *columns, "status"],
      rows,
      f"and {num_more} more points" if num_more > 0 else "",
    )

  def _in_short(self) -> str:
    parts = [str(self.config[n]) for n in ("task", "algorithm", "client")
             if n in self.config]  # fmt: skip
    rounds = self.history.rounds[-1] if self.history.rounds else 0
    parts.append(f"{rounds} rounds")
    parts.append(f"{len(self.points)} points")
    if not self.is_complete:
      parts.append("not complete")
    elif self.selected is not None:
      parts.append(f"selected {self.selected}")
    if not self.is_verified:
      parts.append("not verified")
    return ", ".join(parts)


@checked()
def load_run(folder: str | os.PathLike) -> Run:
  """Reads the folder of a run, which may be one that was killed.

  If files of the folder have no digests, so that damage to them would not be
  noticed, a warning says so.

  Args:
    folder: the `output_dir` of the run.

  Returns:
    What it holds, see `Run`.

  Raises:
    ValueError: if it is no folder of a run, or a file of it cannot be read or
      is not what was written.
    TypeError: if `folder` is not a path.
  """
  folder = user_path(folder)
  if not folder.is_dir():
    problem = "is a file" if folder.exists() else "there is no such folder"
    raise ValueError(f"folder={str(folder)!r}: {problem}; give that of a run")
  sizes = _verified(folder)
  summary = _read(folder, "summary.json", _read_summary)
  config = _read(folder, "config.json", read_json)
  if config is None:
    config = (summary or {}).get("config")
  if config is None:
    raise ValueError(
      f"folder={str(folder)!r}: holds no run (it has no config.json); give the "
      "folder of one"
    )
  size = sizes.get("metrics.csv")
  metrics = _read(folder, "metrics.csv", lambda path: read_metrics(path, size))
  points, history = metrics or ([], History())
  selected = None
  if summary is not None:
    points = [_numbers(point["hyperparameters"]) for point in summary["points"]]
    selected = summary["selected"]
    is_measured = any(point["final"] for point in summary["points"])
    expected = len(points) if is_measured else 0
    if history.num_points != expected:
      raise ValueError(
        f"folder={str(folder)!r}: metrics.csv has {history.num_points} points, "
        f"summary.json {expected}; give the folder of a run that is whole"
      )
  model = _read(folder, "params.safetensors", read_model)
  params = None if model is None else model[0]
  is_verified = _all_have_digests(folder, sizes)
  return Run(
    folder, config, points, history, summary, params, selected, is_verified
  )


def _all_have_digests(folder: pathlib.Path, covered: Collection[str]) -> bool:
  """Whether all files that were read have digests; warns if not."""
  names = [name for name in _FILES if (folder / name).exists()]
  without = [name for name in names if name not in covered]
  if without:
    warnings.warn(
      f"folder={str(folder)!r}: not verified: {folder_digests.DIGESTS_FILE} is "
      f"missing or lacks {', '.join(without)}, so damage would not be noticed",
      stacklevel=4,  # Who called `load_run`, which is wrapped once.
    )
  return not without


def _verified(folder: pathlib.Path) -> dict[str, int]:
  """File -> how many bytes its digest covers, if it has a digest."""
  try:
    return folder_digests.check(folder) or {}
  except (OSError, ValueError) as error:
    raise ValueError(f"folder={str(folder)!r}: {error}") from None


def _read(folder: pathlib.Path, name: str, read: Any) -> Any:
  """What a file holds, or None if there is none."""
  if not (folder / name).exists():
    return None
  file, remedy = f"folder={str(folder)!r}: {name}", "give that of a whole run"
  with errors.while_reading(file, remedy, ValueError, TypeError):
    memory.check_is_file(folder / name)
    return read(folder / name)


def _read_summary(path: pathlib.Path) -> dict[str, Any]:
  summary = read_json(path)
  points, selected = summary.get("points"), summary.get("selected")
  has_parts = lambda point: (
    isinstance(point, dict)
    and all(isinstance(point.get(name), dict) for name in _POINT_PARTS)
  )
  if not isinstance(points, list) or not all(map(has_parts, points)):
    raise ValueError(f"'points' is no list of {' and '.join(_POINT_PARTS)}")
  is_point = type(selected) is int and 0 <= selected < len(points)
  if "selected" not in summary or not (selected is None or is_point):
    raise ValueError(f"'selected' is none of the {len(points)} points")
  return summary


def _numbers(point: dict[str, Any]) -> dict[str, Any]:
  """The hyperparameters; in JSON an infinity is text."""
  infinities = ("inf", "-inf")
  return {n: float(v) if v in infinities else v for n, v in point.items()}
