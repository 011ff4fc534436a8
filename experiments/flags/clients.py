"""The flags of the clients' data, and the clients they give."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.flags import command_line
from experiments.flags.registries import Flags, Kind
from experiments.tasks import Task
from fedjax_opt.data import partition
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.population import Population

PARTITION = Kind(
  "partition",
  {n: each for n, each in partition.SCHEMES.items() if not each.takes_ids},
)
_DEFAULTS = {"partition": "dirichlet", "num_clients": 100}


def define() -> None:
  """Defines `--partition`, `--num_clients` and the partitions' own flags."""
  with command_line.group("Clients' data", "data"):
    command_line.text(
      "population_dir",
      None,
      "Folder of clients as `python -m experiments.convert` writes it, instead "
      "of the task's: they stay on disk, and those of each cohort are read "
      "while the rounds before it are computed.",
    )
    command_line.integer(
      "num_clients",
      None,
      f"Clients in the population. Default: {_DEFAULTS['num_clients']}.",
    )
    command_line.text(
      "partition",
      None,
      "How the training examples come to the clients, for tasks whose clients "
      f"do not come with the data. Default: {_DEFAULTS['partition']}."
      f"{command_line.listed(PARTITION.registry)}",
    )
    PARTITION.define()


def resolve(flags: Flags, has_clients: bool) -> dict[str, Any]:
  """The flags of the chosen partition, with its defaults filled in.

  Args:
    flags: values of all flags; None where not given.
    has_clients: whether the task's clients come with its data.

  Raises:
    ValueError: naming the flag that cannot be.
  """
  names = (*_DEFAULTS, *PARTITION.owners())
  given = {name: flags[name] for name in names if flags[name] is not None}
  if flags["population_dir"]:
    for name, value in given.items():
      raise ValueError(
        f"{name}={value}: the clients come from population_dir; leave {name} "
        "out"
      )
    return {}
  if has_clients:
    for name, value in given.items():
      raise ValueError(
        f"{name}={value}: the clients of task {flags['task']} come with its "
        f"data; leave {name} out"
      )
    return {}
  given = _DEFAULTS | given
  scheme = given["partition"]
  PARTITION.check(scheme)
  PARTITION.check_others(flags, scheme)
  own = PARTITION.registry[scheme].hyperparameters
  resolved = {p.name: p.default for p in own} | given
  partition.check_parameters(scheme, _arguments(resolved))
  return resolved


def on_disk(flags: Flags) -> Population | None:
  """The clients of `--population_dir`, if it is given.

  Raises:
    ValueError: naming the file that cannot be used, and why.
  """
  folder = flags["population_dir"]
  return Population.open(folder) if folder else None


def check_examples(clients: Population, task: Task) -> None:
  """Checks that the clients' examples are of the task's types and shapes.

  Raises:
    ValueError: naming what differs.
  """
  pool = task.train if task.clients is None else task.clients.examples
  wanted = {n: (str(v.dtype), tuple(v.shape[1:])) for n, v in pool.items()}
  found = {
    name: (str(np.dtype(dtype)), tuple(shape))
    for name, (dtype, shape) in clients.fields.items()
  }
  if wanted != found:
    describe = lambda fields: ", ".join(
      f"{name} {dtype}{list(shape)}" for name, (dtype, shape) in fields.items()
    )
    raise ValueError(
      f"population_dir={str(clients.folder)!r}: its examples are "
      f"{describe(found)}; must be those of the task, {describe(wanted)}"
    )


def check_labels(clients: Population, num_classes: int | None) -> None:
  """Checks that all labels are those of the task.

  Raises:
    ValueError: naming one that is not.
  """
  if num_classes is None:
    return
  labels = clients.examples["y"]
  for label in (labels.min(), labels.max()):
    if not 0 <= label < num_classes:
      raise ValueError(
        f"population_dir={str(clients.folder)!r}: labels y must be in "
        f"[0, {num_classes}), but one is {label}"
      )


def _arguments(parameters: Mapping[str, Any]) -> dict[str, Any]:
  """The flags as the schemes take them: '100-500' is (100, 500) there."""
  arguments = {n: v for n, v in parameters.items() if n not in _DEFAULTS}
  scheme = PARTITION.registry[parameters["partition"]]
  for parameter in scheme.hyperparameters:
    if parameter.takes_range:
      name = parameter.name
      arguments[name] = _range(name, str(arguments[name]))
  return arguments


def _range(name: str, text: str) -> int | tuple[int, int]:
  """A whole number, or (low, high)."""
  if not re.fullmatch(r"\d+(-\d+)?", text):
    raise ValueError(
      f"{name}={text}: must be a whole number, such as 500, or a range, such "
      "as 100-500"
    )
  low, _, high = text.partition("-")
  return (int(low), int(high)) if high else int(low)


def populations(
  examples: Mapping[str, Any],
  num_classes: int,
  parameters: Mapping[str, Any],
  seeds: Sequence[int],
) -> dict[int, ClientData]:
  """The clients of every seed, over one pool of examples.

  Args:
    examples: {'x': [N, ...], 'y': [N]}.
    num_classes: labels are below it.
    parameters: flags of the partition, as `resolve` gives them.
    seeds: seeds of the runs; each has its own partition.

  Raises:
    ValueError: naming the flag that cannot be, or what is wrong in the data.
  """
  rows = [
    partition.split(
      parameters["partition"],
      examples["y"],
      parameters["num_clients"],
      seed=seed,
      **_arguments(parameters),
    )
    for seed in seeds
  ]
  together = ClientData.from_partition(
    examples, list(itertools.chain(*rows)), num_classes
  )
  ends = np.cumsum([len(of_seed) for of_seed in rows])[:-1]
  indices = np.split(together.indices, ends)
  sizes = np.split(together.sizes, ends)
  return {
    seed: ClientData(together.examples, indices[i], sizes[i])
    for i, seed in enumerate(seeds)
  }
