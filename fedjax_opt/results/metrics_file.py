"""The file `metrics.csv` of a run's folder: written row by row, and read.

Its columns are `point`, `round`, each hyperparameter that is not the same at
all points, `seed`, and then the metrics. It has a row for each grid point and
evaluated round. docs/results.md lists the metrics.
"""

import csv
import io
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_opt.checks import functions
from fedjax_opt.files import csv_files
from fedjax_opt.files.checksums import checksum
from fedjax_opt.results import folder_digests
from fedjax_opt.results.history import History
from fedjax_opt.results.selection import Point, varying

_FIRST, _LAST = ["point", "round"], "seed"


class MetricsFile:
  """Writes `metrics.csv`, and keeps the checksum of its whole rows."""

  def __init__(self, path: pathlib.Path, points: Sequence[Point]):
    """Writes nothing: the file is made with the first row.

    Args:
      path: of the file; an existing one is replaced.
      points: hyperparameters of every grid point. [S] mappings.
    """
    self._path = path
    names = [name for name in varying(points) if name != _LAST]
    self._names = [*names, _LAST]
    self._cells = [[p.get(name, "") for name in self._names] for p in points]
    self._size = self._checksum = 0  # Of the rows written.

  def append(
    self, rounds: Sequence[int], values: Mapping[str, np.ndarray]
  ) -> None:
    """Appends evaluated rounds.

    Args:
      rounds: numbers of rounds done. [n]
      values: name -> [S, n].

    Raises:
      ValueError: if a metric has the name of a hyperparameter.
      OSError: if they cannot be written; the file then has whole rows only.
    """
    rows: list[list[Any]] = []
    if not self._size:
      functions.check_columns("metrics", values, self._names)
      rows.append([*_FIRST, *self._names, *values])
    for column, round_number in enumerate(rounds):
      for point, cells in enumerate(self._cells):
        value_cells = [
          csv_files.number_cell(v[point, column]) for v in values.values()
        ]
        rows.append([point, round_number, *cells, *value_cells])
    self._write(csv_files.text_of(rows).encode())

  def _write(self, rows: bytes) -> None:
    """Writes all of the rows or, if the disk is full, none of them."""
    size, new_checksum = self._size + len(rows), checksum(rows, self._checksum)
    if not self._size:  # It replaces an older file.
      folder_digests.write(self._path, rows, grows=True)
    else:
      try:
        with open(self._path, "ab") as file:
          file.write(rows)
      except OSError:
        os.truncate(self._path, self._size)
        raise
      folder_digests.cover(self._path, size, new_checksum)
    self._size, self._checksum = size, new_checksum


def read_metrics(
  path: pathlib.Path, size: int | None = None
) -> tuple[list[dict[str, Any]], History]:
  """Reads `metrics.csv`; rows of a round that is not whole are left out.

  Args:
    path: of the file.
    size: number of first bytes to read, such as those that a checksum covers;
      None for all.

  Returns:
    The hyperparameters of every point that the file has, [S] mappings; and the
    metrics, in which an empty cell is NaN.

  Raises:
    ValueError: if it is no such file.
    OSError: if it cannot be read.
  """
  text = path.read_bytes()[:size].decode()
  try:
    return _parse(text)
  except (csv.Error, IndexError, OverflowError) as error:
    raise ValueError(f"a row is damaged ({error})") from None


def _parse(text: str) -> tuple[list[dict[str, Any]], History]:
  """The points and the history of a whole file's text."""
  # A kill can leave a part of a row, or only some points of a round.
  whole_rows = io.StringIO(text[: text.rfind("\n") + 1], newline="")
  header, *rows = list(csv.reader(whole_rows)) or [[]]
  if header[:2] != _FIRST:
    raise ValueError(f"its columns are {header[:5]}, not point,round,...")
  first = header.index(_LAST) + 1 if _LAST in header else len(_FIRST)
  num_points = sum(row[1] == rows[0][1] for row in rows) if rows else 0
  num_rounds = len(rows) // num_points if rows else 0
  rows = rows[: num_rounds * num_points]
  rounds = [int(row[1]) for row in rows[::num_points]] if rows else []
  points = [
    {
      name: csv_files.number_or_text(row[i]) if row[i] else None
      for i, name in enumerate(header[:first])
      if i > 1
    }
    for row in rows[:num_points]
  ]
  number = lambda cell: float(cell) if cell else np.nan
  metrics = {
    name: np.reshape(
      [number(row[i]) for row in rows], (num_rounds, num_points)
    ).T
    for i, name in enumerate(header)
    if i >= first
  }
  return points, History(rounds, metrics if rows else {})
