"""Runs a federated algorithm on a task, or a whole grid of settings at once.

With no flag: Delta-SGD on scikit-learn's digits, 100 clients, no download.

  python -m experiments.run
  python -m experiments.run --client=sgd --client_lr=0.01,0.1,1 --seed=0,1,2
  python -m experiments.run --task=mnist_cnn --data_dir=~/tensorflow_datasets
  python -m experiments.run --task=lasso --algorithm=fed_dual_avg \\
      --client_lr=0.0003,0.001,0.003 --strength=0.1
  python -m experiments.run --flagfile=experiments/delta_sgd/mnist.flags

A flag marked [list] takes several numbers between commas; all combinations
then run as one compiled program. A flag of a rule, algorithm or partition is
accepted only with that choice; (sgd 0.1, adam 0.001) are its defaults there.

The output folder holds config.json (every flag), metrics.csv (every evaluated
round), summary.json (final and best values, timing, cost), curves.png,
clients.png (labels of each client, if there are any) and TensorBoard events.
Ctrl-C leaves these files complete of what was done.
"""

import contextlib
import dataclasses
import datetime
import json
import pathlib
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import jax
import numpy as np
from absl import flags

from experiments import command_line, config, population, tasks
from experiments.progress import Progress
from experiments.task import Task
from fedjax_opt import (
  evaluation,
  grid_points,
  plots,
  simulator,
  sweep,
  writers,
)
from fedjax_opt.algorithms import optimum
from fedjax_opt.checkpoint import CheckpointError, Checkpoints, difference
from fedjax_opt.data.clients import ClientData
from fedjax_opt.hyperparameters import check_choice
from fedjax_opt.metrics import History
from fedjax_opt.program import Program

tasks.define_flags()
population.define_flags()
config.define_flags(
  {n: t.client_lr for n, t in tasks.TASKS.items() if t.client_lr is not None}
)

with command_line.group("Rounds"):
  flags.DEFINE_integer("rounds", 100, "Communication rounds.")
  flags.DEFINE_integer(
    "cohort_size",
    None,
    "Clients in a round, drawn uniformly without replacement. Default: 10; "
    "centralized takes all, local the first one.",
  )
  flags.DEFINE_integer(
    "batch_size",
    None,
    "Examples in a local batch. Default: 64; 10 where the clients come with "
    "the data.",
  )
  flags.DEFINE_float(
    "local_epochs",
    None,
    "Passes of a client over its examples in a round, any fraction. Default: "
    "1, unless local_steps is given.",
  )
  flags.DEFINE_integer(
    "local_steps", None, "Local steps in a round, instead of local_epochs."
  )
  flags.DEFINE_string(
    "sampling",
    "shuffle",
    "Local batches: shuffle (all examples, in a new order each epoch) or "
    "replacement (each batch drawn afresh).",
  )
  flags.DEFINE_bool(
    "drop_remainder", False, "Drop the last batch of an epoch if not full."
  )
  flags.DEFINE_string(
    "weighting",
    "examples",
    "Clients' weights in means: examples (as many as it has) or uniform.",
  )
  flags.DEFINE_float(
    "client_dropout",
    0.0,
    "How likely a client drops out of a round, in [0, 1): it is left out of "
    "the mean, with its weight.",
  )
  flags.DEFINE_string(
    "seed",
    "0",
    "[list] Of the partition, the initial model, cohorts, batches, dropout.",
  )

