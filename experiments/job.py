"""From flags to all that a run needs, checked before anything is compiled."""

import datetime
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from experiments import per_client, resuming, tasks, validation
from experiments.flags import clients, messages, methods, sampler, selection
from experiments.flags import tasks as task_flags
from experiments.flags.registries import single_or_list
from experiments.flags.settings import (
  BATCH_SIZE,
  BATCH_SIZE_OF_CLIENTS,
  COHORT_SIZE,
  TRACED,
)
from experiments.stopping import Stopping
from experiments.tasks import Task, TaskChoice
from fedjax_opt import (
  Algorithm,
  Population,
  Run,
  evaluation,
  grid_points,
  plots,
  trainable,
)
from fedjax_opt.checks import values as checks
from fedjax_opt.data import digest
from fedjax_opt.data.clients import ClientData
from fedjax_opt.engine import client_state, contract, inputs, processes
from fedjax_opt.engine.config import Config, check_grid_map
from fedjax_opt.engine.plan import check_one_budget
from fedjax_opt.metrics import Criterion
from fedjax_opt.registry import check_choice
from fedjax_opt.results import writers
from fedjax_opt.results.checkpoint import Checkpoints
from fedjax_opt.transforms.setting import applied

Clients = dict[int, ClientData] | dict[int, Population]  # of each seed


class Resolved(NamedTuple):
  """What the flags say, before any data is loaded."""

  flags: dict[str, Any]  # with defaults filled in; None where there is none yet
  task: TaskChoice
  setup: methods.Setup
  seeds: list[int]
  partition: dict[str, Any]  # flags of the partition; {} if there is none
  on_disk: Population | None  # the clients of `--population_dir`


class Job(NamedTuple):
  """All that a run needs, checked."""

  # Every flag that has a value, resolved; and the digests of the data.
  flags: dict[str, Any]
  setup: methods.Setup
  make: Callable[..., Algorithm]  # of the hyperparameters of a point
  points: list[dict[str, Any]]  # of the grid
  task: Task
  criterion: Criterion  # by which settings are compared
  data: Clients
  held_out: per_client.HeldOut  # what clients are tested on after the run
  settings: dict[str, Any]  # of the simulator
  output_dir: pathlib.Path
  checkpoints: Checkpoints | None
  finished: Run | None  # the run, if there is nothing left to do
  stopping: Stopping  # what ends it before its last round


def sweep_arguments(job: Job) -> dict[str, Any]:
  """What `sweep` is given, but for the algorithm, its grid and the model.

  `cohort_size` and what else `Settings` has come from `job.settings`.
  """
  return {
    "seeds": list(job.data),
    "test": job.task.test,
    "validation": job.task.validation,
    "grid_map": job.flags["grid_map"],
    "grid_chunk": job.flags.get("grid_chunk"),
    "grid_devices": job.flags.get("grid_devices"),
    **job.settings,
  }


def prepare(flags: dict[str, Any]) -> Job:
  """Checks the flags, what is quick to check first, and loads the data.

  Raises:
    ValueError: naming the flag that cannot be. Nothing was compiled or written.
    ImportError: naming the package to install.
  """
  plots.check_installed()
  resolved = resolve(flags)
  on_disk = resolved.on_disk
  if on_disk is not None:
    validation.check_test_part(resolved.flags, on_disk)
  output_dir = _output_dir(resolved.flags)
  flags, setup, seeds = resolved.flags, resolved.setup, resolved.seeds
  task, data, held_out = load(resolved)
  criterion = validation.criterion(task, flags, setup.regularizer is not None)
  stopping = Stopping(flags, criterion, task.num_classes)
  num_clients = data[seeds[0]].num_clients
  flags["cohort_size"] = _cohort_size(flags, setup, num_clients)
  sampler.check_groups(flags, num_clients)
  messages.check_cohort(flags)
  settings = _settings(flags, setup, task)
  points = grid_points(setup.grid, seeds)
  devices = {
    "grid_devices": flags["grid_devices"],
    "num_settings": len(points) // len(seeds),
  }
  configs = [Config.create(data[seed], settings, **devices) for seed in seeds]
  make = _algorithms(setup, task, flags)
  _check_fit(setup, make, points[0], task, flags, configs, settings)
  flags |= {
    "seed": single_or_list(seeds),
    "output_dir": str(output_dir),
    "local_epochs": configs[0].plan.epochs,
    digest.NAME: data_digests(task, data, held_out),
  }
  flags = {name: value for name, value in flags.items() if value is not None}
  found = resuming.find(flags, output_dir, MAY_DIFFER)
  return Job(
    flags,
    setup,
    make,
    points,
    task,
    criterion,
    data,
    held_out,
    settings,
    output_dir,
    *found,
    stopping,
  )


