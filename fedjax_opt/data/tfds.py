"""Data sets in TensorFlow Datasets' format, read without TensorFlow."""

import contextlib
import hashlib
import io
import os
import pathlib
import re
import sys
import types
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from absl import logging

__all__ = [
  "SOURCES",
  "TEXT_SOURCES",
  "load",
  "load_text",
]

# Data sets that `load` accepts -> the address from which TFDS downloads them.
SOURCES = {
  "mnist": "https://storage.googleapis.com/cvdf-datasets/mnist/",
  "fashion_mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
  "cifar10": "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
  "cifar100": "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
  "svhn_cropped": "http://ufldl.stanford.edu/housenumbers/",
}
# Likewise those that `load_text` accepts.
TEXT_SOURCES = {
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
  root, folder, files = _files(name, split, data_dir, SOURCES)
  cache = _cache_file(name, folder.name, split, files)
  examples = _read_cache(cache)
  if examples is None:
    examples = _decode(name, folder.name, split, root)
    _write_cache(cache, examples)
  return examples


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
  root, folder, _ = _files(name, split, data_dir, TEXT_SOURCES)
  tfds, _ = _import()
  with _told_as_unreadable(folder), _quiet():
    source = tfds.data_source(
      f"{name}:{folder.name}", split=split, data_dir=root, download=False
    )
    records = source.__getitems__(range(len(source)))
    text = lambda v: v.decode() if isinstance(v, bytes) else v
    return [{k: text(v) for k, v in record.items()} for record in records]


def _files(
  name: str,
  split: str,
  data_dir: str | os.PathLike | None,
  sources: Mapping[str, str],
) -> tuple[pathlib.Path, pathlib.Path, list[pathlib.Path]]:
  """The root, the data set's folder in it, and the files of the split."""
  if name not in sources:
    raise ValueError(
      f"unknown TFDS data set {name!r}; accepted: {', '.join(sources)}"
    )
  root = _root(data_dir)
  folder = _prepared(name, root) or _download(name, root, sources[name])
  files = sorted(folder.glob(f"{name}-{split}.array_record*"))
  if not files:
    raise ValueError(
      f"split={split!r} of {name} is not in {folder}, which holds "
      f"{', '.join(_splits(name, folder))}"
    )
  return root, folder, files


def _root(data_dir: str | os.PathLike | None) -> pathlib.Path:
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


def _cache_file(
  name: str, version: str, split: str, files: list[pathlib.Path]
) -> pathlib.Path:
  stats = [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files]
  digest = hashlib.sha256(repr(stats).encode()).hexdigest()[:16]
  home = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
  folder = home.expanduser() / "fedjax_opt"
  return folder / f"{name}-{version}-{split}-{digest}.npz"


def _read_cache(cache: pathlib.Path) -> dict[str, np.ndarray] | None:
  try:
    with np.load(cache, allow_pickle=False) as file:
      return {"x": file["x"], "y": file["y"]}
  except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
    return None  # Absent or damaged: to be decoded again.


def _write_cache(cache: pathlib.Path, examples: dict[str, np.ndarray]) -> None:
  partial = cache.with_name(f"{cache.name}.{os.getpid()}.partial")
  try:
    cache.parent.mkdir(parents=True, exist_ok=True)
    with open(partial, "wb") as file:
      np.savez(file, **examples)
    os.replace(partial, cache)
  except OSError as error:
    logging.warning("Decoded images are not cached: %s", error)
  finally:
    with contextlib.suppress(OSError):
      partial.unlink(missing_ok=True)


def _decode(
  name: str, version: str, split: str, root: pathlib.Path
) -> dict[str, np.ndarray]:
  tfds, image_lib = _import()
  with _told_as_unreadable(root / name / version), _quiet():
    source = tfds.data_source(
      f"{name}:{version}",
      split=split,
      data_dir=root,
      download=False,
      # Pillow alone is faster than TFDS's decoder. And the pixels do not
      # depend on whether OpenCV is installed, which TFDS would use.
      decoders={"image": tfds.decode.SkipDecoding()},
    )
    shape = source.dataset_info.features["image"].shape
    x = np.empty((len(source), *shape), np.uint8)
    y = np.empty(len(source), np.int32)
    for start in range(0, len(source), _RECORDS_PER_READ):
      keys = range(start, min(start + _RECORDS_PER_READ, len(source)))
      for key, record in zip(keys, source.__getitems__(keys), strict=True):
        with image_lib.open(io.BytesIO(record["image"])) as image:
          x[key] = np.asarray(image).reshape(shape)
        y[key] = record["label"]
  return {"x": x, "y": y}


@contextlib.contextmanager
def _told_as_unreadable(folder: pathlib.Path) -> Iterator[None]:
  """Whatever is raised while files are read becomes one line."""
  try:
    yield
  except Exception as error:  # Damaged files fail in many ways.
    raise ValueError(
      f"{folder} cannot be read ({_first_line(error)}); replace its files, or "
      "delete the folder to download them again"
    ) from error


def _download(name: str, root: pathlib.Path, url: str) -> pathlib.Path:
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
  try:
    # Fails within seconds, where TFDS tries again for minutes.
    requests.head(url, timeout=10)
  except requests.RequestException as error:
    raise ValueError(
      f"{lacking} and {url} cannot be reached to download it: {wanted}"
    ) from error
  try:
    with _quiet(), _without_tensorflow(builder):
      builder.download_and_prepare(file_format="array_record")
  except Exception as error:
    raise ValueError(
      f"{lacking} and preparing it from {url} failed "
      f"({_first_line(error)}): try again, or {wanted}"
    ) from error
  return folder


@contextlib.contextmanager
def _without_tensorflow(builder: Any) -> Iterator[None]:
  """Lets TFDS prepare a data set of this module without TensorFlow.

  For these data sets TFDS uses TensorFlow to open local files and to encode
  PNG, and for nothing else. Python's `open` and Pillow replace it.
  """
  from PIL import Image
  from tensorflow_datasets.core import shuffle

  generate = builder._generate_examples

  def generate_pillow_images(*args, **kwargs):
    for key, record in generate(*args, **kwargs):
      if "image" in record:
        pixels = np.squeeze(record["image"])  # [h, w, 1] -> [h, w]: greyscale.
        record = {**record, "image": Image.fromarray(pixels)}
      yield key, record

  gfile = types.SimpleNamespace(
    GFile=open,
    exists=os.path.exists,
    isdir=os.path.isdir,
    remove=os.remove,
  )
  stand_in = types.SimpleNamespace(io=types.SimpleNamespace(gfile=gfile))
  modules = [sys.modules[type(builder).__module__], shuffle]
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


def _first_line(error: Exception) -> str:
  lines = str(error).strip().splitlines() or [type(error).__name__]
  return lines[0]
