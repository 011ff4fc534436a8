"""Digests of what is written, by which damage is noticed as it is read.

CRC-32 finds every change of 32 bits in a row or fewer; of other changes it
misses one in 4e9. It is no protection against a forger.
"""

import json
import pathlib
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedjax_opt.checks import memory

DIGEST_KEY = "digest"  # Of the digest of a JSON file, in it.


def digest(content: np.ndarray | bytes, before: int = 0) -> int:
  """CRC-32 of bytes, or those of an array in C order.

  Args:
    content: what it is of.
    before: digest of what comes before.
  """
  if isinstance(content, np.ndarray):
    content = np.ascontiguousarray(content).reshape(-1).view(np.uint8)
  return zlib.crc32(content, before)


def digest_of_file(path: pathlib.Path, size: int | None = None) -> int:
  """CRC-32 of a file, of which little is in memory at once.

  Args:
    path: of the file.
    size: so many of its first bytes; None for all.
  """
  crc, remaining = 0, float("inf") if size is None else size
  with open(path, "rb") as file:
    while remaining and (part := file.read(int(min(remaining, 1 << 20)))):
      crc, remaining = digest(part, crc), remaining - len(part)
  return crc


def with_digest(content: Mapping[str, Any]) -> dict[str, Any]:
  """The content of a JSON file, with a digest of it."""
  return {**content, DIGEST_KEY: digest(_text(content))}


def read_with_digest(path: pathlib.Path) -> dict[str, Any]:
  """The content of a JSON file that `with_digest` made.

  Raises:
    ValueError: if it does not hold what was written.
    OSError: if it cannot be read.
  """
  try:
    content = dict(json.loads(memory.read_text(path)))
  except (ValueError, TypeError, RecursionError):
    content = {}
  if not digest_is_right(content):
    raise ValueError(
      f"{path.name} is damaged: it does not hold what was written"
    )
  return content


def digest_is_right(content: Mapping[str, Any]) -> bool:
  """Whether the content of a JSON file is what `with_digest` returned."""
  payload = {name: v for name, v in content.items() if name != DIGEST_KEY}
  try:
    return content.get(DIGEST_KEY) == digest(_text(payload))
  except RecursionError:  # Nested, as what was written never is.
    return False


def _text(content: Mapping[str, Any]) -> bytes:
  return json.dumps(content, sort_keys=True).encode()