def resolve(flags: dict[str, Any]) -> Resolved:
  """Checks the flags as far as that needs no data, and fills in defaults.

  Clients on disk say what was held out of them.

  Raises:
    ValueError: naming the flag that cannot be.
  """
  on_disk = clients.on_disk(flags)
  if on_disk is not None:
    flags = validation.of_disk(flags, on_disk)
  options = task_flags.resolve(flags)
  task = tasks.TASKS[flags["task"]]
  setup = methods.resolve(flags, task.regularizer, task.defaults)
  seeds = methods.seeds(flags)
  has_clients = task.brings_clients(flags)
  partition = clients.resolve(flags, has_clients)
  selected = selection.resolve(flags, task)
  sent = messages.resolve(flags)
  tests = clients.tests_of(flags, setup.algorithm.choice.is_personal)
  flags = flags | options | setup.resolved() | partition | selected | sent
  flags |= tests
  _check_settings(flags, task, setup)
  defaults = {
    "batch_size": BATCH_SIZE_OF_CLIENTS if has_clients else BATCH_SIZE,
  }
  if setup.algorithm.choice.cohort == "sampled":
    defaults["cohort_size"] = COHORT_SIZE
  if flags["local_steps"] is None:
    defaults["local_epochs"] = 1.0
  for name, default in defaults.items():
    if flags[name] is None:
      flags[name] = default
  return Resolved(flags, task, setup, seeds, partition, on_disk)


def _check_settings(
  flags: dict[str, Any], task: TaskChoice, setup: methods.Setup
) -> None:
  """Checks the flags that belong to no choice."""
  checks.at_least("rounds", flags["rounds"], 0)
  check_one_budget(flags["local_epochs"], flags["local_steps"])
  if flags["eval_every"] < 1:
    raise ValueError(f"eval_every={flags['eval_every']}: must be at least 1")
  check_choice("sampling", flags["sampling"], ["shuffle", "replacement"])
  check_grid_map(flags["grid_map"], flags["grid_chunk"])
  check_choice("x_axis", flags["x_axis"], plots.X_AXES)
  sampler.check(flags)
  clients.check_tests(flags)
  if flags["trace"] and not setup.client.choice.traced:
    raise ValueError(
      f"trace=True: client {flags['client']} has no step sizes to record; must "
      f"be {', '.join(TRACED)}"
    )
  if flags["independent_dropout"] and flags["augmentation"] not in (
    None,
    "none",
  ):
    raise ValueError(
      "independent_dropout=True: augmentation="
      f"{flags['augmentation']!r} would be drawn anew as well, so that the two "
      "gradients had different images; leave one of them out"
    )
  if flags["optimum"]:
    _check_optimum(flags, task, setup)
  _check_cohort(flags, setup)


