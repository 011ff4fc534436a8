"""From flags to all that a run needs, checked before anything is compiled."""

import dataclasses
import datetime
import json
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from experiments import config, population, tasks
from experiments.task import Task
from fedjax_opt import (
  Population,
  evaluation,
  grid_points,
  plots,
  sharding,
)
from fedjax_opt.data.clients import ClientData
from fedjax_opt.host_memory import check_memory
from fedjax_opt.hyperparameters import check_choice
from fedjax_opt.program import Program
from fedjax_opt.results import environment, json_files, writers
from fedjax_opt.results.checkpoint import Checkpoints, difference
from fedjax_opt.sweep import check_grid_map

# Fields of Delta-SGD's state that `--trace` records.
TRACED = ("step_size", "smoothness_step", "growth_step")


class Job(NamedTuple):
  """All that a run needs, checked."""

  flag: dict[str, Any]  # every flag that has a value, resolved
  setup: config.Setup
  points: list[dict[str, Any]]  # of the grid
  task: Task
  data: dict[int, ClientData] | dict[int, Population]  # of each seed
  settings: dict[str, Any]  # of the simulator
  output_dir: pathlib.Path
  checkpoints: Checkpoints | None


def prepare(flag: dict[str, Any]) -> Job:
  """Checks the flags, what is quick to check first, and loads the data.

  Raises:
    ValueError: naming the flag that cannot be. Nothing was compiled or written.
    ImportError: naming the package to install.
  """
  plots.check_installed()
  options = tasks.resolve(flag)
  entry = tasks.TASKS[flag["task"]]
  setup = config.resolve(flag, entry.regularizer, entry.client_lr)
  seeds = config.seeds(flag)
  on_disk = population.on_disk(flag)
  parameters = population.resolve(flag, entry.has_clients)
  flag = flag | options | setup.resolved() | parameters
  if flag["rounds"] < 0:
    raise ValueError(f"rounds={flag['rounds']}: must not be negative")
  if flag["eval_every"] < 1:
    raise ValueError(f"eval_every={flag['eval_every']}: must be at least 1")
  check_choice("sampling", flag["sampling"], ["shuffle", "replacement"])
  check_grid_map(flag["grid_map"], flag["grid_chunk"])
  check_choice("x_axis", flag["x_axis"], plots.X_AXES)
  if flag["trace"] and flag["client"] != "delta_sgd":
    raise ValueError(
      f"trace=True: client {flag['client']} has no step sizes to record; must "
      "be delta_sgd"
    )
  if flag["optimum"]:
    _check_optimum(entry, setup, flag)
  if on_disk is not None and flag["algorithm"] == "local":
    raise ValueError(
      f"population_dir={flag['population_dir']!r}: algorithm local takes the "
      "first client in every round, and only the clients of cohorts are read; "
      "must be another"
    )
  if flag["resume"] and flag["output_dir"] is None:
    raise ValueError("resume=True: output_dir must say which run to go on with")
  output_dir = pathlib.Path(flag["output_dir"] or _default_folder(flag))
  if sharding.is_first_process():  # The others write nothing.
    output_dir = writers.check_output_dir(output_dir, flag["resume"])

  task = tasks.load(flag)
  if not setup.algorithm.has("regularizer"):
    metric = task.criterion.metric.removeprefix("regularized_")
    criterion = dataclasses.replace(task.criterion, metric=metric)
    task = task._replace(criterion=criterion)
  if on_disk is not None:
    population.check_examples(on_disk, task)
    population.check_labels(on_disk, task.num_classes)
    data = dict.fromkeys(seeds, on_disk)
  elif task.clients is not None:
    data = dict.fromkeys(seeds, task.clients)
  else:
    data = population.populations(
      task.train, task.num_classes, parameters, seeds
    )
  if flag["batch_size"] is None:
    flag["batch_size"] = 10 if entry.has_clients else 64
  flag["cohort_size"] = _cohort_size(flag, data[seeds[0]].num_clients)
  settings = _settings(flag, task)
  points = grid_points(setup.grid, seeds)
  devices = {
    "grid_devices": flag["grid_devices"],
    "num_settings": len(points) // len(seeds),
  }
  programs = [
    Program.create(data[seed], **settings, **devices) for seed in seeds
  ]

  _check_fit(setup, points[0], task, flag, programs)
  resolved = {
    **flag,
    "seed": config.single_or_list(seeds),
    "output_dir": str(output_dir),
    "local_epochs": programs[0].plan.epochs,
  }
  resolved = {n: value for n, value in resolved.items() if value is not None}
  checkpoints = _checkpoints(resolved, output_dir)
  return Job(
    resolved, setup, points, task, data, settings, output_dir, checkpoints
  )


# Flags that may differ where a run goes on: they do not change its results.
_MAY_DIFFER = (
  "compilation_cache", "coordinator", "output_dir", "process_id", "progress",
  "resume", "x_axis",
)  # fmt: skip


