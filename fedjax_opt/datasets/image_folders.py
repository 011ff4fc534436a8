"""One's own images as pools of examples.

There is a folder for each class, or Hugging Face's `datasets` has saved them.
"""

import io
import os
import pathlib
import warnings
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fedjax_opt.checks import errors, memory
from fedjax_opt.checks.fields import Count, checked
from fedjax_opt.data import hold_out
from fedjax_opt.datasets.files import existing_folder, saved_data_set

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")
# Other images; without a word they would be missing.
_OTHERS = (".avif", ".heic", ".heif", ".jfif", ".jp2", ".pgm", ".ppm", ".tga")
_SPLITS = ("train", "test")
# A folder with one of these files was saved by `datasets`.
_SAVED = ("dataset_dict.json", "state.json")
_EXTRA = "fedjax_opt[tfds]"
# The formats that are read: to read some others, Pillow starts programs.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP")


class ImageFolder(NamedTuple):
  """Images and their classes.

  Attributes:
    train: {"x": [N, H, W, 1 or 3] uint8, "y": [N] int32}.
    test: as `train`, of the part `test`; None if there is none.
    classes: their names, in the order of the labels.
  """

  train: dict[str, np.ndarray]
  test: dict[str, np.ndarray] | None
  classes: tuple[str, ...]

  def with_test(self, fraction: float, seed: int = 0) -> "ImageFolder":
    """Holds a part of `train` out as `test`, if there is none.

    Args:
      fraction: of the images, in (0, 1).
      seed: of the draw.

    Returns:
      Itself, or one with a test part.

    Raises:
      ValueError: if the fraction is outside (0, 1).
    """
    if self.test is not None:
      return self
    train, test = hold_out(self.train, fraction, seed)
    return self._replace(train=train, test=test)


class _Image(NamedTuple):
  """An image that has not been decoded.

  Attributes:
    name: of its file or row, in messages.
    source: its file, or what is in it.
    label: its class.
  """

  name: str
  source: pathlib.Path | io.BytesIO
  label: int


# Training examples, perhaps test examples; and the classes' names.
_Parts = tuple[list[list[_Image]], tuple[str, ...]]


@checked()
def image_folder(
  data_dir: str | os.PathLike, side: Count | None = None
) -> ImageFolder:
  """Reads `CLASS/NAME.png`, or `train/CLASS/NAME.png` and `test/CLASS/...`.

  Also reads what `save_to_disk` of Hugging Face's `datasets` made, if it has
  one column of images and one of class labels. Images are gray if all are, else
  RGB.

  Args:
    data_dir: the folder.
    side: height and width to which images are scaled; None if all have one
      size.

  Returns:
    The images.

  Raises:
    ValueError: if there are no two classes, an image cannot be read, sizes
      differ, or the images do not fit into memory.
    ImportError: naming the package to install.
  """
  root = existing_folder(data_dir)
  is_saved = any((root / name).is_file() for name in _SAVED)
  parts, classes = _saved(root) if is_saved else _folders(root)
  images = [image for part in parts for image in part]
  size = None if side is None else (side, side)
  pixels = [_pixels(image, size, len(images)) for image in images]
  _check_sizes(images, pixels)
  channels = 3 if any(img.ndim == 3 for img in pixels) else 1
  x = np.stack(
    [
      img if img.ndim == 3 else np.repeat(img[..., None], channels, axis=-1)
      for img in pixels
    ]
  )
  y = np.array([image.label for image in images], np.int32)
  num_train = len(parts[0])
  train = {"x": x[:num_train], "y": y[:num_train]}
  test = {"x": x[num_train:], "y": y[num_train:]}
  return ImageFolder(train, test if len(parts) > 1 else None, classes)


def _saved(root: pathlib.Path) -> _Parts:
  """A data set of Hugging Face, or its parts `train` and perhaps `test`."""
  with errors.while_reading(root, "save it again", Exception):
    datasets, data_set = saved_data_set(root)
  by_name = data_set if isinstance(data_set, Mapping) else {"train": data_set}
  where = f"data_dir={str(root)!r}"
  if "train" not in by_name:
    raise ValueError(
      f"{where}: has the parts {', '.join(by_name)}; needs train"
    )
  features = by_name["train"].features
  image = _column(where, features, datasets.Image)
  label = _column(where, features, datasets.ClassLabel)
  classes = tuple(features[label].names)
  pairs = [(name, by_name[name]) for name in _SPLITS if name in by_name]
  for name, rows in pairs:
    if rows.features != features:
      raise ValueError(f"{where}: {name} has other columns than train")
    places = range(len(classes))
    if not len(rows) or not all(code in places for code in rows[label]):
      raise ValueError(f"{where}: {name} has no rows, or some without a label")
  encoded = datasets.Image(decode=False)
  where = lambda i, name: f"{root}: row {i} of {name}"
  parts = [
    [
      _Image(where(i, name), _source(where(i, name), row[image]), row[label])
      for i, row in enumerate(rows.cast_column(image, encoded))
    ]
    for name, rows in pairs
  ]
  return parts, classes


def _column(where: str, features: Mapping, kind: type) -> str:
  """The name of the only column of a kind."""
  names = [name for name, feat in features.items() if isinstance(feat, kind)]
  if len(names) != 1:
    raise ValueError(
      f"{where}: has {len(names)} columns of the kind {kind.__name__}; must "
      "have one"
    )
  return names[0]