def _check_optimum(
  flags: dict[str, Any], task: TaskChoice, setup: methods.Setup
) -> None:
  """Checks that there is an optimum which can be found."""
  if not task.is_convex:
    raise ValueError(
      f"optimum=True: the loss of task {flags['task']} is not convex; must be "
      "a task of linear or logistic regression"
    )
  if setup.regularizer is None:
    raise ValueError(
      f"optimum=True: algorithm {setup.algorithm.name} has no regularizer, "
      "without which a minimum may not exist; must be one that has"
    )
  if flags["population_dir"]:
    raise ValueError(
      "optimum=True: needs the data of all clients in memory; leave "
      "population_dir out"
    )
  if flags["l2"]:
    raise ValueError(
      f"optimum=True: l2={flags['l2']:g} is not in the losses that are "
      "reported, so there would be no gap to measure; leave l2 out"
    )
  if flags["trainable"]:
    raise ValueError(
      f"optimum=True: is that of all leaves, and trainable="
      f"{flags['trainable']!r} are some; leave trainable out"
    )


def _check_cohort(flags: dict[str, Any], setup: methods.Setup) -> None:
  """Checks the flags that an algorithm with a cohort of its own cannot have."""
  name, choice = setup.algorithm.name, setup.algorithm.choice
  if flags["population_dir"] and choice.cohort == "first":
    raise ValueError(
      f"population_dir={flags['population_dir']!r}: algorithm {name} takes the "
      "first client in every round, and only the clients of cohorts are read; "
      "must be another"
    )
  if choice.cohort != "sampled" and flags["sampler"] != "uniform":
    whom = "all clients" if choice.cohort == "all" else "the first client"
    raise ValueError(
      f"sampler={flags['sampler']!r}: algorithm {name} has {whom} in each "
      "round; leave sampler out"
    )
  if not choice.is_exact:
    return
  idle = {"sampling": "shuffle", "drop_remainder": False}
  for flag in ("local_epochs", "local_steps", *idle):
    if flags[flag] != idle.get(flag):
      raise ValueError(
        f"{flag}={flags[flag]}: algorithm {name} takes one step a round, along "
        f"the exact gradient; leave {flag} out"
      )


def _cohort_size(
  flags: dict[str, Any], setup: methods.Setup, num_clients: int
) -> int:
  """The clients of a round, which some algorithms determine."""
  given, name = flags["cohort_size"], setup.algorithm.name
  cohort = setup.algorithm.choice.cohort
  if cohort == "sampled":
    return given
  needed = num_clients if cohort == "all" else 1
  if given not in (None, needed):
    raise ValueError(
      f"cohort_size={given}: algorithm {name} has {needed} of the "
      f"{num_clients} clients in each round; leave cohort_size out"
    )
  return needed


# Data.


def load(resolved: Resolved) -> tuple[Task, Clients, per_client.HeldOut]:
  """The task, the clients of each seed, and what is held out of their examples.

  Raises:
    ValueError: for data that cannot be read, or divided as the flags say.
  """
  flags, on_disk = resolved.flags, resolved.on_disk
  task = validation.held_out(tasks.load(flags), flags)
  if on_disk is not None:
    clients.check_examples(on_disk, task)
    clients.check_labels(on_disk, task.num_classes)
    return task, dict.fromkeys(resolved.seeds, on_disk), per_client.HeldOut()
  data, held_out = per_client.divide(
    task, flags, resolved.partition, resolved.seeds
  )
  return task, data, held_out


def data_digests(
  task: Task, data: Clients, held_out: per_client.HeldOut
) -> digest.Digests:
  """Digests of the data of a run, see `load`."""
  every = [*data.values(), *held_out.clients()]
  return digest.of_data(every, task.validation, task.test)


def _algorithms(
  setup: methods.Setup, task: Task, flags: dict[str, Any]
) -> Callable[..., Algorithm]:
  """The algorithm of a point, which perhaps trains some leaves only."""
  rounds, paths = flags["rounds"], task_flags.trainable(flags)
  if not paths:
    return setup.make(task.loss_fn, task.features_fn, rounds)
  model = jax.eval_shape(lambda: task.init(jax.random.key(0)))
  trainable.mask(model, paths)

  def make(**point: Any) -> Algorithm:
    of = lambda loss_fn, features_fn=None: setup.make(
      loss_fn, features_fn, rounds
    )(**point)
    return trainable.train_only(of, paths, task.loss_fn, task.features_fn)

  return make


