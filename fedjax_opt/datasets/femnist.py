"""FEMNIST: handwritten characters by writer.

Two published sources hold the same images:

  TensorFlow Federated   emnist_all.sqlite.lzma, one file with every split
  FedJAX                 federated_emnist_{,digitsonly_}{train,test}.sqlite

The first needs the extra `fedjax_opt[tfds]`, the second the package msgpack.

Source: Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018; Cohen
et al., "EMNIST: Extending MNIST to handwritten letters", IJCNN 2017.
"""

import contextlib
import lzma
import os
import pathlib
import sqlite3
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from fedjax_opt.checks import errors, memory
from fedjax_opt.checks.fields import checked
from fedjax_opt.data.clients import ClientData, joined
from fedjax_opt.datasets import files
from fedjax_opt.files.folders import user_path

__all__ = ["load"]

TFF_URL = "https://storage.googleapis.com/tff-datasets-public/"
TFF_FILE = "emnist_all.sqlite.lzma"

# What a file may hold; the published ones have 3,579 writers, of whom the
# largest has 584 examples, of 3 kB each.
_MOST_WRITERS = 100_000
_LARGEST_RECORD = 1 << 26  # bytes of one writer, or one example, decompressed
_LARGEST_FILE = 1 << 35  # bytes of TFF's file, decompressed

_AGAIN = "download the file again"
# Of FedJAX's files, and of TFF's.
_TABLES = ("federated_data", "examples", "client_metadata")


@checked(fraction="(0, 1]")
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
      if a package is missing, or if the fraction is out of range.
    TypeError: if an argument is of another type.
  """
  with contextlib.ExitStack() as stack:
    path = user_path(data_dir)
    splits = _open_splits(path, only_digits, stack)
    writers = sorted(splits[0].client_ids)
    writers = writers[: max(1, round(fraction * len(writers)))]
    num_classes = 10 if only_digits else 62
    train, test = (_client_data(part, writers, num_classes) for part in splits)
  return train, test


class _Split(NamedTuple):
  """One split of the data in one of the sources.

  Attributes:
    path: path of the file.
    client_ids: writer -> id of this client in the file.
    read: from an id to the client's pixels [n, 28, 28], in [0, 1], and labels
      [n].
  """

  path: pathlib.Path
  client_ids: dict[str, Any]
  read: Callable[[Any], tuple[np.ndarray, np.ndarray]]


def _open_splits(
  path: pathlib.Path, only_digits: bool, stack: contextlib.ExitStack
) -> list[_Split]:
  """The training and the test split of the source that is in the folder."""
  prefix = "federated_emnist_" + ("digitsonly_" if only_digits else "")
  folder = path.parent if path.name.startswith("federated_emnist_") else path
  pair = [folder / f"{prefix}{split}.sqlite" for split in ("train", "test")]
  if all(file.is_file() for file in pair):
    return [_fedjax_split(file, stack) for file in pair]

  candidates = [path, path / TFF_FILE.removesuffix(".lzma"), path / TFF_FILE]
  file = next((file for file in candidates if file.is_file()), None)
  if file is None:
    raise ValueError(
      f"data_dir={str(path)!r}: must be {TFF_FILE} or its folder (download "
      f"{TFF_URL}), or that of {pair[0].name} and {pair[1].name}"
    )
  if file.suffix == ".lzma":
    file = _decompressed(file)
  connection = _connect(file, stack)
  kind = "digits_only" if only_digits else "all"
  names = (f"{kind}_{split}" for split in ("train", "test"))
  return [_tff_split(file, connection, name) for name in names]


def _decompressed(path: pathlib.Path) -> pathlib.Path:
  name = path.name.removesuffix(".lzma").removesuffix(".sqlite")
  target = files.cache_path(f"{name}-", [path], "", ".sqlite")
  if target.is_file():
    return target
  logging.info("Decompressing %s to %s", path, target)
  try:
    with (
      files.atomic_write(target) as partial,
      lzma.open(path) as source,
      open(partial, "wb") as copy,
    ):
      while block := source.read(2**20):
        copy.write(block)
        if copy.tell() > _LARGEST_FILE:
          raise lzma.LZMAError(
            f"it is larger than {memory.size_text(_LARGEST_FILE)}"
          )
  except (lzma.LZMAError, EOFError, OSError) as error:
    raise ValueError(
      f"{path}: cannot be decompressed to {target} ({error}); download "
      f"{TFF_URL}{TFF_FILE} again, or decompress it elsewhere and give that"
    ) from error
  return target


def _connect(
  path: pathlib.Path, stack: contextlib.ExitStack
) -> sqlite3.Connection:
  """Opens an SQLite file to read; it is closed with what else was opened."""
  with errors.while_reading(path, "an SQLite file is needed", sqlite3.Error):
    uri = f"{path.resolve().as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True)
    stack.callback(connection.close)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_RECORD)
    connection.execute("PRAGMA trusted_schema = OFF")
    # A view computes what it gives, with no bound; a virtual table too.
    query = "SELECT lower(name) FROM sqlite_master"
    query += " WHERE rootpage IS NULL OR rootpage <= 0"
    views = {name for (name,) in connection.execute(query)}
  for table in views.intersection(_TABLES):
    raise ValueError(
      f"{path}: {table} is a view; must be a table, which holds its rows"
    )
  return connection


def _names(
  connection: sqlite3.Connection, path: pathlib.Path, query: str, *values: str
) -> list[Any]:
  """The first column of what a query finds, of so many writers at most."""
  with errors.while_reading(path, _AGAIN, sqlite3.Error, MemoryError):
    rows = connection.execute(query, values).fetchmany(_MOST_WRITERS + 1)
  if len(rows) > _MOST_WRITERS:
    raise ValueError(
      f"{path}: must have at most {_MOST_WRITERS} writers; it has more"
    )
  return [row[0] for row in rows]


def _fedjax_split(path: pathlib.Path, stack: contextlib.ExitStack) -> _Split:
  """A FedJAX file: one row per client, zlib-compressed msgpack."""
  msgpack = errors.imported("msgpack", "reading FedJAX's files", "msgpack")
  connection = _connect(path, stack)
  ids = _names(connection, path, "SELECT client_id FROM federated_data")
  # An id is a hash and the writer, such as b"0123456789abcdef:f0000_14".
  client_ids = {
    client_id.decode(errors="replace").rpartition(":")[2]: client_id
    for client_id in ids
    if isinstance(client_id, bytes)
  }
  if not ids or len(client_ids) < len(ids):
    raise ValueError(
      f"{path}: must have one client per writer; it has {len(ids)} clients "
      f"of {len(client_ids)} writers"
    )

  def unpack_array(code, data):  # Extension 1: (shape, dtype, bytes).
    if code != 1:
      raise ValueError(f"msgpack extension {code} is not an array")
    shape, dtype, values = msgpack.unpackb(data, raw=False)
    return np.frombuffer(values, np.dtype(dtype)).reshape(shape)

  def read(client_id):
    ((data,),) = connection.execute(
      "SELECT data FROM federated_data WHERE client_id = ?", (client_id,)
    )
    unpacker = zlib.decompressobj()
    record = unpacker.decompress(data, _LARGEST_RECORD)
    if not unpacker.eof:
      largest = memory.size_text(_LARGEST_RECORD)
      raise ValueError(f"its record is cut, or larger than {largest}")
    examples = msgpack.unpackb(record, ext_hook=unpack_array, raw=False)
    return examples["pixels"], examples["label"]

  return _Split(path, client_ids, read)


def _tff_split(
  path: pathlib.Path, connection: sqlite3.Connection, split: str
) -> _Split:
  """A split of TFF's file: one row per example, a `tf.train.Example`."""
  protos = errors.imported(
    "tensorflow_datasets.proto", "reading TFF's file", "fedjax_opt[tfds]"
  )
  query = "SELECT DISTINCT client_id FROM client_metadata WHERE split_name = ?"
  names = _names(connection, path, query, split)
  client_ids = {name: name for name in names if isinstance(name, str)}
  if len(client_ids) < len(names):
    raise ValueError(f"{path}: a writer of {split} has no name")
  if not names:
    query = "SELECT DISTINCT split_name FROM client_metadata"
    splits = sorted(map(str, _names(connection, path, query)[:10]))
    raise ValueError(
      f"{path}: must have a split {split}; it has {', '.join(splits) or 'none'}"
    )

  def read(client_id):
    pixels, labels, num_bytes = [], [], 0
    rows = connection.execute(
      "SELECT serialized_example_proto FROM examples"
      " WHERE split_name = ? AND client_id = ? ORDER BY rowid",
      (split, client_id),
    )
    for (record,) in rows:
      num_bytes += len(record)
      if num_bytes > _LARGEST_RECORD:
        largest = memory.size_text(_LARGEST_RECORD)
        raise ValueError(f"its records are larger than {largest}")
      example = protos.tf_example_pb2.Example.FromString(record)
      feature = example.features.feature
      image = np.array(feature["pixels"].float_list.value, np.float32)
      pixels.append(image.reshape(28, 28))
      labels.append(feature["label"].int64_list.value[0])
    return np.stack(pixels), np.array(labels)

  return _Split(path, client_ids, read)


