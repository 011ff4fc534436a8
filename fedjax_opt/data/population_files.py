"""The files of a population in a folder: written, found whole, and read.

  population.npz   sizes [M] int32, the examples of each client; digests [M, F]
                   uint32, the checksum of each client's bytes in each field;
                   notes [] uint32, the checksum of validation.json, if there is
                   one; and for each field an array `fields/NAME`, [0, ...], of
                   its type and shape
  NAME.bin         [N, ...], the clients' examples one after the other

The .bin files are arrays without a header, in C order, little endian. A writer
can therefore append client after client without knowing N, and the length of a
file shows whether it is complete. population.npz is written last: a folder
without it is no population. It has checksums of its own; the checksum of a
client is checked whenever its examples are read.
"""

import contextlib
import dataclasses
import itertools
import math
import os
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from fedjax_opt.checks.values import brief, checked_array
from fedjax_opt.data import npz_files
from fedjax_opt.data.pools import checked_examples
from fedjax_opt.files.checksums import checksum, checksum_of_file

INDEX = "population.npz"
ARRAYS = "*.bin"
NOTES = "validation.json"  # Of who wrote it, if there are any.
MAX_INT32 = np.iinfo(np.int32).max
_FIELD, _NOTES = "fields/", "notes"  # Names in the index.
# Names of fields; a field is in the file of the same name.
# File systems take 255 bytes, of which a letter has 4 at most.
_NAME = r"\w[\w.-]{0,59}"

Fields = dict[str, tuple[np.dtype, tuple[int, ...]]]
# The examples of some clients, one after the other, and the clients' sizes.
ExamplesAndSizes = tuple[Mapping[str, np.ndarray], np.ndarray]


