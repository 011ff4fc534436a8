"""From a specification to its simulator, checked before anything compiles."""

import contextlib
import dataclasses
import datetime
import functools
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

import fedjax_opt as fo
from experiments.single_run import building, timetables, tracking
from experiments.single_run.loading import Loaded, load_data
from experiments.single_run.timetables import Timetables
from experiments.specification.choice_flags import check_absent
from experiments.specification.spec import (
  COHORT_SIZE,
  LIMITED,
  SIZE_FLAGS,
  Spec,
)
from experiments.tasks import Task, base
from fedjax_opt.checks.errors import reworded_errors
from fedjax_opt.data import digest
from fedjax_opt.data.clients import ClientData
from fedjax_opt.engine.batch_plan import default_batch_size
from fedjax_opt.files.folders import user_path
from fedjax_opt.results import run_writer
from fedjax_opt.results.metric_names import direction
from fedjax_opt.results.selection import Criterion
from fedjax_opt.scores import SCORES
from fedjax_opt.transforms import faults
from fedjax_opt.transforms.aggregators import least_cohort


class Job(NamedTuple):
  """All that a run needs, checked.

  Attributes:
    spec: completed by what the data decide.
    make: the hyperparameters of a point -> its algorithm.
    points: the points of the grid.
    loaded: the data and the model.
    criterion: compares settings.
    options: the simulator's options.
    simulator: computes all points.
    timetables: the timetable of each seed; None without a clock.
    seconds_away: seed -> [M], the typical time for which each client is away;
      {} without a clock.
    output_dir: the folder of the run.
    limited: flags whose defaults the clients limited.
  """

  spec: Spec
  make: Callable[..., fo.Algorithm]
  points: list[dict[str, Any]]
  loaded: Loaded
  criterion: Criterion
  options: dict[str, Any]
  simulator: fo.Simulator
  timetables: Timetables | None
  seconds_away: dict[int, np.ndarray]
  output_dir: pathlib.Path
  limited: list[str]

  @property
  def task(self) -> Task:
    """Data and model."""
    return self.loaded.task

  @property
  def clients(self) -> dict[int, ClientData] | dict[int, fo.Population]:
    """The clients of each seed."""
    return self.loaded.clients

  @property
  def config(self) -> dict[str, Any]:
    """The content of config.json."""
    digests = timetables.with_clock_files(self.spec, self.loaded.digests)
    config = self.spec.values() | {digest.DATA_DIGESTS: digests}
    return config | ({LIMITED: self.limited} if self.limited else {})

  @property
  def rounds(self) -> int:
    """The rounds of the run, unless something ends it earlier."""
    return timetables.rounds_of(self.spec, self.timetables)

  def simulate(self, **options: Any) -> fo.Result:
    """Simulates all points; each of several processes does the same.

    Args:
      **options: further arguments of `Simulator.run_all`.
    """
    with compiled_kept_in(self.spec.compilation_cache):
      return self.simulator.run_all(self.task.init, self.rounds, **options)


@contextlib.contextmanager
def compiled_kept_in(folder: str) -> Iterator[None]:
  """Lets JAX keep compiled programs, unless it has a folder for them already.

  Args:
    folder: folder of compiled programs, or "none".
  """
  if folder == "none" or jax.config.jax_compilation_cache_dir is not None:
    yield
    return

  def use(folder: str | None, min_seconds: float) -> None:
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", min_seconds)
    compilation_cache.reset_cache()  # Or JAX uses its former folder.

  former_seconds = jax.config.jax_persistent_cache_min_compile_time_secs
  # Only programs that take long: a run has hundreds of small ones.
  use(str(user_path(folder)), 0.5)
  try:
    yield
  finally:
    use(None, former_seconds)


