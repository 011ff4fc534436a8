"""From flags to the clients' data."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import flags

from experiments import command_line
from experiments.task import Task
from fedjax_opt.data import partition
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.population import Population
from fedjax_opt.hyperparameters import Hyperparameter, check_choice

# Tasks whose examples come with client ids have nothing to divide.
PARTITIONS = {
  name: scheme
  for name, scheme in partition.SCHEMES.items()
  if name != "natural"
}


def _parameters() -> dict[str, Hyperparameter]:
  """The parameters of all partitions, by name."""
  schemes = PARTITIONS.values()
  return {p.name: p for s in schemes for p in s.hyperparameters}


def define_flags() -> None:
  """Defines `--partition`, `--num_clients` and the partitions' own flags."""
  with command_line.group("Clients' data"):
    flags.DEFINE_string(
      "population_dir",
      None,
      "Folder of clients as `python -m experiments.convert` writes it, instead "
      "of the task's: they stay on disk, and those of each cohort are read "
      "while the rounds before it are computed.",
    )
    flags.DEFINE_integer(
      "num_clients", None, "Clients in the population. Default: 100."
    )
    flags.DEFINE_string(
      "partition",
      None,
      "How the training examples come to the clients, for tasks whose clients "
      "do not come with the data. Default: dirichlet."
      f"{command_line.listed(PARTITIONS)}",
    )
    for name, parameter in _parameters().items():
      _define_parameter(name, parameter)


def _define_parameter(name: str, parameter: Hyperparameter) -> None:
  owners = ", ".join(
    f"{scheme} {parameter.default:g}"
    for scheme in PARTITIONS
    if parameter in PARTITIONS[scheme].hyperparameters
  )
  text = f"{parameter.help[0].upper()}{parameter.help[1:]}"
  if name == "examples_per_client":
    text = (
      "Examples of each client; LOW-HIGH, such as 100-500, draws each client's "
      f"number from that range ({owners})."
    )
    flags.DEFINE_string(name, None, text)
    return
  text = f"{text}, in {parameter.interval} ({owners})."
  if isinstance(parameter.default, int):
    flags.DEFINE_integer(name, None, text)
  else:
    flags.DEFINE_float(name, None, text)


def resolve(flag: Mapping[str, Any], has_clients: bool) -> dict[str, Any]:
  """The flags of the chosen partition, with its defaults filled in.

  Args:
    flag: values of all flags; None where not given.
    has_clients: whether the task's clients come with its data.

  Raises:
    ValueError: naming the flag that cannot be.
  """
  names = ("partition", "num_clients", *_parameters())
  given = {name: flag[name] for name in names if flag[name] is not None}
  if flag["population_dir"]:
    for name, value in given.items():
      raise ValueError(
        f"{name}={value}: the clients come from population_dir; leave {name} "
        "out"
      )
    return {}
  if has_clients:
    for name, value in given.items():
      raise ValueError(
        f"{name}={value}: the clients of task {flag['task']} come with its "
        f"data; leave {name} out"
      )
    return {}
  given = {"partition": "dirichlet", "num_clients": 100} | given
  scheme = given["partition"]
  check_choice("partition", scheme, PARTITIONS)
  own = PARTITIONS[scheme].hyperparameters
  resolved = {p.name: p.default for p in own} | given
  partition.check_parameters(scheme, _arguments(resolved))
  return resolved


def on_disk(flag: Mapping[str, Any]) -> Population | None:
  """The clients of `--population_dir`, if it is given.

  Raises:
    ValueError: naming the file that is not as it should be.
  """
  folder = flag["population_dir"]
  return Population.open(folder) if folder else None


def check_examples(clients: Population, task: Task) -> None:
  """That the task's model can do with the clients' examples.

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
  """That all labels are those of the task.

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
  whole = ("partition", "num_clients")
  arguments = {n: v for n, v in parameters.items() if n not in whole}
  if "examples_per_client" in parameters:
    text = str(parameters["examples_per_client"])
    if not re.fullmatch(r"\d+(-\d+)?", text):
      raise ValueError(
        f"examples_per_client={text}: must be a whole number, such as 500, or "
        "a range, such as 100-500"
      )
    low, _, high = text.partition("-")
    sizes = (int(low), int(high)) if high else int(low)
    arguments["examples_per_client"] = sizes
  return arguments


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
    parameters: of the partition, as `resolve` gives them.
    seeds: of the runs; each has a partition of its own.

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
