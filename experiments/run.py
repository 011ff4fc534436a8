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
import pathlib
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import jax
import numpy as np

import experiments.run_flags
from experiments import command_line, hosts
from experiments.job import TRACED, Job, prepare
from experiments.progress import Progress
from experiments.task import Task
from fedjax_opt import Population, plots, sharding, simulator, sweep
from fedjax_opt.algorithms import optimum
from fedjax_opt.results import tables, writers
from fedjax_opt.results.checkpoint import CheckpointError
from fedjax_opt.results.history import History
from fedjax_opt.streaming import OnDisk


def main(argv: Sequence[str]) -> int:
  """Returns the exit status: 0, 1 for bad input, 128 + n for signal n."""
  where = ""
  try:
    with _CtrlC() as ctrl_c:
      flag = command_line.parse(argv, __doc__)
      hosts.join(flag)
      with hosts.together():
        job, writer = prepare(flag), None
        if sharding.is_first_process():
          resume = flag["resume"]
          writer = writers.RunWriter(
            job.output_dir, job.flag, job.points, resume
          )
      where = f"; see {job.output_dir}"
      if writer is None:
        interrupted = simulate(job).interrupted
        return 128 + interrupted if interrupted else 0
      return run(job, writer, ctrl_c)
  except CheckpointError as error:
    return command_line.refuse(error)
  except jax.errors.JaxRuntimeError as error:
    if jax.process_count() == 1:
      raise
    return command_line.refuse(hosts.Lost(error))
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


def run(job: Job, writer: writers.RunWriter, ctrl_c: _CtrlC) -> int:
  """Simulates, and writes the output folder; the exit status."""
  flag, task = job.flag, job.task
  _draw_clients(job)
  history = History()
  progress = Progress(flag["rounds"], task.criterion, flag["progress"])
  minima = _minima(job) if flag["optimum"] else None
  seconds_to_first_round = None

  def on_evaluation(report: simulator.Report) -> None:
    nonlocal seconds_to_first_round
    if seconds_to_first_round is None:
      seconds_to_first_round = time.monotonic() - experiments.STARTED
    with ctrl_c.held():
      metrics = dict(report.metrics)
      if minima is not None:
        objective = np.asarray(metrics["regularized_train_loss"], np.float64)
        metrics["optimality_gap"] = objective - minima
      history.append(report.round, metrics)
      writer.write(history)
      progress.show(report)

  result = simulate(job, on_evaluation)
  progress.close()
  with contextlib.suppress(KeyboardInterrupt), ctrl_c.held():
    _write_results(job, writer, history, result, seconds_to_first_round)
  if not result.interrupted:
    return 0
  print(f"interrupted: only {result.rounds} of {flag['rounds']} rounds done")
  return 128 + result.interrupted


def simulate(
  job: Job, on_evaluation: Callable[[simulator.Report], None] | None = None
) -> simulator.Result:
  """Simulates all points; what each of several processes does alike."""
  flag, task = job.flag, job.task
  _keep_programs(flag["compilation_cache"])
  return sweep(
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
    grid_chunk=flag.get("grid_chunk"),
    grid_devices=flag.get("grid_devices"),
    checkpoints=job.checkpoints,
    **job.settings,
  )


def _keep_programs(folder: str) -> None:
  """Lets JAX keep what it compiles, unless it was told where already."""
  if folder == "none" or jax.config.jax_compilation_cache_dir is not None:
    return
  path = pathlib.Path(folder).expanduser()
  jax.config.update("jax_compilation_cache_dir", str(path))
  # Only what took long: a run has hundreds of small programs.
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


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
  if isinstance(data, Population):
    data = OnDisk.sample_of(data).sample
    title += f", {data.num_clients} of them"
  elif len(job.data) > 1:
    title += f", seed {seed}"
  counts = data.label_counts(job.task.num_classes)
  plots.label_histogram(counts, job.output_dir / "clients.png", title=title)


def _partition_title(job: Job) -> str:
  clients = next(iter(job.data.values()))
  if job.task.clients is not None or isinstance(clients, Population):
    return f"{clients.num_clients:,} clients"
  return plots.partition_title(job.flag["partition"], job.flag.get("alpha"))


def _write_results(
  job: Job,
  writer: writers.RunWriter,
  history: History,
  result: simulator.Result,
  seconds_to_first_round: float | None,
) -> None:
  """The files that close a run, and what the terminal says of them."""
  flag, criterion, folder = job.flag, job.task.criterion, job.output_dir
  rate = result.rounds / max(result.run_seconds, 1e-9)
  timing = {
    "compile_seconds": result.compile_seconds,
    "run_seconds": result.run_seconds,
    "rounds_per_second": rate,
    # From the start of the process, imports, data and compilation included.
    "seconds_to_first_round": seconds_to_first_round,
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

  print(tables.table(history, job.points, criterion))
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
  traces = {name: result.traces[name] for name in TRACED}  # [S, R, C, K]
  np.savez(folder / "traces.npz", **traces)
  # "smoothness_step" is the step that smoothness allows.
  short = lambda name: name.removesuffix("_step")
  first = {short(name): trace[0, :, 0] for name, trace in traces.items()}
  plots.step_sizes(
    first,
    folder / "step_sizes.png",
    title="Delta-SGD in the first client of each round",
  )


if __name__ == "__main__":
  sys.exit(main(sys.argv))
