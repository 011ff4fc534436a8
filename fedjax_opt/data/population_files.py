"""Reads, checks and writes the files of a population.

population.py says what the files hold.
"""

import contextlib
import json
import math
import os
import pathlib
import re
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fedjax_opt.checks.values import shown
from fedjax_opt.data import memory, population_digests
from fedjax_opt.data.clients import check_examples
from fedjax_opt.data.population_digests import Digests
from fedjax_opt.digests import digest, is_whole, signed
from fedjax_opt.results.json_files import parse

ABOUT = "population.json"
_FORMAT = "fedjax_opt.population"
_VERSION, _WITHOUT_DIGESTS = 2, 1
_SIZES, _SIZE = "sizes.bin", np.dtype("<i4")
LARGEST = np.iinfo(np.int32).max
# Names of fields; a field is in the file of the same name.
_NAME = r"\w[\w.-]*"
_LONGEST_NAME = 100  # File systems take 255 bytes, ending included.
_LONGEST_ABOUT = 1 << 20  # bytes of population.json

Fields = dict[str, tuple[np.dtype, tuple[int, ...]]]


def read(
  folder: pathlib.Path,
) -> tuple[Fields, np.ndarray, dict[str, "File"], Digests | None]:
  """Opens the files of a population, and checks that they are complete.

  Args:
    folder: as `Writer` leaves it.

  Returns:
    The fields, the sizes [M] int32, the file of each field, and the digests of
    all clients; None in a folder that was written before there were any.

  Raises:
    ValueError: if a file is missing, damaged or of another length; the message
      names it.
  """
  num_clients, num_examples, fields, known = _read_about(folder)
  path = folder / _SIZES
  _check_length(path, num_clients, _SIZE.itemsize, f"{num_clients} clients")
  for name, (dtype, shape) in fields.items():
    of_row = row_bytes({name: (dtype, shape)})
    text = f"{num_examples} examples"
    _check_length(_path_of(folder, name), num_examples, of_row, text)
  # As they are, as int32, the offsets of the clients, and a copy of these.
  what = f"{str(path)!r}: {num_clients} clients take"
  memory.check_memory(what, 6 * _SIZE.itemsize * num_clients)
  with _reading(path):
    sizes = np.fromfile(path, _SIZE)
  digests = None
  if known is not None:
    _check_digest(path, sizes, known["sizes"])
    digests = _read_digests(folder, num_clients, fields, known["clients"])
  sizes = sizes.astype(np.int32)
  _check_sizes(path, sizes, num_examples)
  files = {
    name: File(_path_of(folder, name), dtype, (num_examples, *shape))
    for name, (dtype, shape) in fields.items()
  }
  return fields, sizes, files, digests


class File:
  """The file of one field, mapped into memory and open to read.

  Attributes:
    path: of the file.
    map: [N, ...], read-only.
  """

  def __init__(
    self, path: pathlib.Path, dtype: np.dtype, shape: tuple[int, ...]
  ):
    self.path = path
    self._row_bytes = dtype.itemsize * math.prod(shape[1:])
    with _reading(path):
      # A plain array, because slicing a memmap is much slower.
      self.map = np.asarray(np.memmap(path, dtype, "r", shape=shape))
      self._descriptor = os.open(path, os.O_RDONLY)
    weakref.finalize(self, os.close, self._descriptor)

  def read(self, runs: list[tuple[int, int]], rows: np.ndarray) -> None:
    """Copies ranges of rows into an array, one after the other.

    The file is read, not accessed through the map, for three reasons. If the
    file is not in memory yet, a read of a whole client takes a third of the
    time of its page faults. Pages that were read do not count as memory of the
    process. And if the file has been truncated since, a read raises an error,
    where an access to the map would kill the process.

    Args:
      runs: [begin, end) of each range, in rows.
      rows: array to fill from its first row on, of the field's dtype and shape.
    """
    left = memoryview(rows.reshape(-1).view(np.uint8))
    with _reading(self.path, OSError):
      for begin, end in runs:
        at, end = begin * self._row_bytes, end * self._row_bytes
        while at < end:
          count = os.preadv(self._descriptor, [left[: end - at]], at)
          if not count:
            raise OSError(f"it ends at byte {at}: cut since it was opened")
          left, at = left[count:], at + count


