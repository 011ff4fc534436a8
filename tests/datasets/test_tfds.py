"""TFDS data sets: a small MNIST is read, and comes from the cache.

Set FEDJAX_OPT_DATA_DIR to a TFDS folder to try the real MNIST as well.
"""

import importlib.machinery
import os
import subprocess
import sys
import types

import numpy as np
import pytest

from fedjax_opt.datasets import tfds
from tests.helpers import prepared_data
from tests.helpers.refusals import refusal


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
  images = tfds.load("mnist", "train", folder)
  decode = tfds._decode
  monkeypatch.setattr(tfds, "_decode", None)  # Must not be needed now.
  cached = tfds.load("mnist", "train", folder)
  np.testing.assert_array_equal(images["x"], cached["x"])
  assert (
    len(list(own_cache.iterdir())) == 1
  )  # One file, no partial one beside it.

  monkeypatch.setattr(tfds, "_decode", decode)
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
  lacking = f"split='val' of {name} is not in {version}, which holds {splits}"
  for message, arguments in {
    f"did you mean {name}?": (name[:-1], "train", folder),
    f"name='{other}': must be one of ": (other, "train", folder),
    "no': must be an existing folder": (name, "train", folder / "no"),
    lacking: (name, "val", folder),
    f"{version}: cannot be read (": (name, "train", folder),
  }.items():
    assert message in refusal(read, *arguments)


def test_an_empty_split(tmp_path, monkeypatch):
  module = pytest.importorskip("tensorflow_datasets")
  for package in ("array_record", "PIL"):
    pytest.importorskip(package)
  monkeypatch.setattr(module, "data_source", lambda *_, **__: [])
  folder = tmp_path / "mnist" / "3.0.1"
  assert refusal(tfds._decode, folder, "train") == (
    f"{folder}: cannot be read (no records of split 'train'); replace its "
    "files, or delete the folder to prepare it again"
  )


@pytest.fixture
def lacking(tmp_path):
  """What is said of a folder without MNIST, and the code that prepares it."""
  code = (
    f'import tensorflow_datasets as tfds; tfds.builder("mnist", data_dir='
    f'"{tmp_path}").download_and_prepare(file_format="array_record")'
  )
  message = f"data_dir={str(tmp_path)!r}: does not hold mnist in array_record "
  return f"{message}format", code


def test_what_prepares_it_is_told_without_tensorflow(
  tmp_path, lacking, monkeypatch
):
  monkeypatch.setitem(sys.modules, "tensorflow", None)
  message, code = lacking
  assert refusal(tfds.load, "mnist", "train", tmp_path) == (
    f"{message}; prepare it, which needs TensorFlow: pip install tensorflow && "
    f"python -c '{code}'"
  )


@pytest.fixture
def with_tensorflow(monkeypatch):
  """TensorFlow is there, and a function instead of TFDS's process."""
  module = types.ModuleType("tensorflow")
  module.__spec__ = importlib.machinery.ModuleSpec("tensorflow", None)
  monkeypatch.setitem(sys.modules, "tensorflow", module)
  return lambda run: monkeypatch.setattr(tfds.subprocess, "run", run)


@pytest.mark.parametrize("fails", [False, True])
def test_tfds_prepares_what_is_not_there(
  tmp_path, lacking, with_tensorflow, fails
):
  pytest.importorskip("tensorflow_datasets")
  message, code = lacking

  def build(command, **_):
    assert command[1:] == ["-c", code]
    if fails:
      error = "Traceback\nConnectionError: no network\n"
      return subprocess.CompletedProcess(command, 1, "", error)
    prepared_data.mnist(tmp_path)
    return subprocess.CompletedProcess(command, 0, "", "")

  with_tensorflow(build)
  if not fails:
    assert len(tfds.load("mnist", "test", tmp_path)["y"]) == 10
    return
  assert refusal(tfds.load, "mnist", "train", tmp_path) == (
    f"{message}, and python -c '{code}' failed (ConnectionError: no network)"
  )


def test_missing_package(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
  message = refusal(tfds.load, "mnist", "train", tmp_path)
  assert "pip install 'fedjax_opt[tfds]'" in message


def test_prepared_text_is_read(small_text):
  folder, parts = small_text
  for split, part in parts.items():
    examples = tfds.load_text("tiny_shakespeare", split, folder)
    assert examples == [{"text": part}]
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
