"""TFDS data sets: a small MNIST is read, and comes from the cache.

Set FEDJAX_OPT_DATA_DIR to a TFDS folder to try the real MNIST as well.
"""

import importlib.machinery
import os
import re
import subprocess
import sys
import types

import numpy as np
import pytest

from fedjax_opt.datasets import tfds
from tests import prepared_data


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  return tmp_path / "cache" / "fedjax_opt"


@pytest.fixture
def small_mnist(tmp_path):
  """A folder to load from, and what is in it."""
  return tmp_path / "tfds", prepared_data.mnist(tmp_path / "tfds")


@pytest.fixture
def small_text(tmp_path):
  """A folder to load from, and the texts of its splits."""
  parts = {"train": "abc" * 12, "validation": "de", "test": "f\u00e9"}
  records = {split: [{"text": part}] for split, part in parts.items()}
  prepared_data.write(tmp_path / "tfds", "tiny_shakespeare", "1.0.0", records)
  return tmp_path / "tfds", parts


def test_prepared_images_are_read(small_mnist):
  folder, data = small_mnist
  for split, expected in data.items():
    loaded = tfds.load("mnist", split, folder)
    for name, array in expected.items():
      assert loaded[name].dtype == array.dtype
      np.testing.assert_array_equal(loaded[name], array)
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


READERS = {
  "mnist": (tfds.load, "tiny_shakespeare", "test, train"),
  "tiny_shakespeare": (tfds.load_text, "mnist", "test, train, validation"),
}


@pytest.mark.parametrize("name", READERS)
def test_what_cannot_be_read(name, tmp_path, small_mnist, small_text):
  read, other, splits = READERS[name]
  folder = tmp_path / "tfds"
  (version,) = (folder / name).iterdir()
  (source,) = version.glob(f"{name}-train.array_record*")
  source.write_bytes(b"not a record file")
  for arguments, message in (
    ((name[:-1], "train", folder), f"did you mean {name}?"),
    ((other, "train", folder), f"name='{other}': must be one of "),
    ((name, "train", folder / "no"), "no': must be an existing folder"),
    (
      (name, "val", folder),
      f"val' of {name} is not in {version}, which holds ",
    ),
    ((name, "val", folder), f"holds {splits}"),
    ((name, "train", folder), f"{version}: cannot be read ("),
  ):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
      read(*arguments)
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
    f"{folder}: cannot be read (no records of split 'train'); replace its "
    "files, or delete the folder to prepare it again"
  )


LACKING = "data_dir={!r}: does not hold mnist in array_record format"
CODE = (
  'import tensorflow_datasets as tfds; tfds.builder("mnist", data_dir="{}")'
  '.download_and_prepare(file_format="array_record")'
)
COMMAND = f"python -c '{CODE}'"


def test_what_prepares_it_is_told_without_tensorflow(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, "tensorflow", None)
  folder = tmp_path / "my data"
  folder.mkdir()
  with pytest.raises(ValueError, match="TensorFlow") as error:
    tfds.load("mnist", "train", folder)
  assert str(error.value) == (
    f"{LACKING.format(str(folder))}; prepare it, which needs TensorFlow: "
    f"pip install tensorflow && {COMMAND.format(folder)}"
  )


@pytest.fixture
def with_tensorflow(monkeypatch):
  """TensorFlow is there, and a function instead of TFDS's process."""
  module = types.ModuleType("tensorflow")
  module.__spec__ = importlib.machinery.ModuleSpec("tensorflow", None)
  monkeypatch.setitem(sys.modules, "tensorflow", module)
  return lambda run: monkeypatch.setattr(tfds.subprocess, "run", run)


def test_tfds_prepares_what_is_not_there(tmp_path, with_tensorflow):
  pytest.importorskip("tensorflow_datasets")

  def build(command, **_):
    assert command[1:] == ["-c", CODE.format(tmp_path)]
    prepared_data.mnist(tmp_path)
    return subprocess.CompletedProcess(command, 0, "", "")

  with_tensorflow(build)
  assert len(tfds.load("mnist", "test", tmp_path)["y"]) == 10
  assert len(tfds.load("mnist", "train", tmp_path)["y"]) == 30


def test_a_failed_preparation(tmp_path, with_tensorflow):
  pytest.importorskip("tensorflow_datasets")
  said = "Traceback\nConnectionError: no network\n"
  with_tensorflow(
    lambda command, **_: subprocess.CompletedProcess(command, 1, "", said)
  )
  with pytest.raises(ValueError, match="no network") as error:
    tfds.load("mnist", "train", tmp_path)
  assert str(error.value) == (
    f"{LACKING.format(str(tmp_path))}, and {COMMAND.format(tmp_path)} "
    "failed (ConnectionError: no network)"
  )


def test_missing_package(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
  with pytest.raises(ValueError, match=r"pip install 'fedjax_opt\[tfds\]'"):
    tfds.load("mnist", "train", tmp_path)


def test_prepared_text_is_read(small_text):
  folder, parts = small_text
  for split, part in parts.items():
    found = tfds.load_text("tiny_shakespeare", split, folder)
    assert found == [{"text": part}]
  assert "tensorflow" not in sys.modules


@pytest.mark.skipif(
  "FEDJAX_OPT_DATA_DIR" not in os.environ,
  reason="set FEDJAX_OPT_DATA_DIR to a TFDS folder that holds mnist",
)
def test_real_mnist():
  test = tfds.load("mnist", "test", os.environ["FEDJAX_OPT_DATA_DIR"])
  assert test["x"].shape == (10000, 28, 28, 1)
  counts = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
  assert np.bincount(test["y"]).tolist() == counts
