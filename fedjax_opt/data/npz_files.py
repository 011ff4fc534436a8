"""NumPy's .npz files, read with one clear line for what is none."""

import contextlib
import os
import zipfile
from collections.abc import Iterator

import numpy as np

_WANTED = "a NumPy .npz file of plain arrays is needed"


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
    ValueError: if it cannot be read.
  """
  with _opened(path) as file:
    return {name: file[name] for name in file.files}


@contextlib.contextmanager
def _opened(path: str | os.PathLike) -> Iterator[np.lib.npyio.NpzFile]:
  try:
    with np.load(path, allow_pickle=False) as file:
      yield file
  except OSError as error:
    reason = error.strerror or "not a NumPy file"
    raise ValueError(f"{path} cannot be read: {reason}; {_WANTED}") from error
  # AttributeError, TypeError: an .npy file loads as an array.
  except (
    ValueError,
    EOFError,
    AttributeError,
    TypeError,
    zipfile.BadZipFile,
  ) as error:
    raise ValueError(f"{path} cannot be read: {_WANTED}") from error
