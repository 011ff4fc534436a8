"""TFDS data sets: a small MNIST goes through download, preparation and cache.

Set FEDJAX_OPT_DATA_DIR to a TFDS folder to try the real MNIST as well.
"""

import os
import sys

import numpy as np
import pytest

from fedjax_opt.data import tfds


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  return tmp_path / "cache" / "fedjax_opt"


@pytest.fixture
def small_mnist(tmp_path, monkeypatch):
  """A folder to load from, and MNIST's four source files cut short.

  TFDS downloads nothing: it is handed the files below.
  """
  for package in ("tensorflow_datasets", "array_record", "PIL"):
    pytest.importorskip(package)
  import requests
  import tensorflow_datasets
  from tensorflow_datasets.image_classification import mnist

  rng = np.random.default_rng(0)
  data, files = {}, {}
  for split, size in (("train", 30), ("test", 10)):
    x = rng.integers(256, size=(size, 28, 28, 1), dtype=np.uint8)
    y = rng.integers(10, size=size, dtype=np.uint8)
    data[split] = (x, y)
    for kind, header, values in (("data", 16, x), ("labels", 8, y)):
      path = tmp_path / f"{split}_{kind}"
      path.write_bytes(bytes(header) + values.tobytes())
      files[f"{split}_{kind}"] = str(path)
  monkeypatch.setattr(mnist, "_TRAIN_EXAMPLES", 30)
  monkeypatch.setattr(mnist, "_TEST_EXAMPLES", 10)
  manager = tensorflow_datasets.download.DownloadManager
  monkeypatch.setattr(manager, "download_and_extract", lambda *_: files)
  monkeypatch.setattr(requests, "head", lambda *_, **__: None)
  folder = tmp_path / "tfds"
  folder.mkdir()
  return folder, data


def by_pixels(x, y):
  """Examples in an order of their own: TFDS shuffles when it prepares."""
  return sorted(
    (image.tobytes(), int(label)) for image, label in zip(x, y, strict=True)
  )


def test_download_prepare_load(small_mnist):
  folder, data = small_mnist
  for split, (x, y) in data.items():
    loaded = tfds.load("mnist", split, folder)
    assert loaded["x"].dtype == np.uint8
    assert loaded["x"].shape == x.shape
    assert loaded["y"].dtype == np.int32
    assert by_pixels(loaded["x"], loaded["y"]) == by_pixels(x, y)
  assert list((folder / "mnist" / "3.0.1").glob("mnist-train.array_record*"))
  assert "tensorflow" not in sys.modules


def test_cache(small_mnist, own_cache, monkeypatch):
  folder, _ = small_mnist
  first = tfds.load("mnist", "train", folder)
  decode = tfds._decode
  monkeypatch.setattr(tfds, "_decode", None)  # Must not be needed now.
  second = tfds.load("mnist", "train", folder)
  np.testing.assert_array_equal(first["x"], second["x"])
  (cache,) = own_cache.iterdir()  # One file, no partial one beside it.

  monkeypatch.setattr(tfds, "_decode", decode)
  cache.write_bytes(cache.read_bytes()[:1000])  # Damaged.
  third = tfds.load("mnist", "train", folder)
  np.testing.assert_array_equal(first["x"], third["x"])
  (source,) = (folder / "mnist" / "3.0.1").glob("mnist-train.array_record*")
  os.utime(source, (1, 1))  # Another time: another cache file.
  tfds.load("mnist", "train", folder)
  assert len(list(own_cache.iterdir())) == 2


def test_cache_that_cannot_be_written(small_mnist, tmp_path, monkeypatch):
  (tmp_path / "file").write_text("")
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
  assert len(tfds.load("mnist", "test", small_mnist[0])["y"]) == 10


def test_bad_input(small_mnist):
  folder, _ = small_mnist
  with pytest.raises(ValueError, match="unknown TFDS data set 'mnis'"):
    tfds.load("mnis", "train", folder)
  with pytest.raises(ValueError, match=r"data_dir=.*absent': must be an exist"):
    tfds.load("mnist", "train", folder / "absent")
  with pytest.raises(
    ValueError, match=r"split='val' .* which holds test, train"
  ):
    tfds.load("mnist", "val", folder)
  (source,) = (folder / "mnist" / "3.0.1").glob("mnist-train.array_record*")
  source.write_bytes(b"not a record file")
  with pytest.raises(ValueError, match=r"3\.0\.1 cannot be read") as error:
    tfds.load("mnist", "train", folder)
  assert "\n" not in str(error.value)


def test_an_empty_split(tmp_path, monkeypatch):
  module = pytest.importorskip("tensorflow_datasets")
  for package in ("array_record", "PIL"):
    pytest.importorskip(package)
  monkeypatch.setattr(module, "data_source", lambda *_, **__: [])
  folder = tmp_path / "mnist" / "3.0.1"
  with pytest.raises(ValueError) as error:  # noqa: PT011
    tfds._decode(folder, "train")
  assert str(error.value) == (
    f"{folder} has no records of split 'train'; replace its files, or delete "
    "the folder to download them again"
  )


def test_no_network(small_mnist, monkeypatch):
  import requests

  def unreachable(*_, **__):
    raise requests.ConnectionError("no network")

  monkeypatch.setattr(requests, "head", unreachable)
  folder, _ = small_mnist
  with pytest.raises(
    ValueError,
    match=r"does not hold mnist .* cannot be reached .* put mnist-train\.array"
    r".* in .*tfds/mnist/3\.0\.1$",
  ):
    tfds.load("mnist", "train", folder)
  assert not list(folder.iterdir())


def test_failed_download(small_mnist, monkeypatch):
  from tensorflow_datasets.image_classification import mnist

  monkeypatch.setattr(mnist, "_TRAIN_EXAMPLES", 31)  # More than there are.
  folder, _ = small_mnist
  with pytest.raises(
    ValueError, match=r"preparing it from https.* failed"
  ) as e:
    tfds.load("mnist", "train", folder)
  assert "\n" not in str(e.value)


def test_other_format_in_the_folder(small_mnist):
  folder, _ = small_mnist
  version = folder / "mnist" / "3.0.1"
  version.mkdir(parents=True)
  (version / "mnist-train.tfrecord-00000-of-00001").write_text("")
  with pytest.raises(ValueError, match="exists with other files"):
    tfds.load("mnist", "train", folder)


def test_missing_package(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
  with pytest.raises(ValueError, match=r"pip install 'fedjax_opt\[tfds\]'"):
    tfds.load("mnist", "train", tmp_path)


@pytest.mark.skipif(
  "FEDJAX_OPT_DATA_DIR" not in os.environ,
  reason="set FEDJAX_OPT_DATA_DIR to a TFDS folder that holds mnist",
)
def test_real_mnist():
  test = tfds.load("mnist", "test", os.environ["FEDJAX_OPT_DATA_DIR"])
  assert test["x"].shape == (10000, 28, 28, 1)
  counts = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
  assert np.bincount(test["y"]).tolist() == counts
