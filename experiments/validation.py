"""The validation part of a run: held out of the training examples."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.tasks import Task
from experiments.tasks.base import LARGER_IS_BETTER
from fedjax_opt import Population
from fedjax_opt.data import hold_out
from fedjax_opt.digests import is_whole, signed
from fedjax_opt.metrics import Criterion
from fedjax_opt.results import json_files

# What a folder of clients says of how it was made, beside the clients' files.
_MARK = "validation.json"
_NAMES = ("validation_fraction", "validation_seed")
_TEST = "test_fraction"


def held_out(task: Task, flags: Mapping[str, Any]) -> Task:
  """The task without its validation examples, and these.

  The part is drawn before examples come to clients, so that no client has any
  of it. Of clients that come with the data each gives its share.

  Args:
    task: as it was loaded.
    flags: with those of the selection resolved.
  """
  fraction, seed = (flags.get(name) for name in _NAMES)
  if task.validation is not None or not fraction:
    return task
  if task.clients is not None:
    clients, others = task.clients.split(fraction, seed)
    rows = others.owned_rows()
    validation = {n: np.asarray(v)[rows] for n, v in others.examples.items()}
    return task._replace(clients=clients, validation=validation)
  train, validation = hold_out(task.train, fraction, seed)
  return task._replace(train=train, validation=validation)


def criterion(
  task: Task, flags: Mapping[str, Any], has_regularizer: bool = True
) -> Criterion:
  """How the settings of a run are compared.

  Args:
    task: the task.
    flags: with those of the selection resolved.
    has_regularizer: whether the algorithm's objective has one.

  Raises:
    ValueError: if the task has no such metric.
  """
  chosen = task.criteria[flags["select_on"]]
  if not has_regularizer:
    metric = chosen.metric.removeprefix("regularized_")
    chosen = dataclasses.replace(chosen, metric=metric)
  name, over = flags.get("select_metric"), flags.get("select_over")
  if name == "accuracy" and task.num_classes is None:
    raise ValueError(
      f"select_metric={name!r}: task {flags['task']} has no accuracy; leave "
      "select_metric out"
    )
  if name is not None:
    metric = f"{flags['select_on']}_{name}"
    direction = "max" if LARGER_IS_BETTER[name] else "min"
    chosen = dataclasses.replace(chosen, metric=metric, direction=direction)
  if over is not None:
    n = _evaluations(flags["rounds"], flags["eval_every"], over)
    chosen = dataclasses.replace(chosen, rule="worst_last_n", n=n)
  return chosen


def _evaluations(rounds: int, every: int, last: int) -> int:
  """The evaluations in the last rounds, that at the very end among them."""
  before = range(0, rounds, every)
  return 1 + sum(rounds - each < last for each in before)


# Clients on disk.


def mark(folder: pathlib.Path, flags: Mapping[str, Any]) -> None:
  """Writes which examples of the task the clients of a folder do not have."""
  known = {name: flags.get(name) for name in ("task", *_NAMES, _TEST)}
  known = signed(json_files.plain(known))
  json_files.write_json(folder / _MARK, known)


def of_disk(flags: Mapping[str, Any], on_disk: Population) -> dict[str, Any]:
  """The flags of the selection for clients on disk.

  The validation part is what `experiments.convert` left out.

  Args:
    flags: values of all flags; None where not given.
    on_disk: the clients of `--population_dir`.

  Raises:
    ValueError: if a validation part is asked for that training may have seen.
  """
  held = _marked(on_disk)
  fraction = held.get("validation_fraction")
  is_of_task = bool(fraction) and held.get("task") == flags["task"]
  asked = {name: flags[name] for name in _NAMES if flags[name] is not None}
  if is_of_task and all(held[name] == asked[name] for name in asked):
    return flags | {name: held[name] for name in _NAMES}
  wanted = bool(asked.get("validation_fraction"))
  if wanted or flags["select_on"] == "validation":
    found = f"{fraction:g} of {held.get('task')}" if fraction else "nothing"
    raise ValueError(
      f"population_dir={str(on_disk.folder)!r}: its clients may have the "
      f"validation examples ({found} was held out); give --select_on=train or "
      "test, or write the clients again with these flags"
    )
  return flags | {"select_on": flags["select_on"] or "train"}


def check_test_part(flags: Mapping[str, Any], on_disk: Population) -> None:
  """Checks that no client on disk has test examples of one's own data.

  Args:
    flags: with those of the task resolved.
    on_disk: the clients of `--population_dir`.

  Raises:
    ValueError: if another fraction was held out when they were written.
  """
  held, fraction = _marked(on_disk).get(_TEST), flags.get(_TEST)
  if None not in (held, fraction) and held != fraction:
    raise ValueError(
      f"test_fraction={fraction:g}: the clients of population_dir were written "
      f"with {held:g}, so they may have test examples; give that"
    )


def check_mark(on_disk: Population) -> None:
  """Checks that what says how a folder was made is not damaged.

  Raises:
    ValueError: naming the file.
  """
  _marked(on_disk)


def _marked(on_disk: Population) -> dict[str, Any]:
  """What the folder says of how it was made; {} if nothing."""
  path = on_disk.folder / _MARK
  if not path.exists():
    return {}
  try:
    found = dict(json.loads(path.read_text()))
  except (OSError, ValueError, TypeError, RecursionError):
    found = {}
  # Written before there were digests if the clients were.
  if on_disk.has_digests and not is_whole(found):
    raise ValueError(
      f"{str(path)!r} is damaged: it does not hold what was written; write the "
      "population again"
    )
  return found
