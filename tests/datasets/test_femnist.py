"""FEMNIST: small files in both published formats give the same clients."""

import lzma
import os
import re
import sqlite3
import sys
import zlib

import numpy as np
import pytest

from fedjax_opt.datasets import femnist
from tests.helpers.refusals import refusal
from tests.helpers.tables_of_calls import read_cases

# Not sorted: the order in a file must not matter.
WRITERS = ["f0003_10", "f0000_14", "f0002_07", "f0001_41"]
MB = 1_000_000
SIZES = {"train": [3, 1, 4, 2], "test": [1, 2, 1, 1]}


@pytest.fixture
def examples():
  """(kind, split) -> writer -> (pixels in [0, 1], labels)."""
  rng = np.random.default_rng(0)

  def draw(size, num_classes):
    pixels = rng.integers(256, size=(size, 28, 28)).astype(np.float32) / 255
    return pixels, rng.integers(num_classes, size=size, dtype=np.int32)

  return {
    (kind, split): {
      writer: draw(size, num_classes)
      for writer, size in zip(WRITERS, sizes, strict=True)
    }
    for kind, num_classes in (("digitsonly", 10), ("all", 62))
    for split, sizes in SIZES.items()
  }


def write(path, tables):
  """An SQLite file of tables, {name and columns: rows}."""
  with sqlite3.connect(path) as file:
    for table, rows in tables.items():
      name, _, columns = table.partition(" ")
      file.execute(f"CREATE TABLE {table}")
      marks = ", ".join("?" * (columns.count(",") + 1))
      file.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
  file.close()
  return path


def write_fedjax(folder, examples):
  """Records are msgpack, of which extension 1 is an array."""
  msgpack = pytest.importorskip("msgpack")

  def packed(array):
    values = (array.shape, array.dtype.name, array.tobytes())
    return msgpack.ExtType(1, msgpack.packb(values, use_bin_type=True))

  def record(pixels, labels):
    arrays = {"pixels": packed(pixels), "label": packed(labels)}
    return zlib.compress(msgpack.packb(arrays))

  folder.mkdir()
  for (kind, split), clients in examples.items():
    middle = "digitsonly_" if kind == "digitsonly" else ""
    rows = [
      (f"{-number % 2**64:016x}:{writer}".encode(), record(*arrays))
      for number, (writer, arrays) in enumerate(clients.items())
    ]
    path = folder / f"federated_emnist_{middle}{split}.sqlite"
    write(path, {"federated_data (client_id BLOB PRIMARY KEY, data)": rows})
  return folder


def write_tff(path, examples):
  """Records are a `tf.train.Example` each."""
  protos = pytest.importorskip("tensorflow_datasets.proto")

  def record(pixels, label):
    example = protos.tf_example_pb2.Example()
    feature = example.features.feature
    feature["pixels"].float_list.value.extend(pixels.ravel().tolist())
    feature["label"].int64_list.value.append(int(label))
    return example.SerializeToString()

  clients_of_splits = [
    (f"{kind.replace('digitsonly', 'digits_only')}_{split}", writer, arrays)
    for (kind, split), clients in examples.items()
    for writer, arrays in clients.items()
  ]
  tables = {
    "client_metadata (client_id, split_name)": [
      (writer, name) for name, writer, _ in clients_of_splits
    ],
    "examples (split_name, client_id, serialized_example_proto)": [
      (name, writer, record(*example))
      for name, writer, arrays in clients_of_splits
      for example in zip(*arrays, strict=True)
    ],
  }
  return write(path, tables)


@pytest.fixture(params=["fedjax", "tff"])
def path(request, tmp_path, examples):
  if request.param == "fedjax":
    return write_fedjax(tmp_path / "fedjax", examples)
  return write_tff(tmp_path / "any_name.sqlite", examples)


def of_client(data, client):
  rows = data.indices[client, : data.sizes[client]]
  return data.examples["x"][rows], data.examples["y"][rows]


@pytest.mark.parametrize("kind", ["digitsonly", "all"])
def test_load(path, examples, kind):
  loaded = femnist.load(path, only_digits=kind == "digitsonly")
  for split, data in zip(("train", "test"), loaded, strict=True):
    assert data.num_clients == 4
    assert data.examples["x"].dtype == np.uint8
    assert data.examples["y"].dtype == np.int32
    for client, writer in enumerate(sorted(WRITERS)):
      pixels, labels = examples[kind, split][writer]
      x, y = of_client(data, client)
      inverted = 255 - np.rint(255 * pixels[..., None])
      np.testing.assert_array_equal(x, inverted)
      np.testing.assert_array_equal(y, labels)


def test_fraction(path, examples):
  train, test = femnist.load(path, only_digits=True, fraction=0.5)
  assert train.sizes.tolist() == [1, 2]  # Of f0000_14 and f0001_41.
  assert test.sizes.tolist() == [2, 1]
  train, _ = femnist.load(path, only_digits=True, fraction=0.01)
  assert train.num_clients == 1


def test_other_pixels_stay_float(tmp_path, examples):
  pixels, _ = examples["digitsonly", "train"]["f0002_07"]
  pixels[0, 0, 0] = 0.3337
  path = write_fedjax(tmp_path / "fedjax", examples)
  train, test = femnist.load(path, only_digits=True)
  assert train.examples["x"].dtype == np.float32
  x, _ = of_client(train, 2)
  np.testing.assert_allclose(x[0, 0, 0, 0], 255 * (1 - 0.3337), rtol=1e-6)
  np.testing.assert_allclose(x[1, ..., 0], 255 * (1 - pixels[1]), atol=1e-4)
  assert test.examples["x"].dtype == np.uint8


