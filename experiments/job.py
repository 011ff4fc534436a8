"""From a specification to all that a run needs, checked before it compiles."""

import dataclasses
import datetime
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from experiments import data, methods, resuming, tasks
from experiments.spec import clients
from experiments.spec.spec import Spec
from experiments.stopping import Stopping
from experiments.tasks import Task
from fedjax_opt import Algorithm, Population, Run, grid_points, plots
from fedjax_opt.aggregators import least_cohort
from fedjax_opt.checks import algorithms
from fedjax_opt.data.clients import ClientData
from fedjax_opt.engine import client_state, processes
from fedjax_opt.engine.config import Config
from fedjax_opt.metrics import Criterion
from fedjax_opt.results import writers
from fedjax_opt.results.checkpoint import Checkpoints
from fedjax_opt.transforms.setting import applied

Clients = dict[int, ClientData] | dict[int, Population]  # of each seed


class Job(NamedTuple):
  """All that a run needs, checked."""

  spec: Spec  # with what the data decide
  make: Callable[..., Algorithm]  # of the hyperparameters of a point
  points: list[dict[str, Any]]  # of the grid
  task: Task
  criterion: Criterion  # by which settings are compared
  data: Clients
  held_out: data.HeldOut  # what clients are tested on after the run
  settings: dict[str, Any]  # of the simulator
  output_dir: pathlib.Path
  checkpoints: Checkpoints | None
  finished: Run | None  # the run, if there is nothing left to do
  stopping: Stopping  # what ends it before its last round


def sweep_arguments(job: Job) -> dict[str, Any]:
  """What `sweep` is given, but for the algorithm, its grid and the model.

  `cohort_size` and what else `Settings` has comes from `job.settings`.
  """
  return {
    "seeds": list(job.data),
    "test": job.task.test,
    "validation": job.task.validation,
    "grid_map": job.spec.grid_map,
    "grid_chunk": job.spec.grid_chunk,
    "grid_devices": job.spec.grid_devices,
    **job.settings,
  }


def prepare(spec: Spec, on_disk: Population | None = None) -> Job:
  """Loads the data, and checks what the specification needs of them.

  Args:
    spec: what runs.
    on_disk: the clients of `population_dir`, if that is given.

  Raises:
    ValueError: naming the flag that cannot be. Nothing was compiled or written.
    ImportError: naming the package to install.
  """
  plots.check_installed()
  if on_disk is not None:
    clients.check_test_part(spec, on_disk)
  output_dir = _output_dir(spec)
  task = data.held_out(spec, tasks.load(spec))
  criterion = data.criterion(spec, task)
  stopping = Stopping(spec, criterion, task.num_classes)
  of_seed, held_out = _load_clients(spec, task, on_disk)
  num_clients = of_seed[spec.seed[0]].num_clients
  size = _cohort_size(spec, num_clients)
  spec = dataclasses.replace(spec, cohort_size=size)
  _check_cohort(spec, num_clients)
  settings = methods.settings_of(spec, task)
  points = grid_points(spec.grid, spec.seed)
  devices = {
    "grid_devices": spec.grid_devices,
    "num_settings": len(points) // len(spec.seed),
  }
  configs = [Config.create(of_seed[s], settings, **devices) for s in spec.seed]
  make = methods.algorithm_of(spec, task)
  _check_fit(spec, make, points[0], task, configs, settings)
  spec = dataclasses.replace(
    spec, output_dir=str(output_dir), local_epochs=configs[0].plan.epochs
  )
  found = resuming.find(spec, output_dir)
  return Job(
    spec,
    make,
    points,
    task,
    criterion,
    of_seed,
    held_out,
    settings,
    output_dir,
    *found,
    stopping,
  )


def _cohort_size(spec: Spec, num_clients: int) -> int:
  """The clients of a round, which some algorithms determine."""
  given, name = spec.cohort_size, spec.algorithm.name
  cohort = spec.algorithm.choice.cohort
  if cohort == "sampled":
    return given
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


def _load_clients(
  spec: Spec, task: Task, on_disk: Population | None
) -> tuple[Clients, data.HeldOut]:
  """The clients of each seed, and what is held out of their examples."""
  if on_disk is None:
    return data.divide(spec, task, spec.seed)
  data.check_examples(on_disk, task)
  data.check_labels(on_disk, task.num_classes)
  return dict.fromkeys(spec.seed, on_disk), data.HeldOut()


def _check_fit(
  spec: Spec,
  make: Callable[..., Algorithm],
  point: dict[str, Any],
  task: Task,
  configs: Sequence[Config],
  settings: dict[str, Any],
) -> None:
  """Checks that algorithm and regularizer can use the task's model."""
  choice = spec.algorithm.choice
  if choice.takes_features and task.features_fn is None:
    raise ValueError(
      f"algorithm={spec.algorithm.name!r}: compares features before the last "
      f"layer, which the model of task {spec.task.name} does not have; must be "
      "another, or a task of images"
    )
  if task.has_statistics:
    _check_statistics(spec, configs)
  point = {name: point[name] for name in spec.grid}
  algorithm = applied(make, settings, point)(**point)
  client_state.check(configs[0], algorithm)
  model = jax.eval_shape(lambda: task.init(jax.random.key(0)))
  # What a client keeps for itself, or sends in private, must be of the model.
  if choice.is_personal or spec.privacy is not None:
    number = configs[0].num_clients
    start = lambda params: algorithms.start(algorithm, params, number)
    jax.eval_shape(start, model)
  if algorithm.penalty is None:
    return
  try:
    jax.eval_shape(algorithm.penalty, model)
  except ValueError as error:
    raise ValueError(
      f"regularizer={spec.regularizer.name!r}: {error}"
    ) from None


def _check_statistics(spec: Spec, configs: Sequence[Config]) -> None:
  """Checks that running statistics follow what clients compute."""
  name, choice = spec.algorithm.name, spec.algorithm.choice
  norm = spec.task.static["norm"]
  if choice.client == "plain":
    raise ValueError(
      f"norm={norm!r}: algorithm {name} is made of plain steps, which running "
      "statistics do not follow; must be group or none"
    )
  if choice.takes_features:
    raise ValueError(
      f"norm={norm!r}: algorithm {name} runs the model several times in a "
      "step, and each would move the running statistics; must be group or none"
    )
  if not all(config.plan.is_full for config in configs):
    raise ValueError(
      f"norm={norm!r}: the statistics of a batch that is not full would count "
      "its padding; give drop_remainder, or sampling=replacement"
    )


def _output_dir(spec: Spec) -> pathlib.Path:
  """The folder for the results, which is not made yet."""
  given = spec.output_dir
  if given is not None and not given.strip():
    raise ValueError(
      f"output_dir={given!r}: must be the name of a folder; leave output_dir "
      "out for a new one in runs"
    )
  if spec.resume and given is None:
    raise ValueError("resume=True: output_dir must say which run to go on with")
  if given is None:
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    words = (spec.task.name, spec.algorithm.name, spec.client.name, now)
    given = f"runs/{'-'.join(words)}"
  folder = pathlib.Path(given)
  if processes.is_first_process():  # The others write nothing.
    folder = writers.check_output_dir(folder, spec.resume)
  return folder
