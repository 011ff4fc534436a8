"""CSV files: reads those that callers give; the text of those of a run."""

import csv
import gzip
import io
import math
import os
import pathlib
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fedjax_opt.checks import errors, memory

_MEMORY = 4  # A parsed table takes about so many times the bytes of its text.


def read(
  path: str | os.PathLike, columns: Sequence[str], **how: Any
) -> tuple[Any, list[np.ndarray]]:
  """A CSV file, and the numbers of some of its columns.

  Args:
    path: of the file; one that ends in .gz is unpacked.
    columns: that it must have.
    **how: of `pandas.read_csv`.

  Returns:
    The `pandas.DataFrame`; and of each column [N] float64, NaN where there is
    no number.

  Raises:
    ValueError: if it cannot be read, does not fit into memory, or lacks a
      column.
  """
  import pandas  # Slow to import.

  # Pandas would read an address of the net, and packed files of other kinds.
  path = pathlib.Path(path)
  how |= {"compression": "gzip" if path.suffix.lower() == ".gz" else None}
  number = lambda cells: pandas.to_numeric(cells, errors="coerce")
  with errors.while_reading(path, "give a CSV file", Exception):
    check_table_fits(path)
    frame = read_rows(path, **how)
    numbers = {name: number(frame[name]) for name in columns if name in frame}
  for name in columns:
    if name not in numbers:
      raise ValueError(
        f"{path}: has no column {name}; must have {', '.join(columns)}"
      )
    if f"{name}.1" in frame:  # As pandas calls the second of a name.
      raise ValueError(f"{path}: two columns are named {name!r}")
  return frame, [numbers[name].to_numpy(float) for name in columns]


def check_table_fits(path: pathlib.Path) -> None:
  """Checks that a file's table can be in memory.

  Raises:
    OSError: if it is no file, or cannot be read.
    ValueError: if it would take too much memory.
  """
  memory.check_is_file(path)
  if path.suffix.lower() != ".gz":
    memory.check_memory("it may take", _MEMORY * path.stat().st_size)
    return
  size = 0
  with gzip.open(path) as file:
    while block := file.read(1 << 24):
      size += len(block)
      memory.check_memory("it may take more than", _MEMORY * size)


def read_rows(path: pathlib.Path, **how: Any) -> Any:
  """A file's `pandas.DataFrame`.

  Args:
    path: of the file.
    **how: of `pandas.read_csv`.

  Raises:
    ValueError: if a row has more cells than there are names.
  """
  import pandas  # Slow to import.

  # Else the first column would become the names of the rows, and each other
  # one that of its left neighbour.
  how |= {"index_col": False}
  too_long = pandas.errors.ParserWarning
  with warnings.catch_warnings(action="error", category=too_long):
    try:
      return parse(path, **how)
    except too_long:
      raise ValueError(
        "rows have more values than the first line has names"
      ) from None


def parse(source: Any, **how: Any) -> Any:
  """`pandas.read_csv`, each number exactly as it is written.

  Args:
    source: path, or an open file of text.
    **how: of `pandas.read_csv`.
  """
  import pandas  # Slow to import.

  # Before 3.1 its default was wrong in the last bit of some numbers.
  major, minor = pandas.__version__.split(".")[:2]
  if (int(major), int(minor)) < (3, 1):
    how["float_precision"] = "round_trip"
  return pandas.read_csv(source, **how)


def text_of(rows: Iterable[Iterable[Any]]) -> str:
  """The text of a file with these rows; None is an empty cell."""
  text = io.StringIO()
  csv.writer(text, lineterminator="\n").writerows(rows)
  return text.getvalue()


def number_or_text(text: str) -> int | float | str:
  """What a cell or a flag holds: a whole number, a number, or text."""
  for kind in (int, float):
    try:
      return kind(text)
    except ValueError:
      continue
  return text


def number_cell(value: float) -> str:
  """All digits of a number; an empty cell if it is not finite."""
  return repr(float(value)) if math.isfinite(value) else ""
