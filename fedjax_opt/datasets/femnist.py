"""FEMNIST: handwritten characters by writer.

Two published sources hold the same images:

  TensorFlow Federated   emnist_all.sqlite.lzma, one file with every split
  FedJAX                 federated_emnist_{,digitsonly_}{train,test}.sqlite

Source: Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018; Cohen
et al., "EMNIST: Extending MNIST to handwritten letters", IJCNN 2017.
"""

import contextlib
import lzma
import os
import pathlib
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np
from absl import logging

from fedjax_opt.data import memory
from fedjax_opt.data.clients import ClientData
from fedjax_opt.datasets import cache
from fedjax_opt.registry import Hyperparameter

__all__ = [
  "load",
]

TFF_URL = "https://storage.googleapis.com/tff-datasets-public/"
TFF_FILE = "emnist_all.sqlite.lzma"

_FRACTION = Hyperparameter("fraction", 1.0, "of the writers", "(0, 1]")

# What a file may hold; the published ones have 3,579 writers, of whom the
# largest has 584 examples, of 3 kB each.
_MOST_WRITERS = 100_000
_LARGEST_RECORD = 1 << 26  # bytes of one writer, or one example, decompressed
_LARGEST_FILE = 1 << 35  # bytes of TFF's file, decompressed

_FEDJAX_COLUMNS = {"federated_data": {"client_id", "data"}}
_TFF_COLUMNS = {
  "examples": {"split_name", "client_id", "serialized_example_proto"},
  "client_metadata": {"split_name", "client_id"},
}


def load(
  data_dir: str | os.PathLike, only_digits: bool = False, fraction: float = 1.0
) -> tuple[ClientData, ClientData]:
  """Loads FEMNIST; a client is a writer.

  Every writer is in both parts, and client m is the same writer in both. From
  either source, clients are in the order of the writers' names.

  A pixel is 255 (1 - v), where v in [0, 1] is the stored value, so that the
  background is 0, as in MNIST and in the code of Yuan et al. (2021). Pixels are
  uint8 if every v is a multiple of 1/255, and float32 otherwise.

  Args:
    data_dir: the folder that holds TFF's file, compressed or not, or FedJAX's
      two files; or one of these files. A compressed file is decompressed once,
      into `$XDG_CACHE_HOME/fedjax_opt` or `~/.cache/fedjax_opt`.
    only_digits: whether to load the 10 digits alone (FEMNIST-10) or all 62
      classes, digits, upper case and lower case (FEMNIST-62).
    fraction: fraction of the writers to load, the first ones by name; Yuan et
      al. train on 0.1 of FEMNIST-10.

  Returns:
    (train, test), each with x [N, 28, 28, 1] in 0..255 and y [N] int32.

  Raises:
    ValueError: if there is no such file, if it cannot be read or lacks a table,
      or if the fraction is out of range.
    TypeError: if the fraction is no number.
  """
  _FRACTION.check(fraction)
  with contextlib.ExitStack() as files:
    train, test = _open_splits(pathlib.Path(data_dir), only_digits, files)
    writers = sorted(train.client_ids)
    writers = writers[: max(1, round(fraction * len(writers)))]
    num_classes = 10 if only_digits else 62
    return (
      _client_data(train, writers, num_classes),
      _client_data(test, writers, num_classes),
    )


class _Split(Protocol):
  """One split of the data in one of the sources.

  Attributes:
    path: path of the file.
    client_ids: writer -> id of this client in the file.
  """

  path: pathlib.Path
  client_ids: dict[str, Any]

  def read(self, client_id: Any) -> tuple[np.ndarray, np.ndarray]:
    """A client's pixels [n, 28, 28], in [0, 1], and labels [n]."""


