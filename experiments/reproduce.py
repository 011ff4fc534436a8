"""Runs of `experiments.run` that are done once, and what they left."""

import concurrent.futures
import csv
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from fedjax_opt.metrics import History

FLAGS = flags.FLAGS


def define_flags(output_dir: str) -> None:
  """Defines the flags of a program that does many runs on a data set."""
  flags.DEFINE_string("data_dir", None, "Folder of tensorflow_datasets.")
  flags.DEFINE_string("output_dir", output_dir, "Folder of all runs.")
  flags.DEFINE_integer("jobs", 1, "Runs at a time.")
  flags.DEFINE_bool("only_print", False, "Run nothing, show what is there.")


def run_all(run: Callable[..., None], cells: Sequence[tuple]) -> None:
  """Calls `run(*cell)` for every cell, `--jobs` at a time."""
  with concurrent.futures.ThreadPoolExecutor(FLAGS.jobs) as pool:
    list(pool.map(lambda cell: run(*cell), cells))


def run_cell(folder: pathlib.Path, arguments: Sequence[str]) -> None:
  """As `run_once`, by the flags of `define_flags`."""
  if FLAGS.only_print:
    return
  if FLAGS.data_dir is not None:
    arguments = [*arguments, f"--data_dir={FLAGS.data_dir}"]
  run_once(folder, arguments, one_core=FLAGS.jobs > 1)


def run_once(
  folder: pathlib.Path, arguments: Sequence[str], one_core: bool = False
) -> None:
  """Runs `experiments.run` into a folder, unless a complete run is there.

  One that was stopped is done anew.

  Args:
    folder: for the results.
    arguments: of the run, but for the folder.
    one_core: whether to use one core of the machine instead of all.
  """
  if find(folder) is not None:
    return
  shutil.rmtree(folder, ignore_errors=True)
  arguments = [*arguments, f"--output_dir={folder}", "--noprogress"]
  command = [sys.executable, "-m", "experiments.run", *arguments]
  print(" ".join(["python", *command[1:]]), flush=True)
  env = dict(os.environ)
  if one_core:
    env["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
  subprocess.run(command, check=True, env=env, stdout=subprocess.DEVNULL)


class Run(NamedTuple):
  """What a run left in its folder."""

  summary: dict[str, Any]
  history: History

  @property
  def points(self) -> list[dict[str, Any]]:
    """The hyperparameters of each grid point."""
    return [point["hyperparameters"] for point in self.summary["points"]]


def find(folder: pathlib.Path) -> Run | None:
  """The run in a folder, if one is there that went to its end."""
  if not (folder / "summary.json").exists():
    return None
  run = read(folder)
  last, rounds = run.history.rounds[-1:], run.summary["config"]["rounds"]
  return run if last == [rounds] else None


def read(folder: pathlib.Path) -> Run:
  """Reads a run's folder; an empty cell is NaN."""
  summary = json.loads((folder / "summary.json").read_text())
  with open(folder / "metrics.csv") as file:
    rows = list(csv.DictReader(file))
  names = [name for name in rows[0] if name not in ("point", "round")]
  rounds = sorted({int(row["round"]) for row in rows})
  shape = (len(rounds), len(summary["points"]))
  value = lambda cell: float(cell) if cell else np.nan
  metrics = {
    name: np.array([value(row[name]) for row in rows]).reshape(shape).T
    for name in names
  }
  return Run(summary, History(rounds, metrics))