def checksums_of(rows: np.ndarray, stops: np.ndarray) -> np.ndarray:
  """[C] uint32, the checksum of each client's bytes; 0 if it has none.

  Args:
    rows: the clients' examples, one client after the other.
    stops: [C], the row after the last one of each client.
  """
  # Parts of a memoryview are made sooner than parts of an array.
  content = memoryview(rows.reshape(-1).view(np.uint8))
  ends = (stops * (len(content) // max(1, len(rows)))).tolist()
  parts = itertools.pairwise([0, *ends])
  return np.array([checksum(content[a:b]) for a, b in parts], np.uint32)


@contextlib.contextmanager
def _named(path: pathlib.Path, action: str) -> Iterator[None]:
  """Errors of the system, with the file and what it cannot be."""
  try:
    yield
  except OSError as error:
    raise OSError(
      f"{str(path)!r} cannot be {action} ({error.strerror or error})"
    ) from error


# Writing.


def each_checked(
  clients: Iterable[Mapping[str, np.ndarray]],
) -> Iterator[ExamplesAndSizes]:
  """Clients one by one, all with the fields of the first.

  Raises:
    ValueError: naming the client whose examples cannot be written.
  """
  first: Fields = {}
  for number, client in enumerate(clients):
    try:
      examples = checked_examples(client, may_be_empty=True)
      size = len(next(iter(examples.values())))
      if size > MAX_INT32:
        raise ValueError(f"has {size} examples; must be at most {MAX_INT32}")
      fields = _fields_of(examples)
      first = first or fields
      if fields != first:
        raise ValueError(
          f"examples are {_described(fields)}; must be {_described(first)}, as "
          "of clients[0]"
        )
    except (ValueError, TypeError) as error:
      raise ValueError(f"clients[{number}]: {error}") from None
    yield examples, np.array([size])


def _fields_of(examples: Mapping[str, np.ndarray]) -> Fields:
  little_endian = lambda dtype: np.dtype(dtype.newbyteorder("<").str)
  return {
    name: (little_endian(values.dtype), values.shape[1:])
    for name, values in examples.items()
  }


def _described(fields: Fields) -> str:
  """The fields in words, such as 'x float32[28, 28], y int32[]'."""
  parts = (f"{n} {dtype}{list(shape)}" for n, (dtype, shape) in fields.items())
  return ", ".join(parts)


def write(folder: pathlib.Path, parts: Iterable[ExamplesAndSizes]) -> None:
  """Writes all files; after an error there are none.

  Args:
    folder: one that is new or empty.
    parts: of all clients, checked.

  Raises:
    ValueError: if a field cannot be a file, or no client has an example.
    OSError: naming the file that cannot be written.
  """
  is_new, files = not folder.exists(), {}
  try:
    with _named(folder, "written"):
      folder.mkdir(parents=True, exist_ok=True)
    index = _write_examples(folder, parts, files)
    if (folder / NOTES).exists():
      index[_NOTES] = np.array(_checksum_of_notes(folder), np.uint32)
    with _named(folder / INDEX, "written"):
      npz_files.write(folder / INDEX, index)
  except BaseException:  # KeyboardInterrupt included.
    for name, file in files.items():
      with contextlib.suppress(OSError):  # The disk may be full.
        file.close()
      name.unlink(missing_ok=True)
    if is_new:
      with contextlib.suppress(OSError):  # The folder may not be empty.
        folder.rmdir()
    raise


def _checksum_of_notes(folder: pathlib.Path) -> int:
  with _named(folder / NOTES, "read"):
    return checksum_of_file(folder / NOTES)


def _write_examples(
  folder: pathlib.Path,
  parts: Iterable[ExamplesAndSizes],
  files: dict[pathlib.Path, Any],
) -> dict[str, np.ndarray]:
  """Writes the examples to the files; returns what the index holds.

  Args:
    folder: of the files.
    parts: see `write`.
    files: those that were opened, by path; written.
  """
  index, sizes, digests = {}, [], []
  for examples, part_sizes in parts:
    if not files:
      fields = _fields_of(examples)
      _check_fields(fields)
      for name, (dtype, shape) in fields.items():
        index[f"{_FIELD}{name}"] = np.empty((0, *shape), dtype)
        path = folder / f"{name}.bin"
        with _named(path, "written"):
          files[path] = open(path, "xb", buffering=1 << 20)  # noqa: SIM115
    stops, field_digests = np.cumsum(part_sizes, dtype=np.int64), []
    for (path, file), name in zip(files.items(), fields, strict=True):
      values = np.ascontiguousarray(examples[name], fields[name][0])
      with _named(path, "written"):
        file.write(values)
      field_digests.append(checksums_of(values, stops))
    sizes.append(part_sizes)
    digests.append(np.stack(field_digests, axis=1))
  if not any(map(np.any, sizes)):
    raise ValueError(
      f"clients: at least one must own an example, got "
      f"{sum(map(len, sizes))} clients that own none"
    )
  for path, file in files.items():
    with _named(path, "written"):
      file.flush()
      os.fsync(file.fileno())
      file.close()
  sizes = np.concatenate(sizes).astype("<i4")
  return index | {"sizes": sizes, "digests": np.concatenate(digests)}


def _check_fields(fields: Fields) -> None:
  """Checks that fields can be files of numbers."""
  for name, (dtype, shape) in fields.items():
    if not isinstance(name, str) or not re.fullmatch(_NAME, name):
      raise ValueError(
        f"field {brief(name)}: must be named with at most 60 letters, digits, "
        "'_', '-' and '.'"
      )
    if 0 in shape or dtype.kind not in "biufc":
      raise ValueError(
        f"an example of {name!r} is {dtype} {list(shape)}; must be numbers, "
        "and at least one"
      )


# Reading.


def read(
  folder: pathlib.Path,
) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, "File"]]:
  """Opens the files of a population, and checks that they are complete.

  Args:
    folder: as `write` leaves it.

  Returns:
    The sizes [M] int32; the digests of the clients by field, [M] uint32; and
    the file of each field.

  Raises:
    ValueError: if a file is missing, damaged or of another length; the message
      names it.
  """
  path = folder / INDEX
  if not path.is_file():
    raise ValueError(
      f"population_dir={str(folder)!r}: {_lacking(folder)}; give the folder of "
      "a population"
    )
  arrays = npz_files.read(path)
  names = ("sizes", "digests", _NOTES)
  sizes, digests, notes = (arrays.pop(name, None) for name in names)
  examples = {n.removeprefix(_FIELD): array for n, array in arrays.items()}
  try:
    _check_fields(_fields_of(examples))
    sizes = checked_array(
      "sizes", sizes, "[M]", of_integers=True, interval=f"[0, {MAX_INT32}]"
    )
    axes = f"[{len(sizes)}, {len(examples)}]"
    digests = checked_array("digests", digests, axes, of_integers=True)
    if not examples or not sizes.any():
      raise ValueError("has no examples")
  except (ValueError, TypeError) as error:
    raise ValueError(
      f"{str(path)!r} is no index of a population ({error}); write the "
      "population again"
    ) from None
  if notes is not None:
    _check_notes(folder, int(notes))
  num_examples = int(sizes.sum(dtype=np.int64))
  files = {
    name: File(folder / f"{name}.bin", dtype, (num_examples, *shape))
    for name, (dtype, shape) in _fields_of(examples).items()
  }
  columns = np.ascontiguousarray(digests.T, np.uint32)
  return sizes.astype(np.int32), dict(zip(files, columns, strict=True)), files


