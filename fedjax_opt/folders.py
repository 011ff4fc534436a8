"""Folders that are about to be written: whether they may be."""

import os
import pathlib


def contents(
  flag: str, folder: str | os.PathLike
) -> tuple[pathlib.Path, list[str]]:
  """What a folder holds that is to be written, without writing anything.

  Args:
    flag: what the folder was given as, for the message.
    folder: its path; it need not exist.

  Returns:
    Its path, and the names of what is in it, sorted.

  Raises:
    ValueError: if it is a file, or cannot be written.
  """
  folder = pathlib.Path(folder).expanduser()
  existing = folder
  while not os.path.lexists(existing):
    existing = existing.parent
  if not existing.is_dir():
    raise ValueError(
      f"{flag}={str(folder)!r}: {str(existing)!r} is a file; give a folder "
      "that is new or empty"
    )
  if not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
    raise ValueError(
      f"{flag}={str(folder)!r}: cannot be written (no permission in "
      f"{str(existing)!r}); give a folder that you may write"
    )
  return folder, sorted(os.listdir(folder)) if existing == folder else []


def check_empty(flag: str, folder: pathlib.Path, inside: list[str]) -> None:
  """That `contents` found nothing there.

  Raises:
    ValueError: naming what there is.
  """
  if inside:
    raise ValueError(
      f"{flag}={str(folder)!r}: is not empty (it has {inside[0]!r}); give a "
      "folder that is new or empty"
    )
