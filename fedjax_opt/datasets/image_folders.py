"""Folders of images, a folder for each class, as pools of examples."""

import os
import pathlib
import warnings
from typing import NamedTuple

import numpy as np

from fedjax_opt.checks import values as checks
from fedjax_opt.checks.fields import checked, whole
from fedjax_opt.data import hold_out
from fedjax_opt.datasets.files import existing_folder
from fedjax_opt.files import memory

__all__ = ["ENDINGS", "ImageFolder", "image_folder"]

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")
_SPLITS = ("train", "test")
_EXTRA = "fedjax_opt[tfds]"
# What may be read: others of Pillow's start programs.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP")


class ImageFolder(NamedTuple):
  """Images and their classes.

  Attributes:
    train: {"x": [N, H, W, 1 or 3] uint8, "y": [N] int32}.
    test: as `train`, of the folder `test`; None if there is none.
    classes: the names of the folders, in the order of the labels.
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


@checked(side=whole(1))
def image_folder(
  data_dir: str | os.PathLike, side: int | None = None
) -> ImageFolder:
  """Reads `CLASS/NAME.png`, or `train/CLASS/NAME.png` and `test/CLASS/...`.

  Images are gray if all are, else RGB.

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
  parts = [root / name for name in _SPLITS]
  if not all(part.is_dir() for part in parts):
    parts = [root]
  of_parts = [_files(part) for part in parts]
  classes = sorted(of_parts[0])
  for part, of_class in zip(parts, of_parts, strict=True):
    if len(of_class) < 2:
      raise ValueError(
        f"data_dir={str(part)!r}: has {len(of_class)} folders with images; "
        "must have at least two, one for each class"
      )
    if set(of_class) - set(classes):
      other = sorted(set(of_class) - set(classes))[0]
      raise ValueError(
        f"data_dir={str(part)!r}: {other!r} is no class of train"
      )
  every = [path for part in of_parts for of in part.values() for path in of]
  size = None if side is None else (side, side)
  images = {path: _pixels(path, size, len(every)) for path in every}
  _check_sizes(images)
  number = 3 if any(image.ndim == 3 for image in images.values()) else 1
  for path, image in images.items():
    if image.ndim == 2:
      images[path] = np.repeat(image[..., None], number, axis=-1)
  pools = [
    {
      "x": np.stack(
        [images[path] for paths in of_class.values() for path in paths]
      ),
      "y": np.repeat(
        np.array([classes.index(name) for name in of_class], np.int32),
        [len(paths) for paths in of_class.values()],
      ),
    }
    for of_class in of_parts
  ]
  test = pools[1] if len(pools) > 1 else None
  return ImageFolder(pools[0], test, tuple(classes))


def _files(folder: pathlib.Path) -> dict[str, list[pathlib.Path]]:
  """class -> its images. What begins with a dot is not the user's."""
  is_hidden = lambda path: path.name.startswith((".", "__"))
  of_class = {
    each.name: sorted(
      path
      for path in each.iterdir()
      if path.suffix.lower() in ENDINGS and not is_hidden(path)
    )
    for each in sorted(folder.iterdir())
    if each.is_dir() and not is_hidden(each)
  }
  for name, paths in of_class.items():
    if not paths:
      raise ValueError(
        f"data_dir={str(folder)!r}: the folder {name!r} has no images; give it "
        "some or remove it"
      )
  return of_class


def _pixels(path, size, number):
  """An image as uint8, [H, W] if it is gray, [H, W, 3] if not.

  Args:
    path: of the image.
    size: width and height to which it is scaled; None for its own.
    number: of images that will be in memory, and then in an array.
  """
  pillow = checks.imported("PIL.ImageOps", "reading images", _EXTRA)
  with checks.reading(path, "an image is needed"):
    memory.check_is_file(path)
  # Of any trouble, as of an image that declares more pixels than is sound.
  with (
    checks.reading(path, "an image is needed", Exception),
    warnings.catch_warnings(action="error"),
    pillow.Image.open(path, formats=_FORMATS) as image,
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
    image = image.convert("L" if is_gray else "RGB")
    if size is not None:
      image = image.resize(size, pillow.Image.Resampling.BILINEAR)
    return np.asarray(image)


def _check_sizes(images: dict[pathlib.Path, np.ndarray]) -> None:
  """That all images have the size of the first."""
  first = next(iter(images.values())).shape[:2]
  for path, image in images.items():
    if image.shape[:2] != first:
      raise ValueError(
        f"{path}: is {image.shape[1]} x {image.shape[0]} pixels, others are "
        f"{first[1]} x {first[0]}; give a side to scale all to"
      )