def _check_notes(folder: pathlib.Path, expected: int) -> None:
  """Checks the file without which nobody knows what was held out."""
  path = folder / NOTES
  if not path.exists():
    problem = "is missing"
  elif _checksum_of_notes(folder) != expected:
    problem = "is damaged: it does not hold what was written"
  else:
    return
  raise ValueError(f"{str(path)!r} {problem}; write the population again")


def _lacking(folder: pathlib.Path) -> str:
  """Why there is no index in a folder."""
  if not folder.is_dir():
    return "is a file" if folder.exists() else "does not exist"
  is_begun = any(folder.glob(ARRAYS))
  return f"has no {INDEX}" + ": it was not written to its end" * is_begun


@dataclasses.dataclass(frozen=True)
class File:
  """The file of one field.

  Attributes:
    path: of the file.
    dtype: of its numbers.
    shape: [N, ...].

  Raises:
    ValueError: if it is not there, or of another length.
  """

  path: pathlib.Path
  dtype: np.dtype
  shape: tuple[int, ...]

  def __post_init__(self):
    num_bytes = self.shape[0] * self.row_bytes
    size = self.path.stat().st_size if self.path.is_file() else None
    if size != num_bytes:
      problem = "is missing" if size is None else f"has {size} bytes"
      raise ValueError(
        f"{str(self.path)!r} {problem}; must have {num_bytes} bytes, "
        f"{self.shape[0]} examples of {self.row_bytes}"
      )

  @property
  def row_bytes(self) -> int:
    """The bytes of one example."""
    return self.dtype.itemsize * math.prod(self.shape[1:])

  def map(self) -> np.ndarray:
    """[N, ...], a read-only view of the file."""
    # A plain array, because slicing a memmap is much slower.
    return np.asarray(np.memmap(self.path, self.dtype, "r", shape=self.shape))

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

    Raises:
      OSError: naming the file, if it cannot be read or was cut.
    """
    buffer = memoryview(rows.reshape(-1).view(np.uint8))
    filled, row_bytes = 0, self.row_bytes
    with _named(self.path, "read"), open(self.path, "rb", buffering=0) as file:
      number = file.fileno()
      for begin, end in runs:
        pos, stop = begin * row_bytes, end * row_bytes
        while pos < stop:
          part = buffer[filled : filled + stop - pos]
          count = os.preadv(number, [part], pos)  # Without a seek before it.
          if not count:
            raise OSError(f"it ends at byte {pos}: cut since it was opened")
          pos, filled = pos + count, filled + count
