"""Runs of `experiments.run` that are done once, and what they left."""

import csv
import json
import os
import pathlib
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.metrics import History


def run_once(folder: pathlib.Path, flags: list[str], cores: int = 0) -> None:
  """Runs `experiments.run` into a folder, unless a run is there.

  Args:
    folder: for the results.
    flags: of the run, but for the folder.
    cores: of the machine to use; 0 for all.
  """
  if (folder / "summary.json").exists():
    return
  flags = [*flags, f"--output_dir={folder}", "--noprogress"]
  command = [sys.executable, "-m", "experiments.run", *flags]
  print(" ".join(["python", *command[1:]]), flush=True)
  env = dict(os.environ)
  if cores == 1:
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