with command_line.group("Computation and results"):
  flags.DEFINE_string(
    "output_dir",
    None,
    "New folder for the results, or with resume that of the run. Default: "
    "runs/TASK-ALGORITHM-CLIENT-TIME.",
  )
  flags.DEFINE_integer(
    "eval_every",
    10,
    "Rounds between evaluations; round 0 and the last are always evaluated.",
  )
  flags.DEFINE_bool(
    "grad_norm",
    False,
    "Also measure grad_norm_sq, the squared norm of the gradient of the mean "
    "loss over all clients' examples (l2 included, a regularizer not).",
  )
  flags.DEFINE_string(
    "x_axis",
    "rounds",
    "What curves.png is drawn against: rounds, or what a client has spent in "
    "them, in gradient_evaluations (examples) or bytes (down and up).",
  )
  flags.DEFINE_bool(
    "optimum",
    False,
    "Also find the least value of the objective (FISTA in float64 on the data "
    "of all clients) and measure optimality_gap, what a model is above it. For "
    "convex tasks and algorithms with a regularizer.",
  )
  flags.DEFINE_bool(
    "trace",
    False,
    "Record delta_sgd's step sizes, of every client and local step, in "
    "traces.npz and step_sizes.png.",
  )
  flags.DEFINE_string(
    "client_map",
    "auto",
    "How a cohort is computed: vmap (clients side by side), scan (one after "
    "the other) or auto (what is faster on this device).",
  )
  flags.DEFINE_string(
    "grid_map",
    "auto",
    "How a grid is computed: vmap (points side by side), scan (one after the "
    "other; diverged points then take no more time) or auto (by the size of "
    "a step).",
  )
  flags.DEFINE_integer(
    "client_chunk",
    None,
    "Clients side by side at a time, for cohorts that do not fit into memory.",
  )
  flags.DEFINE_string(
    "precision",
    "float32",
    "In which numbers clients compute: float32, mixed (losses and gradients in "
    "bfloat16, all else in float32) or bfloat16 (also the local steps, with "
    "the rule's state). The server's model and evaluation stay float32.",
  )
  flags.DEFINE_integer(
    "checkpoint_every",
    None,
    "Rounds between checkpoints, in output_dir/checkpoints; the newest two are "
    "kept. Then SIGTERM saves one more and ends the run. Default: none.",
  )
  flags.DEFINE_bool(
    "resume",
    False,
    "Go on with the run in output_dir, given with the same flags, from its "
    "newest checkpoint: it ends as if it had never been stopped.",
  )
  flags.DEFINE_string(
    "compilation_cache",
    "~/.cache/fedjax_opt",
    "Folder that keeps compiled programs for other runs, or none. The variable "
    "JAX_COMPILATION_CACHE_DIR goes before it.",
  )
  flags.DEFINE_bool("progress", True, "Show progress.")


def main(argv: Sequence[str]) -> int:
  """Returns the exit status: 0, 1 for bad input, 128 + n for signal n."""
  where = ""
  try:
    with _CtrlC() as ctrl_c:
      job = prepare(command_line.parse(argv, __doc__))
      resume = job.flag["resume"]
      writer = writers.RunWriter(job.output_dir, job.flag, job.points, resume)
      where = f"; see {job.output_dir}"
      return run(job, writer, ctrl_c)
  except CheckpointError as error:
    return command_line.refuse(error)
  except OSError as error:
    kept = f"; what was complete before is kept{where}" if where else ""
    print(f"error: {' '.join(str(error).split())}{kept}", file=sys.stderr)
    return 1
  except (ValueError, ImportError) as error:
    if where:  # not of the input: a defect, to be seen whole
      raise
    return command_line.refuse(error)
  except KeyboardInterrupt:
    print(f"interrupted before the first evaluation{where}")
    return 130


class _CtrlC:
  """Ctrl-C, which is neither lost nor leaves half-written files.

  An exception that a signal raises within a callback of the garbage collector
  or of the compiler is ignored there. So it is also remembered.
  """

  def __enter__(self) -> Self:
    self._pressed = self._held = False
    self._before = signal.signal(signal.SIGINT, self._press)
    return self

  def __exit__(self, *_) -> None:
    signal.signal(signal.SIGINT, self._before)

  def _press(self, *_) -> None:
    self._pressed = True
    if not self._held:
      raise KeyboardInterrupt

  @contextlib.contextmanager
  def held(self) -> Iterator[None]:
    """Does what is inside first; then answers any Ctrl-C until here."""
    self._held = True
    try:
      yield
    finally:
      self._held = False
    if self._pressed:
      raise KeyboardInterrupt