def _client_data(
  split: _Split, writers: Sequence[str], num_classes: int
) -> ClientData:
  clients, num_bytes = [], 0
  for writer in writers:
    try:
      pixels, labels = split.read(split.client_ids[writer])
      x, y = _inverted(pixels), np.asarray(labels).reshape(len(pixels))
      num_bytes += 2 * x.nbytes  # They are joined at the end.
      memory.check_memory("its writers and those before take", num_bytes)
    except Exception as error:  # Damaged files fail in many ways.
      reason = f"{type(error).__name__}: {errors.first_line(error)}"
      raise ValueError(
        f"{split.path}: writer {writer} cannot be read ({reason}); {_AGAIN}"
      ) from error
    clients.append({"x": x, "y": y})
  # If the pixels of one writer are float32, the result is float32; the scale of
  # uint8 and float32 is the same.
  return joined(clients, num_classes)


def _inverted(pixels: np.ndarray) -> np.ndarray:
  """[n, 28, 28] in [0, 1], background 1 -> [n, 28, 28, 1] in 0..255."""
  pixels = np.asarray(pixels, np.float32).reshape(len(pixels), 28, 28, 1)
  if not ((pixels >= 0) & (pixels <= 1)).all():
    raise ValueError("pixels must be in [0, 1]")
  x = 255 * (1 - pixels)
  rounded = np.rint(x)
  # Rounding errors in float32 are about 255 * 2**-24.
  return rounded.astype(np.uint8) if np.abs(x - rounded).max() < 1e-3 else x
