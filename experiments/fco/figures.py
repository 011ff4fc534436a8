"""Figures of the composite optimization paper: sparse and low-rank regression.

  python -m experiments.fco.figures --output_dir=runs/fco --figures_dir=figures

Each algorithm's whole grid is one run of `experiments.run` (one compiled
program) in a folder of its own; those that are there are not run again. For
each problem a picture shows the four algorithms at the rates that the paper's
criterion picks, and a table says what they reached, with the strength of the
regularizer that `STRENGTHS` holds.
"""

import pathlib

import numpy as np
from absl import app, flags

from experiments import reproduce
from fedjax_opt import plots
from fedjax_opt.metrics import History

FLAGS = flags.FLAGS
flags.DEFINE_string("output_dir", "runs/fco", "Folder of all runs.")
flags.DEFINE_string("figures_dir", "runs/fco/figures", "Folder of pictures.")
flags.DEFINE_list("tasks", ["lasso", "low_rank"], "Which problems.")
flags.DEFINE_list("variants", ["I", "II", "III", "IV"], "Which sizes.")

ALGORITHMS = ("fed_mid", "fed_mid_osp", "fed_dual_avg", "fed_dual_avg_osp")
ROUNDS = (50, 100, 200, 500)
# The paper does not say them. Those at which the centralized optimum recovers
# the truth best; README.md has the table.
STRENGTHS = {"lasso": 0.1, "low_rank": 0.5}
RECOVERY = {"lasso": "f1", "low_rank": "rank"}


def folder(task: str, variant: str, algorithm: str) -> pathlib.Path:
  return pathlib.Path(FLAGS.output_dir) / f"{task}-{variant}-{algorithm}"


def run(task: str, variant: str, algorithm: str) -> reproduce.Run:
  """One algorithm's grid on one problem."""
  target = folder(task, variant, algorithm)
  flags = [
    f"--flagfile=experiments/fco/{task}.flags",
    f"--variant={variant}",
    f"--algorithm={algorithm}",
    f"--strength={STRENGTHS[task]}",
  ]
  reproduce.run_once(target, flags)
  return reproduce.read(target)


def selected(runs: dict[str, reproduce.Run]) -> tuple[History, list[dict]]:
  """The picked point of each algorithm, as one history."""
  found = {a: r for a, r in runs.items() if r.summary["selected"] is not None}
  rounds = next(iter(runs.values())).history.rounds
  names = next(iter(runs.values())).history.metrics
  metrics = {
    name: np.stack(
      [r.history.metrics[name][r.summary["selected"]] for r in found.values()]
    )
    for name in names
  }
  return History(rounds, metrics), [{"algorithm": a} for a in found]


def rows(task: str, variant: str, runs: dict[str, reproduce.Run]) -> list[str]:
  """Markdown: recovery and error at some rounds, at the picked rates."""
  lines = []
  for algorithm, run in runs.items():
    point = run.summary["selected"]
    diverged = sum(p["status"] == "diverged" for p in run.summary["points"])
    if point is None:
      lines.append(f"| {variant} | {algorithm} | none |" + " |" * len(ROUNDS))
      continue
    rates = run.points[point]
    history = run.history
    cells = []
    for at in ROUNDS:
      e = history.rounds.index(at)
      recovery = history.metrics[RECOVERY[task]][point, e]
      error = history.metrics["recovery_error"][point, e]
      shown = f"{recovery:.3f}" if task == "lasso" else f"{recovery:.0f}"
      cells.append(f"{shown} / {error:.3g}")
    lines.append(
      f"| {variant} | {algorithm} | {rates['client_lr']:g}, "
      f"{rates['server_lr']:g} | {' | '.join(cells)} | {diverged} |"
    )
  return lines


def main(argv: list[str]) -> None:
  del argv
  pictures = pathlib.Path(FLAGS.figures_dir)
  pictures.mkdir(parents=True, exist_ok=True)
  for task in FLAGS.tasks:
    head = [f"{RECOVERY[task]} / error at {r}" for r in ROUNDS]
    columns = ["problem", "algorithm", "η_c, η_s", *head, "diverged points"]
    table = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for variant in FLAGS.variants:
      runs = {a: run(task, variant, a) for a in ALGORITHMS}
      history, points = selected(runs)
      panels = ["regularized_train_loss", RECOVERY[task], "recovery_error"]
      plots.curves(
        history,
        points,
        pictures / f"{task}_{variant}.png",
        panels=panels,
        title=f"{task} {variant}, strength {STRENGTHS[task]}",
      )
      table += rows(task, variant, runs)
    print("\n".join(table), flush=True)


if __name__ == "__main__":
  app.run(main)
