"""FEMNIST: small files in both published formats give the same clients.

Set FEDJAX_OPT_FEMNIST to a file or folder that `load` takes to try the real
data as well.
"""

import lzma
import os
import sqlite3
import sys
import zlib

import numpy as np
import pytest

from fedjax_opt.datasets import femnist

# Not sorted: the order in a file must not matter.
WRITERS = ["f0003_10", "f0000_14", "f0002_07", "f0001_41"]
SIZES = {"train": [3, 1, 4, 2], "test": [1, 2, 1, 1]}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  return tmp_path / "cache" / "fedjax_opt"


@pytest.fixture
def examples():
  """(kind, split) -> writer -> (pixels in [0, 1], labels)."""
  rng = np.random.default_rng(0)

  def draw(kind, size):
    num_classes = 10 if kind == "digitsonly" else 62
    pixels = rng.integers(256, size=(size, 28, 28)).astype(np.float32) / 255
    labels = rng.integers(num_classes, size=size, dtype=np.int32)
    return pixels, labels

  return {
    (kind, split): {
      writer: draw(kind, size)
      for writer, size in zip(WRITERS, sizes, strict=True)
    }
    for kind in ("digitsonly", "all")
    for split, sizes in SIZES.items()
  }


def fedjax_array(array):
  """As FedJAX writes an array: msgpack extension 1."""
  import msgpack

  values = (array.shape, array.dtype.name, array.tobytes())
  return msgpack.ExtType(1, msgpack.packb(values, use_bin_type=True))


def write_fedjax(folder, examples):
  msgpack = pytest.importorskip("msgpack")
  folder.mkdir()
  for (kind, split), clients in examples.items():
    middle = "digitsonly_" if kind == "digitsonly" else ""
    path = folder / f"federated_emnist_{middle}{split}.sqlite"
    with sqlite3.connect(path) as file:
      file.execute(
        "CREATE TABLE federated_data (client_id BLOB NOT NULL PRIMARY KEY,"
        " data BLOB NOT NULL, num_examples INTEGER NOT NULL)"
      )
      for number, (writer, (pixels, labels)) in enumerate(clients.items()):
        arrays = {"pixels": fedjax_array(pixels), "label": fedjax_array(labels)}
        data = zlib.compress(msgpack.packb(arrays))
        client_id = f"{-number % 2**64:016x}:{writer}".encode()
        file.execute(
          "INSERT INTO federated_data VALUES (?, ?, ?)",
          (client_id, data, len(labels)),
        )
  file.close()
  return folder


def tff_example(pixels, label):
  """A tf.train.Example, by the protobuf package."""
  proto = pytest.importorskip("tensorflow_datasets.proto").tf_example_pb2
  example = proto.Example()
  feature = example.features.feature
  feature["pixels"].float_list.value.extend(pixels.ravel().tolist())
  feature["label"].int64_list.value.append(int(label))
  return example.SerializeToString()


def write_tff(path, examples):
  with sqlite3.connect(path) as file:
    file.execute(
      "CREATE TABLE examples (split_name TEXT NOT NULL, client_id TEXT NOT"
      " NULL, serialized_example_proto BLOB NOT NULL)"
    )
    file.execute(
      "CREATE TABLE client_metadata (client_id TEXT NOT NULL, split_name TEXT"
      " NOT NULL, num_examples INTEGER NOT NULL)"
    )
    for (kind, split), clients in examples.items():
      name = f"{'digits_only' if kind == 'digitsonly' else 'all'}_{split}"
      for writer, (pixels, labels) in clients.items():
        file.execute(
          "INSERT INTO client_metadata VALUES (?, ?, ?)",
          (writer, name, len(labels)),
        )
        for image, label in zip(pixels, labels, strict=True):
          file.execute(
            "INSERT INTO examples VALUES (?, ?, ?)",
            (name, writer, tff_example(image, label)),
          )
  file.close()
  return path


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
  with pytest.raises(ValueError, match=r"fraction=0: must be in \(0, 1\]"):
    femnist.load(path, fraction=0)
  with pytest.raises(ValueError, match=r"fraction=2: must be in \(0, 1\]"):
    femnist.load(path, fraction=2)


