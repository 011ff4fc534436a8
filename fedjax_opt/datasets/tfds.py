"""Data sets in TensorFlow Datasets' format, read without TensorFlow."""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from absl import logging

from fedjax_opt.checks import errors
from fedjax_opt.checks.fields import checked, one_of
from fedjax_opt.datasets import files
from fedjax_opt.files.folders import user_path

__all__ = ["SOURCES", "TEXT_SOURCES", "load"]

# Images, which `load` accepts.
SOURCES = ("mnist", "fashion_mnist", "cifar10", "cifar100", "svhn_cropped")

# The same of texts, which `load_text`, and of labelled ones `texts.load` and
# `texts.load_tokens` accept.
TEXT_SOURCES = ("ag_news_subset", "tiny_shakespeare")

_RECORDS_PER_READ = 4096
_AGAIN = "replace its files, or delete the folder to prepare it again"


@checked(name=one_of(*SOURCES))
def load(
  name: str, split: str, data_dir: str | os.PathLike | None = None
) -> dict[str, np.ndarray]:
  """Loads one split of an image data set.

  The first call decodes the images (seconds) and caches them, uncompressed, in
  `$XDG_CACHE_HOME/fedjax_opt` or `~/.cache/fedjax_opt`; later calls read that
  file, until the source files change. If the data set is not in `data_dir`,
  TFDS downloads and prepares it there, for which it needs TensorFlow.

  Args:
    name: one of `SOURCES`.
    split: 'train', 'test', or another split of the data set.
    data_dir: folder that holds NAME/VERSION/NAME-SPLIT.array_record* as TFDS
      writes them. Default: as in TFDS, `$TFDS_DATA_DIR` or
      `~/tensorflow_datasets`.

  Returns:
    {'x': [N, height, width, channels] uint8, 'y': [N] int32}.

  Raises:
    ValueError: if the name, the split or the folder does not exist; if the data
      set is not there and cannot be prepared; if its files cannot be read; if a
      package is missing.
  """
  folder, paths = split_files(name, split, data_dir)
  stem = f"{name}-{folder.name}-{split}"
  return files.cached_arrays(stem, paths, "", lambda: _decode(folder, split))


@checked(name=one_of(*TEXT_SOURCES))
def load_text(
  name: str, split: str, data_dir: str | os.PathLike | None = None
) -> list[dict[str, Any]]:
  """Loads one split of a data set of text.

  If the data set is not in `data_dir`, it is prepared there, see `load`.

  Args:
    name: one of `TEXT_SOURCES`.
    split: 'train', 'test', or another split of the data set.
    data_dir: see `load`.

  Returns:
    The records in the order of the files, {feature: value}; text is `str`.

  Raises:
    ValueError: see `load`.
  """
  text = lambda value: value.decode() if isinstance(value, bytes) else value
  take = lambda record: {key: text(value) for key, value in record.items()}
  return read(split_files(name, split, data_dir)[0], split, take)


def split_files(
  name: str, split: str, data_dir: str | os.PathLike | None = None
) -> tuple[pathlib.Path, list[pathlib.Path]]:
  """The folder of a data set, prepared if need be, and the split's files.

  Args:
    name: one of `SOURCES` or `TEXT_SOURCES`.
    split: see `load`.
    data_dir: see `load`.

  Raises:
    ValueError: as `load`.
  """
  root = root_folder(data_dir)
  folder = _prepared(name, root) or _prepare(name, root)
  paths = sorted(folder.glob(f"{name}-{split}.array_record*"))
  if not paths:
    raise ValueError(
      f"split={split!r} of {name} is not in {folder}, which holds "
      f"{', '.join(_splits(name, folder))}"
    )
  return folder, paths


def root_folder(data_dir: str | os.PathLike | None) -> pathlib.Path:
  """The folder of the data, that of TFDS if None."""
  if data_dir is None:
    default = os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    return user_path(default)
  wanted = "must be an existing folder; make it to download the data set there"
  return files.existing_folder(data_dir, wanted)


