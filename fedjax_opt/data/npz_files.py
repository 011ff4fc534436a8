"""NumPy's .npz files, and one clear line for what is none."""

import math
import os
import zipfile
from collections.abc import Mapping
from typing import BinaryIO

import numpy as np

from fedjax_opt.data import memory

_WANTED = "a NumPy .npz file of plain arrays is needed"
_MOST_ARRAYS = 1000


class _Refused(ValueError):
  """A file that could be read, and must not be; the message names it."""


def names(path: str | os.PathLike) -> list[str]:
  """The names of the arrays in a file, which are not read.

  Raises:
    ValueError: if it cannot be read.
  """
  return _read(path, lambda file: list(file.files))


def read(path: str | os.PathLike) -> dict[str, np.ndarray]:
  """The arrays in a file, by name.

  Raises:
    ValueError: if it cannot be read, or would take more memory than there is.
  """
  return _read(path, lambda file: {name: file[name] for name in file.files})


def write(file: BinaryIO, arrays: Mapping[str, np.ndarray]) -> None:
  """Writes arrays of any names, as `numpy.savez` does of most.

  Args:
    file: open to write.
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
  with zipfile.ZipFile(file, "w") as archive:
    for name, array in arrays.items():
      # The archive does not know beforehand that it is larger than 2 GB.
      with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
        np.lib.format.write_array(entry, array, allow_pickle=False)


def _read(path, function):
  """What a function makes of the opened file."""
  try:
    if not os.path.isfile(path):  # Nor a pipe, which would wait for ever.
      os.stat(path)
      raise OSError
    _check_sizes(path)
    with np.load(path, allow_pickle=False) as file:
      return function(file)
  except _Refused:
    raise
  except OSError as error:
    reason = error.strerror or "not a NumPy file"
    raise ValueError(f"{path} cannot be read: {reason}; {_WANTED}") from error
  except Exception as error:  # Damaged files fail in many ways.
    raise ValueError(f"{path} cannot be read: {_WANTED}") from error


def _check_sizes(path: str | os.PathLike) -> None:
  """Checks what a file declares, before memory is taken for it.

  Raises:
    ValueError: if it is no such file, or declares too much.
  """
  with zipfile.ZipFile(path) as file:
    entries = file.infolist()
    if len(entries) > _MOST_ARRAYS:
      raise _Refused(
        f"{path} holds {len(entries)} files; must be at most {_MOST_ARRAYS}"
      )
    total = sum(entry.file_size for entry in entries)
    try:
      memory.check_memory(f"{path} decompresses to", total)
    except ValueError as error:
      raise _Refused(error) from None
    for entry in entries:
      with file.open(entry) as array:
        declared = _declared_bytes(array)
      if declared > entry.file_size:
        raise _Refused(
          f"{path} declares {memory.size_text(declared)} for "
          f"{entry.filename.removesuffix('.npy')[:60]!r}, but holds "
          f"{memory.size_text(entry.file_size)} of it; {_WANTED}"
        )


def _declared_bytes(array) -> int:
  """The bytes of an array, as its header says."""
  version = np.lib.format.read_magic(array)
  if version == (1, 0):
    header = np.lib.format.read_array_header_1_0(array)
  elif version == (2, 0):
    header = np.lib.format.read_array_header_2_0(array)
  else:  # Of named fields.
    raise ValueError(version)
  shape, _, dtype = header
  if dtype.hasobject or min(shape, default=0) < 0:
    raise ValueError(header)
  return math.prod(shape) * dtype.itemsize