def test_every_level_of_grey_is_kept_as_uint8():
  levels = np.arange(784).reshape(1, 28, 28) % 256
  for pixels in (
    levels / 255,  # Divided in float64, as LEAF does, or in float32.
    levels.astype(np.float32) / np.float32(255),
  ):
    x = femnist._inverted(pixels.astype(np.float32))
    assert x.dtype == np.uint8
    np.testing.assert_array_equal(x[..., 0], 255 - levels)


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
  plain = write_tff(tmp_path / "plain.sqlite", examples)
  packed = tmp_path / "emnist_all.sqlite.lzma"
  packed.write_bytes(lzma.compress(plain.read_bytes(), lzma.FORMAT_ALONE))
  expected, _ = femnist.load(plain)
  for path in (packed, tmp_path):  # The file, and the folder that holds it.
    train, _ = femnist.load(path)
    np.testing.assert_array_equal(train.examples["x"], expected.examples["x"])
  (cache,) = own_cache.iterdir()  # One file, no partial one beside it.
  assert cache.read_bytes() == plain.read_bytes()
  os.utime(packed, (1, 1))  # Another file: another copy.
  femnist.load(packed)
  assert len(list(own_cache.iterdir())) == 2


def test_fedjax_by_file(tmp_path, examples):
  folder = write_fedjax(tmp_path / "fedjax", examples)
  train, test = femnist.load(folder / "federated_emnist_test.sqlite")
  assert train.num_examples == sum(SIZES["train"])
  assert test.num_examples == sum(SIZES["test"])


def test_example_decoder():
  pixels = np.linspace(0, 1, 784, dtype=np.float32).reshape(28, 28)
  decoded, label = femnist._decode_example(tff_example(pixels, 300))
  np.testing.assert_array_equal(decoded, pixels)
  assert label == 300

  # Lists not packed, one field per number; an unknown field of every type.
  field = lambda number, wire_type, content: (
    bytes([number << 3 | wire_type]) + content
  )
  varint = lambda value: bytes([value & 127 | 128, value >> 7])
  nested = lambda number, content: field(
    number, 2, varint(len(content)) + content
  )
  floats = b"".join(field(1, 5, v.tobytes()) for v in pixels.ravel())
  entry = lambda key, value: nested(1, nested(1, key) + nested(2, value))
  unknown = (
    field(9, 0, varint(300))
    + field(9, 1, bytes(8))
    + field(9, 5, bytes(4))
    + nested(9, b"?")
  )
  record = unknown + nested(
    1,
    entry(b"pixels", nested(2, floats))
    + entry(b"other", nested(1, b""))
    + entry(b"label", nested(3, unknown + field(1, 0, varint(61)))),
  )
  decoded, label = femnist._decode_example(record)
  np.testing.assert_array_equal(decoded, pixels)
  assert label == 61


def message_of(call):
  with pytest.raises(ValueError) as error:  # noqa: PT011 (each is matched)
    call()
  assert "\n" not in str(error.value)
  return str(error.value)


def test_no_file(tmp_path):
  message = message_of(lambda: femnist.load(tmp_path, only_digits=True))
  assert message.startswith(
    f"data_dir={str(tmp_path)!r}: must be emnist_all.sqlite"
  )
  assert "federated_emnist_digitsonly_train.sqlite" in message
  assert (
    "download https://storage.googleapis.com/tff-datasets-public" in message
  )
  absent = message_of(lambda: femnist.load(tmp_path / "no"))
  assert absent.startswith(f"data_dir={str(tmp_path / 'no')!r}: must be")