def prepare(spec: Spec, loaded: Loaded | None = None) -> Job:
  """Loads the data, and checks what the specification needs of them.

  Args:
    spec: what runs.
    loaded: its data, if they are loaded already.

  Raises:
    ValueError: naming the invalid flag. Nothing was compiled or written.
    ImportError: naming the package to install.
  """
  fo.plots.check_installed()
  tracking.check_installed(spec.track)
  output_dir = _output_dir(spec)
  loaded = load_data(spec) if loaded is None else loaded
  task, clients = loaded.task, loaded.clients
  _check_task(spec, task)
  num_clients = clients[spec.seed[0]].num_clients
  sizes = {
    "cohort_size": _cohort_size(spec, num_clients),
    "batch_size": _batch_size(spec, clients.values()),
  }
  limited = [n for n in SIZE_FLAGS if getattr(spec, n) != sizes[n]]
  spec = dataclasses.replace(spec, **sizes)
  _check_limits(spec, num_clients)
  options, seconds_away = building.options_of(spec, task), {}
  if spec.schedule is not None:
    options["schedule"] = functools.partial(
      timetables.timetable_of, spec, seconds_away
    )
  make = building.algorithm_of(spec, task)
  simulator = fo.Simulator(
    make,
    clients.get,
    grid=spec.grid,
    seeds=spec.seed,
    test=task.test,
    validation=task.validation,
    **options,
  )
  _check_model(spec, make, task, simulator)
  made = timetables.timetables_of(spec, simulator, task.init)
  rounds = timetables.rounds_of(spec, made)
  criterion = criterion_of(dataclasses.replace(spec, rounds=rounds), task)
  return Job(
    dataclasses.replace(spec, output_dir=str(output_dir)),
    make,
    fo.grid_points(spec.grid, spec.seed),
    loaded,
    criterion,
    options,
    simulator,
    made,
    seconds_away,
    output_dir,
    limited,
  )


def _cohort_size(spec: Spec, num_clients: int) -> int:
  """C, which some algorithms determine, or the number of clients limits."""
  size, name = spec.cohort_size, spec.algorithm.name
  cohort = spec.algorithm.entry.cohort
  if cohort == "sampled":
    has_buffer = spec.schedule and "buffer" in spec.schedule.static
    if has_buffer or "cohort_size" in spec.user_flags:
      return size
    # What is held out of the clients, or a file, may leave fewer.
    return min(size or COHORT_SIZE, num_clients)
  needed = num_clients if cohort == "all" else 1
  if size not in (None, needed):
    raise ValueError(
      f"cohort_size={size}: algorithm {name} takes {needed} of the "
      f"{num_clients} clients in each round; leave cohort_size out"
    )
  return needed


def _batch_size(
  spec: Spec, clients: Iterable[fo.ClientData | fo.Population]
) -> int:
  """B, which the largest client limits if none was given; see `RunOptions`."""
  if "batch_size" in spec.user_flags:
    return spec.batch_size
  largest = max(int(c.sizes.max()) for c in clients)
  is_fixed = spec.drop_remainder or spec.sampling == "replacement"
  return default_batch_size(spec.batch_size, largest, is_fixed)


def _check_limits(spec: Spec, num_clients: int) -> None:
  """Checks what sampler, schedule and aggregator need of the cohort."""
  places = spec.cohort_size
  clients = f"the number of clients, {num_clients}"
  limits = {
    "concurrency": (num_clients, clients),
    "over_selection": (
      num_clients - places,
      f"{num_clients - places}, with cohort_size={places} of {num_clients} "
      "clients",
    ),
    "sampler_expected": (
      min(places, num_clients),
      f"cohort_size={places}, and {clients}",
    ),
    "sampler_groups": (num_clients, clients),
  }
  values = spec.sampler.static
  if spec.schedule:
    values = {**values, **spec.schedule.static}
  for flag, (limit, words) in limits.items():
    value = values.get(flag)
    if value and value > limit:
      raise ValueError(f"{flag}={value:.9g}: must be at most {words}")
  if spec.fault:
    with reworded_errors(fraction="faulty_fraction"):
      faults.clients_of(building.fault_of(spec), num_clients)
  faulty = spec.aggregator.static.get("krum_faulty")
  if faulty is not None and places < least_cohort(faulty):
    raise ValueError(
      f"krum_faulty={faulty}: needs at least {least_cohort(faulty)} clients in "
      f"a round; cohort_size is {places}"
    )


def _check_task(spec: Spec, task: Task) -> None:
  """Checks that the task has the features or accuracy that are needed."""
  if spec.algorithm.entry.takes("features_fn") and task.features_fn is None:
    raise ValueError(
      f"algorithm={spec.algorithm.name!r}: compares features before the last "
      f"layer, which the model of task {spec.task.name} does not have; give "
      "another algorithm, or a task of images"
    )
  if not task.has_accuracy:
    why = f"task {spec.task.name} has no accuracy"
    check_absent(spec.user_flags, why, "target_accuracy")


