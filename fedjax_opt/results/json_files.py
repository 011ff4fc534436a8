"""JSON files of the output folder: strict JSON, written as a whole."""

import json
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np


def write_json(path: pathlib.Path, content: Any) -> None:
  """Writes a JSON file, which at no moment holds only a part.

  Args:
    path: of the file; an existing one is replaced.
    content: of the types that `plain` returns.
  """
  text = json.dumps(content, indent=2, allow_nan=False) + "\n"
  write_whole(path, text.encode())


def write_whole(path: pathlib.Path, content: bytes) -> None:
  """Writes a file, which at no moment holds only a part.

  Args:
    path: of the file; an existing one is replaced.
    content: all of it.
  """
  unfinished = path.with_name(path.name + ".tmp")
  unfinished.write_bytes(content)
  os.replace(unfinished, path)


def plain(value: Any) -> Any:
  """Converts a value to types that JSON has.

  JSON has no NaN and no infinity: NaN becomes None, an infinity a string. So
  does every object of another type.
  """
  if isinstance(value, Mapping):
    return {str(name): plain(item) for name, item in value.items()}
  if isinstance(value, np.ndarray | jax.Array):
    return plain(np.asarray(value).tolist())
  if isinstance(value, list | tuple | set | frozenset):
    return [plain(item) for item in value]
  if isinstance(value, np.generic):
    return plain(value.item())
  if isinstance(value, float):
    if math.isnan(value):
      return None
    return value if math.isfinite(value) else str(value)
  if value is None or isinstance(value, str | bool | int):
    return value
  return str(value)
