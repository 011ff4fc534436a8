"""From flags to the clients' data."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import flags

from fedjax_opt.data import partition
from fedjax_opt.data.clients import ClientData
from fedjax_opt.hyperparameters import Hyperparameter


def _parameters() -> dict[str, Hyperparameter]:
  """The parameters of all partitions, by name."""
  schemes = partition.SCHEMES.values()
  return {p.name: p for s in schemes for p in s.hyperparameters}


def define_flags() -> None:
  """Defines `--partition`, `--num_clients` and the partitions' own flags."""
  schemes = partition.SCHEMES
  lines = "; ".join(f"{name}: {s.help}" for name, s in schemes.items())
  flags.DEFINE_string(
    "partition", "dirichlet", f"How examples come to clients. {lines}."
  )
  flags.DEFINE_integer("num_clients", 100, "Clients in the population.")
  for name, parameter in _parameters().items():
    takers = [s for s in schemes if parameter in schemes[s].hyperparameters]
    text = (
      f"{parameter.help}. For {', '.join(takers)}. Default: "
      f"{parameter.default:g}."
    )
    if name == "examples_per_client":
      text = text.replace("(low, high)", "LOW-HIGH for sizes drawn from there")
      flags.DEFINE_string(name, None, text)
    elif isinstance(parameter.default, int):
      flags.DEFINE_integer(name, None, text)
    else:
      flags.DEFINE_float(name, None, text)


def resolve(flag: Mapping[str, Any]) -> dict[str, Any]:
  """The chosen partition's parameters, with its defaults filled in.

  Raises:
    ValueError: naming the flag that cannot be.
  """
  given = {n: flag[n] for n in _parameters() if flag[n] is not None}
  if "examples_per_client" in given:
    given["examples_per_client"] = _sizes(given["examples_per_client"])
  partition.check_parameters(flag["partition"], given)
  own = partition.SCHEMES[flag["partition"]].hyperparameters
  return {p.name: p.default for p in own} | given


def _sizes(text: str) -> int | tuple[int, int]:
  """'500' or '100-500'."""
  try:
    low, _, high = text.partition("-")
    return (int(low), int(high)) if high else int(low)
  except ValueError:
    raise ValueError(
      f"examples_per_client={text}: must be a number, such as 500, or a range "
      "of sizes, such as 100-500"
    ) from None


def populations(
  examples: Mapping[str, Any],
  num_classes: int,
  flag: Mapping[str, Any],
  parameters: Mapping[str, Any],
  seeds: Sequence[int],
) -> dict[int, ClientData]:
  """The clients of every seed, over one pool of examples.

  Raises:
    ValueError: naming the flag that cannot be.
  """
  split = lambda seed: partition.split(
    flag["partition"],
    examples["y"],
    flag["num_clients"],
    seed=seed,
    **parameters,
  )
  rows = [split(seed) for seed in seeds]
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
