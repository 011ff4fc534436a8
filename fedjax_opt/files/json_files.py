"""Files of the output folder, written as a whole, and strict JSON."""

import contextlib
import json
import math
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from fedjax_opt.checks import memory

# Those to remove if the process ends now, of any thread.
_unfinished: set[pathlib.Path] = set()


def write_json(path: pathlib.Path, content: Any) -> None:
  """Writes a JSON file, which at no moment holds only a part.

  Args:
    path: of the file; an existing one is replaced.
    content: of the types that `to_json` returns.
  """
  write_whole(path, encoded(content))


def encoded(content: Any) -> bytes:
  """The content of a JSON file, of the types that `to_json` returns."""
  return (json.dumps(content, indent=2, allow_nan=False) + "\n").encode()


def read_json(path: pathlib.Path) -> dict[str, Any]:
  """Reads the object of a JSON file.

  Raises:
    ValueError: if it is none, or nested deeper than any that is written here.
    OSError: if it cannot be read.
  """
  content = parse(memory.read_text(path))
  if not isinstance(content, dict):
    raise ValueError("it is no JSON object")
  return content


def parse(text: str | bytes) -> Any:
  """The value of a JSON text.

  Raises:
    ValueError: if it is none, or nested too deeply.
  """
  try:
    return json.loads(text)
  except RecursionError:
    raise ValueError("it is nested too deeply") from None


def write_whole(path: pathlib.Path, content: bytes) -> None:
  """Writes a file, which at no moment holds only a part.

  Args:
    path: of the file; an existing one is replaced.
    content: all of it.
  """
  with atomic_write(path) as unfinished:
    unfinished.write_bytes(content)


def write_text(path: pathlib.Path, text: str) -> None:
  """Writes a text as `write_whole`; see `encoded_text`."""
  write_whole(path, encoded_text(text))


def encoded_text(text: str) -> bytes:
  """A text in UTF-8; of a path in it, bytes that are none are as \\udcff."""
  return text.encode(errors="backslashreplace")


@contextlib.contextmanager
def atomic_write(
  path: pathlib.Path, end: str = ".tmp"
) -> Iterator[pathlib.Path]:
  """A file to write beside this one, which it then replaces.

  If what is inside fails, the file beside is removed and this one is kept.

  Args:
    path: of the file; an existing one is replaced.
    end: what the name of the file beside has more.
  """
  unfinished = beside(path, end)
  with removed_at_end(unfinished):
    yield unfinished
    os.replace(unfinished, path)


def beside(path: pathlib.Path, end: str = ".tmp") -> pathlib.Path:
  """The path where `atomic_write` writes a file first."""
  return path.with_name(path.name + end)


@contextlib.contextmanager
def removed_at_end(path: pathlib.Path) -> Iterator[None]:
  """Removes a file after what is inside, or if the process ends before."""
  _unfinished.add(path)
  try:
    yield
  finally:
    with contextlib.suppress(OSError):
      path.unlink(missing_ok=True)
    _unfinished.discard(path)


def remove_unfinished() -> None:
  """Removes what `removed_at_end` has, for a process that ends now."""
  for path in list(_unfinished):
    with contextlib.suppress(OSError):
      path.unlink(missing_ok=True)


def to_json(value: Any) -> Any:
  """Converts a value to types that JSON has.

  JSON has no NaN and no infinity: NaN becomes None, an infinity a string. So
  does every object of another type.
  """
  if isinstance(value, Mapping):
    return {str(name): to_json(item) for name, item in value.items()}
  if isinstance(value, np.ndarray | jax.Array):
    return to_json(np.asarray(value).tolist())
  if isinstance(value, list | tuple | set | frozenset):
    return [to_json(item) for item in value]
  if isinstance(value, np.generic):
    return to_json(value.item())
  if isinstance(value, float):
    if math.isnan(value):
      return None
    return value if math.isfinite(value) else str(value)
  if value is None or isinstance(value, str | bool | int):
    return value
  return str(value)
