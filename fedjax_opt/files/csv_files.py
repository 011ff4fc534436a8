"""CSV files that callers give."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedjax_opt.checks import values as checks


def read(
  path: str | os.PathLike, columns: Sequence[str], **how: Any
) -> tuple[Any, list[np.ndarray]]:
  """A CSV file, and the numbers of some of its columns.

  Args:
    path: of the file.
    columns: that it must have.
    **how: of `pandas.read_csv`.

  Returns:
    The `pandas.DataFrame`; and of each column [N] float64, NaN where there is
    no number.

  Raises:
    ValueError: if it cannot be read, or lacks a column.
  """
  import pandas  # Slow to import.

  with checks.reading(
    path,
    "give a CSV file",
    pandas.errors.ParserError,
    pandas.errors.EmptyDataError,
    UnicodeDecodeError,
  ):
    frame = pandas.read_csv(path, **how)
  for name in columns:
    if name not in frame:
      raise ValueError(
        f"{path}: has no column {name}; must have {', '.join(columns)}"
      )
  number = lambda name: pandas.to_numeric(frame[name], errors="coerce")
  return frame, [number(name).to_numpy(float) for name in columns]
