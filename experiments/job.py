"""From a specification to all that a run needs, checked before it compiles."""

import dataclasses
import datetime
import pathlib
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from experiments import clock, methods, resuming, tracking
from experiments.data import Loaded, criterion_of, load
from experiments.specification.spec import COHORT_SIZE, Spec
from experiments.stopping import Stopping
from experiments.tasks import Task
from fedjax_opt import (
  Algorithm,
  Population,
  Run,
  Simulator,
  grid_points,
  plots,
  processes,
)
from fedjax_opt.data import digest
from fedjax_opt.data.clients import ClientData
from fedjax_opt.metrics import Criterion
from fedjax_opt.results import writers
from fedjax_opt.results.checkpoint import Checkpoints
from fedjax_opt.transforms.aggregators import least_cohort


class Job(NamedTuple):
  """All that a run needs, checked."""

  spec: Spec  # with what the data decide
  make: Callable[..., Algorithm]  # of the hyperparameters of a point
  points: list[dict[str, Any]]  # of the grid
  loaded: Loaded
  criterion: Criterion  # by which settings are compared
  settings: dict[str, Any]  # of the simulator
  simulator: Simulator
  tables: clock.Tables | None  # the timetable of each seed, on a clock
  output_dir: pathlib.Path
  checkpoints: Checkpoints | None
  finished: Run | None  # the run, if there is nothing left to do
  stopping: Stopping  # what ends it before its last round

  @property
  def task(self) -> Task:
    """Data and model."""
    return self.loaded.task

  @property
  def data(self) -> dict[int, ClientData] | dict[int, Population]:
    """The clients of each seed."""
    return self.loaded.clients

  @property
  def config(self) -> dict[str, Any]:
    """What config.json says of the run."""
    digests = clock.digests(self.spec, self.loaded.digests)
    return self.spec.values() | {digest.NAME: digests}

  @property
  def rounds(self) -> int:
    """Rounds that run, unless something else ends it."""
    return clock.rounds_of(self.spec, self.tables)


def prepare(spec: Spec, loaded: Loaded | None = None) -> Job:
  """Loads the data, and checks what the specification needs of them.

  Args:
    spec: what runs.
    loaded: its data, if they are loaded already.

  Raises:
    ValueError: naming the flag that cannot be. Nothing was compiled or written.
    ImportError: naming the package to install.
  """
  plots.check_installed()
  tracking.check_installed(spec.track)
  output_dir = _output_dir(spec)
  loaded = load(spec) if loaded is None else loaded
  task, of_seed = loaded.task, loaded.clients
  criterion = criterion_of(spec, task)
  stopping = Stopping(spec, criterion, task.num_classes)
  num_clients = of_seed[spec.seed[0]].num_clients
  size = _cohort_size(spec, num_clients)
  spec = dataclasses.replace(spec, cohort_size=size)
  _check_cohort(spec, num_clients)
  _check_features(spec, task)
  settings = methods.settings_of(spec, task)
  make = methods.algorithm_of(spec, task)
  simulator = Simulator(
    make,
    of_seed.get,
    grid=spec.grid,
    seeds=spec.seed,
    test=task.test,
    validation=task.validation,
    **settings,
  )
  _check_model(spec, make, task, simulator)
  tables = clock.tables_of(spec, simulator, task.init)
  spec = dataclasses.replace(spec, output_dir=str(output_dir))
  digests = clock.digests(spec, loaded.digests)
  found = resuming.find(spec, output_dir, digests)
  return Job(
    spec,
    make,
    grid_points(spec.grid, spec.seed),
    loaded,
    criterion,
    settings,
    simulator,
    tables,
    output_dir,
    *found,
    stopping,
  )


