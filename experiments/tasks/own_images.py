"""Tasks of classifying one's own images: a NumPy .npz file, or a folder.

The folder has a folder for each class. The arrays of the file, N examples of C
classes:
  x [N, H, W, ch], [N, H, W] or [N, d]   uint8 is divided by 255, others are
                                         taken as they are
  y [N]                                  whole numbers from 0
  client_ids [N]                         if given, the client of each example:
                                         whole numbers or words
  x_test, y_test                         if given, the test part
  num_classes                            if given, C; else it is the largest
                                         label plus 1
x_train and y_train may stand for x and y. Also read are the files of
`ClientData.to_npz`, with indices and sizes in place of client_ids.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.tasks import base, images
from experiments.tasks.base import SEED_OF_TEST, TEST_FRACTION, Task, TaskEntry
from experiments.tasks.classification import Examples
from fedjax_opt.checks import fields
from fedjax_opt.checks.errors import reworded_errors
from fedjax_opt.data import npz_files
from fedjax_opt.data.clients import ClientData, owned_by
from fedjax_opt.data.pools import OWNERSHIP, check_labels, checked_examples
from fedjax_opt.datasets.image_folders import image_folder
from fedjax_opt.registry import documented

# Models that flatten their input, and so take vectors too.
_TAKE_VECTORS = ("logistic", "mlp", "relu_mlp")
# If all pixels are below this, they are hardly bytes of images.
_DARK = 64
_OTHER_NAMES = {"x_train": "x", "y_train": "y"}
_TEST = {"x_test": "x", "y_test": "y"}
_KNOWN = ("x", "y", "client_ids", "x_test", "y_test", "num_classes")


class Pool(NamedTuple):
  """A user's own examples, as they were read.

  Attributes:
    train: examples, all of the same types and shapes.
    test: the test part; None if there is none.
    num_classes: labels are below it.
    clients: who has which training example; None if nothing says so.
  """

  train: Examples
  test: Examples | None
  num_classes: int
  clients: ClientData | None = None

  def with_test(self, fraction: float) -> "Pool":
    """Holds a part out as the test part, if there is none."""
    if self.test is not None:
      return self
    with reworded_errors(fraction="test_fraction"):
      training, test = base.split_examples(
        self.clients, self.train, fraction, SEED_OF_TEST, in_order=True
      )
    return self._replace(**training, test=test)

  def task(self, name: str, augmentation: str, norm: str) -> Task:
    """The task of a model of `images.MODELS`, if it can take the examples.

    Raises:
      ValueError: if it cannot.
    """
    x = self.train["x"]
    shape = list(x.shape[1:])
    if x.ndim == 2 and name not in _TAKE_VECTORS:
      raise ValueError(
        f"x has shape [N, {shape[0]}], but model {name} needs images [N, H, W] "
        "or [N, H, W, channels]; give --task=npz_mlp or npz_logistic"
      )
    if x.ndim == 2 and augmentation != "none":
      raise ValueError(
        f"x has shape [N, {shape[0]}], so no images to crop; leave "
        "augmentation out"
      )
    dataset = images.Images(
      help="",
      num_classes=self.num_classes,
      mean=(0.0,),
      std=(1.0,),
      largest=255.0 if x.dtype == np.uint8 else 1.0,
      side=min(shape[:2]) if x.ndim == 4 else 1,
    )
    task = images.classification(
      images.model_of(name, dataset, norm),
      dataset,
      self.train,
      self.test,
      augmentation,
      clients=self.clients,
    )
    least_side = images.MODELS[name].least_side if x.ndim == 4 else 1
    if dataset.side < least_side or not _takes(task, self.train):
      raise ValueError(
        f"x has images of shape {shape}, too small for model {name}; give "
        "--task=npz_mlp or another, or larger images"
      )
    return task


def _takes(task: Task, examples: Examples) -> bool:
  """Whether the model of a task can compute the loss of such examples."""
  loss = lambda batch: task.loss_fn(task.init(jax.random.key(0)), batch, None)
  try:
    jax.eval_shape(
      loss, {name: values[:1] for name, values in examples.items()}
    )
  except Exception:  # Whatever a layer makes of too small an image.
    return False
  return True


# A file: what the names of its arrays say, before it is read.


def resolve(flag_values: Mapping[str, Any]) -> dict[str, Any]:
  """The test fraction: 0 if the file has a test part.

  Args:
    flag_values: the values of all flags; None where not given.

  Raises:
    ValueError: if there is no such file, or the fraction does not suit it.
  """
  file, fraction = flag_values["data_file"], flag_values["test_fraction"]
  has_test = _holds(file, _TEST)
  if has_test and fraction:
    raise ValueError(
      f"test_fraction={fraction:g}: {file} has a test part of its own; leave "
      "test_fraction out"
    )
  if not has_test and fraction == 0:
    raise ValueError(
      f"test_fraction=0: {file} has no x_test and y_test; must be above 0"
    )
  default = 0.0 if has_test else TEST_FRACTION
  return {"test_fraction": default if fraction is None else fraction}


def has_clients(flag_values: Mapping[str, Any]) -> bool:
  """Whether the file says which examples each client has."""
  return _holds(flag_values["data_file"], OWNERSHIP)


def _holds(file: str, names: Any) -> bool:
  """Whether a file holds an array of one of these names."""
  with base.reading(file) as path:
    return bool(set(names) & set(npz_files.names(path)))


@fields.checked(test_fraction="[0, 1)")
def load_file(
  data_file: str,
  model: str,
  test_fraction: float,
  augmentation: str = "none",
  norm: str = "group",
) -> Task:
  """Reads the file, and makes a model of `images.MODELS` for it.

  Args:
    data_file: path of the file.
    model: key of `images.MODELS`.
    test_fraction: fraction of the examples of data_file that is for tests,
      drawn from each class or client; by default 0.2, or 0 if the file has a
      test part.
    augmentation: see `images.load`.
    norm: see `images.load`.

  Raises:
    ValueError: if the file does not hold what it must.
  """
  with base.reading(data_file) as path:
    pool = _read(path).with_test(test_fraction)
    task = pool.task(model, augmentation, norm)
  notes = _notes(task.test["x"], data_file, test_fraction)
  return task._replace(notes=notes)


def _read(path: str) -> Pool:
  """What the arrays of a file say."""
  arrays = npz_files.read(path)
  for other, name in _OTHER_NAMES.items():
    if {other, name} <= set(arrays):
      raise ValueError(f"has both {name} and {other}; give one of them")
  arrays = {_OTHER_NAMES.get(n, n): values for n, values in arrays.items()}
  _check_names(arrays)
  train, test = _examples(arrays["x"], arrays["y"]), _test_part(arrays)
  num_classes = _num_classes(arrays, train, test)
  owners = {name: arrays[name] for name in OWNERSHIP if name in arrays}
  clients = owned_by(train, owners, num_classes) if owners else None
  return Pool(train, test, num_classes, clients)


def _check_names(arrays: Mapping[str, np.ndarray]) -> None:
  """Checks that the file has x and y, and no array that would not be read."""
  for name in ("x", "y"):
    if name not in arrays:
      names = ", ".join(arrays) or "nothing"
      raise ValueError(f"has no array {name}; it holds {names}")
  test = [name for name in _TEST if name in arrays]
  if len(test) == 1:
    (missing,) = set(_TEST) - set(test)
    raise ValueError(f"has {test[0]} without {missing}; give both or none")
  names_of_owners = set(OWNERSHIP) & set(arrays)
  if names_of_owners not in (set(), {"client_ids"}, {"indices", "sizes"}):
    raise ValueError(
      f"has {', '.join(sorted(names_of_owners))}; must be client_ids alone, or "
      "indices and sizes"
    )
  for name in set(arrays) - {*_KNOWN, *OWNERSHIP}:
    raise ValueError(
      f"has an array {name!r}, which means nothing here; must be among "
      f"{', '.join(_KNOWN)}"
    )


def _examples(x: np.ndarray, y: np.ndarray) -> Examples:
  """x as the models take it, and labels whose range is not yet checked."""
  x = checked_examples({"x": x, "y": y})["x"]
  check_labels({"y": y}, np.iinfo(np.int32).max)
  if x.dtype.kind == "c" or not 2 <= x.ndim <= 4:
    raise ValueError(
      f"x must be numbers of shape [N, d], [N, H, W] or [N, H, W, channels], "
      f"got {x.dtype} {list(x.shape)}"
    )
  if 0 in x.shape:
    raise ValueError(f"x must not be empty, got shape {list(x.shape)}")
  if x.ndim == 3:
    x = x[..., None]
  if x.dtype != np.uint8:
    x = x.astype(np.float32)
  return {"x": x, "y": y.astype(np.int32)}


def _test_part(arrays: Mapping[str, np.ndarray]) -> Examples | None:
  """The test part, of the same types and shapes; None if there is none."""
  if "x_test" not in arrays:
    return None
  x_test, x = arrays["x_test"], arrays["x"]
  if x_test.shape[1:] != x.shape[1:] or x_test.ndim != x.ndim:
    raise ValueError(
      f"x_test has examples of shape {list(x_test.shape[1:])}; must be "
      f"{list(x.shape[1:])} as in x"
    )
  if (x_test.dtype == np.uint8) != (x.dtype == np.uint8):
    raise ValueError(
      f"x_test is {x_test.dtype} and x is {x.dtype}; must be alike, because "
      "only uint8 is divided by 255"
    )
  try:
    return _examples(x_test, arrays["y_test"])
  except ValueError as error:
    raise ValueError(f"in the test part, {error}") from None


def _num_classes(
  arrays: Mapping[str, np.ndarray], train: Examples, test: Examples | None
) -> int:
  """C, which all labels are below."""
  labels = [part["y"] for part in (train, test) if part is not None]
  least = 1 + max(int(y.max()) for y in labels)
  if "num_classes" not in arrays:
    if least > max(sum(map(len, labels)), 2):
      raise ValueError(
        f"labels y go to {least - 1}, more than there are examples; must be "
        "from 0, or give the array num_classes"
      )
    if len(np.unique(np.concatenate(labels))) == 1:
      raise ValueError(
        f"labels y are all {least - 1}; must be of at least two classes, or "
        "give the array num_classes"
      )
    return least
  array = arrays["num_classes"]
  if array.size != 1 or array.dtype.kind not in "iu" or array.item() < least:
    raise ValueError(
      f"num_classes must be one whole number of at least {least}, as the "
      f"labels are, got {np.array2string(array, threshold=5)}"
    )
  return max(array.item(), 2)


def _notes(x: np.ndarray, file: str, test_fraction: float) -> tuple[str, ...]:
  """Lines on what was done to the data.

  Args:
    x: the inputs of the test examples.
    file: the file of the data.
    test_fraction: what was held out of the file.
  """
  lines = []
  if test_fraction:
    lines.append(
      f"test part: {len(x):,} examples, {test_fraction:g} of {file}, held out "
      "at random"
    )
  if x.dtype == np.uint8 and x.max() < _DARK:
    lines.append(
      f"note: x of {file} is uint8, so divided by 255, but is at most "
      f"{x.max()}; for values up to 1 save x / {x.max()}"
    )
  return tuple(lines)


# A folder.


@fields.checked(image_side=fields.integer(1, most=4096), test_fraction="(0, 1)")
def load_folder(
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
    image_side: height and width in pixels to which the images of data_dir are
      scaled; needed if they differ in size.
    test_fraction: fraction of the images that is for tests, if data_dir has no
      folder test.
    augmentation: see `images.load`.
    norm: see `images.load`.

  Raises:
    ValueError: if the images cannot be read, or do not fit the model.
  """
  data = image_folder(data_dir, image_side)
  origin = "drawn at random" if data.test is None else "of the folder test"
  pool = Pool(data.train, data.test, len(data.classes))
  task = pool.with_test(test_fraction).task(model, augmentation, norm)
  classes = ", ".join(data.classes[:6]) + ", ..." * (len(data.classes) > 6)
  number, shape = len(task.train["y"]), list(task.train["x"].shape[1:])
  note = f"images: {number:,} to train, {shape}, of the classes {classes}"
  return task._replace(
    notes=(note, f"test part: {len(task.test['y']):,} images, {origin}")
  )


# The entries of the registry.

_OF_FILE: dict[str, TaskEntry] = {
  f"npz_{name}": TaskEntry(
    functools.partial(load_file, model=name),
    f"your own data in data_file, {model.help}",
    (
      *documented(load_file, test_fraction=None),
      *images.options(name),
    ),
    takes=("data_file",),
    needs={"data_file": "a .npz file with the arrays x [N, ...] and y [N]"},
    has_clients=has_clients,
    resolve=resolve,
    is_convex=model.is_convex,
    label=f"NPZ {model.label}",
  )
  for name, model in images.MODELS.items()
}
_OF_FOLDER: dict[str, TaskEntry] = {
  f"images_{name}": TaskEntry(
    functools.partial(load_folder, name),
    f"your own images in data_dir, {model.help}",
    (
      *documented(load_folder, "image_side", "test_fraction"),
      *images.options(name),
    ),
    needs={"data_dir": "a folder with a folder of images for each class"},
    is_convex=model.is_convex,
    label=f"images {model.label}",
  )
  for name, model in images.MODELS.items()
}
TASKS = _OF_FILE | _OF_FOLDER