class Writer:
  """Writes the files of a population, client after client."""

  def __init__(self, folder: pathlib.Path):
    self._folder = folder
    self._is_new = not folder.exists()
    self._fields: Fields = {}
    self._files: dict[pathlib.Path, Any] = {}
    self._written: list[pathlib.Path] = []
    self._num_clients = self._num_examples = 0
    self._of_sizes = self._of_clients = 0  # Digests of what was written.
    with _writing(folder):
      folder.mkdir(parents=True, exist_ok=True)

  def append(self, client: Mapping[str, np.ndarray]) -> None:
    """Writes one client's examples."""
    try:
      examples = check_examples(dict(client), may_be_empty=True)
      fields = {
        name: (values.dtype.newbyteorder("<"), values.shape[1:])
        for name, values in examples.items()
      }
      size = len(next(iter(examples.values())))
      if size > LARGEST:
        raise ValueError(f"has {size} examples; must be at most {LARGEST}")
      if self._files:
        _check_alike(fields, self._fields)
      else:
        _check_fields(fields)
    except (ValueError, TypeError) as error:
      raise ValueError(f"clients[{self._num_clients}]: {error}") from None
    if not self._files:
      self._open(fields)
    own = np.array([size], _SIZE)
    self._put(self._folder / _SIZES, own)
    self._of_sizes = digest(own, self._of_sizes)
    digests = []
    for name, (dtype, _) in self._fields.items():
      values = examples[name].astype(dtype, copy=False)
      values = np.ascontiguousarray(values)
      self._put(_path_of(self._folder, name), values)
      digests.append(digest(values))
    own = np.array(digests, population_digests.DTYPE)
    self._put(self._folder / population_digests.FILE, own)
    self._of_clients = digest(own, self._of_clients)
    self._num_clients += 1
    self._num_examples += size

  def finish(self) -> None:
    """Closes the files and writes population.json."""
    if not self._num_examples:
      raise ValueError(
        "clients: at least one must own an example, got "
        f"{self._num_clients} clients that own none"
      )
    about = {
      "format": _FORMAT,
      "version": _VERSION,
      "num_clients": self._num_clients,
      "num_examples": self._num_examples,
      "fields": [
        {"name": name, "dtype": dtype.str, "shape": list(shape)}
        for name, (dtype, shape) in self._fields.items()
      ],
      "digests": {"sizes": self._of_sizes, "clients": self._of_clients},
    }
    about = signed(about)
    for path, file in self._files.items():
      with _writing(path):
        file.flush()
        os.fsync(file.fileno())
        file.close()
    path = self._folder / ABOUT
    unfinished = path.with_name(path.name + ".tmp")
    with _writing(path):
      with open(unfinished, "xb") as file:
        self._written += [unfinished, path]
        # No newline at the end: JSON without its last byte is invalid, so a
        # truncated file is always detected.
        file.write(json.dumps(about, indent=2).encode())
        file.flush()
        os.fsync(file.fileno())
      os.replace(unfinished, path)

  def discard(self) -> None:
    """Closes the files and deletes all that was written."""
    for file in self._files.values():
      with contextlib.suppress(OSError):  # The disk may be full.
        file.close()
    for path in self._written:
      path.unlink(missing_ok=True)
    if self._is_new:
      with contextlib.suppress(OSError):  # The folder may not be empty.
        self._folder.rmdir()

  def _open(self, fields: Fields) -> None:
    self._fields = fields
    names = [_path_of(self._folder, name) for name in fields]
    of_all = self._folder / _SIZES, self._folder / population_digests.FILE
    for path in (*of_all, *names):
      with _writing(path):
        self._files[path] = open(path, "xb", buffering=1 << 20)  # noqa: SIM115
      self._written.append(path)

  def _put(self, path: pathlib.Path, content: np.ndarray) -> None:
    with _writing(path):
      self._files[path].write(content)


