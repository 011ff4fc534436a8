"""Paths that callers give, and checks of a folder that is to be written."""

import contextlib
import os
import pathlib
import re
from collections.abc import Iterator

LOCK = ".lock"  # File in a folder, with its owner's host and process.


def user_path(path: str | os.PathLike) -> pathlib.Path:
  """A path with the home folder for `~`; `~name` of no user stays as it is."""
  return pathlib.Path(os.path.expanduser(path))


def contents(
  flag: str, folder: str | os.PathLike
) -> tuple[pathlib.Path, list[str]]:
  """The content of a folder that is to be written; writes nothing.

  Args:
    flag: name of the flag or argument, for messages.
    folder: path of the folder, which need not exist.

  Returns:
    The path, and the sorted names of the files and folders in it, but for a
    lock.

  Raises:
    ValueError: if it is a file, an address, or cannot be written.
  """
  if re.match(r"\w+:/", os.fspath(folder)):
    raise ValueError(
      f"{flag}={os.fspath(folder)!r}: is an address; give a folder of this "
      "machine"
    )
  folder = user_path(folder)
  ancestor = folder
  while not os.path.lexists(ancestor):
    ancestor = ancestor.parent
  if not ancestor.is_dir():
    raise ValueError(
      f"{flag}={str(folder)!r}: {str(ancestor)!r} is a file; give a folder "
      "that is new or empty"
    )
  if not os.access(ancestor, os.R_OK | os.W_OK | os.X_OK):
    raise ValueError(
      f"{flag}={str(folder)!r}: cannot be written (no permission in "
      f"{str(ancestor)!r}); give a folder that you may write"
    )
  names = os.listdir(folder) if ancestor == folder else []
  return folder, sorted(name for name in names if name != LOCK)


def check_empty(flag: str, folder: pathlib.Path, inside: list[str]) -> None:
  """Checks that a folder is empty.

  Args:
    flag: name of the flag or argument, for messages.
    folder: path of the folder.
    inside: names of what is in it, as `contents` returns them.

  Raises:
    ValueError: if anything is in it; the message names one.
  """
  if inside:
    raise ValueError(
      f"{flag}={str(folder)!r}: is not empty (it has {inside[0]!r}); give a "
      "folder that is new or empty"
    )


@contextlib.contextmanager
def writing(flag: str, folder: pathlib.Path) -> Iterator[None]:
  """Makes the ValueError of a folder that cannot be written, in one line.

  Args:
    flag: name of the flag or argument, for messages.
    folder: path of the folder.
  """
  try:
    yield
  except OSError as error:
    raise ValueError(
      f"{flag}={str(folder)!r}: cannot be written ({error.strerror}); give a "
      "folder that you may write"
    ) from error
