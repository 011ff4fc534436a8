"""What was decoded from the files of a data set, kept for later runs.

In `$XDG_CACHE_HOME/fedjax_opt` or `~/.cache/fedjax_opt`. A file that is absent,
damaged or cannot be written is no error: its content is made again.
"""

import hashlib
import os
import pathlib
import zipfile
from collections.abc import Callable, Sequence

import numpy as np
from absl import logging

from fedjax_opt.results import json_files

__all__ = ["arrays", "text"]


def arrays(
  stem: str,
  files: Sequence[pathlib.Path],
  made_by: str,
  make: Callable[[], dict[str, np.ndarray]],
) -> dict[str, np.ndarray]:
  """The arrays that `make` returns, from the cache if they are there.

  Args:
    stem: begin of the cache file's name.
    files: what they are made from; if one changes, they are made again.
    made_by: what else they depend on.
    make: makes them.
  """
  cache = _file(f"{stem}-{_digest(files, made_by)}.npz")
  try:
    with np.load(cache, allow_pickle=False) as file:
      return dict(file)
  except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
    pass  # Absent or damaged.
  made = make()
  _write(cache, lambda file: np.savez(file, **made))
  return made


def text(
  stem: str,
  files: Sequence[pathlib.Path],
  made_by: str,
  make: Callable[[], str],
) -> str:
  """The text that `make` returns, as `arrays`."""
  cache = _file(f"{stem}-{_digest(files, made_by)}.txt")
  try:
    return cache.read_text(encoding="utf-8")
  except (OSError, ValueError):
    pass  # Absent or damaged.
  made = make()
  _write(cache, lambda file: file.write(made.encode()))
  return made


def _digest(files, made_by):
  stats = [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files]
  described = repr(stats) + made_by
  return hashlib.sha256(described.encode()).hexdigest()[:16]


def _file(name):
  home = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
  return home.expanduser() / "fedjax_opt" / name


def _write(cache, write):
  """Writes a file beside the cache file, which takes its place at the end."""
  try:
    cache.parent.mkdir(parents=True, exist_ok=True)
    with (
      json_files.whole(cache, f".{os.getpid()}.partial") as partial,
      open(partial, "wb") as file,
    ):
      write(file)
  except OSError as error:
    logging.warning("What was decoded is not cached: %s", error)
