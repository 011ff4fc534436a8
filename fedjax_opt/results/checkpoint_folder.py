"""The folders of checkpoints: which there are, and what may be removed.

Only what `Checkpoints` wrote is ever removed, and what is damaged is renamed.
A checkpoint is written beside its place and then renamed: by a kill it is
there, or it is not. So it is removed, too.
"""

import contextlib
import os
import pathlib
import re
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

from fedjax_opt.files import digests, json_files

STATE, RECORD = "state", "record.npz"
_ABOUT = "about.json"  # What it is of, and the digests of its other files.
_STEP = re.compile(r"0|[1-9][0-9]*")
# The ends of the names of folders that a kill left.
UNFINISHED, _REMOVED = ".unfinished", ".fedjax_opt-removed"


class DamagedError(Exception):
  """A checkpoint is not what was written."""


def _names(folder: pathlib.Path) -> list[str]:
  """Of all that is in the folder, which need not exist."""
  return sorted(os.listdir(folder)) if folder.is_dir() else []


def steps(folder: pathlib.Path) -> list[int]:
  """Rounds of the checkpoints that were finished, the newest first."""
  found = filter(_STEP.fullmatch, _names(folder))
  return sorted((int(n) for n in found if _is_own(folder / n)), reverse=True)


def left(folder: pathlib.Path, end: str = UNFINISHED) -> list[pathlib.Path]:
  """What a kill left: by default those not written to their end."""
  return [
    folder / name
    for name in _names(folder)
    if name.endswith(end) and _STEP.fullmatch(name.removesuffix(end))
  ]


def check_own(folder: pathlib.Path) -> None:
  """Checks that all that is named as a checkpoint is one.

  Raises:
    ValueError: naming what is none. It is left as it is.
  """
  for name in filter(_STEP.fullmatch, _names(folder)):
    if not _is_own(folder / name):
      is_link = (folder / name).is_symlink()
      kind = "a link" if is_link else "no checkpoint of this version"
      raise ValueError(
        f"{str(folder / name)!r} is {kind}, and has the name of a checkpoint; "
        "move it to another folder"
      )


def _is_own(path: pathlib.Path) -> bool:
  """Whether it is a checkpoint, though perhaps a damaged one."""
  if path.is_symlink() or not path.is_dir():
    return False
  return len({STATE, RECORD, _ABOUT} & set(os.listdir(path))) >= 2


@contextlib.contextmanager
def writing(
  folder: pathlib.Path, step: int, about: Mapping[str, Any]
) -> Iterator[pathlib.Path]:
  """A folder to fill, which becomes the checkpoint if what is inside succeeds.

  Args:
    folder: of the checkpoints.
    step: round of the checkpoint.
    about: what it is of, as JSON has it.
  """
  path = folder / f"{step}{UNFINISHED}"
  shutil.rmtree(path, ignore_errors=True)
  try:
    path.mkdir(parents=True)
    yield path
    files = [each for each in sorted(path.rglob("*")) if each.is_file()]
    found = {
      str(each.relative_to(path)): digests.digest_of_file(each)
      for each in files
    }
    content = digests.signed({**about, "round": step, "files": found})
    json_files.write_json(path / _ABOUT, content)
    os.rename(path, folder / str(step))
  finally:
    shutil.rmtree(path, ignore_errors=True)


def about(folder: pathlib.Path, step: int) -> dict[str, Any]:
  """What a checkpoint is of.

  Raises:
    DamagedError: if that is not what was written.
    OSError: if it cannot be read.
  """
  try:
    found = digests.read_signed(folder / str(step) / _ABOUT)
  except ValueError:
    found = {}
  if found.get("round") != step:
    raise DamagedError(f"{_ABOUT} is not what was written")
  return found


def checked(folder: pathlib.Path, step: int) -> dict[str, Any]:
  """What a checkpoint is of, after a check of all its files.

  This comes before orbax reads them, which tells of damage in many lines.

  Raises:
    DamagedError: naming the first file that is not what was written.
    OSError: if a file cannot be read.
  """
  found = about(folder, step)
  for name, wanted in found["files"].items():
    file = folder / str(step) / name
    if not file.is_file() or digests.digest_of_file(file) != wanted:
      raise DamagedError(f"{name} is not what was written")
  return found


def set_aside(folder: pathlib.Path, step: int) -> None:
  """Renames a checkpoint, to make room for a new one of its name."""
  taken, name, number = _names(folder), f"{step}.damaged", 1
  while name in taken:
    number += 1
    name = f"{step}.damaged-{number}"
  os.rename(folder / str(step), folder / name)


def remove(folder: pathlib.Path, step: int) -> None:
  """Removes a checkpoint, and what a kill left of others."""
  os.rename(folder / str(step), folder / f"{step}{_REMOVED}")
  for path in left(folder, _REMOVED):
    if not path.is_symlink():
      shutil.rmtree(path, ignore_errors=True)
