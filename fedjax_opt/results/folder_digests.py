"""The file `digests.json` of a folder: what each of its files may hold.

  {"files": {"metrics.csv": [{"size": 812, "crc32": 77, "grows": true}], ...},
   "digest": 12}

The checksum of new content is written before the file is replaced, beside the
checksum of the old content (null if there was no file). So after a kill at any
moment the file matches one of the two. For a file that grows, the checksum
covers the first `size` bytes; bytes that a kill left behind them are not read.
`digest` is the checksum of `files`.
"""

import contextlib
import pathlib
from typing import Any

from fedjax_opt.files import json_files
from fedjax_opt.files.checksums import (
  checksum,
  checksum_of_file,
  read_with_checksum,
  with_checksum,
)

DIGESTS_FILE = "digests.json"

# {"size": .., "crc32": ..}, with "grows" for a file that is appended to; None
# for a file that does not exist.
_Content = dict[str, Any] | None


# Writing.


def write(path: pathlib.Path, content: bytes, grows: bool = False) -> None:
  """As `json_files.write_whole`, for a file whose checksum is kept.

  Args:
    path: of the file; an existing one is replaced.
    content: all of it.
    grows: whether it will be appended to, see `cover`.
  """
  new_content = {"size": len(content), "crc32": checksum(content)}
  if grows:
    new_content["grows"] = True
  _change(path.parent, {path.name: [_content_of(path), new_content]})
  json_files.write_whole(path, content)


def cover(path: pathlib.Path, size: int, crc32: int) -> None:
  """Keeps the checksum of the first `size` bytes of a file that grows."""
  content = {"size": size, "crc32": crc32, "grows": True}
  _change(path.parent, {path.name: [content]})


def remove(path: pathlib.Path) -> None:
  """Removes a file, if it exists, and then its checksum."""
  if path.exists():
    _change(path.parent, {path.name: [_content_of(path), None]})
    path.unlink()
  files = _read(path.parent) or {}
  if files.pop(path.name, None):
    _write(path.parent, files)


def add(folder: pathlib.Path, *names: str) -> None:
  """Keeps the checksums of existing files, as they are now."""
  files = {name: [_content_of(folder / name)] for name in names}
  _change(folder, {n: content for n, content in files.items() if content[0]})


def settle(folder: pathlib.Path) -> None:
  """Keeps only the checksum of what each file holds now: none will change.

  The checksums of a file that matches none of them stay, so that the damage is
  found.
  """
  files = _read(folder) or {}
  for name, contents in list(files.items()):
    with contextlib.suppress(ValueError):
      content = _held(folder / name, contents)
      if content is None:
        del files[name]
      else:
        is_all = content["size"] == (folder / name).stat().st_size
        names = ("size", "crc32") if is_all else tuple(content)
        files[name] = [{n: content[n] for n in names}]
  _write(folder, files)


def _change(folder: pathlib.Path, new: dict[str, list[_Content]]) -> None:
  _write(folder, (_read(folder) or {}) | new)


def _write(folder: pathlib.Path, files: dict[str, list[_Content]]) -> None:
  json_files.write_json(folder / DIGESTS_FILE, with_checksum({"files": files}))


def _content_of(path: pathlib.Path) -> _Content:
  """The checksum of what a file holds now; None if there is no file."""
  if not path.is_file():
    return None
  size = path.stat().st_size
  return {"size": size, "crc32": checksum_of_file(path, size)}


# Reading.


def check(folder: pathlib.Path, *names: str) -> dict[str, int] | None:
  """Checks that files hold what was written.

  Args:
    folder: of the files.
    names: which; all that have a checksum by default.

  Returns:
    name -> number of bytes that its checksum covers, for files that have one;
    bytes behind these were left by a kill. None if the folder has no checksums,
    as older versions wrote none.

  Raises:
    ValueError: naming the first damaged file.
    OSError: if a file cannot be read.
  """
  files = _read(folder)
  if files is None:
    return None
  sizes = {}
  for name, contents in files.items():
    if not names or name in names:
      content = _held(folder / name, contents)
      if content is not None:
        sizes[name] = content["size"]
  return sizes


def _held(path: pathlib.Path, contents: list[_Content]) -> _Content:
  """Which of these contents a file has.

  Raises:
    ValueError: if it has none of them.
  """
  if not path.is_file():
    if None in contents:
      return None
    raise _damaged(path.name, "is missing")
  size = path.stat().st_size
  candidates = [content for content in contents if content is not None]
  for content in sorted(candidates, key=lambda c: c["size"], reverse=True):
    num_bytes, grows = content["size"], content.get("grows", False)
    is_match = size == num_bytes or (grows and size > num_bytes)
    if is_match and checksum_of_file(path, num_bytes) == content["crc32"]:
      return content
  raise _damaged(path.name, "is damaged: it does not hold what was written")


def _damaged(name: str, problem: str) -> ValueError:
  return ValueError(
    f"{name} {problem}; restore it, remove the folder to run it again, or "
    f"remove {DIGESTS_FILE} to read all as it is"
  )


def _read(folder: pathlib.Path) -> dict[str, list[_Content]] | None:
  """The checksums of a folder's files; None if there is no digests.json."""
  try:
    return read_with_checksum(folder / DIGESTS_FILE)["files"]
  except FileNotFoundError:
    return None
  except ValueError as error:
    raise ValueError(
      f"{error}; restore it, or remove it to read all as it is"
    ) from None
