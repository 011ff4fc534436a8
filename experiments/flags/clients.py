"""The flags of the clients' data, and the clients they give."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.flags import command_line
from experiments.flags.registries import Flags, Kind
from experiments.tasks import Task
from fedjax_opt.data import lists, partition
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.population import Population
from fedjax_opt.registry import Hyperparameter

PARTITION = Kind(
  "partition",
  {n: each for n, each in partition.SCHEMES.items() if not each.takes_ids},
)
_TEST_FRACTION = Hyperparameter(
  "client_test_fraction", 0.0, "fraction", "[0, 1)"
)
_OF_PERSONAL = 0.2
_HOSTS = ("coordinator", "cluster")
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
    _define_tests()


def _define_tests() -> None:
  command_line.number(
    "client_test_fraction",
    None,
    "Fraction of each client's examples that is held out of training as its "
    "own test examples, drawn by the seed. On them the selected model is "
    "measured after the run, client by client: per_client.csv and per_client "
    f"in summary.json. Default: none; {_OF_PERSONAL:g} for algorithms whose "
    "clients have models of their own, if the data are in memory.",
  )
  command_line.integer(
    "personalize_steps",
    None,
    "Also measure models personalized by so many local steps of the clients' "
    "rule on the client's training examples, from the global model. With "
    "client_test_fraction. Default: none.",
  )
  command_line.integer(
    "heldout_clients",
    None,
    "Clients beside those that train, who share no example with them: drawn "
    "by the same partition, or of those that come with the data. They are "
    "measured after the run: heldout_clients.csv. Default: none.",
  )


def tests_of(flags: Flags, is_personal: bool) -> dict[str, float]:
  """The fraction of own test examples, if it is not given and has a default.

  Args:
    flags: values of all flags.
    is_personal: whether the algorithm is for the clients' own models.
  """
  name, elsewhere = "client_test_fraction", ("population_dir", *_HOSTS)
  is_free = flags[name] is None and not any(flags[f] for f in elsewhere)
  return {name: _OF_PERSONAL} if is_personal and is_free else {}


def check_tests(flags: Flags) -> None:
  """Checks the flags of the clients' own test examples.

  Raises:
    ValueError: naming the flag that cannot be.
  """
  names = ("client_test_fraction", "heldout_clients")
  fraction, number = (flags[name] for name in names)
  steps = flags["personalize_steps"]
  if fraction is not None:
    _TEST_FRACTION.check(fraction)
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
  for name in names:
    if not flags[name]:
      continue
    if flags["population_dir"]:
      raise ValueError(
        f"{name}={flags[name]:g}: needs the examples of all clients in memory; "
        "leave population_dir out"
      )
    if any(flags[host] for host in _HOSTS):
      raise ValueError(
        f"{name}={flags[name]:g}: is measured by one process alone; leave "
        "coordinator and cluster out"
      )


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
  number = parameters["num_clients"]
  rows = [_rows(examples["y"], parameters, number, seed) for seed in seeds]
  return _by_seed(seeds, _over_one_pool(examples, num_classes, rows))


def populations_apart(
  examples: Mapping[str, Any],
  num_classes: int,
  parameters: Mapping[str, Any],
  seeds: Sequence[int],
  number: int,
) -> tuple[dict[int, ClientData], dict[int, ClientData]]:
  """As `populations`, and others who have no example with them in common.

  The pool is divided at random, by the numbers of clients; each part is then
  divided by the partition.

  Args:
    examples: see `populations`.
    num_classes: see `populations`.
    parameters: see `populations`.
    seeds: see `populations`.
    number: of the other clients.

  Returns:
    The clients and the others, of every seed; all over one pool.

  Raises:
    ValueError: see `populations`.
  """
  labels, num_clients = np.asarray(examples["y"]), parameters["num_clients"]
  rows = []
  for seed in seeds:
    order = np.random.default_rng((_APART, seed)).permutation(len(labels))
    share = number / (number + num_clients)
    cut = min(max(round(share * len(order)), 1), len(order) - 1)
    own, others = np.sort(order[cut:]), np.sort(order[:cut])
    drawn = _rows(labels[own], parameters, num_clients, seed)
    rows.append([own[of_client] for of_client in drawn])
    try:
      drawn = _rows(labels[others], parameters, number, seed)
    except ValueError as error:
      said = str(error).removeprefix(f"num_clients={number}: ")
      raise ValueError(f"heldout_clients={number}: {said}") from None
    rows.append([others[of_client] for of_client in drawn])
  each = _over_one_pool(examples, num_classes, rows)
  return _by_seed(seeds, each[::2]), _by_seed(seeds, each[1::2])


# Beside the seed, so that this draw is not one of the partition.
_APART = 0xA9A7


def _by_seed(seeds, populations):
  return dict(zip(seeds, populations, strict=True))


def _rows(labels, parameters, num_clients, seed):
  """The rows of each client, by the partition of these flags."""
  return partition.split(
    parameters["partition"],
    labels,
    num_clients,
    seed=seed,
    **_arguments(parameters),
  )


def _over_one_pool(examples, num_classes, rows):
  """Several populations, given the rows of each client of each."""
  together = ClientData.from_partition(
    examples, list(itertools.chain(*rows)), num_classes
  )
  ends = np.cumsum([len(population) for population in rows])[:-1]
  each = np.split(together.owned_rows(), np.cumsum(together.sizes)[ends - 1])
  sizes = np.split(together.sizes, ends)
  width = together.max_size  # As wide for all seeds.
  indices = [
    lists.of_clients(*part, width) for part in zip(each, sizes, strict=True)
  ]
  return [
    ClientData(together.examples, *part)
    for part in zip(indices, sizes, strict=True)
  ]