class Job(NamedTuple):
  """All that a run needs, checked."""

  flag: dict[str, Any]  # every flag that has a value, resolved
  setup: config.Setup
  points: list[dict[str, Any]]  # of the grid
  task: Task
  data: dict[int, ClientData]  # of each seed
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
  parameters = population.resolve(flag, entry.has_clients)
  flag = flag | options | setup.resolved() | parameters
  if flag["rounds"] < 0:
    raise ValueError(f"rounds={flag['rounds']}: must not be negative")
  if flag["eval_every"] < 1:
    raise ValueError(f"eval_every={flag['eval_every']}: must be at least 1")
  check_choice("sampling", flag["sampling"], ["shuffle", "replacement"])
  check_choice("grid_map", flag["grid_map"], ["auto", "vmap", "scan"])
  check_choice("x_axis", flag["x_axis"], plots.X_AXES)
  if flag["trace"] and flag["client"] != "delta_sgd":
    raise ValueError(
      f"trace=True: client {flag['client']} has no step sizes to record; must "
      "be delta_sgd"
    )
  if flag["optimum"]:
    _check_optimum(entry, setup, flag)
  if flag["resume"] and flag["output_dir"] is None:
    raise ValueError("resume=True: output_dir must say which run to go on with")
  output_dir = writers.check_output_dir(
    flag["output_dir"] or _default_folder(flag), flag["resume"]
  )

  task = tasks.load(flag)
  if not setup.algorithm.has("regularizer"):
    metric = task.criterion.metric.removeprefix("regularized_")
    criterion = dataclasses.replace(task.criterion, metric=metric)
    task = task._replace(criterion=criterion)
  if task.clients is not None:
    data = dict.fromkeys(seeds, task.clients)
  else:
    data = population.populations(
      task.train, task.num_classes, parameters, seeds
    )
  if flag["batch_size"] is None:
    flag["batch_size"] = 10 if entry.has_clients else 64
  flag["cohort_size"] = _cohort_size(flag, data[seeds[0]].num_clients)
  settings = _settings(flag, task)
  programs = [Program.create(data[seed], **settings) for seed in seeds]

  points = grid_points(setup.grid, seeds)
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
  "compilation_cache", "output_dir", "progress", "resume", "x_axis",
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
  identity = {"versions": writers.versions(), "device": writers.device()}
  identity = writers.plain(flag | identity)
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


# Fields of Delta-SGD's state, and what the picture calls them.
_TRACED = {
  "step_size": "step_size",
  "smoothness_step": "smoothness",
  "growth_step": "growth",
}


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
  penalty = make(**{name: point[name] for name in setup.grid}).penalty
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
    "client_dropout", "precision",
  )  # fmt: skip
  evaluate = task.evaluate
  if flag["grad_norm"]:
    norm = evaluation.grad_norm_sq(task.loss_fn)
    evaluate = lambda *args: task.evaluate(*args) | norm(*args)
  return {name: flag[name] for name in names} | {
    "replacement": flag["sampling"] == "replacement",
    "evaluate": evaluate,
    "trace": tuple(_TRACED) if flag["trace"] else (),
  }


def _default_folder(flag: dict[str, Any]) -> str:
  now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
  return f"runs/{flag['task']}-{flag['algorithm']}-{flag['client']}-{now}"


def run(job: Job, writer: writers.RunWriter, ctrl_c: _CtrlC) -> int:
  """Simulates, and writes the output folder; the exit status."""
  flag, task = job.flag, job.task
  _keep_programs(flag["compilation_cache"])
  _draw_clients(job)
  history = History()
  progress = Progress(flag["rounds"], task.criterion, flag["progress"])
  minima = _minima(job) if flag["optimum"] else None

  def on_evaluation(report: simulator.Report) -> None:
    with ctrl_c.held():
      metrics = dict(report.metrics)
      if minima is not None:
        objective = np.asarray(metrics["regularized_train_loss"], np.float64)
        metrics["optimality_gap"] = objective - minima
      history.append(report.round, metrics)
      writer.write(history)
      progress.show(report)

  result = sweep(
    job.setup.make(
      task.loss_fn, task.features_fn, flag["rounds"], task.has_statistics
    ),
    job.setup.grid,
    task.init,
    job.data.get,
    rounds=flag["rounds"],
    seeds=list(job.data),
    test=task.test,
    on_evaluation=on_evaluation,
    grid_map=flag["grid_map"],
    checkpoints=job.checkpoints,
    **job.settings,
  )
  progress.close()
  with contextlib.suppress(KeyboardInterrupt), ctrl_c.held():
    _write_results(job, writer, history, result)
  if not result.interrupted:
    return 0
  print(f"interrupted: only {result.rounds} of {flag['rounds']} rounds done")
  return 128 + result.interrupted


def _keep_programs(folder: str) -> None:
  """Lets JAX keep what it compiles, unless it was told where already."""
  if folder == "none" or jax.config.jax_compilation_cache_dir is not None:
    return
  path = pathlib.Path(folder).expanduser()
  jax.config.update("jax_compilation_cache_dir", str(path))
  # Only what took long: a run has hundreds of small programs.
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def _config_of(output_dir: pathlib.Path) -> dict[str, Any]:
  """The `config.json` of a run."""
  path = output_dir / "config.json"
  try:
    return dict(json.loads(path.read_text()))
  except (OSError, ValueError, TypeError):
    raise ValueError(
      f"resume=True: {str(path)!r} cannot be read; give the folder of a run"
    ) from None