def test_not_a_database(tmp_path):
  path = tmp_path / "emnist_all.sqlite"
  path.write_bytes(b"no database" * 1000)
  assert "cannot be read (file is not a database)" in message_of(
    lambda: femnist.load(path)
  )
  path = tmp_path / "emnist_all.sqlite.lzma"
  path.write_bytes(b"not compressed")
  message = message_of(lambda: femnist.load(path))
  assert "cannot be decompressed" in message
  assert "again" in message
  path.write_bytes(lzma.compress(bytes(10**6))[:-20])  # Cut short.
  assert "cannot be decompressed" in message_of(lambda: femnist.load(path))


def test_cache_that_cannot_be_written(tmp_path, monkeypatch):
  path = tmp_path / "emnist_all.sqlite.lzma"
  path.write_bytes(lzma.compress(b""))
  (tmp_path / "file").write_text("")
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
  assert "decompress it elsewhere and give that file" in message_of(
    lambda: femnist.load(path)
  )


def test_wrong_schema(tmp_path, examples):
  path = tmp_path / "other.sqlite"
  sqlite3.connect(path).execute("CREATE TABLE examples (client_id TEXT)")
  assert (
    "must have a table examples with the columns client_id, "
    "serialized_example_proto, split_name; it has client_id"
  ) in message_of(lambda: femnist.load(path))

  only_all = {key: v for key, v in examples.items() if key[0] == "all"}
  path = write_tff(tmp_path / "all.sqlite", only_all)
  assert (
    "must have a split digits_only_train; it has all_test, all_train"
  ) in message_of(lambda: femnist.load(path, only_digits=True))


def test_damaged(tmp_path, examples):
  folder = write_fedjax(tmp_path / "fedjax", examples)
  path = folder / "federated_emnist_digitsonly_test.sqlite"
  with sqlite3.connect(path) as file:
    file.execute("UPDATE federated_data SET data = x'00'")
  load = lambda: femnist.load(folder, only_digits=True)
  assert (
    "writer f0000_14 cannot be read (ValueError: its record is cut"
    in message_of(load)
  )
  with sqlite3.connect(path) as file:
    again = (b"another hash:f0000_14", b"", 1)
    file.execute("INSERT INTO federated_data VALUES (?, ?, ?)", again)
  assert "it has 5 clients of 4 writers" in message_of(load)

  path = write_tff(tmp_path / "tff.sqlite", examples)
  with sqlite3.connect(path) as file:
    file.execute(
      "UPDATE examples SET serialized_example_proto ="
      " substr(serialized_example_proto, 1, 1000)"
    )
  assert "(ValueError: protobuf message cut short)" in message_of(
    lambda: femnist.load(path)
  )


def test_wrong_values(tmp_path, examples):
  pixels, labels = examples["digitsonly", "train"]["f0000_14"]
  labels[0] = 10
  path = write_fedjax(tmp_path / "labels", examples)
  assert "labels y must be in [0, 10)" in message_of(
    lambda: femnist.load(path, only_digits=True)
  )
  pixels *= 255
  path = write_fedjax(tmp_path / "pixels", examples)
  assert "pixels must be in [0, 1]" in message_of(
    lambda: femnist.load(path, only_digits=True)
  )


def test_missing_package(tmp_path, examples, monkeypatch):
  path = write_fedjax(tmp_path / "fedjax", examples)
  monkeypatch.setitem(sys.modules, "msgpack", None)
  assert "pip install msgpack" in message_of(lambda: femnist.load(path))


@pytest.mark.skipif(
  "FEDJAX_OPT_FEMNIST" not in os.environ,
  reason="set FEDJAX_OPT_FEMNIST to a file or folder with FEMNIST",
)
def test_real_digits():
  train, test = femnist.load(os.environ["FEDJAX_OPT_FEMNIST"], only_digits=True)
  assert train.num_clients == test.num_clients == 3383
  assert train.num_examples == 341873
  assert test.num_examples == 40832
  assert train.examples["x"].dtype == np.uint8
