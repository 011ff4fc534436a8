"""From a specification to its data: who trains on what, and what is held out.

All is drawn before anything runs:

- the validation part of the task's examples, on which settings are chosen;
- the clients of each seed;
- the test examples of each client (`--client_test_fraction`) and, with
  `--select_on=clients`, its validation examples;
- the clients that never train (`--heldout_clients`).
"""

import dataclasses
import itertools
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from experiments import tasks
from experiments.specification.spec import FLAGS, Spec, all_flags
from experiments.tasks import Task, base, clients_on_disk
from fedjax_opt import ClientData, Population
from fedjax_opt.checks.errors import reworded_errors
from fedjax_opt.data import digest, lists
from fedjax_opt.data.example_parts import ExampleParts
from fedjax_opt.data.population_files import INDEX
from fedjax_opt.files.folders import user_path
from fedjax_opt.models import pretrained


class ClientParts(NamedTuple):
  """The examples on which clients are tested after a run, by file and seed.

  Attributes:
    per_client: examples of the clients that train; {} if none are held out.
    heldout_clients: examples of clients that never train; {} if there are none.
  """

  per_client: Mapping[int, ExampleParts] = {}
  heldout_clients: Mapping[int, ExampleParts] = {}

  def examples(self) -> list[ClientData]:
    """The examples to measure, and those to personalize on, of all seeds."""
    local = [part for parts in self.per_client.values() for part in parts[1:]]
    heldout = [half for pair in self.heldout_clients.values() for half in pair]
    return [part for part in (*local, *heldout) if part is not None]


class Loaded(NamedTuple):
  """The data of a run.

  Attributes:
    task: data and model, without the validation examples in the pool.
    clients: the clients of each seed.
    client_parts: the examples on which clients are tested after the run.
    digests: the digests of all these data; see `fedjax_opt.data.digest`.
  """

  task: Task
  clients: dict[int, ClientData] | dict[int, Population]
  client_parts: ClientParts
  digests: digest.Digests


def load_data(spec: Spec) -> Loaded:
  """Reads the data that a specification names, and divides them among clients.

  Raises:
    ValueError: if data cannot be read, or not divided as the specification
      says.
    ImportError: naming the package to install.
  """
  folder = spec.population_dir
  population = Population.open(folder) if folder else None
  task = without_validation(spec, tasks.load_task(spec))
  if population:
    clients, tests = dict.fromkeys(spec.seed, population), ClientParts()
  else:
    clients, tests = clients_and_tests(spec, task)
  datasets = [*clients.values(), *tests.examples()]
  digests = digest.of_data(datasets, task.validation, task.test)
  if spec.pretrained:
    digests["pretrained"] = _of_encoder(user_path(spec.pretrained))
  if population:
    fraction = spec.task.static.get("test_fraction")
    clients_on_disk.check_population(population, task, fraction, digests)
  return Loaded(task, clients, tests, digests)


# The files of a pretrained encoder, which a name alone does not tell.
_OF_ENCODER = (pretrained.CONFIG, pretrained.WEIGHTS)


def _of_encoder(folder: pathlib.Path) -> str:
  """The digest of a pretrained encoder."""
  files = {name: np.fromfile(folder / name, np.uint8) for name in _OF_ENCODER}
  return digest.of_arrays(files)


class Loader:
  """Loads data once for consecutive runs with the same data.

  The data of the latest two specifications are kept. In another process a
  loader begins empty.
  """

  _KEPT = 2

  def __init__(self):
    self._loaded: dict[str, Loaded] = {}

  def __reduce__(self):
    return Loader, ()

  def load(self, spec: Spec) -> Loaded:
    """The data of a specification; see `load_data`."""
    key = str(_of_data(spec))
    loaded = self._loaded.pop(key, None) or load_data(spec)
    self._loaded = dict([*self._loaded.items(), (key, loaded)][-self._KEPT :])
    return loaded


def is_of_data(name: str) -> bool:
  """Whether a flag says what the data are, or which client has them."""
  return all_flags()[name].group.key in ("task", "data")


def _of_data(spec: Spec) -> list[Any]:
  """All that the data depend on; for the user's own files, also their state."""
  extras = ("validation_fraction", "validation_seed", "eval_every", "seed")
  values = [getattr(spec, n) for n in (*filter(is_of_data, FLAGS), *extras)]
  folder = spec.population_dir
  files = [spec.data_file, folder and f"{folder}/{INDEX}"]
  if spec.pretrained:
    files += [f"{spec.pretrained}/{name}" for name in _OF_ENCODER]
  paths = [user_path(file) for file in files if file]
  stats = [path.stat() for path in paths if path.exists()]
  states = [(stat.st_size, stat.st_mtime_ns) for stat in stats]
  # It says of whom validation examples are held out.
  chooses_by_clients = spec.select_on == "clients"
  return [*values, chooses_by_clients, states]


