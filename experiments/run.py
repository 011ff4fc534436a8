"""Runs a federated algorithm on a task, or a whole grid of settings at once.

With no flag: Delta-SGD on the embedded digits, 100 clients, no download.

  python -m experiments.run
  python -m experiments.run --client=sgd --client_lr=0.01,0.1,1 --seed=0,1,2
  python -m experiments.run --task=mnist_cnn --data_dir=~/tensorflow_datasets
  python -m experiments.run --flagfile=experiments/delta_sgd/mnist.flags

A comma list in a flag that says "list allowed" makes a grid: all combinations
run as one compiled program. The output folder then holds config.json,
metrics.csv, summary.json, curves.png, clients.png and TensorBoard events.
"""

import datetime
import pathlib
import sys
from typing import Any, NamedTuple

import numpy as np
from absl import app, flags, logging

from experiments import config, population, progress, tasks
from fedjax_opt import grid_points, plots, simulator, sweep, writers
from fedjax_opt.algorithms import ALGORITHMS
from fedjax_opt.data.clients import ClientData
from fedjax_opt.metrics import History
from fedjax_opt.rules import RULES

FLAGS = flags.FLAGS

flags.DEFINE_string("task", "digits", f"One of {', '.join(tasks.TASKS)}.")
flags.DEFINE_string("algorithm", "fed_avg", f"One of {', '.join(ALGORITHMS)}.")
flags.DEFINE_string("client", "delta_sgd", f"One of {', '.join(RULES)}.")
flags.DEFINE_string(
  "server",
  None,
  f"One of {', '.join(config.SERVERS)}. Default: the algorithm's own, which is "
  "plain averaging (sgd with rate 1) if it has none.",
)
flags.DEFINE_string(
  "client_schedule",
  "constant",
  "Clients' learning rate over rounds: constant, or step_decay (divided by 10 "
  "after 50 % and again after 75 % of the rounds).",
)
config.define_hyperparameters()

flags.DEFINE_integer("rounds", 100, "Communication rounds.")
flags.DEFINE_integer("cohort_size", 10, "Clients that take part in a round.")
flags.DEFINE_integer("batch_size", 64, "Examples in a local batch.")
flags.DEFINE_float(
  "local_epochs",
  None,
  "Passes of a client over its examples in a round, any fraction. Default: 1, "
  "unless local_steps is given.",
)
flags.DEFINE_integer("local_steps", None, "Local steps, instead of epochs.")
flags.DEFINE_bool("drop_remainder", False, "Drop an epoch's last small batch.")
flags.DEFINE_string(
  "sampling",
  "shuffle",
  "Local batches: shuffle (all examples in a new order each epoch) or "
  "replacement (each batch drawn afresh).",
)
flags.DEFINE_string(
  "weighting", "examples", "Clients' weights in means: examples or uniform."
)
flags.DEFINE_string("seed", "0", "Of everything random; list allowed.")
population.define_flags()

flags.DEFINE_integer("eval_every", 10, "Rounds between evaluations.")
flags.DEFINE_string(
  "output_dir",
  None,
  "New folder for the results. Default: runs/ with the names and the time.",
)
flags.DEFINE_string("data_dir", None, "Folder of tensorflow_datasets.")
flags.DEFINE_string(
  "client_map",
  "auto",
  "How clients are computed: vmap (side by side), scan (one after the other) "
  "or auto.",
)
flags.DEFINE_integer("client_chunk", None, "Clients side by side at a time.")
flags.DEFINE_bool(
  "trace", False, "Record every client's step sizes; for delta_sgd."
)
flags.DEFINE_bool("progress", True, "Show a progress bar.")


def main(argv: list[str]) -> None:
  logging.set_verbosity(logging.WARNING)  # JAX tells which TPUs it missed.
  try:
    if len(argv) > 1:
      raise ValueError(f"{argv[1]!r} is not a flag; flags are --name=value")
    job = prepare(FLAGS.flag_values_dict())
  except (ValueError, ImportError) as error:
    sys.exit(f"error: {error}")
  if not run(job):
    sys.exit(130)  # As a shell reports Ctrl-C.