def row_bytes(fields: Fields) -> int:
  """The bytes of one example."""
  shapes = fields.values()
  return sum(dtype.itemsize * math.prod(shape) for dtype, shape in shapes)


def _path_of(folder: pathlib.Path, field: str) -> pathlib.Path:
  return folder / f"{field}.bin"


@contextlib.contextmanager
def _writing(path: pathlib.Path) -> Iterator[None]:
  """Names the file in the message of an error that occurs inside."""
  try:
    yield
  except OSError as error:
    raise OSError(
      f"{str(path)!r} cannot be written ({error.strerror or error})"
    ) from error


@contextlib.contextmanager
def _reading(
  path: pathlib.Path, kind: type[Exception] = ValueError
) -> Iterator[None]:
  """Names the file in the message of an error that occurs inside."""
  try:
    yield
  except OSError as error:
    raise kind(
      f"{str(path)!r} cannot be read ({error.strerror or error})"
    ) from error


def _describe(fields: Fields) -> dict[str, str]:
  return {
    name: f"{dtype.name} {list(shape)}"
    for name, (dtype, shape) in fields.items()
  }


def _check_alike(fields: Fields, first: Fields) -> None:
  """Checks that a client's fields are those of the first client."""
  if set(fields) != set(first):
    raise ValueError(
      f"has the fields {', '.join(fields)}; must have {', '.join(first)}, as "
      "clients[0]"
    )
  found, expected = _describe(fields), _describe(first)
  for name in first:
    if found[name] != expected[name]:
      raise ValueError(
        f"an example of {name!r} is {found[name]}; must be {expected[name]}, "
        "as of clients[0]"
      )


def _check_fields(fields: Fields) -> None:
  """Checks that fields can be written as files."""
  for name, (_, shape) in fields.items():
    if not isinstance(name, str) or not re.fullmatch(_NAME, name):
      raise ValueError(
        f"field {shown(name)}: must be named with letters, digits, '_', '-' "
        "and '.'"
      )
    if len(name.encode()) > _LONGEST_NAME:
      raise ValueError(
        f"field {shown(name)}: has a name of {len(name.encode())} bytes; must "
        f"have at most {_LONGEST_NAME}"
      )
    if 0 in shape:
      raise ValueError(
        f"an example of {name!r} has the shape {list(shape)}, and so nothing; "
        "must have positive lengths"
      )


def _read_about(
  folder: pathlib.Path,
) -> tuple[int, int, Fields, dict[str, int] | None]:
  """M, N, the fields and the digests of files, as population.json says."""
  path = folder / ABOUT
  if not folder.is_dir():
    found = "is a file" if folder.exists() else "does not exist"
    raise ValueError(
      f"population_dir={str(folder)!r}: {found}; give the folder of a "
      "population"
    )
  if not path.is_file():
    unfinished = (folder / _SIZES).exists()
    raise ValueError(
      f"population_dir={str(folder)!r}: has no {ABOUT}"
      f"{': it was not written to its end' if unfinished else ''}; give the "
      "folder of a population"
    )
  with _reading(path):
    length = path.stat().st_size
    if length > _LONGEST_ABOUT:
      raise ValueError(
        f"{str(path)!r} has {length} bytes; must have at most {_LONGEST_ABOUT}"
      )
    content = path.read_bytes()
  try:
    about = parse(content)
  except ValueError:
    raise ValueError(
      f"{str(path)!r} is not JSON, or only its beginning ({len(content)} "
      "bytes); must be what describes a population"
    ) from None
  found = about if isinstance(about, dict) else {}
  _check_version(path, found)
  for name in ("num_clients", "num_examples"):
    if type(found.get(name)) is not int or found[name] < 1:
      raise ValueError(
        f"{str(path)!r} has {name}={shown(found.get(name))}; must be a "
        "positive whole number"
      )
  fields: Fields = {}
  try:
    for field in found["fields"]:
      fields |= {
        field["name"]: (_dtype(field["dtype"]), _shape(field["shape"]))
      }
    _check_fields(fields)
    if not fields or len(fields) < len(found["fields"]):
      raise ValueError
  except (KeyError, TypeError, ValueError):
    raise ValueError(
      f"{str(path)!r} has fields={shown(found.get('fields'), 200)}; must be a "
      "list with the name, dtype, such as '<f4', and shape, such as [28, 28], "
      f"of each; a name has at most {_LONGEST_NAME} bytes"
    ) from None
  digests = found.get("digests")
  return found["num_clients"], found["num_examples"], fields, digests