def _minima(job: Job) -> np.ndarray:
  """[S] float64, the least value of the objective of each grid point."""
  names = [n for n in job.setup.regularizer.flags() if n in job.setup.grid]
  found: dict[tuple, float] = {}

  def of_point(point: dict[str, Any]) -> float:
    data = job.data[point["seed"]]
    problem = (id(data), *[point[name] for name in names])
    if problem not in found:
      psi = job.setup.regularizer.make(point)
      start = job.task.init(jax.random.key(point["seed"]))
      best = optimum(job.task.loss_fn, psi, start, data)
      shown = ", ".join(f"{name} {point[name]:g}" for name in names)
      print(
        f"optimum{f' at {shown}' if shown else ''}: {best.value:.9g}, to a "
        f"residual of {best.residual:.1e}, in {best.iterations} iterations",
        file=sys.stderr,
      )
      found[problem] = best.value
    return found[problem]

  return np.array([of_point(point) for point in job.points])


def _draw_clients(job: Job) -> None:
  """The picture of the first seed's clients, if they have labels."""
  if job.task.num_classes is None:
    return
  seed, data = next(iter(job.data.items()))
  title = f"{job.flag['task']}, {_partition_title(job)}"
  if len(job.data) > 1:
    title += f", seed {seed}"
  counts = data.label_counts(job.task.num_classes)
  plots.label_histogram(counts, job.output_dir / "clients.png", title=title)


def _partition_title(job: Job) -> str:
  if job.task.clients is not None:
    return f"{len(job.task.clients.sizes)} clients"
  return plots.partition_title(job.flag["partition"], job.flag.get("alpha"))


def _write_results(
  job: Job,
  writer: writers.RunWriter,
  history: History,
  result: simulator.Result,
) -> None:
  """The files that close a run, and what the terminal says of them."""
  flag, criterion, folder = job.flag, job.task.criterion, job.output_dir
  rate = result.rounds / max(result.run_seconds, 1e-9)
  timing = {
    "compile_seconds": result.compile_seconds,
    "run_seconds": result.run_seconds,
    "rounds_per_second": rate,
  }
  writer.finish(history, criterion, timing, result.cost, result.padding_waste)
  if history.rounds:
    # Steps are plain ones wherever there is a regularizer.
    varied = flag.get("regularizer") or flag["client"]
    title = f"{flag['task']}, {flag['algorithm']}, {varied}, "
    plots.curves(
      history,
      job.points,
      folder / "curves.png",
      criterion=criterion,
      panels=_panels(job.task, history),
      title=title + _partition_title(job),
      x_axis=flag["x_axis"],
    )
  if flag["trace"] and result.rounds:
    _write_traces(result, folder)

  print(writers.table(history, job.points, criterion))
  points = len(job.points)
  of_grid = f" x {points} grid points" if points > 1 else ""
  print(
    f"{result.rounds} rounds{of_grid} in {result.run_seconds:.1f} s "
    f"({rate:.1f} rounds/s), after {result.compile_seconds:.1f} s of "
    "compilation"
  )
  print(writer.closing_line())
  if history.rounds:
    print(f"picture: {folder / 'curves.png'}")


def _panels(task: Task, history: History) -> list[str] | None:
  """The task's panels that were measured: not all algorithms regularize."""
  panels = task.panels
  if "optimality_gap" in history.metrics:
    panels = ("optimality_gap", *(panels or ("test_accuracy",)))
  if panels is None:
    return None
  return [name for name in panels if name in history.metrics]


def _write_traces(result: simulator.Result, folder: pathlib.Path) -> None:
  """All step sizes as numbers; the first point's first clients as a picture."""
  traces = {name: result.traces[name] for name in _TRACED}  # [S, R, C, K]
  np.savez(folder / "traces.npz", **traces)
  first = {_TRACED[name]: trace[0, :, 0] for name, trace in traces.items()}
  plots.step_sizes(
    first,
    folder / "step_sizes.png",
    title="Delta-SGD in the first client of each round",
  )


if __name__ == "__main__":
  sys.exit(main(sys.argv))
