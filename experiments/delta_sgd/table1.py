"""Runs the MNIST column of the Delta-SGD paper's Table 1 and prints it.

  python -m experiments.delta_sgd.table1 --data_dir=D --output_dir=runs/table1

Each cell is one run of `experiments.run` with its own folder; a cell whose
folder is complete is not run again. `--jobs` runs several at a time, each on
one core.
"""

import pathlib

import numpy as np
from absl import flags

from experiments import reproduce

FLAGS = flags.FLAGS
reproduce.define_flags("runs/table1")

# Client optimizers with the paper's frozen step sizes, and its accuracies in
# percent at alpha = 1, 0.1, 0.01.
DECAY = "--client_schedule=step_decay"
OPTIMIZERS = {
  "SGD": (["--client=sgd"], (98.3, 98.1, 96.8)),
  "SGD(↓)": (["--client=sgd", DECAY], (97.8, 98.0, 97.2)),
  "SGDM": (["--client=sgdm"], (98.5, 97.6, 77.9)),
  "SGDM(↓)": (["--client=sgdm", DECAY], (98.4, 98.0, 94.0)),
  "Adam": (["--client=adam"], (94.7, 96.4, 80.8)),
  "Adagrad": (["--client=adagrad"], (64.3, 89.9, 72.4)),
  "SPS": (["--client=sps"], (10.1, 96.0, 69.7)),
  "Delta-SGD": (["--client=delta_sgd"], (98.4, 98.1, 97.5)),
}
ALPHAS = ("1", "0.1", "0.01")
MORE_SEEDS = ("SGD", "Delta-SGD")


def folder(name: str, alpha: str, seeds: str) -> pathlib.Path:
  optimizer = "".join(OPTIMIZERS[name][0]).replace("--client", "")
  optimizer = optimizer.replace("=", "").replace("_schedule", "-")
  root = pathlib.Path(FLAGS.output_dir)
  return root / f"{optimizer}-alpha{alpha}-seed{seeds}"


def arguments(name: str, alpha: str, seeds: str) -> list[str]:
  return [
    *("--flagfile=experiments/delta_sgd/mnist.flags", f"--alpha={alpha}"),
    *(*OPTIMIZERS[name][0], f"--seed={seeds}", "--eval_every=25"),
  ]


def run(*cell: str) -> None:
  """Runs one cell, or some seeds of it, unless it is there."""
  reproduce.run_cell(folder(*cell), arguments(*cell))


def accuracies(name: str, alpha: str) -> list[float]:
  """Final test accuracies in percent, one for each seed that was run."""
  found = []
  for seeds in ("0", "1,2"):
    cell = (name, alpha, seeds)
    run = reproduce.find(folder(*cell), arguments(*cell))
    if run is not None:
      points = run.summary["points"]
      finals = [point["final"]["test_accuracy"] for point in points]
      found += [100 * final for final in finals if final is not None]
  return found


def table() -> str:
  """Markdown: for each alpha the paper's number and ours."""
  columns = [f"α = {a}, paper | ours" for a in ALPHAS]
  lines = [
    "| client optimizer | " + " | ".join(columns) + " |",
    "|---" * (1 + 2 * len(ALPHAS)) + "|",
  ]
  for name, (_, paper) in OPTIMIZERS.items():
    cells = []
    for alpha, theirs in zip(ALPHAS, paper, strict=True):
      ours = accuracies(name, alpha)
      text = f"{np.mean(ours):.1f}" if ours else "-"
      if len(ours) > 1:
        text += f" ± {np.std(ours, ddof=1):.1f} ({len(ours)} seeds)"
      cells += [f"{theirs:.1f}", text]
    lines.append(f"| {name} | " + " | ".join(cells) + " |")
  return "\n".join(lines)


def main(argv: list[str]) -> None:
  del argv
  cells = [(n, a, "0") for a in ALPHAS for n in OPTIMIZERS]
  cells += [(n, a, "1,2") for a in ALPHAS for n in MORE_SEEDS]
  reproduce.run_all(run, cells)
  print(table())


if __name__ == "__main__":
  reproduce.program(main)