def _check_version(path: pathlib.Path, found: Mapping[str, Any]) -> None:
  """Checks that population.json is of a known version, and undamaged."""
  if found.get("format") != _FORMAT:
    raise ValueError(
      f"{str(path)!r} has format={found.get('format')!r}; must be {_FORMAT!r}"
    )
  version = found.get("version")
  if version == _VERSION:
    if not is_whole(found):
      raise ValueError(
        f"{str(path)!r} is damaged: it does not hold what was written; write "
        "the population again"
      )
  elif version != _WITHOUT_DIGESTS or "digests" in found:
    raise ValueError(
      f"{str(path)!r} has version={version!r}; must be {_VERSION}, or "
      f"{_WITHOUT_DIGESTS} without digests"
    )


def _read_digests(
  folder: pathlib.Path, num_clients: int, fields: Fields, known: int
) -> Digests:
  """The digests of all clients."""
  path, size = folder / population_digests.FILE, population_digests.DTYPE
  row_bytes = size.itemsize * len(fields)
  _check_length(path, num_clients, row_bytes, f"{num_clients} clients")
  with _reading(path):
    values = np.fromfile(path, size)
  _check_digest(path, values, known)
  return Digests(list(fields), values.reshape(num_clients, -1))


def _check_digest(path: pathlib.Path, content: np.ndarray, known: int) -> None:
  if digest(content) != known:
    raise ValueError(
      f"{str(path)!r} is damaged: it does not hold what was written; write the "
      "population again"
    )


def _dtype(text: str) -> np.dtype:
  """The dtype of a string such as '<f4'; only types of numbers are accepted."""
  if not re.fullmatch(r"[<|][biufc]\d+", text) or np.dtype(text).str != text:
    raise ValueError(text)
  return np.dtype(text)


def _shape(lengths: list[int]) -> tuple[int, ...]:
  if not isinstance(lengths, list) or any(
    type(length) is not int or length < 1 for length in lengths
  ):
    raise ValueError(lengths)
  return tuple(lengths)


def _check_length(
  path: pathlib.Path, count: int, row_bytes: int, text: str
) -> None:
  """Checks that a file holds `count` rows; `text` says what these are."""
  if not path.is_file():
    raise ValueError(
      f"{str(path)!r} is missing; must be a file of {count * row_bytes} bytes "
      f"({text})"
    )
  with _reading(path):
    length = path.stat().st_size
  if length != count * row_bytes:
    raise ValueError(
      f"{str(path)!r} has {length} bytes; must have {count * row_bytes} "
      f"({text} of {row_bytes} bytes)"
    )


def _check_sizes(
  path: pathlib.Path, sizes: np.ndarray, num_examples: int
) -> None:
  if sizes.min() < 0:
    client = np.argmax(sizes < 0)
    raise ValueError(
      f"{str(path)!r} has {sizes[client]} examples of client {client}; must "
      "not be negative"
    )
  total = sizes.sum(dtype=np.int64)
  if total != num_examples:
    raise ValueError(
      f"{str(path)!r} has {total} examples in all; must have {num_examples}, "
      f"as {ABOUT} says"
    )
