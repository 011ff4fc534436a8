"""Data sets in TensorFlow Datasets' format, read without TensorFlow."""

import contextlib
import io
import os
import pathlib
import re
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from absl import logging

from fedjax_opt.checks.values import first_line
from fedjax_opt.data import cache

__all__ = [
  "SOURCES",
  "TEXT_SOURCES",
  "load",
]

# Images, which `load` accepts -> the address from which TFDS downloads them.
SOURCES = {
  "mnist": "https://storage.googleapis.com/cvdf-datasets/mnist/",
  "fashion_mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
  "cifar10": "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
  "cifar100": "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
  "svhn_cropped": "http://ufldl.stanford.edu/housenumbers/",
}

# The same of texts, which `load_text`, and of labelled ones `texts.load` and
# `texts.load_tokens` accept.
TEXT_SOURCES = {
  "ag_news_subset": "https://drive.google.com/",
  "tiny_shakespeare": "https://raw.githubusercontent.com/karpathy/char-rnn/"
  "master/data/tinyshakespeare/input.txt",
}

_RECORDS_PER_READ = 4096


def load(
  name: str, split: str, data_dir: str | os.PathLike | None = None
) -> dict[str, np.ndarray]:
  """Loads one split of an image data set.

  The first call decodes the images (seconds) and caches them, uncompressed, in
  `$XDG_CACHE_HOME/fedjax_opt` or `~/.cache/fedjax_opt`; later calls read that
  file, until the source files change. If the data set is not in `data_dir`, it
  is downloaded there; otherwise nothing is written there.

  Args:
    name: a key of `SOURCES`.
    split: 'train', 'test', or another split of the data set.
    data_dir: folder that holds NAME/VERSION/NAME-SPLIT.array_record* as TFDS
      writes them. Default: as in TFDS, `$TFDS_DATA_DIR` or
      `~/tensorflow_datasets`.

  Returns:
    {'x': [N, height, width, channels] uint8, 'y': [N] int32}.

  Raises:
    ValueError: if the name, the split or the folder does not exist; if the data
      set is not there and cannot be downloaded; if its files cannot be read; if
      a package is missing.
  """
  if name not in SOURCES:
    raise ValueError(
      f"unknown TFDS data set {name!r}; accepted: {', '.join(SOURCES)}"
    )
  folder, files = split_files(name, split, data_dir)
  stem = f"{name}-{folder.name}-{split}"
  return cache.arrays(stem, files, "", lambda: _decode(folder, split))


def load_text(
  name: str, split: str, data_dir: str | os.PathLike | None = None
) -> list[dict[str, Any]]:
  """Loads one split of a data set of text.

  If the data set is not in `data_dir`, it is downloaded there.

  Args:
    name: a key of `TEXT_SOURCES`.
    split: 'train', 'test', or another split of the data set.
    data_dir: see `load`.

  Returns:
    The records in the order of the files, {feature: value}; text is `str`.

  Raises:
    ValueError: see `load`.
  """
  if name not in TEXT_SOURCES:
    raise ValueError(
      f"unknown TFDS data set {name!r}; accepted: {', '.join(TEXT_SOURCES)}"
    )
  text = lambda v: v.decode() if isinstance(v, bytes) else v
  take = lambda record: {key: text(value) for key, value in record.items()}
  return read(split_files(name, split, data_dir)[0], split, take)


def split_files(
  name: str, split: str, data_dir: str | os.PathLike | None = None
) -> tuple[pathlib.Path, list[pathlib.Path]]:
  """The folder of a data set, downloaded if need be, and the split's files.

  Args:
    name: a key of `SOURCES` or `TEXT_SOURCES`.
    split: see `load`.
    data_dir: see `load`.

  Raises:
    ValueError: as `load`.
  """
  root = root_folder(data_dir)
  folder = _prepared(name, root) or _download(name, root)
  files = sorted(folder.glob(f"{name}-{split}.array_record*"))
  if not files:
    raise ValueError(
      f"split={split!r} of {name} is not in {folder}, which holds "
      f"{', '.join(_splits(name, folder))}"
    )
  return folder, files


def root_folder(data_dir: str | os.PathLike | None) -> pathlib.Path:
  """The folder of the data, that of TFDS if None."""
  if data_dir is None:
    default = os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    return pathlib.Path(default).expanduser()
  root = pathlib.Path(data_dir).expanduser()
  if not root.is_dir():
    raise ValueError(f"data_dir={str(data_dir)!r}: must be an existing folder")
  return root


def _prepared(name: str, root: pathlib.Path) -> pathlib.Path | None:
  """The folder of the newest version in array_record format, or None."""
  prepared = [
    folder
    for folder in root.glob(f"{name}/*")
    if re.fullmatch(r"\d+\.\d+\.\d+", folder.name)
    and (folder / "dataset_info.json").is_file()
    and _splits(name, folder)
  ]
  return max(prepared, key=_version, default=None)


def _version(folder: pathlib.Path) -> list[int]:
  return [int(part) for part in folder.name.split(".")]