def clients_and_tests(
  spec: Spec, task: Task
) -> tuple[dict[int, ClientData], ClientParts]:
  """The clients that train, of each seed, and what is held out.

  Args:
    spec: says who the clients are. They are drawn by each seed, or for all
      seeds by `partition_seed`.
    task: data and model.

  Raises:
    ValueError: naming the invalid flag.
  """
  if spec.partition_seed is not None:
    seeds = [spec.partition_seed]
    single_spec = dataclasses.replace(spec, partition_seed=None, seed=seeds)
    clients, tests = clients_and_tests(single_spec, task)
    for_all = lambda single: {s: v for v in single.values() for s in spec.seed}
    return for_all(clients), ClientParts(*map(for_all, tests))
  fraction, chooses = spec.client_test_fraction, spec.select_on == "clients"
  clients_of = drawn_clients if task.clients is None else _clients_of_task
  train, heldout = clients_of(spec, task)
  test_part = "client_test_fraction", fraction
  # Without a fraction, all examples of clients that never train are measured.
  heldout_tests = {
    seed: ExampleParts.of(data, seed, test_part)
    if fraction
    else ExampleParts(None, data)
    for seed, data in heldout.items()
  }
  if not (fraction or chooses):
    return train, ClientParts({}, heldout_tests)
  name = "validation_fraction"
  shares = test_part, (name, spec.validation_fraction if chooses else None)
  parts = {
    seed: ExampleParts.of(data, seed, *shares) for seed, data in train.items()
  }
  train = {seed: of_seed.train for seed, of_seed in parts.items()}
  return train, ClientParts(parts, heldout_tests)


def _clients_of_task(spec, task):
  """The clients that train and those that do not, if the data has clients."""
  population, number = task.clients, spec.heldout_clients
  if not number:
    return dict.fromkeys(spec.seed, population), {}
  total = int((population.sizes > 0).sum())
  if number >= total:
    raise ValueError(
      f"heldout_clients={number}: there are {total} clients with examples; "
      f"must be at most {total - 1}"
    )
  with reworded_errors(f"heldout_clients={number}"):
    parts = {s: population.split_clients(number / total, s) for s in spec.seed}
  return tuple({s: pair[i] for s, pair in parts.items()} for i in (0, 1))


# The validation part.


def without_validation(spec: Spec, task: Task) -> Task:
  """The task with its validation examples apart from the others.

  The validation part is drawn before the examples are divided, so that no
  client has any of it. If clients come with the data, each gives its share.
  """
  fraction, seed = spec.validation_fraction, spec.validation_seed
  is_of_clients = spec.select_on == "clients"
  if task.validation is not None or not fraction or is_of_clients:
    return task
  training, validation = base.split_examples(
    task.clients, task.train, fraction, seed
  )
  return task._replace(**training, validation=validation)


# The partition.

# Folded into the seed, so that this draw differs from the partition's.
_APART = 0xA9A7


def drawn_clients(
  spec: Spec, task: Task
) -> tuple[dict[int, ClientData], dict[int, ClientData]]:
  """The clients of every seed, and others with no example of theirs.

  If there are others, the pool is first divided at random in proportion to the
  numbers of clients. Then the partition divides each part.

  Args:
    spec: names the partition; each seed has its own.
    task: its training examples are divided.

  Returns:
    The clients and the others, of every seed; all share one pool.

  Raises:
    ValueError: naming the invalid flag, or what is wrong in the data.
  """
  labels, seeds, number = _labels(task), spec.seed, spec.heldout_clients or 0
  rows = []
  for seed in seeds:
    train, heldout = _two_parts(len(labels), spec.num_clients, number, seed)
    rows.append(_rows(spec, labels, train, spec.num_clients, seed))
    if number:
      try:
        rows.append(_rows(spec, labels, heldout, number, seed))
      except ValueError as error:
        problem = str(error).removeprefix(f"num_clients={number}: ")
        raise ValueError(f"heldout_clients={number}: {problem}") from None
  clients = _over_one_pool(task.train, task.num_classes, rows)
  if not number:
    return dict(zip(seeds, clients, strict=True)), {}
  return tuple(dict(zip(seeds, clients[i::2], strict=True)) for i in (0, 1))


def _labels(task):
  """The classes by which a partition divides: labels, or tenths of numbers.

  If an example has several numbers, the first one counts.
  """
  y = np.asarray(task.train["y"])
  if y.dtype.kind != "f":
    return y
  first = y.reshape(len(y), -1)[:, 0]
  tenths = np.quantile(first, np.arange(1, 10) / 10)
  return np.searchsorted(tenths, first, side="left").astype(np.int32)


def _two_parts(num_examples, num_clients, number, seed):
  """The rows for the clients that train, and those for `number` others."""
  if not number:
    return np.arange(num_examples), None
  order = np.random.default_rng((_APART, seed)).permutation(num_examples)
  share = number / (number + num_clients)
  cut = min(max(round(share * num_examples), 1), num_examples - 1)
  return np.sort(order[cut:]), np.sort(order[:cut])


def _rows(spec, labels, part, num_clients, seed):
  """The rows of each client, from a part of the examples."""
  drawn = spec.partition.make(
    {}, labels=labels[part], num_clients=num_clients, seed=seed
  )
  return [part[of_client] for of_client in drawn]


def _over_one_pool(examples, num_classes, rows):
  """Several populations, given the rows of each client of each."""
  union = ClientData.from_partition(
    examples, list(itertools.chain(*rows)), num_classes
  )
  ends = np.cumsum([len(population) for population in rows])[:-1]
  owned = np.split(union.owned_rows(), np.cumsum(union.sizes)[ends - 1])
  sizes = np.split(union.sizes, ends)
  width = union.max_size  # Equally wide for all seeds.
  indices = [
    lists.of_clients(*part, width) for part in zip(owned, sizes, strict=True)
  ]
  return [
    ClientData(union.examples, *part)
    for part in zip(indices, sizes, strict=True)
  ]