def _check_fit(
  setup: methods.Setup,
  make: Callable[..., Algorithm],
  point: dict[str, Any],
  task: Task,
  flags: dict[str, Any],
  configs: Sequence[Config],
  settings: dict[str, Any],
) -> None:
  """Checks that algorithm and regularizer can use the task's model."""
  if setup.algorithm.choice.takes_features and task.features_fn is None:
    raise ValueError(
      f"algorithm={flags['algorithm']!r}: compares features before the last "
      f"layer, which the model of task {flags['task']} does not have; must be "
      "another, or a task of images"
    )
  point = {name: point[name] for name in setup.grid}
  algorithm = applied(make, settings, point)(**point)
  client_state.check(configs[0], algorithm)
  model = jax.eval_shape(lambda: task.init(jax.random.key(0)))
  for config in configs:
    inputs.check_statistics(
      model, config.plan, algorithm, f"norm={flags['norm']!r}"
    )
  # What is trained, kept by a client, or sent in private must be of the model.
  is_personal = setup.algorithm.choice.is_personal
  if is_personal or setup.privacy or task_flags.trainable(flags):
    number = configs[0].num_clients
    start = lambda params: contract.start(algorithm, params, number)
    jax.eval_shape(start, model)
  if algorithm.penalty is None:
    return
  try:
    jax.eval_shape(algorithm.penalty, model)
  except ValueError as error:
    raise ValueError(f"regularizer={flags['regularizer']!r}: {error}") from None


def _settings(
  flags: dict[str, Any], setup: methods.Setup, task: Task
) -> dict[str, Any]:
  names = (
    "cohort_size", "batch_size", "local_epochs", "local_steps",
    "drop_remainder", "weighting", "client_map", "client_chunk", "eval_every",
    "client_dropout", "max_update_norm", "max_update_action",
    "client_devices", "client_memory", "precision",
  )  # fmt: skip
  evaluate = task.evaluate
  if flags["grad_norm"]:
    loss_fn, paths = task.loss_fn, task_flags.trainable(flags)
    if paths:
      loss_fn = trainable.differentiated(loss_fn, paths)
    norm = evaluation.grad_norm_sq(loss_fn)
    both = lambda *args, **held: task.evaluate(*args, **held) | norm(*args)
    evaluate = both
  return {name: flags[name] for name in names} | {
    "replacement": flags["sampling"] == "replacement",
    "evaluate": evaluate,
    "trace": setup.client.choice.traced if flags["trace"] else (),
    **sampler.settings(flags),
    **messages.settings(flags),
  }


# The output folder, and what was there before.


def _output_dir(flags: dict[str, Any]) -> pathlib.Path:
  """The folder for the results, which is not made yet."""
  given = flags["output_dir"]
  if given is not None and not given.strip():
    raise ValueError(
      f"output_dir={given!r}: must be the name of a folder; leave output_dir "
      "out for a new one in runs"
    )
  if flags["resume"] and given is None:
    raise ValueError("resume=True: output_dir must say which run to go on with")
  folder = pathlib.Path(given or _default_folder(flags))
  if processes.is_first_process():  # The others write nothing.
    folder = writers.check_output_dir(folder, flags["resume"])
  return folder


def _default_folder(flags: dict[str, Any]) -> str:
  now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
  return f"runs/{flags['task']}-{flags['algorithm']}-{flags['client']}-{now}"


# Flags that may differ when a run is resumed: they do not change its results.
# Where the data are does not say what they are.
# `rounds` may grow, see resuming.py.
MAY_DIFFER = (
  "checkpoint_every", "compilation_cache", "coordinator", "data_dir",
  "output_dir", "process_id", "profile", "progress", "resume", "x_axis",
)  # fmt: skip