def _splits(name: str, folder: pathlib.Path) -> list[str]:
  files = folder.glob(f"{name}-*.array_record*")
  return sorted({f.name[len(name) + 1 :].split(".")[0] for f in files})


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
  tfds, kept = _import()[0], []
  try:
    with _quiet():
      source = tfds.data_source(
        f"{folder.parent.name}:{folder.name}",
        split=split,
        data_dir=folder.parent.parent,
        download=False,
        decoders={name: tfds.decode.SkipDecoding() for name in undecoded},
      )
      for start in range(0, len(source), _RECORDS_PER_READ):
        keys = range(start, min(start + _RECORDS_PER_READ, len(source)))
        kept += map(take, source.__getitems__(keys))
  except Exception as error:  # Damaged files fail in many ways.
    raise ValueError(
      f"{folder} cannot be read ({first_line(error)}); replace its files, or "
      "delete the folder to download them again"
    ) from error
  if not kept:
    raise ValueError(
      f"{folder} has no records of split {split!r}; replace its files, or "
      "delete the folder to download them again"
    )
  return kept


def _decode(folder: pathlib.Path, split: str) -> dict[str, np.ndarray]:
  _, image_lib = _import()

  def take(record):
    with image_lib.open(io.BytesIO(record["image"])) as image:
      return np.atleast_3d(np.asarray(image)), record["label"]

  # Pillow alone is faster than TFDS's decoder. And the pixels do not depend on
  # whether OpenCV is installed, which TFDS would use.
  found = read(folder, split, take, ["image"])
  images, labels = zip(*found, strict=True)
  return {"x": np.stack(images), "y": np.array(labels, np.int32)}


def _download(name: str, root: pathlib.Path) -> pathlib.Path:
  """Downloads and prepares a data set by TFDS; returns its folder."""
  tfds, _ = _import()
  import requests  # Comes with TFDS.

  with _quiet():
    builder = tfds.builder(name, data_dir=root)
  folder = root / name / str(builder.version)
  wanted = f"put {name}-train.array_record* and TFDS's other files in {folder}"
  lacking = (
    f"data_dir={str(root)!r}: does not hold {name} in array_record format"
  )
  if folder.exists() and any(folder.iterdir()):
    # TFDS would regard the folder as complete and prepare nothing.
    raise ValueError(
      f"{lacking}, but {folder} exists with other files (such as tfrecord, "
      f"which need TensorFlow): give an empty data_dir, or {wanted}"
    )
  address = (SOURCES | TEXT_SOURCES)[name]
  try:
    # Fails within seconds, where TFDS tries again for minutes.
    requests.head(address, timeout=10)
  except requests.RequestException as error:
    raise ValueError(
      f"{lacking} and {address} cannot be reached to download it: {wanted}"
    ) from error
  try:
    with _quiet(), _without_tensorflow(builder):
      builder.download_and_prepare(file_format="array_record")
  except Exception as error:
    raise ValueError(
      f"{lacking} and preparing it from {address} failed "
      f"({first_line(error)}): try again, or {wanted}"
    ) from error
  return folder


@contextlib.contextmanager
def _without_tensorflow(builder: Any) -> Iterator[None]:
  """Lets TFDS prepare a data set of images or texts without TensorFlow.

  For these data sets TFDS uses TensorFlow to open local files and to encode
  PNG, and for nothing else. Python's `open` and Pillow replace it.
  """
  from PIL import Image
  from tensorflow_datasets.core import shuffle

  generate = builder._generate_examples

  def generate_pillow_images(*args, **kwargs):
    for key, record in generate(*args, **kwargs):
      if "image" not in record:
        yield key, record
        continue
      pixels = np.squeeze(record["image"])  # [h, w, 1] -> [h, w]: greyscale.
      yield key, {**record, "image": Image.fromarray(pixels)}

  gfile = types.SimpleNamespace(
    GFile=open,
    exists=os.path.exists,
    isdir=os.path.isdir,
    remove=os.remove,
  )
  stand_in = types.SimpleNamespace(io=types.SimpleNamespace(gfile=gfile))
  modules = [sys.modules[type(builder).__module__], shuffle]
  modules = [module for module in modules if hasattr(module, "tf")]
  originals = [module.tf for module in modules]
  builder._generate_examples = generate_pillow_images
  try:
    for module in modules:
      module.tf = stand_in
    yield
  finally:
    for module, original in zip(modules, originals, strict=True):
      module.tf = original


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
  """Hides TFDS's log lines below errors."""
  verbosity = logging.get_verbosity()
  logging.set_verbosity(logging.ERROR)
  try:
    yield
  finally:
    logging.set_verbosity(verbosity)


def _import() -> tuple[Any, Any]:
  """Imports TFDS and Pillow; with cached images neither is needed."""
  try:
    import array_record  # noqa: F401
    import importlib_resources  # noqa: F401
    import tensorflow_datasets as tfds
    from PIL import Image
  except ImportError as error:
    raise ValueError(
      f"reading a TFDS data set needs the package {error.name}: "
      "pip install 'fedjax_opt[tfds]'"
    ) from error
  return tfds, Image