def _check_model(
  spec: Spec,
  make: Callable[..., fo.Algorithm],
  task: Task,
  simulator: fo.Simulator,
) -> None:
  """Checks that algorithm and regularizer can use the task's model."""
  penalty = make(**{n: v[0] for n, v in spec.grid.items()}).penalty
  if penalty is not None:
    with reworded_errors(f"regularizer={spec.regularizer.name!r}"):
      jax.eval_shape(lambda: penalty(task.init(jax.random.key(0))))
  with reworded_errors(params=f"norm={spec.task.static.get('norm')!r}"):
    simulator.trace(task.init)
  if spec.client.static.get("independent_dropout") and not _draws(task):
    raise ValueError(
      f"independent_dropout=True: the model of task {spec.task.name} has no "
      "dropout; leave independent_dropout out"
    )


def _draws(task: Task) -> bool:
  """Whether the loss of a task draws random numbers, as dropout does."""
  pool = task.train if task.clients is None else task.clients.examples
  batch = {name: values[:1] for name, values in pool.items()}
  rng = jax.eval_shape(jax.random.key, 0)
  params = jax.eval_shape(task.init, rng)
  with jax.disable_jit():  # A jitted function takes a key that it may ignore.
    traced = jax.make_jaxpr(task.loss_fn)(params, batch, rng)
  key = traced.jaxpr.invars[-1]
  return any(key in equation.invars for equation in traced.eqns)


def criterion_of(spec: Spec, task: Task) -> Criterion:
  """How the settings of a run are compared.

  Raises:
    ValueError: if the task has no such metric.
  """
  name, is_of_clients = spec.select_metric, spec.select_on == "clients"
  split = "client_validation" if is_of_clients else spec.select_on
  criterion = task.criteria["validation" if is_of_clients else split]
  metric, way = criterion.metric, criterion.direction
  if name is not None:
    _check_metric(spec, task)
    metric, way = f"{split}_{name}", direction(f"{split}_{name}")
  else:
    if spec.regularizer is None:
      metric = metric.removeprefix("regularized_")
    if is_of_clients:
      metric = f"client_{metric}"
  criterion = dataclasses.replace(criterion, metric=metric, direction=way)
  if spec.select_over is not None:
    n = _evaluations(spec.rounds, spec.eval_every, spec.select_over)
    criterion = dataclasses.replace(criterion, rule="worst_last_n", n=n)
  return criterion


def _check_metric(spec: Spec, task: Task) -> None:
  """Checks that the metric of `--select_metric` is measured."""
  name = spec.select_metric
  if name == "accuracy" and not task.has_accuracy:
    raise ValueError(
      f"select_metric={name!r}: task {spec.task.name} has no accuracy; leave "
      "select_metric out"
    )
  has_scores = spec.select_on not in ("train", "clients")
  measured = base.split_names(spec.metrics) if has_scores else []
  if name in SCORES and name not in measured:
    raise ValueError(
      f"select_metric={name!r}: must be accuracy or loss, or with select_on "
      "validation or test a score that --metrics names"
    )


def _evaluations(rounds: int, interval: int, last: int) -> int:
  """The number of evaluations in the last rounds, with that at the end.

  The one before the first round does not count: all settings have that model.
  """
  evaluated_rounds = range(interval, rounds, interval)
  return 1 + sum(rounds - i < last for i in evaluated_rounds)


def _output_dir(spec: Spec) -> pathlib.Path:
  """The folder for the results; it is not created yet."""
  if spec.resume and spec.output_dir is None:
    raise ValueError("resume=True: output_dir must say which run to go on with")
  words = (spec.task.name, spec.algorithm.name, spec.client.name)
  name = output_dir_of(spec.output_dir, *words)
  if fo.multi_process.is_first_process():  # The other processes write nothing.
    return run_writer.checked_output_dir(name, spec.resume)
  return pathlib.Path(name)


def output_dir_of(given: str | None, *words: str) -> str:
  """The name of the output folder, in `runs` if none is given.

  Args:
    given: value of the flag.
    words: words for the name of a new folder.

  Raises:
    ValueError: if the given value is no name.
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