def _prepared(name: str, root: pathlib.Path) -> pathlib.Path | None:
  """The folder of the newest version in array_record format, or None."""
  candidates = [
    folder
    for folder in root.glob(f"{name}/*")
    if re.fullmatch(r"\d+\.\d+\.\d+", folder.name)
    and (folder / "dataset_info.json").is_file()
    and _splits(name, folder)
  ]
  version = lambda folder: [int(part) for part in folder.name.split(".")]
  return max(candidates, key=version, default=None)


def _splits(name: str, folder: pathlib.Path) -> list[str]:
  paths = folder.glob(f"{name}-*.array_record*")
  return sorted({path.name[len(name) + 1 :].split(".")[0] for path in paths})


def read(
  folder: pathlib.Path,
  split: str,
  take: Callable[[dict[str, Any]], Any],
  undecoded: Sequence[str] = (),
) -> list[Any]:
  """Reads all records of a split, in order.

  Args:
    folder: of `split_files`.
    split: of the data set.
    take: record -> what is kept of it.
    undecoded: fields that TFDS leaves as the bytes of the file.

  Returns:
    What was kept of each record.

  Raises:
    ValueError: if the files cannot be read, or hold no record; if a package is
      missing.
  """
  tfds, records = _import("tensorflow_datasets"), []
  # Damaged files fail in many ways.
  with (
    errors.while_reading(folder, _AGAIN, Exception),
    contextlib.ExitStack() as end,
  ):
    # Without TFDS's log lines below errors.
    end.callback(logging.set_verbosity, logging.get_verbosity())
    logging.set_verbosity(logging.ERROR)
    source = tfds.data_source(
      f"{folder.parent.name}:{folder.name}",
      split=split,
      data_dir=folder.parent.parent,
      download=False,
      decoders={name: tfds.decode.SkipDecoding() for name in undecoded},
    )
    for start in range(0, len(source), _RECORDS_PER_READ):
      keys = range(start, min(start + _RECORDS_PER_READ, len(source)))
      records += map(take, source.__getitems__(keys))
    if not records:
      raise ValueError(f"no records of split {split!r}")
  return records


def _decode(folder: pathlib.Path, split: str) -> dict[str, np.ndarray]:
  image_lib = _import("PIL.Image")

  def take(record):
    with image_lib.open(io.BytesIO(record["image"])) as image:
      return np.atleast_3d(np.asarray(image)), record["label"]

  # Pillow alone is faster than TFDS's decoder. And the pixels do not depend on
  # whether OpenCV is installed, which TFDS would use.
  records = read(folder, split, take, ["image"])
  images, labels = zip(*records, strict=True)
  return {"x": np.stack(images), "y": np.array(labels, np.int32)}


def _prepare(name: str, root: pathlib.Path) -> pathlib.Path:
  """Has TFDS download and prepare a data set; returns its folder.

  In a process of its own: TensorFlow would take the memory of a GPU.
  """
  _import("tensorflow_datasets")
  code = (
    "import tensorflow_datasets as tfds; "
    f"tfds.builder({json.dumps(name)}, data_dir={json.dumps(str(root))})"
    '.download_and_prepare(file_format="array_record")'
  )
  command = shlex.join(["python", "-c", code])
  problem = (
    f"data_dir={str(root)!r}: does not hold {name} in array_record format"
  )
  if importlib.util.find_spec("tensorflow") is None:
    raise ValueError(
      f"{problem}; prepare it, which needs TensorFlow: pip install tensorflow "
      f"&& {command}"
    )
  environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
  process = subprocess.run(
    [sys.executable, "-c", code],
    env=environment,
    capture_output=True,
    text=True,
    check=False,
  )
  folder = _prepared(name, root)
  if process.returncode or folder is None:
    message = process.stderr.strip().rpartition("\n")[2]
    raise ValueError(f"{problem}, and {command} failed ({message})")
  return folder


def _import(module: str) -> Any:
  """A module of the extra; with cached images none is needed."""
  for package in ("array_record", "importlib_resources"):
    errors.imported(package, "reading a TFDS data set", "fedjax_opt[tfds]")
  return errors.imported(module, "reading a TFDS data set", "fedjax_opt[tfds]")
