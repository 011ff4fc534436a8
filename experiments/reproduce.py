"""Runs of `experiments.run` that are done once, and what they left."""

import csv
import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.metrics import History


def run_once(folder: pathlib.Path, flags: list[str], cores: int = 0) -> None:
  """Runs `experiments.run` into a folder, unless a complete run is there.

  One that was stopped is done anew.

  Args:
    folder: for the results.
    flags: of the run, but for the folder.
    cores: of the machine to use; 0 for all.
  """
  if is_complete(folder):
    return
  shutil.rmtree(folder, ignore_errors=True)
  flags = [*flags, f"--output_dir={folder}", "--noprogress"]
  command = [sys.executable, "-m", "experiments.run", *flags]
  print(" ".join(["python", *command[1:]]), flush=True)
  env = dict(os.environ)
  if cores == 1:
    env["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
  subprocess.run(command, check=True, env=env, stdout=subprocess.DEVNULL)


def is_complete(folder: pathlib.Path) -> bool:
  """Whether a folder holds a run that went to its end."""
  if not (folder / "summary.json").exists():
    return False
  run = read(folder)
  return run.history.rounds[-1:] == [run.summary["config"]["rounds"]]


class Run(NamedTuple):
  """What a run left in its folder."""

  summary: dict[str, Any]
  history: History

  @property
  def points(self) -> list[dict[str, Any]]:
    """The hyperparameters of each grid point."""
    return [point["hyperparameters"] for point in self.summary["points"]]


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