def _checkpoints(
  flag: dict[str, Any], output_dir: pathlib.Path
) -> Checkpoints | None:
  """Where to save the run and whether to go on; None for neither.

  Raises:
    ValueError: if what is there is of other flags or versions.
  """
  every, resume = flag.get("checkpoint_every"), flag["resume"]
  if every is None and not resume:
    return None
  identity = {
    "versions": environment.versions(),
    "device": environment.device(),
  }
  identity = json_files.plain(flag | identity)
  identity = {n: v for n, v in identity.items() if n not in _MAY_DIFFER}
  folder = output_dir / "checkpoints"
  if resume:
    before = _config_of(output_dir)
    before = {n: v for n, v in before.items() if n not in _MAY_DIFFER}
    if before != identity:
      raise ValueError(
        f"resume=True: {str(output_dir)!r} holds a run with "
        f"{difference(before, identity)}; give the flags of that run, or "
        "another folder"
      )
  if resume and not Checkpoints.are_in(folder):
    # A run that was stopped before its first checkpoint begins anew.
    resume = False
    if every is None and (output_dir / "metrics.csv").exists():
      raise ValueError(
        f"resume=True: {str(output_dir)!r} holds no checkpoint to go on from; "
        "the run had no checkpoint_every"
      )
  return Checkpoints(folder, every, resume=resume, identity=identity)


def _cohort_size(flag: dict[str, Any], population: int) -> int:
  algorithm, given = flag["algorithm"], flag["cohort_size"]
  needed = {"centralized": population, "local": 1}.get(algorithm)
  if needed is None:
    return 10 if given is None else given
  idle = {"sampling": "shuffle", "drop_remainder": False}
  for name in ("local_epochs", "local_steps", *idle):
    if flag[name] != idle.get(name):
      raise ValueError(
        f"{name}={flag[name]}: algorithm {algorithm} takes one step a round, "
        f"along the exact gradient; leave {name} out"
      )
  if given not in (None, needed):
    raise ValueError(
      f"cohort_size={given}: algorithm {algorithm} has {needed} of the "
      f"{population} clients in each round; leave cohort_size out"
    )
  return needed


def _check_optimum(
  entry: tasks.Entry, setup: config.Setup, flag: dict[str, Any]
) -> None:
  """That there is an optimum which can be found."""
  if not entry.is_convex:
    raise ValueError(
      f"optimum=True: the loss of task {flag['task']} is not convex; must be "
      "a task of linear or logistic regression"
    )
  if not setup.algorithm.has("regularizer"):
    raise ValueError(
      f"optimum=True: algorithm {setup.algorithm.name} has no regularizer, "
      "without which a minimum may not exist; must be one that has"
    )
  if flag["population_dir"]:
    raise ValueError(
      "optimum=True: needs the data of all clients in memory; leave "
      "population_dir out"
    )
  if flag["l2"]:
    raise ValueError(
      f"optimum=True: l2={flag['l2']:g} is not in the losses that are "
      "reported, so there would be no gap to measure; leave l2 out"
    )


def _check_fit(
  setup: config.Setup,
  point: dict[str, Any],
  task: Task,
  flag: dict[str, Any],
  programs: Sequence[Program],
) -> None:
  """That algorithm and regularizer can do with the task's model."""
  if setup.algorithm.takes("features_fn") and task.features_fn is None:
    raise ValueError(
      f"algorithm={flag['algorithm']!r}: compares features before the last "
      f"layer, which the model of task {flag['task']} does not have; must be "
      "another, or a task of images"
    )
  if task.has_statistics:
    _check_statistics(setup, programs)
  make = setup.make(task.loss_fn, task.features_fn, flag["rounds"])
  algorithm = make(**{name: point[name] for name in setup.grid})
  check_memory(programs[0], algorithm)
  penalty = algorithm.penalty
  if penalty is None:
    return
  try:
    jax.eval_shape(lambda seed: penalty(task.init(jax.random.key(seed))), 0)
  except ValueError as error:
    raise ValueError(f"regularizer={flag['regularizer']!r}: {error}") from None


def _check_statistics(setup: config.Setup, programs: Sequence[Program]) -> None:
  """That batch normalization's running statistics are followed rightly."""
  algorithm = setup.algorithm
  if algorithm.is_plain:
    raise ValueError(
      f"norm='batch': algorithm {algorithm.name} is made of plain steps, which "
      "running statistics do not follow; must be group or none"
    )
  if algorithm.takes("features_fn"):
    raise ValueError(
      f"norm='batch': algorithm {algorithm.name} runs the model several times "
      "in a step, and each would move the running statistics; must be group or "
      "none"
    )
  if not all(program.plan.full for program in programs):
    raise ValueError(
      "norm='batch': the statistics of a batch that is not full would count "
      "its padding; give drop_remainder, or sampling=replacement"
    )


def _settings(flag: dict[str, Any], task: Task) -> dict[str, Any]:
  names = (
    "cohort_size", "batch_size", "local_epochs", "local_steps",
    "drop_remainder", "weighting", "client_map", "client_chunk", "eval_every",
    "client_dropout", "client_devices", "client_memory", "precision",
  )  # fmt: skip
  evaluate = task.evaluate
  if flag["grad_norm"]:
    norm = evaluation.grad_norm_sq(task.loss_fn)
    evaluate = lambda *args: task.evaluate(*args) | norm(*args)
  return {name: flag[name] for name in names} | {
    "replacement": flag["sampling"] == "replacement",
    "evaluate": evaluate,
    "trace": TRACED if flag["trace"] else (),
  }


def _default_folder(flag: dict[str, Any]) -> str:
  now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
  return f"runs/{flag['task']}-{flag['algorithm']}-{flag['client']}-{now}"


def _config_of(output_dir: pathlib.Path) -> dict[str, Any]:
  """The `config.json` of a run."""
  path = output_dir / "config.json"
  try:
    return dict(json.loads(path.read_text()))
  except (OSError, ValueError, TypeError):
    raise ValueError(
      f"resume=True: {str(path)!r} cannot be read; give the folder of a run"
    ) from None