def _cohort_size(spec: Spec, num_clients: int) -> int:
  """The clients of a round: some algorithms, or few clients, determine them."""
  given, name = spec.cohort_size, spec.algorithm.name
  cohort = spec.algorithm.choice.cohort
  if cohort == "sampled":
    return min(COHORT_SIZE, num_clients) if given is None else given
  needed = num_clients if cohort == "all" else 1
  if given not in (None, needed):
    raise ValueError(
      f"cohort_size={given}: algorithm {name} has {needed} of the "
      f"{num_clients} clients in each round; leave cohort_size out"
    )
  return needed


def _check_cohort(spec: Spec, num_clients: int) -> None:
  """Checks that the cohort is one that its sampler and aggregator can have."""
  places, own = spec.cohort_size, spec.sampler.static
  away = spec.schedule and spec.schedule.static.get("concurrency")
  if away and away > num_clients:
    raise ValueError(
      f"concurrency={away}: must be at most the number of clients, "
      f"{num_clients}"
    )
  more = spec.schedule and spec.schedule.static.get("over_selection")
  if more and places + more > num_clients:
    raise ValueError(
      f"over_selection={more}: with cohort_size={places} must be at most "
      f"{num_clients - places}, for {num_clients} clients"
    )
  expected, groups = own.get("sampler_expected"), own.get("sampler_groups")
  if expected is not None and expected > min(places, num_clients):
    raise ValueError(
      f"sampler_expected={expected:g}: must be at most cohort_size={places}, "
      f"and the number of clients, {num_clients}"
    )
  if groups is not None and groups > num_clients:
    raise ValueError(
      f"sampler_groups={groups}: must be from 1 to the number of clients, "
      f"{num_clients}"
    )
  faulty = spec.aggregator.static.get("krum_faulty")
  if faulty is not None and places < least_cohort(faulty):
    raise ValueError(
      f"krum_faulty={faulty}: needs at least {least_cohort(faulty)} clients in "
      f"a round; cohort_size is {places}"
    )


def _check_features(spec: Spec, task: Task) -> None:
  """Checks that the model has the features that an algorithm compares."""
  if spec.algorithm.choice.takes_features and task.features_fn is None:
    raise ValueError(
      f"algorithm={spec.algorithm.name!r}: compares features before the last "
      f"layer, which the model of task {spec.task.name} does not have; must be "
      "another, or a task of images"
    )


def _check_model(
  spec: Spec,
  make: Callable[..., Algorithm],
  task: Task,
  simulator: Simulator,
) -> None:
  """Checks that algorithm and regularizer can use the task's model."""
  try:
    simulator.check(task.init)
  except ValueError as error:
    norm = f"norm={spec.task.static.get('norm')!r}"
    raise ValueError(re.sub("^params(?=: )", norm, str(error))) from None
  penalty = make(**{n: v[0] for n, v in spec.grid.items()}).penalty
  if penalty is None:
    return
  try:
    jax.eval_shape(lambda: penalty(task.init(jax.random.key(0))))
  except ValueError as error:
    raise ValueError(
      f"regularizer={spec.regularizer.name!r}: {error}"
    ) from None


def _output_dir(spec: Spec) -> pathlib.Path:
  """The folder for the results, which is not made yet."""
  if spec.resume and spec.output_dir is None:
    raise ValueError("resume=True: output_dir must say which run to go on with")
  words = (spec.task.name, spec.algorithm.name, spec.client.name)
  folder = pathlib.Path(output_dir_of(spec.output_dir, *words))
  if processes.is_first_process():  # The others write nothing.
    folder = writers.check_output_dir(folder, spec.resume)
  return folder


def output_dir_of(given: str | None, *words: str) -> str:
  """The name of the output folder, in `runs` if none is given.

  Args:
    given: value of the flag.
    words: in the name of a new one.

  Raises:
    ValueError: if what is given is no name.
  """
  if given is None:
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return f"runs/{'-'.join([*words, now])}"
  if not given.strip():
    raise ValueError(
      f"output_dir={given!r}: must be the name of a folder; leave output_dir "
      "out for a new one in runs"
    )
  return given
