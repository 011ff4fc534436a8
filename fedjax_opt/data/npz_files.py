"""NumPy's .npz files, and one clear line for what is none."""

import contextlib
import os
import pathlib
import zipfile
from collections.abc import Iterator, Mapping

import numpy as np

from fedjax_opt.checks import errors, memory
from fedjax_opt.files import json_files


@contextlib.contextmanager
def _opened(path: str | os.PathLike) -> Iterator[np.lib.npyio.NpzFile]:
  wanted = "a NumPy .npz file of plain arrays is needed"
  # Damaged files fail in many ways.
  with errors.while_reading(path, wanted, Exception):
    memory.check_is_file(path)
    with zipfile.ZipFile(path) as archive:
      # Whatever the arrays declare, not more than this is read.
      total = sum(entry.file_size for entry in archive.infolist())
    memory.check_memory("it decompresses to", total)
    with np.load(path, allow_pickle=False) as file:
      yield file


def names(path: str | os.PathLike) -> list[str]:
  """The names of the arrays in a file, which are not read.

  Raises:
    ValueError: if it cannot be read.
  """
  with _opened(path) as file:
    return list(file.files)


def read(path: str | os.PathLike) -> dict[str, np.ndarray]:
  """The arrays in a file, by name.

  Raises:
    ValueError: if it cannot be read, or would take more memory than there is.
  """
  with _opened(path) as file:
    return {name: np.asarray(values) for name, values in file.items()}


def write(path: pathlib.Path, arrays: Mapping[str, np.ndarray]) -> None:
  """Writes arrays of any names, as `numpy.savez` does of most, or nothing.

  Args:
    path: of the file; an existing one is replaced.
    arrays: by name.

  Raises:
    ValueError: naming an array that could not be read again.
    OSError: if they cannot be written.
  """
  for name, array in arrays.items():
    if array.dtype.kind not in "biufcSU":
      raise ValueError(
        f"{name!r} is {array.dtype}, which a .npz file cannot hold; convert it "
        "to a type of NumPy's own, such as float32"
      )
  with (
    json_files.atomic_write(path) as unfinished,
    open(unfinished, "wb") as file,
  ):
    with zipfile.ZipFile(file, "w") as archive:
      for name, array in arrays.items():
        # The archive does not know beforehand that it is larger than 2 GB.
        with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
          np.lib.format.write_array(entry, array, allow_pickle=False)
    file.flush()
    os.fsync(file.fileno())