def _source(name: str, record: Mapping | None) -> pathlib.Path | io.BytesIO:
  """An image as it was saved, in the data set or as a file beside it."""
  content, path = (record or {}).get("bytes"), (record or {}).get("path")
  if content is None and path is None:
    raise ValueError(f"{name}: has no image")
  return pathlib.Path(path) if content is None else io.BytesIO(content)


def _folders(root: pathlib.Path) -> _Parts:
  """A folder for each class."""
  folders = [root / name for name in _SPLITS]
  if not all(folder.is_dir() for folder in folders):
    folders = [root]
  elif others := [p for p in _visible(root) if p.is_dir() and p not in folders]:
    raise ValueError(
      f"data_dir={str(root)!r}: the folder {others[0].name!r} would not be "
      "read; move its images to 'train' or 'test', or remove it"
    )
  listings = [_files(folder) for folder in folders]
  classes = sorted(listings[0])
  for folder, listing in zip(folders, listings, strict=True):
    if len(listing) < 2:
      raise ValueError(
        f"data_dir={str(folder)!r}: has {len(listing)} folders with images; "
        "must have at least two, one for each class"
      )
    if set(listing) - set(classes):
      unknown = sorted(set(listing) - set(classes))[0]
      raise ValueError(
        f"data_dir={str(folder)!r}: {unknown!r} is no class of train"
      )
  parts = [
    [
      _Image(str(path), path, classes.index(name))
      for name, paths in listing.items()
      for path in paths
    ]
    for listing in listings
  ]
  return parts, tuple(classes)


def _files(folder: pathlib.Path) -> dict[str, list[pathlib.Path]]:
  """class -> its images. What begins with a dot is not the user's."""
  where, images = f"data_dir={str(folder)!r}", {}
  for path in _visible(folder):
    if _has_ending(path) and not path.is_dir():
      raise ValueError(
        f"{where}: {path.name!r} is an image beside the folders of classes; "
        "move it into one"
      )
    if path.is_dir():
      inside = _visible(path)
      if inner := next((entry.name for entry in inside if entry.is_dir()), ""):
        raise ValueError(
          f"{where}: the folder {path.name!r} has the folder {inner!r}, which "
          f"would not be read; {_remedy(folder, path.name)}"
        )
      for file in inside:
        if file.suffix.lower() in _OTHERS:
          raise ValueError(
            f"{where}: {path.name}/{file.name} would not be read; images must "
            f"be {', '.join(ENDINGS)}"
          )
      images[path.name] = [file for file in inside if _has_ending(file)]
      if not images[path.name]:
        raise ValueError(
          f"{where}: the folder {path.name!r} has no images; give it some or "
          "remove it"
        )
  return images


def _remedy(folder: pathlib.Path, name: str) -> str:
  """What to do with a folder of that name, which has folders."""
  absent = [part for part in _SPLITS if not (folder / part).is_dir()]
  if name.lower() not in _SPLITS or not absent:
    return "images must lie in the folder of their class"
  return (
    f"if it has folders of classes, {absent[0]!r} is missing beside it; "
    "without these two, data_dir itself must have the folders of classes"
  )


def _visible(folder: pathlib.Path) -> list[pathlib.Path]:
  return sorted(
    path for path in folder.iterdir() if not path.name.startswith((".", "__"))
  )


def _has_ending(path: pathlib.Path) -> bool:
  return path.suffix.lower() in ENDINGS


def _pixels(
  entry: _Image, size: tuple[int, int] | None, number: int
) -> np.ndarray:
  """An image as uint8, [H, W] if it is gray, [H, W, 3] if not.

  Args:
    entry: the image.
    size: width and height to which it is scaled; None for its own.
    number: of images that will be in memory, and then in an array.
  """
  pillow = errors.imported("PIL.ImageOps", "reading images", _EXTRA)
  if isinstance(entry.source, pathlib.Path):
    with errors.while_reading(entry.name, "an image is needed", ValueError):
      memory.check_is_file(entry.source)
  # Of any trouble, as of an image that declares more pixels than is sound.
  with (
    errors.while_reading(entry.name, "an image is needed", Exception),
    warnings.catch_warnings(action="error"),
    pillow.Image.open(entry.source, formats=_FORMATS) as image,
  ):
    if image.mode.startswith(("I", "F")):  # It would be cut off at 255.
      raise ValueError("it has more than 8 bits a pixel")
    is_gray = image.mode in ("1", "L", "LA")
    width, height = size or image.size
    memory.check_memory(
      f"{number} images of {width} x {height} pixels take",
      2 * number * width * height * (1 if is_gray else 3),
    )
    pillow.exif_transpose(image, in_place=True)  # As it was taken.
    if image.mode == "P":  # Its colours may have an alpha.
      image = image.convert("RGBA")
    image = image.convert("L" if is_gray else "RGB")
    if size is not None:
      image = image.resize(size, pillow.Image.Resampling.BILINEAR)
    return np.asarray(image)


def _check_sizes(images: list[_Image], pixels: list[np.ndarray]) -> None:
  """Checks that all images have the size of the first."""
  first = pixels[0].shape[:2]
  for image, array in zip(images, pixels, strict=True):
    if array.shape[:2] != first:
      raise ValueError(
        f"{image.name}: is {array.shape[1]} x {array.shape[0]} pixels, others "
        f"are {first[1]} x {first[0]}; give a side to scale all to"
      )
