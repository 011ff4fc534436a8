"""The folders of checkpoints: which there are, and what may be removed.

Only what `Checkpoints` wrote is ever removed, and what is damaged is renamed.
"""

import json
import os
import pathlib
import re
import shutil

from fedjax_opt.digests import digest_of_file, is_whole, signed
from fedjax_opt.results import json_files

_STEP = re.compile(r"0|[1-9][0-9]*")
_UNFINISHED = re.compile(r"[0-9]+\.orbax-checkpoint-tmp.*")
# A folder that a kill left while it was removed.
_REMOVED = re.compile(r"[0-9]+\.fedjax_opt-removed")
_PARTS = {"about", "record", "state"}
_DIGESTS = "files.json"  # Of the files of a checkpoint, in its folder.


def names(folder: pathlib.Path) -> list[str]:
  """Of all that is in the folder, which need not exist."""
  return sorted(os.listdir(folder)) if folder.is_dir() else []


def steps(folder: pathlib.Path) -> list[int]:
  """Rounds of the checkpoints that were finished, the newest first."""
  found = filter(_STEP.fullmatch, names(folder))
  return sorted((int(n) for n in found if _is_own(folder / n)), reverse=True)


def unfinished(folder: pathlib.Path) -> list[pathlib.Path]:
  """Those that were not written to their end."""
  return [folder / n for n in names(folder) if _UNFINISHED.fullmatch(n)]


def check_own(folder: pathlib.Path) -> None:
  """Checks that all that is named as a checkpoint is one.

  Raises:
    ValueError: naming what is none. It is left as it is.
  """
  for name in filter(_STEP.fullmatch, names(folder)):
    if not _is_own(folder / name):
      kind = "a link" if (folder / name).is_symlink() else "no checkpoint"
      raise ValueError(
        f"{str(folder / name)!r} is {kind}, and has the name of a checkpoint; "
        "move it to another folder"
      )


def write_digests(folder: pathlib.Path, step: int) -> None:
  """Writes the digests of the files of a checkpoint that orbax finished."""
  own = folder / str(step)
  found = {
    str(path.relative_to(own)): digest_of_file(path)
    for path in sorted(own.rglob("*"))
    if path.is_file()
  }
  json_files.write_json(own / _DIGESTS, signed({"files": found}))


def damaged_file(folder: pathlib.Path, step: int) -> str | None:
  """The first file of a checkpoint that is not what was written; or None.

  It is looked for before orbax reads them, which tells of damage in many lines.
  Where a kill came before the digests of files, there are those of arrays.

  Raises:
    OSError: if a file cannot be read.
  """
  own = folder / str(step)
  path = own / _DIGESTS
  if not path.exists():
    return None
  try:
    known = dict(json.loads(path.read_bytes()))
  except (ValueError, TypeError, RecursionError):
    return _DIGESTS
  if not is_whole(known):
    return _DIGESTS
  for name, wanted in known["files"].items():
    if not (own / name).is_file() or digest_of_file(own / name) != wanted:
      return name
  return None


def set_aside(folder: pathlib.Path, step: int) -> None:
  """Renames a checkpoint, to make room for a new one of its name."""
  taken, name, number = names(folder), f"{step}.damaged", 1
  while name in taken:
    number += 1
    name = f"{step}.damaged-{number}"
  os.rename(folder / str(step), folder / name)


def remove(folder: pathlib.Path, step: int) -> None:
  """Removes a checkpoint: by a kill it is there, or it is not."""
  for name in filter(_REMOVED.fullmatch, names(folder)):
    if not (folder / name).is_symlink():
      shutil.rmtree(folder / name, ignore_errors=True)
  gone = folder / f"{step}.fedjax_opt-removed"
  os.rename(folder / str(step), gone)
  shutil.rmtree(gone, ignore_errors=True)


def remove_new(folder: pathlib.Path, before: list[str], step: int) -> None:
  """Removes what a checkpoint that failed has left.

  Args:
    folder: of the checkpoints.
    before: names of what was there before.
    step: round of the checkpoint.
  """
  for name in names(folder):
    if name not in before and name.split(".")[0] == str(step):
      shutil.rmtree(folder / name, ignore_errors=True)


def _is_own(path: pathlib.Path) -> bool:
  """Whether it is a checkpoint, though perhaps a damaged one."""
  if path.is_symlink() or not path.is_dir():
    return False
  return len(_PARTS & set(os.listdir(path))) >= 2
