"""The part of a specification that says who the clients are."""

import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from experiments.specification.kinds import PARTITION, Chosen, Given
from experiments.specification.spec import (
  FLAGS,
  NUM_CLIENTS,
  PARTITION_DEFAULT,
  TESTS_OF_PERSONAL,
  Spec,
)
from fedjax_opt import Population
from fedjax_opt.data import partition
from fedjax_opt.digests import is_whole, signed
from fedjax_opt.results import json_files

_HOSTS = ("coordinator", "cluster")


def resolve(given: Given, has_clients: bool, algorithm: Any) -> dict[str, Any]:
  """The partition and its defaults, and the clients' own test examples.

  Args:
    given: values of all flags; None where not given.
    has_clients: whether the task's clients come with its data.
    algorithm: entry of the registry.

  Raises:
    ValueError: naming the flag that cannot be.
  """
  found = of_partition(given, has_clients)
  name, elsewhere = "client_test_fraction", ("population_dir", *_HOSTS)
  is_free = given[name] is None and not any(given[f] for f in elsewhere)
  if algorithm.is_personal and is_free:
    found[name] = TESTS_OF_PERSONAL
  return found


def of_partition(given: Given, has_clients: bool) -> dict[str, Any]:
  """The partition, with its defaults filled in; see `resolve`."""
  names = ("partition", "num_clients", *PARTITION.owners())
  asked = {name: given[name] for name in names if given[name] is not None}
  why = None
  if given["population_dir"]:
    why = "the clients come from population_dir"
  elif has_clients:
    why = f"the clients of task {given['task']} come with its data"
  if why is not None:
    for name, value in asked.items():
      raise ValueError(f"{name}={value}: {why}; leave {name} out")
    return {"partition": None}
  scheme = asked.get("partition", PARTITION_DEFAULT)
  PARTITION.check(scheme)
  PARTITION.check_others(given, scheme)
  static = {
    p.name: p.default if given[p.name] is None else given[p.name]
    for p in PARTITION.entries[scheme].hyperparameters
  }
  chosen = Chosen(PARTITION.flag, scheme, {}, static)
  partition.check_parameters(scheme, arguments(chosen))
  number = asked.get("num_clients", NUM_CLIENTS)
  return {"partition": chosen, "num_clients": number}


def arguments(chosen: Chosen) -> dict[str, Any]:
  """What a scheme is given: '100-500' is (100, 500) there."""
  found = dict(chosen.static)
  for parameter in chosen.choice.hyperparameters:
    if parameter.takes_range:
      found[parameter.name] = _range(parameter.name, str(found[parameter.name]))
  return found


def _range(name: str, text: str) -> int | tuple[int, int]:
  """A whole number, or (low, high)."""
  if not re.fullmatch(r"\d+(-\d+)?", text):
    raise ValueError(
      f"{name}={text}: must be a whole number, such as 500, or a range, such "
      "as 100-500"
    )
  low, _, high = text.partition("-")
  return (int(low), int(high)) if high else int(low)


def check_tests(spec: Spec) -> None:
  """Checks the fields of the clients' own test examples.

  Raises:
    ValueError: naming the flag that cannot be.
  """
  fraction, number = spec.client_test_fraction, spec.heldout_clients
  steps = spec.personalize_steps
  FLAGS["client_test_fraction"].check("client_test_fraction", fraction)
  if number is not None and number < 0:
    raise ValueError(f"heldout_clients={number}: must not be negative")
  if steps is not None:
    if steps < 1:
      raise ValueError(f"personalize_steps={steps}: must be at least 1")
    if not fraction:
      raise ValueError(
        f"personalize_steps={steps}: personalized models are measured on "
        "clients' own test examples; give client_test_fraction"
      )
  for name in ("client_test_fraction", "heldout_clients"):
    value = getattr(spec, name)
    if value and spec.population_dir:
      raise ValueError(
        f"{name}={value:g}: needs the examples of all clients in memory; "
        "leave population_dir out"
      )
    if value and any(getattr(spec, host) for host in _HOSTS):
      raise ValueError(
        f"{name}={value:g}: is measured by one process alone; leave "
        "coordinator and cluster out"
      )


# Clients on disk.

# What a folder of clients says of how it was made, beside the clients' files.
_MARK = "validation.json"
_NAMES = ("validation_fraction", "validation_seed")
_TEST = "test_fraction"


def mark(folder: pathlib.Path, known: Mapping[str, Any]) -> None:
  """Writes which examples of the task the clients of a folder do not have.

  Args:
    folder: of the clients.
    known: values of flags; those that matter are `task`, the validation part
      and `test_fraction`.
  """
  known = {name: known.get(name) for name in ("task", *_NAMES, _TEST)}
  json_files.write_json(folder / _MARK, signed(json_files.plain(known)))


def with_validation_of(given: Given, on_disk: Population) -> dict[str, Any]:
  """What was given, with the validation part of clients on disk.

  The validation part is what `experiments.convert` left out.

  Args:
    given: values of all flags; None where not given.
    on_disk: the clients of `--population_dir`.

  Raises:
    ValueError: if a validation part is asked for that training may have seen.
  """
  held = marked(on_disk)
  fraction = held.get("validation_fraction")
  is_of_task = bool(fraction) and held.get("task") == given["task"]
  asked = {name: given[name] for name in _NAMES if given[name] is not None}
  if is_of_task and all(held[name] == asked[name] for name in asked):
    return {**given, **{name: held[name] for name in _NAMES}}
  wanted = bool(asked.get("validation_fraction"))
  if wanted or given["select_on"] == "validation":
    found = f"{fraction:g} of {held.get('task')}" if fraction else "nothing"
    raise ValueError(
      f"population_dir={str(on_disk.folder)!r}: its clients may have the "
      f"validation examples ({found} was held out); give --select_on=train or "
      "test, or write the clients again with these flags"
    )
  return {**given, "select_on": given["select_on"] or "train"}


def check_test_part(spec: Spec, on_disk: Population) -> None:
  """Checks that no client on disk has test examples of one's own data.

  Raises:
    ValueError: if another fraction was held out when they were written.
  """
  held, fraction = marked(on_disk).get(_TEST), spec.task.static.get(_TEST)
  if None not in (held, fraction) and held != fraction:
    raise ValueError(
      f"test_fraction={fraction:g}: the clients of population_dir were written "
      f"with {held:g}, so they may have test examples; give that"
    )


def marked(on_disk: Population) -> dict[str, Any]:
  """What the folder says of how it was made; {} if nothing.

  Raises:
    ValueError: naming the file, if it is damaged.
  """
  path = on_disk.folder / _MARK
  if not path.exists():
    return {}
  try:
    found = dict(json.loads(path.read_text()))
  except (OSError, ValueError, TypeError, RecursionError):
    found = {}
  if not is_whole(found):
    raise ValueError(
      f"{str(path)!r} is damaged: it does not hold what was written; write the "
      "population again"
    )
  return found
