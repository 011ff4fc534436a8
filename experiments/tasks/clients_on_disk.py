"""Clients on disk: the examples held out of them, and how they fit a task."""

import contextlib
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from experiments.tasks.base import Task
from fedjax_opt import Population
from fedjax_opt.data import digest, population_files
from fedjax_opt.files import json_files
from fedjax_opt.files.checksums import read_with_checksum, with_checksum
from fedjax_opt.files.folders import user_path

_NAMES = ("validation_fraction", "validation_seed")
_TEST = "test_fraction"
_SETS = ("test", "validation")


@contextlib.contextmanager
def mark(
  folder: pathlib.Path, flag_values: Mapping[str, Any], task: Task
) -> Iterator[None]:
  """Writes which examples of the task the clients of a folder do not have.

  This mark is written before the clients, so that a kill leaves no clients
  without it. The code inside writes the clients; if it fails, the mark is
  removed.

  Args:
    folder: the clients' folder.
    flag_values: of which `task`, those of the validation part and
      `test_fraction` are used.
    task: what was held out has digests.
  """
  is_new, path = not folder.exists(), folder / population_files.NOTES
  notes = {name: flag_values.get(name) for name in ("task", *_NAMES, _TEST)}
  examples_by_set = {name: getattr(task, name) for name in _SETS}
  notes |= {
    n: digest.of_arrays(s) for n, s in examples_by_set.items() if s is not None
  }
  folder.mkdir(parents=True, exist_ok=True)
  try:
    json_files.write_json(path, with_checksum(json_files.to_json(notes)))
    yield
  except BaseException:
    with contextlib.suppress(OSError):
      path.unlink(missing_ok=True)
      if is_new:
        folder.rmdir()
    raise


def remove_unfinished(folder: pathlib.Path) -> None:
  """Removes the files of a population that was begun but not completed.

  Raises:
    ValueError: naming the mark, if it is damaged.
  """
  if notes_of(folder) and not (folder / population_files.INDEX).exists():
    for path in folder.glob(population_files.ARRAYS):
      path.unlink()
    json_files.beside(folder / population_files.INDEX).unlink(missing_ok=True)


def with_validation_of(flag_values: Mapping[str, Any]) -> dict[str, Any]:
  """The flags that were given, with the validation part of clients on disk.

  The validation part is what `experiments.convert` left out.

  Args:
    flag_values: the values of all flags; None where not given.

  Raises:
    ValueError: if clients may train on the requested validation part.
  """
  folder = user_path(flag_values["population_dir"])
  notes = notes_of(folder)
  fraction = notes.get("validation_fraction")
  is_of_task = bool(fraction) and notes.get("task") == flag_values["task"]
  flags = {n: flag_values[n] for n in _NAMES if flag_values[n] is not None}
  if is_of_task and all(notes[name] == flags[name] for name in flags):
    return {**flag_values, **{name: notes[name] for name in _NAMES}}
  wants_validation = bool(flags.get("validation_fraction"))
  if wants_validation or flag_values["select_on"] == "validation":
    part = f"{fraction:g} of {notes.get('task')}" if fraction else "nothing"
    raise ValueError(
      f"population_dir={str(folder)!r}: its clients may have the "
      f"validation examples ({part} was held out); give --select_on=train or "
      "test, or write the clients again with these flags"
    )
  return {**flag_values, "select_on": flag_values["select_on"] or "train"}


def notes_of(folder: pathlib.Path) -> dict[str, Any]:
  """What a folder of clients records about how it was made; {} if nothing.

  Raises:
    ValueError: naming the file, if it is damaged.
  """
  path = folder / population_files.NOTES
  if not path.exists():
    return {}
  try:
    return read_with_checksum(path)
  except (OSError, ValueError):
    raise ValueError(
      f"{str(path)!r} is damaged: it does not hold what was written; write the "
      "population again"
    ) from None


def check_population(
  on_disk: Population,
  task: Task,
  test_fraction: float | None,
  digests: digest.Digests,
) -> None:
  """Checks that clients on disk are of a task, and have no test examples of it.

  Args:
    on_disk: the clients of `--population_dir`.
    task: data and model.
    test_fraction: fraction of the task's data that is held out for tests; None
      if the task has no such choice.
    digests: the digests of all data of the run.

  Raises:
    ValueError: if other examples were held out when they were written; or
      naming a difference in types, shapes or labels.
    OSError: naming the file, if its labels have changed since it was written.
  """
  notes = notes_of(on_disk.folder)
  fraction = notes.get(_TEST)
  if None not in (fraction, test_fraction) and fraction != test_fraction:
    raise ValueError(
      f"test_fraction={test_fraction:g}: the clients of population_dir were "
      f"written with {fraction:g}, so they may have test examples; give "
      f"--test_fraction={fraction:g}"
    )
  pool = task.train if task.clients is None else task.clients.examples
  task_types = {n: (str(v.dtype), tuple(v.shape[1:])) for n, v in pool.items()}
  disk_types = {
    name: (str(np.dtype(dtype)), tuple(shape))
    for name, (dtype, shape) in on_disk.fields.items()
  }
  where = f"population_dir={str(on_disk.folder)!r}"
  if task_types != disk_types:
    describe = lambda fields: ", ".join(
      f"{name} {dtype}{list(shape)}" for name, (dtype, shape) in fields.items()
    )
    raise ValueError(
      f"{where}: its examples are {describe(disk_types)}; must be those of the "
      f"task, {describe(task_types)}"
    )
  for name in filter(digests.get, _SETS):
    if notes and notes.get(name) != digests[name]:
      raise ValueError(
        f"{where}: other {name} examples were held out when its clients were "
        "written, so they may have some of these; write them again with these "
        "flags"
      )
  if task.num_classes is not None:
    labels = on_disk.examples["y"]
    for label in (labels.min(), labels.max()):
      if not 0 <= label < task.num_classes:
        on_disk.verify()  # If a file is damaged, this names it.
        raise ValueError(
          f"{where}: labels y must be in [0, {task.num_classes}), but one is "
          f"{label}"
        )
