"""Files of data sets, and what was decoded from them, kept for later runs.

What is decoded is in `$XDG_CACHE_HOME/fedjax_opt` or `~/.cache/fedjax_opt`. A
file there that is absent, damaged or cannot be written is no error: its content
is made again.
"""

import contextlib
import hashlib
import os
import pathlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from absl import logging

from fedjax_opt.checks import errors
from fedjax_opt.data import npz_files
from fedjax_opt.files import json_files
from fedjax_opt.files.folders import user_path

# Of what is in a cache file, which is in its name; another is made again.
_VERSION = 2


def existing_folder(
  data_dir: str | os.PathLike, wanted: str = "must be an existing folder"
) -> pathlib.Path:
  """The path of a folder with data.

  Args:
    data_dir: it.
    wanted: what it must be, for the message.

  Raises:
    ValueError: if there is none.
  """
  root = user_path(data_dir)
  if not root.is_dir():
    raise ValueError(f"data_dir={str(data_dir)!r}: {wanted}")
  return root


def saved_data_set(folder: pathlib.Path) -> tuple[Any, Any]:
  """What `save_to_disk` of Hugging Face's `datasets` made.

  Args:
    folder: of the data set.

  Returns:
    The package, and its data set or {part: data set}.

  Raises:
    ValueError: if the package is not installed, or the folder has, or names,
      what is no file and might never end. Errors of the package stay what they
      are.
  """
  datasets = errors.imported("datasets", "its folders", "datasets")
  for path in folder.rglob("*"):
    if not (path.is_file() or path.is_dir()):
      raise ValueError(f"{path.name!r} is no file")
    for name in _named_in(path):
      if name not in os.listdir(path.parent):
        raise ValueError(f"{path.name} names {name!r}, which is not beside it")
  return datasets, datasets.load_from_disk(os.fspath(folder))


def _named_in(path: pathlib.Path) -> list[str]:
  """What a file of a saved data set names, to be read too."""
  if path.name == "state.json":
    return [e["filename"] for e in json_files.read_json(path)["_data_files"]]
  if path.name == "dataset_dict.json":
    return list(json_files.read_json(path)["splits"])
  return []


def cached_arrays(
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
  path = cache_path(f"{stem}-", files, made_by, ".npz")
  with contextlib.suppress(ValueError):  # It is absent or damaged.
    return npz_files.read(path)
  arrays = make()
  try:
    with atomic_write(path) as unfinished:
      npz_files.write(unfinished, arrays)
  except OSError as error:
    logging.warning("What was decoded is not cached: %s", error)
  return arrays


def cache_path(
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
  text = repr((stats, made_by, _VERSION))
  name = f"{begin}{hashlib.sha256(text.encode()).hexdigest()[:16]}{end}"
  home = user_path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
  return home / "fedjax_opt" / name


@contextlib.contextmanager
def atomic_write(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """As `json_files.atomic_write`, of a cache file; its folder is made."""
  path.parent.mkdir(parents=True, exist_ok=True)
  # Threads, and containers whose processes have the same numbers, may write to
  # one cache at once.
  ending = f".{secrets.token_hex(8)}.partial"
  with json_files.atomic_write(path, ending) as unfinished:
    yield unfinished