def test_tff_compressed(tmp_path, examples, own_cache):
  database = write_tff(tmp_path / "plain.sqlite", examples)
  packed = tmp_path / "emnist_all.sqlite.lzma"
  packed.write_bytes(lzma.compress(database.read_bytes(), lzma.FORMAT_ALONE))
  expected, _ = femnist.load(database)
  for path in (packed, tmp_path):  # The file, and the folder that holds it.
    train, _ = femnist.load(path)
    np.testing.assert_array_equal(train.examples["x"], expected.examples["x"])
  (cache,) = own_cache.iterdir()  # One file, no partial one beside it.
  assert cache.read_bytes() == database.read_bytes()
  os.utime(packed, (1, 1))  # Another file: another copy.
  femnist.load(packed)
  assert len(list(own_cache.iterdir())) == 2


def test_fedjax_by_file(tmp_path, examples):
  folder = write_fedjax(tmp_path / "fedjax", examples)
  train, test = femnist.load(folder / "federated_emnist_test.sqlite")
  assert train.num_examples == sum(SIZES["train"])
  assert test.num_examples == sum(SIZES["test"])


# What cannot be read.


def test_no_file(tmp_path):
  for path in (tmp_path, tmp_path / "no"):
    message = refusal(femnist.load, path, only_digits=True)
    assert message.startswith(
      f"data_dir={str(path)!r}: must be emnist_all.sqlite.lzma or its folder "
      "(download https://storage.googleapis.com/tff-datasets-public/"
    )
    assert "federated_emnist_digitsonly_train.sqlite" in message


COMPRESSED = lzma.compress(bytes(3 * MB))


@pytest.mark.parametrize(
  ("end", "content", "message"),
  [
    ("", b"no database" * 1000, "cannot be read (file is not a database)"),
    (".lzma", b"not compressed", "cannot be decompressed"),
    (".lzma", COMPRESSED[:-20], "cannot be decompressed"),
    (".lzma", COMPRESSED, "(it is larger than 2 MB)"),
  ],
)
def test_no_database(end, content, message, tmp_path, own_cache, monkeypatch):
  monkeypatch.setattr(femnist, "_LARGEST_FILE", 2 * MB)
  path = tmp_path / f"emnist_all.sqlite{end}"
  path.write_bytes(content)
  text = refusal(femnist.load, path)
  assert message in text
  assert not end or "emnist_all.sqlite.lzma again, or decompress it" in text
  assert not list(own_cache.rglob("*.*"))


def test_cache_that_cannot_be_written(tmp_path, monkeypatch):
  path = tmp_path / "emnist_all.sqlite.lzma"
  path.write_bytes(lzma.compress(b""))
  (tmp_path / "file").write_text("")
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
  assert "decompress it elsewhere and give that" in refusal(femnist.load, path)


def test_wrong_schema(tmp_path, examples):
  for table, lacking in (
    ("other (client_id)", "table: client_metadata"),
    ("client_metadata (client_id)", "column: split_name"),
  ):
    path = write(tmp_path / f"{table}.sqlite", {table: []})
    assert refusal(femnist.load, path) == (
      f"{path}: cannot be read (no such {lacking}); download the file again"
    )
  only_all = {key: v for key, v in examples.items() if key[0] == "all"}
  path = write_tff(tmp_path / "all.sqlite", only_all)
  assert (
    "must have a split digits_only_train; it has all_test, all_train"
  ) in refusal(femnist.load, path, only_digits=True)


ZEROS = zlib.compress(bytes(3 * MB)).hex()


@pytest.mark.parametrize(
  ("sql", "message"), read_cases("datasets/damaged_femnist.txt")
)
def test_damaged(sql, message, tmp_path, examples, monkeypatch):
  monkeypatch.setattr(femnist, "_LARGEST_RECORD", MB)
  monkeypatch.setattr(femnist, "_MOST_WRITERS", 7)
  if "federated_data" not in sql:
    path = data_dir = write_tff(tmp_path / "tff.sqlite", examples)
  else:
    data_dir = write_fedjax(tmp_path / "fedjax", examples)
    path = data_dir / "federated_emnist_train.sqlite"
  with sqlite3.connect(path) as file:
    file.executescript(sql.format(ZEROS=ZEROS))
  file.close()
  text = refusal(femnist.load, data_dir)
  assert text.startswith(f"{path}: ")
  assert message in text


@pytest.mark.parametrize(
  ("scale", "label", "message"),
  [(1, 10, "labels y must be in [0, 10)"), (255, 0, "pixels must be in [0, 1")],
)
def test_wrong_values(scale, label, message, tmp_path, examples):
  pixels, labels = examples["digitsonly", "train"]["f0000_14"]
  pixels *= scale
  labels[0] = label
  path = write_fedjax(tmp_path / "fedjax", examples)
  assert message in refusal(femnist.load, path, only_digits=True)


def test_missing_package(path, monkeypatch):
  for name in ("msgpack", "tensorflow_datasets.proto"):
    monkeypatch.setitem(sys.modules, name, None)
  assert re.search(
    r"pip install '(msgpack|fedjax_opt\[tfds\])'", refusal(femnist.load, path)
  )
