"""Checksums of what is written, by which damage is noticed as it is read.

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

CHECKSUM_KEY = "digest"  # The entry of a JSON file that has its checksum.


def checksum(content: np.ndarray | bytes, before: int = 0) -> int:
  """CRC-32 of bytes, or of the bytes of an array in C order.

  Args:
    content: the bytes, or an array.
    before: the checksum of what comes before.
  """
  if isinstance(content, np.ndarray):
    content = np.ascontiguousarray(content).reshape(-1).view(np.uint8)
  return zlib.crc32(content, before)


def checksum_of_file(path: pathlib.Path, size: int | None = None) -> int:
  """CRC-32 of a file, of which little is in memory at once.

  Args:
    path: the file's path.
    size: how many of its first bytes; None for all.
  """
  crc, remaining = 0, float("inf") if size is None else size
  with open(path, "rb") as file:
    while remaining and (part := file.read(int(min(remaining, 1 << 20)))):
      crc, remaining = checksum(part, crc), remaining - len(part)
  return crc


def with_checksum(content: Mapping[str, Any]) -> dict[str, Any]:
  """The content of a JSON file, with a checksum of it."""
  return {**content, CHECKSUM_KEY: checksum(_text(content))}


def read_with_checksum(path: pathlib.Path) -> dict[str, Any]:
  """The content of a JSON file that `with_checksum` made.

  Raises:
    ValueError: if it does not hold what was written.
    OSError: if it cannot be read.
  """
  try:
    content = dict(json.loads(memory.read_text(path)))
  except (ValueError, TypeError, RecursionError):
    content = {}
  if not checksum_is_right(content):
    raise ValueError(
      f"{path.name} is damaged: it does not hold what was written"
    )
  return content


def checksum_is_right(content: Mapping[str, Any]) -> bool:
  """Whether the content of a JSON file is what `with_checksum` returned."""
  payload = {name: v for name, v in content.items() if name != CHECKSUM_KEY}
  try:
    return content.get(CHECKSUM_KEY) == checksum(_text(payload))
  except RecursionError:  # Nested, as what was written never is.
    return False


def _text(content: Mapping[str, Any]) -> bytes:
  return json.dumps(content, sort_keys=True).encode()
