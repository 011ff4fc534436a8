"""Tasks of classifying one's own data, which a NumPy .npz file holds.

Its arrays, N examples of C classes:
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
from typing import Any

import numpy as np

from experiments.tasks import base, images
from experiments.tasks.base import TEST_FRACTION, Task, TaskChoice
from experiments.tasks.classification import Examples
from fedjax_opt.data import npz_files
from fedjax_opt.data.clients import owned_by
from fedjax_opt.data.pools import OWNERSHIP, check_examples, check_labels
from fedjax_opt.registry import Hyperparameter

# If all pixels are below this, they are hardly bytes of images.
_DARK = 64
_OTHER_NAMES = {"x_train": "x", "y_train": "y"}
_TEST = {"x_test": "x", "y_test": "y"}
_KNOWN = ("x", "y", "client_ids", "x_test", "y_test", "num_classes")


# What the names of the arrays say, before the file is read.


def resolve(flag_values: Mapping[str, Any]) -> dict[str, Any]:
  """The test fraction: 0 if the file has a test part.

  Args:
    flag_values: of all flags; None where not given.

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


# The task.


def load(
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
    test_fraction: share of the examples that is held out, unless the file has
      a test part.
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


def _read(path: str) -> images.Pool:
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
  return images.Pool(train, test, num_classes, clients)


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
  of_clients = set(OWNERSHIP) & set(arrays)
  if of_clients not in (set(), {"client_ids"}, {"indices", "sizes"}):
    raise ValueError(
      f"has {', '.join(sorted(of_clients))}; must be client_ids alone, or "
      "indices and sizes"
    )
  for name in set(arrays) - {*_KNOWN, *OWNERSHIP}:
    raise ValueError(
      f"has an array {name!r}, which means nothing here; must be among "
      f"{', '.join(_KNOWN)}"
    )


def _examples(x: np.ndarray, y: np.ndarray) -> Examples:
  """x as the models take it, and labels whose range is not yet checked."""
  x = check_examples({"x": x, "y": y})["x"]
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
    x: of the test examples.
    file: of the data.
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


# The entries of the registry.

_TEST_FRACTION = Hyperparameter(
  "test_fraction",
  None,
  "fraction of the examples of data_file that is held out of training as the "
  "test part, at random and of each class or client alike, the same for all "
  "seeds (by default 0.2, or 0 if the file has a test part)",
  "[0, 1)",
)
TASKS: dict[str, TaskChoice] = {
  f"npz_{name}": TaskChoice(
    functools.partial(load, model=name),
    f"your own data in data_file, {model.help}",
    (_TEST_FRACTION, *images.options(name)),
    takes=("data_file",),
    needs={"data_file": "a .npz file with the arrays x [N, ...] and y [N]"},
    has_clients=has_clients,
    resolve=resolve,
    is_convex=model.is_convex,
    label=f"NPZ {model.label}",
  )
  for name, model in images.MODELS.items()
}
