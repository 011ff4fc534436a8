"""What was decoded from the files of a data set, kept for later runs.

In `$XDG_CACHE_HOME/fedjax_opt` or `~/.cache/fedjax_opt`. A file that is absent,
damaged or cannot be written is no error: its content is made again.
"""

import contextlib
import hashlib
import os
import pathlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from absl import logging

from fedjax_opt.data import npz_files
from fedjax_opt.digests import digest
from fedjax_opt.results import json_files

__all__ = ["arrays", "place", "text", "whole"]

_DIGEST = "_digest"  # The name of an array that a cache file has more.


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
  cache = place(f"{stem}-", files, made_by, ".npz")
  try:
    with np.load(cache, allow_pickle=False) as file:
      found = dict(file)
    if found.pop(_DIGEST) == _digest_of(found):
      return found
  except Exception:  # Absent; and damaged files fail in many ways.
    pass
  made = make()
  content = made | {_DIGEST: np.array(_digest_of(made))}
  try:
    with whole(cache) as unfinished, open(unfinished, "wb") as file:
      npz_files.write(file, content)
  except OSError as error:
    logging.warning("What was decoded is not cached: %s", error)
  return made


def text(
  stem: str,
  files: Sequence[pathlib.Path],
  made_by: str,
  make: Callable[[], str],
) -> str:
  """The text that `make` returns, as `arrays`."""
  as_bytes = lambda: {"text": np.frombuffer(make().encode(), np.uint8)}
  found = arrays(stem, files, made_by, as_bytes)
  return found["text"].tobytes().decode()


def place(
  begin: str, files: Sequence[pathlib.Path], made_by: str, end: str
) -> pathlib.Path:
  """The path of a cache file; what it is made from is in its name.

  Args:
    begin: of its name.
    files: what it is made from, with their sizes and times.
    made_by: what else it depends on.
    end: of its name.
  """
  stats = [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files]
  described = repr((stats, made_by))
  name = f"{begin}{hashlib.sha256(described.encode()).hexdigest()[:16]}{end}"
  home = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
  return home.expanduser() / "fedjax_opt" / name


@contextlib.contextmanager
def whole(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """As `json_files.whole`, of a cache file; its folder is made."""
  path.parent.mkdir(parents=True, exist_ok=True)
  # Threads, and containers whose processes have the same numbers, may write to
  # one cache at once.
  end = f".{secrets.token_hex(8)}.partial"
  with json_files.whole(path, end) as unfinished:
    yield unfinished


def _digest_of(found: Mapping[str, np.ndarray]) -> int:
  """Digest of arrays with their names, types and shapes."""
  of_all = 0
  for name, array in sorted(found.items()):
    of_all = digest(f"{name} {array.dtype} {array.shape}".encode(), of_all)
    of_all = digest(array, of_all)
  return of_all