def _open_splits(
  path: pathlib.Path, only_digits: bool, files: contextlib.ExitStack
) -> tuple[_Split, _Split]:
  """The training and the test split of the source that is in the folder."""
  path = path.expanduser()
  prefix = "federated_emnist_" + ("digitsonly_" if only_digits else "")
  folder = path.parent if path.name.startswith("federated_emnist_") else path
  pair = [folder / f"{prefix}{split}.sqlite" for split in ("train", "test")]
  if all(file.is_file() for file in pair):
    connections = [_connect(file, _FEDJAX_COLUMNS, files) for file in pair]
    return tuple(map(_FedJaxSplit, pair, connections))

  single = [path, path / TFF_FILE.removesuffix(".lzma"), path / TFF_FILE]
  file = next((file for file in single if file.is_file()), None)
  if file is None:
    raise ValueError(
      f"data_dir={str(path)!r}: must be {TFF_FILE} or its folder (download "
      f"{TFF_URL}), or that of {pair[0].name} and {pair[1].name}"
    )
  if file.suffix == ".lzma":
    file = _decompressed(file)
  connection = _connect(file, _TFF_COLUMNS, files)
  kind = "digits_only" if only_digits else "all"
  train, test = (
    _TffSplit(file, connection, f"{kind}_{split}")
    for split in ("train", "test")
  )
  return train, test


def _decompressed(path: pathlib.Path) -> pathlib.Path:
  name = path.name.removesuffix(".lzma").removesuffix(".sqlite")
  target = cache.place(f"{name}-", [path], "", ".sqlite")
  if target.is_file():
    return target
  logging.info("Decompressing %s to %s", path, target)
  try:
    with (
      cache.whole(target) as partial,
      lzma.open(path) as source,
      open(partial, "wb") as copy,
    ):
      while block := source.read(2**20):
        copy.write(block)
        if copy.tell() > _LARGEST_FILE:
          raise lzma.LZMAError(
            f"it is larger than {memory.size_text(_LARGEST_FILE)}"
          )
  except (lzma.LZMAError, EOFError) as error:
    raise ValueError(
      f"{path}: cannot be decompressed ({error}); download "
      f"{TFF_URL}{TFF_FILE} again"
    ) from error
  except OSError as error:
    raise ValueError(
      f"{path}: cannot be decompressed to {target} "
      f"({error.strerror}); decompress it elsewhere and give that file"
    ) from error
  return target


def _connect(
  path: pathlib.Path,
  columns: dict[str, set[str]],
  files: contextlib.ExitStack,
) -> sqlite3.Connection:
  """Opens an SQLite file to read.

  Args:
    path: of the file.
    columns: table -> columns that it must have.
    files: closes the connection.
  """
  found, kinds = {}, {}
  try:
    uri = f"{path.resolve().as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True)
    files.callback(connection.close)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_RECORD)
    connection.execute("PRAGMA trusted_schema = OFF")
    for table in columns:
      rows = connection.execute(f"PRAGMA table_info({table})")
      found[table] = {name for _, name, *_ in rows}
      kinds[table] = connection.execute(
        "SELECT type, sql FROM sqlite_master"
        " WHERE name = ? COLLATE NOCASE AND type IN ('table', 'view')",
        (table,),
      ).fetchone()
  except sqlite3.Error as error:
    raise ValueError(
      f"{path}: cannot be read ({error}); an SQLite file is needed"
    ) from error
  for table, wanted in columns.items():
    if not wanted <= found[table]:
      raise ValueError(
        f"{path}: must have a table {table} with the columns "
        f"{', '.join(sorted(wanted))}; it has "
        f"{', '.join(sorted(found[table])) or 'no such table'}"
      )
    # A view computes what it gives, with no bound; a virtual table too.
    kind, sql = kinds[table] or ("view", "")
    if kind != "table" or "VIRTUAL" in str(sql).upper().split()[:2]:
      raise ValueError(
        f"{path}: {table} is a view; must be a table, which holds its rows"
      )
  return connection


def _writers(
  connection: sqlite3.Connection, path: pathlib.Path, query: str, *values: str
) -> list[Any]:
  """The first column of what a query finds, of so many writers at most."""
  try:
    rows = connection.execute(query, values).fetchmany(_MOST_WRITERS + 1)
  except (sqlite3.Error, MemoryError) as error:
    raise ValueError(
      f"{path}: cannot be read ({error}); download the file again"
    ) from error
  if len(rows) > _MOST_WRITERS:
    raise ValueError(
      f"{path}: must have at most {_MOST_WRITERS} writers; it has more"
    )
  return [row[0] for row in rows]


