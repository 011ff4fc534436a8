"""From flags to the clients' data."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import flags

from experiments import command_line
from fedjax_opt.data import partition
from fedjax_opt.data.clients import ClientData
from fedjax_opt.hyperparameters import Hyperparameter, check_choice

# No task has data that comes with client ids.
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
    flags.DEFINE_integer("num_clients", 100, "Clients in the population.")
    flags.DEFINE_string(
      "partition",
      "dirichlet",
      "How the training examples come to the clients."
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


def resolve(flag: Mapping[str, Any]) -> dict[str, Any]:
  """The flags of the chosen partition, with its defaults filled in.

  Raises:
    ValueError: naming the flag that cannot be.
  """
  check_choice("partition", flag["partition"], PARTITIONS)
  given = {n: flag[n] for n in _parameters() if flag[n] is not None}
  partition.check_parameters(flag["partition"], _arguments(given))
  own = PARTITIONS[flag["partition"]].hyperparameters
  return {p.name: p.default for p in own} | given


def _arguments(parameters: Mapping[str, Any]) -> dict[str, Any]:
  """The flags as the schemes take them: '100-500' is (100, 500) there."""
  arguments = dict(parameters)
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
  flag: Mapping[str, Any],
  parameters: Mapping[str, Any],
  seeds: Sequence[int],
) -> dict[int, ClientData]:
  """The clients of every seed, over one pool of examples.

  Args:
    examples: {'x': [N, ...], 'y': [N]}.
    num_classes: labels are below it.
    flag: values of all flags.
    parameters: of the partition, as `resolve` gives them.
    seeds: of the runs; each has a partition of its own.

  Raises:
    ValueError: naming the flag that cannot be, or what is wrong in the data.
  """
  rows = [
    partition.split(
      flag["partition"],
      examples["y"],
      flag["num_clients"],
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
