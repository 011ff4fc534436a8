"""What is kept of a run: enough for tables, pictures and claims.

Records are small enough for the repository. The results in a README can be
computed again from them, and recorded runs need not run again.
"""

import dataclasses
import datetime
import gzip
import json
import math
import pathlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.specification.spec import (
  LIMITED,
  identity_of_config,
  not_default,
)
from fedjax_opt import Run
from fedjax_opt.base import STREAMS
from fedjax_opt.files import checksums, json_files
from fedjax_opt.results.history import History

_DIGITS = 6  # Significant digits that are kept.


class RecordedParts(NamedTuple):
  """The parts of a run that are recorded.

  Attributes:
    metrics: their names; metrics that a run does not have are left out.
    last: how many of the last evaluated rounds; None for the whole curve.
    arrays: other arrays [S, ...], by name, such as step sizes.
  """

  metrics: Sequence[str]
  last: int | None = None
  arrays: Mapping[str, np.ndarray] = {}

  def select(self, history: History) -> History:
    """The part of a history that is recorded."""
    rounds = slice(-self.last, None) if self.last else slice(None)
    metrics = {
      name: history.values(name)[:, rounds]
      for name in self.metrics
      if name in history.metrics
    }
    return History(history.rounds[rounds], metrics)


@dataclasses.dataclass(frozen=True, eq=False)
class Record:
  """What is kept of a run or of a computation.

  Attributes:
    arguments: flags of the run; () for a computation.
    flags: its flags that are no defaults; for a computation its function and
      options.
    about: date, seconds and streams (see `fedjax_opt.base.STREAMS`); for a run
      also device, versions, criterion, the number of all its points, and
      `LIMITED`, if its clients limited defaults.
    points: {name: value} of the points, the seed among them. [S] mappings.
    history: the metrics that were kept; NaN where a point has diverged.
    arrays: other arrays that were kept. {name: [S, ...]}
  """

  arguments: tuple[str, ...]
  flags: dict[str, Any]
  about: dict[str, Any]
  points: list[dict[str, Any]]
  history: History
  arrays: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

  def take(self, rows: Sequence[int]) -> "Record":
    """The record of some points."""
    points = [self.points[row] for row in rows]
    history = self.history.take(rows)
    arrays = {name: values[rows] for name, values in self.arrays.items()}
    return dataclasses.replace(
      self, points=points, history=history, arrays=arrays
    )

  def with_metrics(self, metrics: Mapping[str, np.ndarray]) -> "Record":
    """The record with other metrics, at the same rounds."""
    history = History(self.history.rounds, dict(metrics))
    return dataclasses.replace(self, history=history)

  def where(self, **wanted: float) -> "Record":
    """The record of the points with these hyperparameters."""
    is_wanted = lambda point: all(
      math.isclose(point.get(name, math.nan), value, rel_tol=1e-6)
      for name, value in wanted.items()
    )
    return self.take([i for i, p in enumerate(self.points) if is_wanted(p)])

  def final(self, metric: str) -> np.ndarray:
    """The last value of a metric at every point, [S]."""
    return self.history.values(metric)[:, -1]

  def ends(self, metric: str) -> np.ndarray:
    """Whether a point has a finite last value: it never diverged. [S] bool."""
    return np.isfinite(self.final(metric))


def of_run(run: Run, arguments: Sequence[str], parts: RecordedParts) -> Record:
  """The record of a run that is complete."""
  flags = not_default(identity_of_config(run.config))
  timing = run.summary["timing"]
  about = about_now(timing["compile_seconds"] + timing["run_seconds"])
  names = ("device", "versions", "streams")
  about |= {name: run.config[name] for name in names}
  written = (run.folder / "summary.json").stat().st_mtime
  about["date"] = datetime.date.fromtimestamp(written).isoformat()
  about["criterion"] = run.summary["criterion"]
  about["num_points"] = len(run.points)
  about |= {n: v for n, v in run.config.items() if n == LIMITED}
  points = list(run.points)
  history, arrays = parts.select(run.history), dict(parts.arrays)
  return Record(tuple(arguments), flags, about, points, history, arrays)


def about_now(seconds: float) -> dict[str, Any]:
  """The entry `about` of something that just ran."""
  now = datetime.date.today().isoformat()
  seconds = round(float(seconds), 1)
  return {"date": now, "seconds": seconds, "streams": STREAMS}


# Files.


def to_line(record: Record) -> str:
  """One line of JSON, with its checksum."""
  rounded = lambda arrays: {n: _rounded(v.tolist()) for n, v in arrays.items()}
  content = {
    "arguments": record.arguments,
    "flags": record.flags,
    "about": record.about,
    "points": record.points,
    "rounds": record.history.rounds,
    "metrics": rounded(record.history.metrics),
  }
  if record.arrays:
    content["arrays"] = rounded(record.arrays)
  plain = checksums.with_checksum(json_files.to_json(content))
  return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def _rounded(value: Any) -> Any:
  if isinstance(value, list):
    return [_rounded(item) for item in value]
  return float(f"{value:.{_DIGITS}g}")


def as_read(record: Record) -> Record:
  """The record with the digits that its file has."""
  return of_line(to_line(record))


def of_line(line: str) -> Record:
  """The record that `to_line` wrote.

  Raises:
    ValueError: if it is not such a line.
  """
  content = json_files.parse(line)
  is_record = isinstance(content, dict) and "metrics" in content
  if not is_record or not checksums.checksum_is_right(content):
    raise ValueError("it does not hold what was written")
  metrics = {
    name: np.array(rows, np.float64).reshape(len(rows), -1)
    for name, rows in content["metrics"].items()
  }
  return Record(
    tuple(content["arguments"]),
    content["flags"],
    content["about"],
    content["points"],
    History(content["rounds"], metrics),
    {n: np.array(v, np.float64) for n, v in content.get("arrays", {}).items()},
  )


def write(path: pathlib.Path, records: Iterable[Record]) -> None:
  """Writes records, one on each line; compressed if the name ends in `.gz`."""
  content = "".join(f"{to_line(record)}\n" for record in records).encode()
  if path.suffix == ".gz":
    content = gzip.compress(content, mtime=0)
  json_files.write_whole(path, content)


def read(path: pathlib.Path) -> list[Record]:
  """The records of a file; [] if there is none.

  Raises:
    ValueError: naming the file and the line that is not what was written.
  """
  if not path.exists():
    return []
  records = []
  content = path.read_bytes()
  if path.suffix == ".gz":
    content = _decompressed(path, content)
  # Nothing follows the last newline, unless the file is damaged.
  lines = content.removesuffix(b"\n").split(b"\n")
  for number, line in enumerate(lines, 1):
    try:
      records.append(of_line(line.decode()))
    except ValueError as error:
      reason = str(error).partition("\n")[0]
      raise ValueError(
        f"{str(path)!r} is damaged at line {number} ({reason}); restore it, or "
        "remove it to run again what it records"
      ) from None
  return records


def _decompressed(path: pathlib.Path, content: bytes) -> bytes:
  try:
    return gzip.decompress(content)
  except (OSError, EOFError, zlib.error) as error:
    raise ValueError(
      f"{str(path)!r} is damaged ({error}); restore it, or remove it to run "
      "again what it records"
    ) from None
