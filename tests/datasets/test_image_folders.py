"""Folders of images become examples, and what cannot is one line."""

import functools
import os

import numpy as np
import pytest

from fedjax_opt.datasets.image_folders import image_folder
from tests.helpers.refusals import refusal
from tests.helpers.tables_of_calls import read_cases

Image = pytest.importorskip("PIL.Image")
RNG = np.random.default_rng(0)


def _write(root, names, size=(5, 4), channels=(), kind=np.uint8, end=None):
  """Images of random pixels; their files are cut at the byte `end`."""
  for name in names:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = RNG.integers(0, 256, (*size, *channels)).astype(kind)
    Image.fromarray(pixels).save(path)
    path.write_bytes(path.read_bytes()[:end])


def test_classes_are_folders(tmp_path):
  _write(tmp_path, ["dog/1.png", "cat/2.png", "cat/1.bmp"])
  (tmp_path / "cat" / "notes.txt").write_text("not an image")
  images = image_folder(tmp_path)
  assert images.classes == ("cat", "dog")
  assert images.test is None
  assert images.train["x"].shape == (3, 5, 4, 1)
  assert images.train["y"].tolist() == [0, 0, 1]
  image = np.asarray(Image.open(tmp_path / "cat" / "1.bmp"))
  np.testing.assert_array_equal(images.train["x"][0, ..., 0], image)


def test_a_test_part_and_colours(tmp_path):
  _write(tmp_path, ["train/a/1.png", "train/b/1.png", "test/b/1.png"])
  _write(tmp_path, ["test/a/1.png"], (8, 8), (3,))
  images = image_folder(tmp_path, side=6)
  assert images.train["x"].shape == images.test["x"].shape == (2, 6, 6, 3)
  assert images.with_test(0.5) is images


def test_a_part_is_held_out(tmp_path):
  _write(tmp_path, [f"{c}/{i}.png" for c in "ab" for i in range(5)])
  images = image_folder(tmp_path).with_test(0.4)
  assert np.bincount(images.test["y"]).tolist() == [2, 2]


def test_photos_are_as_they_were_taken(tmp_path):
  _write(tmp_path, ["a/1.png", "b/1.png"], (5, 4), (3,))
  (tmp_path / "a" / "._1.png").write_bytes(b"of a file system")
  (tmp_path / "__MACOSX").mkdir()
  pixels = RNG.integers(0, 256, (4, 5, 2)).astype(np.uint8)
  image = Image.fromarray(pixels)  # Gray, with alpha.
  exif = image.getexif()
  exif[274] = 6  # To be turned by 90 degrees.
  image.save(tmp_path / "b" / "2.png", exif=exif)
  images = image_folder(tmp_path)
  assert images.train["x"].shape == (3, 5, 4, 3)
  turned = np.rot90(pixels[..., 0], -1)
  np.testing.assert_array_equal(images.train["x"][2, ..., 0], turned)


def test_a_palette_may_have_an_alpha(tmp_path):
  _write(tmp_path, ["a/1.png", "b/1.png"], (5, 4), (3,))
  pixels = RNG.integers(0, 256, (5, 4, 3)).astype(np.uint8)
  image = Image.fromarray(pixels).quantize(16)
  image.save(tmp_path / "b" / "2.png", transparency=bytes([0, 128]))
  pixels_read = image_folder(tmp_path).train["x"][2]
  np.testing.assert_array_equal(pixels_read, np.asarray(image.convert("RGB")))


@pytest.mark.parametrize(
  ("files", "message"), read_cases("datasets/bad_files.txt", "images")
)
def test_what_is_no_folder_of_images_is_one_line(tmp_path, files, message):
  write = functools.partial(_write, tmp_path)
  eval(files, {"root": tmp_path, "write": write, "np": np})
  assert message in refusal(image_folder, tmp_path)


def _saved(tmp_path, names=("no", "yes"), **parts):
  pytest.importorskip("datasets.arrow_dataset")
  import datasets

  features = datasets.Features(
    {
      "photo": datasets.Image(),
      "writer": datasets.Value("int64"),
      "sick": datasets.ClassLabel(names=list(names)),
    }
  )
  parts_saved = {
    part: datasets.Dataset.from_dict(
      {
        "photo": [
          None if pixels is None else Image.fromarray(pixels)
          for pixels in images
        ],
        "writer": list(range(len(labels))),
        "sick": labels,
      },
      features,
    )
    for part, (images, labels) in parts.items()
  }
  if set(parts_saved) == {"train"}:
    parts_saved["train"].save_to_disk(tmp_path / "saved")
  else:
    datasets.DatasetDict(parts_saved).save_to_disk(tmp_path / "saved")
  return tmp_path / "saved"


def _photos(number, size=(5, 4)):
  return RNG.integers(0, 256, (number, *size, 3)).astype(np.uint8)


def test_images_of_hugging_face(tmp_path):
  photos, test_x = _photos(3), _photos(2)
  folder = _saved(tmp_path, train=(photos, [1, 0, 1]), test=(test_x, [0, 1]))
  images = image_folder(folder)
  assert images.classes == ("no", "yes")
  np.testing.assert_array_equal(images.train["x"], photos)
  assert images.train["y"].tolist() == [1, 0, 1]
  np.testing.assert_array_equal(images.test["x"], test_x)
  assert images.test["y"].tolist() == [0, 1]


@pytest.mark.parametrize(
  ("parts", "message"), read_cases("datasets/bad_files.txt", "hugging face")
)
def test_refused_images_of_hugging_face(tmp_path, parts, message):
  folder = _saved(tmp_path, **eval(parts, {"photos": _photos}))
  assert message in refusal(image_folder, folder)


def test_hugging_face_without_images(tmp_path):
  pytest.importorskip("datasets.arrow_dataset")
  import datasets

  part = datasets.Dataset.from_dict({"age": [1, 2]})
  part.save_to_disk(tmp_path / "saved")
  message = refusal(image_folder, tmp_path / "saved")
  assert "has 0 columns of the kind Image; must have one" in message
  os.mkfifo(tmp_path / "saved" / "pipe")
  assert "'pipe' is no file" in refusal(image_folder, tmp_path / "saved")
  (tmp_path / "saved" / "pipe").unlink()
  (tmp_path / "saved" / "state.json").write_text("{")
  message = refusal(image_folder, tmp_path / "saved")
  assert "cannot be read" in message


@pytest.mark.parametrize(
  ("saved", "message"),
  [
    ({"bytes": None, "path": None}, "row 1 of train: has no image"),
    (
      {"bytes": None, "path": "a\0b"},
      "row 1 of train: cannot be read (embedded null byte)",
    ),
  ],
)
def test_an_image_of_hugging_face_that_is_nowhere(tmp_path, saved, message):
  pytest.importorskip("datasets.arrow_dataset")
  import pyarrow

  folder = _saved(tmp_path, train=(_photos(2), [0, 1]))
  path = next(folder.glob("*.arrow"))
  table = pyarrow.ipc.open_stream(path.read_bytes()).read_all()
  column = table.schema.get_field_index("photo")
  rows = [table["photo"][0].as_py(), saved]
  images = pyarrow.array(rows, table.schema.field("photo").type)
  table = table.set_column(column, table.schema.field("photo"), images)
  with pyarrow.ipc.new_stream(path, table.schema) as file:
    file.write_table(table)
  assert message in refusal(image_folder, folder)
