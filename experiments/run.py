"""Runs a federated algorithm on a task, or a whole grid of settings at once.

With no flag: Delta-SGD on scikit-learn's digits, 100 clients, no download.

  python -m experiments.run
  python -m experiments.run --client=sgd --client_lr=0.01,0.1,1 --seed=0,1,2
  python -m experiments.run --task=mnist_cnn --data_dir=~/tensorflow_datasets
  python -m experiments.run --flagfile=experiments/delta_sgd/mnist.flags

A flag marked [list] takes several numbers between commas; all combinations
then run as one compiled program. A flag of a rule, algorithm or partition is
accepted only with that choice; (sgd 0.1, adam 0.001) are its defaults there.

The output folder holds config.json (every flag), metrics.csv (every evaluated
round), summary.json (final and best values, timing, cost), curves.png,
clients.png (labels of each client) and TensorBoard events. Ctrl-C leaves these
files complete of what was done.
"""

import contextlib
import datetime
import pathlib
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from experiments import command_line, config, population, tasks
from experiments.progress import Progress
from fedjax_opt import grid_points, plots, simulator, sweep, writers
from fedjax_opt.data.clients import ClientData
from fedjax_opt.hyperparameters import check_choice
from fedjax_opt.metrics import History
from fedjax_opt.program import Program

with command_line.group("Task"):
  flags.DEFINE_string(
    "task",
    "digits",
    "Data set and model, joined as in mnist_cnn; digits alone is digits_mlp."
    f"{tasks.listed()}",
  )
  flags.DEFINE_string(
    "data_dir",
    None,
    "Folder of tensorflow_datasets, for all data sets but digits. Default: "
    "$TFDS_DATA_DIR or ~/tensorflow_datasets; what it lacks is downloaded.",
  )

population.define_flags()
config.define_flags()

with command_line.group("Rounds"):
  flags.DEFINE_integer("rounds", 100, "Communication rounds.")
  flags.DEFINE_integer(
    "cohort_size",
    10,
    "Clients in a round, drawn uniformly without replacement.",
  )
  flags.DEFINE_integer("batch_size", 64, "Examples in a local batch.")
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
  flags.DEFINE_string(
    "seed",
    "0",
    "[list] Of the partition, the initial model, cohorts, batches, dropout.",
  )