class Job(NamedTuple):
  """All that a run needs, checked."""

  flag: dict[str, Any]  # every flag, resolved
  setup: config.Setup
  task: tasks.Task
  data: dict[int, ClientData]  # of each seed
  settings: dict[str, Any]  # of the simulator
  title: str
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
  seeds = config.numbers("seed", flag["seed"], int)
  parameters = population.resolve(flag)
  if flag["rounds"] < 0:
    raise ValueError(f"rounds={flag['rounds']}: must not be negative")
  if flag["sampling"] not in ("shuffle", "replacement"):
    raise ValueError(
      f"sampling={flag['sampling']!r}: must be shuffle or replacement"
    )
  if flag["trace"] and flag["client"] != "delta_sgd":
    raise ValueError(
      f"trace: only delta_sgd finds step sizes to record, not {flag['client']}"
    )
  output_dir = writers.check_output_dir(
    flag["output_dir"] or _default_folder(flag)
  )
  task = tasks.load(flag["task"], flag["data_dir"])
  data = population.populations(
    task.train, task.num_classes, flag, parameters, seeds
  )
  settings = {
    name: flag[name]
    for name in (
      "cohort_size", "batch_size", "local_epochs", "local_steps",
      "drop_remainder", "weighting", "client_map", "client_chunk", "eval_every",
    )
  }  # fmt: skip
  settings["replacement"] = flag["sampling"] == "replacement"
  settings["evaluate"] = task.evaluate
  settings["trace"] = _TRACED if flag["trace"] else ()
  for seed in seeds:
    simulator.Program.create(data[seed], **settings)
  resolved = setup.resolved() | parameters | {"output_dir": str(output_dir)}
  scheme = plots.partition_title(flag["partition"], parameters.get("alpha"))
  title = f"{flag['task']}, {flag['algorithm']} + {flag['client']}, {scheme}"
  return Job(flag | resolved, setup, task, data, settings, title, output_dir)


# Fields of Delta-SGD's state, and what the picture calls them.
_TRACED = {
  "step_size": "step_size",
  "smoothness_step": "smoothness",
  "growth_step": "growth",
}


def _default_folder(flag: dict[str, Any]) -> str:
  now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
  return f"runs/{flag['task']}-{flag['algorithm']}-{flag['client']}-{now}"


def run(job: Job) -> bool:
  """Simulates, and writes the output folder; False if interrupted."""
  flag, task, folder = job.flag, job.task, job.output_dir
  points = grid_points(job.setup.grid, list(job.data))
  writer = writers.RunWriter(folder, flag, points)
  counts = next(iter(job.data.values())).label_counts(task.num_classes)
  plots.label_histogram(counts, folder / "clients.png", title=job.title)
  history = History()
  bar = progress.Bar(flag["rounds"], task.criterion, flag["progress"])

  def on_evaluation(report: simulator.Report) -> None:
    history.append(report.round, report.metrics)
    writer.write(history)
    bar.show(report)

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
  bar.close()

  timing = {
    "compile_seconds": result.compile_seconds,
    "run_seconds": result.run_seconds,
    "rounds_per_second": result.rounds / max(result.run_seconds, 1e-9),
  }
  writer.finish(
    history, task.criterion, timing, result.cost, result.padding_waste
  )
  if history.rounds:
    plots.curves(
      history,
      points,
      folder / "curves.png",
      criterion=task.criterion,
      title=job.title,
    )
  if flag["trace"]:
    _write_traces(result, folder)
  print(writers.table(history, points, task.criterion))
  print(
    f"{result.rounds} rounds x {len(points)} grid points: "
    f"{timing['rounds_per_second']:.1f} rounds/s, {result.run_seconds:.1f} s "
    f"after {result.compile_seconds:.1f} s of compilation"
  )
  print(writer.closing_line())
  print(f"picture: {folder / 'curves.png'}")
  return not result.interrupted


def _write_traces(result: simulator.Result, folder: pathlib.Path) -> None:
  """All step sizes as numbers, and those of the first client as a picture."""
  traces = {name: result.traces[name] for name in _TRACED}  # [S, R, C, K]
  np.savez(folder / "traces.npz", **traces)
  first = {_TRACED[name]: trace[0, :, 0] for name, trace in traces.items()}
  plots.step_sizes(
    first, folder / "step_sizes.png", title="First client of each cohort"
  )


if __name__ == "__main__":
  # Without this, --help would show the flags of this file only.
  for module in (config, population):
    flags.adopt_module_key_flags(module)
  app.run(main)