class _FedJaxSplit:
  """A FedJAX file: one row per client, zlib-compressed msgpack."""

  def __init__(self, path: pathlib.Path, connection: sqlite3.Connection):
    self.path = path
    self._connection = connection
    self._msgpack = _import_msgpack()
    query = "SELECT client_id FROM federated_data"
    found = _writers(connection, path, query)
    # An id is a hash and the writer, such as b"0123456789abcdef:f0000_14".
    self.client_ids = {
      client_id.decode(errors="replace").rpartition(":")[2]: client_id
      for client_id in found
      if isinstance(client_id, bytes)
    }
    if not found or len(self.client_ids) < len(found):
      raise ValueError(
        f"{path}: must have one client per writer; it has "
        f"{len(found)} clients of {len(self.client_ids)} writers"
      )

  def read(self, client_id: bytes) -> tuple[np.ndarray, np.ndarray]:
    ((data,),) = self._connection.execute(
      "SELECT data FROM federated_data WHERE client_id = ?", (client_id,)
    )
    unpacker = zlib.decompressobj()
    record = unpacker.decompress(data, _LARGEST_RECORD)
    if not unpacker.eof:
      raise ValueError(
        f"its record is cut, or larger than {memory.size_text(_LARGEST_RECORD)}"
      )
    examples = self._msgpack.unpackb(
      record, ext_hook=self._unpack_array, raw=False
    )
    return examples["pixels"], examples["label"]

  def _unpack_array(self, code: int, data: bytes) -> np.ndarray:
    """FedJAX's msgpack extension 1: a tuple (shape, dtype, bytes)."""
    if code != 1:
      raise ValueError(f"msgpack extension {code} is not an array")
    shape, dtype, values = self._msgpack.unpackb(data, raw=False)
    return np.frombuffer(values, np.dtype(dtype)).reshape(shape)


class _TffSplit:
  """A split of TFF's file: one row per example, a `tf.train.Example`."""

  def __init__(
    self, path: pathlib.Path, connection: sqlite3.Connection, split: str
  ):
    self.path = path
    self._connection = connection
    self._split = split
    query = "SELECT DISTINCT client_id FROM client_metadata"
    query += " WHERE split_name = ?"
    found = _writers(connection, path, query, split)
    self.client_ids = {each: each for each in found if isinstance(each, str)}
    if len(self.client_ids) < len(found):
      raise ValueError(f"{path}: a writer of {split} has no name")
    if not found:
      query = "SELECT DISTINCT split_name FROM client_metadata"
      splits = sorted(map(str, _writers(connection, path, query)[:10]))
      raise ValueError(
        f"{path}: must have a split {split}; it has "
        f"{', '.join(splits) or 'none'}"
      )

  def read(self, client_id: str) -> tuple[np.ndarray, np.ndarray]:
    rows = self._connection.execute(
      "SELECT serialized_example_proto FROM examples"
      " WHERE split_name = ? AND client_id = ? ORDER BY rowid",
      (self._split, client_id),
    )
    examples = [_decode_example(record) for record in _records(rows)]
    pixels, labels = zip(*examples, strict=True)
    return np.stack(pixels), np.array(labels)


def _records(rows: Iterable[tuple[Any]]) -> Iterator[bytes]:
  """The records of a writer, of a bounded number of bytes."""
  total = 0
  for (record,) in rows:
    if not isinstance(record, bytes):
      raise ValueError("a record is not of bytes")
    total += len(record)
    if total > _LARGEST_RECORD:
      raise ValueError(
        f"its records are larger than {memory.size_text(_LARGEST_RECORD)}"
      )
    yield record


