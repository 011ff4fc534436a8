"""Tasks of classifying a user's own images, with a folder for each class."""

import functools

from experiments.tasks import images
from experiments.tasks.base import TEST_FRACTION, Task, TaskChoice
from fedjax_opt.checks.fields import integer
from fedjax_opt.datasets.image_folders import image_folder
from fedjax_opt.registry import Hyperparameter


def load(
  model: str,
  data_dir: str | None = None,
  image_side: int | None = None,
  test_fraction: float = TEST_FRACTION,
  augmentation: str = "none",
  norm: str = "group",
) -> Task:
  """Reads the images, and makes a model of `images.MODELS` for them.

  Args:
    model: key of `images.MODELS`.
    data_dir: see `image_folder`.
    image_side: height and width to which images are scaled; None to keep them.
    test_fraction: share of the images held out, where there is no `test`.
    augmentation: see `images.load`.
    norm: see `images.load`.

  Raises:
    ValueError: if the images cannot be read, or do not fit the model.
  """
  data = image_folder(data_dir, image_side)
  origin = "drawn at random" if data.test is None else "of the folder test"
  pool = images.Pool(data.train, data.test, len(data.classes))
  task = pool.with_test(test_fraction).task(model, augmentation, norm)
  classes = ", ".join(data.classes[:6]) + ", ..." * (len(data.classes) > 6)
  number, shape = len(task.train["y"]), list(task.train["x"].shape[1:])
  note = f"images: {number:,} to train, {shape}, of the classes {classes}"
  return task._replace(
    notes=(note, f"test part: {len(task.test['y']):,} images, {origin}")
  )


_OPTIONS = (
  Hyperparameter(
    "image_side",
    None,
    "height and width in pixels to which the images of data_dir are scaled; "
    "needed if they differ in size",
    integer(1, most=4096),
  ),
  Hyperparameter(
    "test_fraction",
    TEST_FRACTION,
    "fraction of the images that is held out of training as the test part, if "
    "data_dir has no folder test",
    "(0, 1)",
  ),
)
TASKS: dict[str, TaskChoice] = {
  f"images_{name}": TaskChoice(
    functools.partial(load, name),
    f"your own images in data_dir, {model.help}",
    (*_OPTIONS, *images.options(name)),
    needs={"data_dir": "a folder with a folder of images for each class"},
    is_convex=model.is_convex,
    label=f"images {model.label}",
  )
  for name, model in images.MODELS.items()
}