with command_line.group("Computation and results"):
  flags.DEFINE_string(
    "output_dir",
    None,
    "New folder for the results. Default: runs/TASK-ALGORITHM-CLIENT-TIME.",
  )
  flags.DEFINE_integer(
    "eval_every",
    10,
    "Rounds between evaluations; round 0 and the last are always evaluated.",
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
  flags.DEFINE_integer(
    "client_chunk",
    None,
    "Clients side by side at a time, for cohorts that do not fit into memory.",
  )
  flags.DEFINE_bool("progress", True, "Show progress.")


def main(argv: Sequence[str]) -> int:
  """Returns the exit status: 0, 1 for bad input, 130 for Ctrl-C."""
  try:
    job = prepare(command_line.parse(argv, __doc__))
    writer = writers.RunWriter(job.output_dir, job.flag, job.points)
  except (ValueError, ImportError) as error:
    print(f"error: {error}", file=sys.stderr)
    return 1
  try:
    return run(job, writer)
  except KeyboardInterrupt:
    print(f"interrupted before the first evaluation; see {job.output_dir}")
    return 130


class Job(NamedTuple):
  """All that a run needs, checked."""

  flag: dict[str, Any]  # every flag that has a value, resolved
  setup: config.Setup
  points: list[dict[str, Any]]  # of the grid
  task: tasks.Task
  data: dict[int, ClientData]  # of each seed
  settings: dict[str, Any]  # of the simulator
  output_dir: pathlib.Path


def prepare(flag: dict[str, Any]) -> Job:
  """Checks the flags, what is quick to check first, and loads the data.

  Raises:
    ValueError: naming the flag that cannot be. Nothing was compiled or written.
    ImportError: naming the package to install.
  """
  plots.check_installed()
  tasks.check(flag["task"])
  setup = config.resolve(flag)
  seeds = config.seeds(flag)
  parameters = population.resolve(flag)
  if flag["rounds"] < 0:
    raise ValueError(f"rounds={flag['rounds']}: must not be negative")
  check_choice("sampling", flag["sampling"], ["shuffle", "replacement"])
  if flag["trace"] and flag["client"] != "delta_sgd":
    raise ValueError(
      f"trace=True: client {flag['client']} has no step sizes to record; must "
      "be delta_sgd"
    )
  output_dir = writers.check_output_dir(
    flag["output_dir"] or _default_folder(flag)
  )

  task = tasks.load(flag["task"], flag["data_dir"])
  data = population.populations(
    task.train, task.num_classes, flag, parameters, seeds
  )
  settings = _settings(flag, task)
  programs = [Program.create(data[seed], **settings) for seed in seeds]

  resolved = {
    **flag,
    **setup.resolved(),
    **parameters,
    "seed": config.single_or_list(seeds),
    "output_dir": str(output_dir),
    "local_epochs": programs[0].plan.epochs,
  }
  resolved = {n: value for n, value in resolved.items() if value is not None}
  points = grid_points(setup.grid, seeds)
  return Job(resolved, setup, points, task, data, settings, output_dir)


# Fields of Delta-SGD's state, and what the picture calls them.
_TRACED = {
  "step_size": "step_size",
  "smoothness_step": "smoothness",
  "growth_step": "growth",
}


def _settings(flag: dict[str, Any], task: tasks.Task) -> dict[str, Any]:
  names = (
    "cohort_size", "batch_size", "local_epochs", "local_steps",
    "drop_remainder", "weighting", "client_map", "client_chunk", "eval_every",
  )  # fmt: skip
  return {name: flag[name] for name in names} | {
    "replacement": flag["sampling"] == "replacement",
    "evaluate": task.evaluate,
    "trace": tuple(_TRACED) if flag["trace"] else (),
  }


def _default_folder(flag: dict[str, Any]) -> str:
  now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
  return f"runs/{flag['task']}-{flag['algorithm']}-{flag['client']}-{now}"


def run(job: Job, writer: writers.RunWriter) -> int:
  """Simulates, and writes the output folder; the exit status."""
  flag, task = job.flag, job.task
  _draw_clients(job)
  history = History()
  progress = Progress(flag["rounds"], task.criterion, flag["progress"])

  def on_evaluation(report: simulator.Report) -> None:
    with _uninterrupted():
      history.append(report.round, report.metrics)
      writer.write(history)
      progress.show(report)

  result = sweep(
    job.setup.make(task.loss_fn, task.features_fn, flag["rounds"]),
    job.setup.grid,
    task.init,
    job.data.get,
    rounds=flag["rounds"],
    seeds=list(job.data),
    test=task.test,
    on_evaluation=on_evaluation,
    **job.settings,
  )
  progress.close()
  with contextlib.suppress(KeyboardInterrupt), _uninterrupted():
    _write_results(job, writer, history, result)
  if not result.interrupted:
    return 0
  print(f"interrupted: only {result.rounds} of {flag['rounds']} rounds done")
  return 130


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
  """Holds Ctrl-C back until what is inside is done: no half-written files."""
  pressed = []
  before = signal.signal(signal.SIGINT, lambda *_: pressed.append(True))
  try:
    yield
  finally:
    signal.signal(signal.SIGINT, before)
  if pressed:
    raise KeyboardInterrupt


def _draw_clients(job: Job) -> None:
  """The picture of the first seed's clients."""
  seed, data = next(iter(job.data.items()))
  title = f"{job.flag['task']}, {_partition_title(job)}"
  if len(job.data) > 1:
    title += f", seed {seed}"
  counts = data.label_counts(job.task.num_classes)
  plots.label_histogram(counts, job.output_dir / "clients.png", title=title)


def _partition_title(job: Job) -> str:
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
    title = f"{flag['task']}, {flag['algorithm']}, {flag['client']}, "
    plots.curves(
      history,
      job.points,
      folder / "curves.png",
      criterion=criterion,
      title=title + _partition_title(job),
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