def _import_msgpack() -> Any:
  try:
    import msgpack
  except ImportError as error:
    raise ValueError(
      "reading FedJAX's files needs the package msgpack: pip install msgpack"
    ) from error
  return msgpack


def _client_data(
  split: _Split, writers: Iterable[str], num_classes: int
) -> ClientData:
  x, y, rows, start, num_bytes = [], [], [], 0, 0
  for writer in writers:
    try:
      pixels, labels = split.read(split.client_ids[writer])
      x.append(_inverted(pixels))
      y.append(np.asarray(labels).reshape(len(pixels)))
      num_bytes += 2 * x[-1].nbytes  # They are joined at the end.
      memory.check_memory("its writers and those before take", num_bytes)
    except Exception as error:  # Damaged files fail in many ways.
      raise ValueError(
        f"{split.path}: writer {writer} cannot be read "
        f"({type(error).__name__}: {error}); download the file again"
      ) from error
    rows.append(np.arange(start, start + len(labels)))
    start += len(labels)
  # If the pixels of one writer are float32, the result is float32; the scale of
  # uint8 and float32 is the same.
  examples = {"x": np.concatenate(x), "y": np.concatenate(y)}
  return ClientData.from_partition(examples, rows, num_classes)


def _inverted(pixels: np.ndarray) -> np.ndarray:
  """[n, 28, 28] in [0, 1], background 1 -> [n, 28, 28, 1] in 0..255."""
  pixels = np.asarray(pixels, np.float32).reshape(len(pixels), 28, 28, 1)
  if not ((pixels >= 0) & (pixels <= 1)).all():
    raise ValueError("pixels must be in [0, 1]")
  x = 255 * (1 - pixels)
  whole = np.rint(x)
  # Rounding errors in float32 are about 255 * 2**-24.
  return whole.astype(np.uint8) if np.abs(x - whole).max() < 1e-3 else x


def _decode_example(record: bytes) -> tuple[np.ndarray, int]:
  """Pixels [28, 28] and label of a serialized `tf.train.Example`.

  The message, with the numbers of its fields:

    Example {features = 1 {map feature = 1 {key = 1, value = 2}}}
    value: {float_list = 2 {value = 1}} or {int64_list = 3 {value = 1}}

  This reader is shorter than a description for the protobuf package, on which
  fedjax_opt does not depend.
  """
  (features,) = _fields(record, 1)
  feature = {}
  for entry in _fields(features, 1):
    (key,), (value,) = _fields(entry, 1), _fields(entry, 2)
    feature[key] = value
  (floats,) = _fields(feature[b"pixels"], 2)
  (integers,) = _fields(feature[b"label"], 3)
  # A list is one field (packed), or one field per number; the joined bytes are
  # the same.
  pixels = np.frombuffer(b"".join(_fields(floats, 1)), "<f4").reshape(28, 28)
  label, _ = _varint(b"".join(_fields(integers, 1)), 0)
  return pixels, label


def _fields(message: bytes, number: int) -> list[bytes]:
  """The contents of all fields of that number in a protobuf message."""
  contents, at = [], 0
  while at < len(message):
    key, at = _varint(message, at)
    wire_type = key & 7
    if wire_type == 0:
      _, end = _varint(message, at)
    elif wire_type == 1:
      end = at + 8
    elif wire_type == 2:
      length, at = _varint(message, at)
      end = at + length
    elif wire_type == 5:
      end = at + 4
    else:
      raise ValueError(f"protobuf wire type {wire_type}")
    if end > len(message):
      raise ValueError("protobuf message cut short")
    if key >> 3 == number:
      contents.append(message[at:end])
    at = end
  return contents


def _varint(message: bytes, at: int) -> tuple[int, int]:
  """The number that starts at a byte, and the byte after its end.

  A varint has seven bits of the number in each byte, the lowest first.
  """
  value = shift = 0
  while True:
    value |= (message[at] & 0x7F) << shift
    at += 1
    if shift > 63:
      raise ValueError("protobuf number of more than 64 bits")
    if message[at - 1] < 0x80:
      return value, at
    shift += 7
