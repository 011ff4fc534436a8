"""Figures 1 and 2 and Table 1 of the DOMO paper, with a small CNN on CIFAR-10.

  python -m experiments.domo.figures --data_dir=D --output_dir=runs/domo

Each run of `experiments.run` has its own folder; a folder that is complete is
not run again. The base rate of every method is chosen once, at s = 10 %, with
the first seed and half of the rounds; then all methods run with three seeds at
each s.
"""

import pathlib
from typing import NamedTuple

import numpy as np
from absl import flags

from experiments import reproduce
from fedjax_opt import Run, plots

FLAGS = flags.FLAGS
reproduce.define_flags("runs/domo")
flags.DEFINE_string("figures_dir", "runs/domo/figures", "Folder of pictures.")
flags.DEFINE_integer("rounds", 20, "Communication rounds, each of one epoch.")

METHODS = {
  "FedAvg": "fed_avg",
  "FedAvgSM": "fed_avg_sm",
  "FedAvgLM": "fed_avg_lm",
  "FedAvgLM-Z": "fed_avg_lm_z",
  "FedAvgSLM": "fed_avg_slm",
  "FedAvgSLM-Z": "fed_avg_slm_z",
  "DOMO-S": "domo_s",
  "DOMO": "domo",
}
# Where the momenta are has a colour; what a method has in addition, a style.
LOOKS = {
  "FedAvg": ("#000000", "-"),
  "FedAvgSM": (plots.COLORS[0], "-"),
  "FedAvgLM": (plots.COLORS[4], "-"),
  "FedAvgLM-Z": (plots.COLORS[4], "--"),
  "FedAvgSLM": (plots.COLORS[2], "-"),
  "FedAvgSLM-Z": (plots.COLORS[2], "--"),
  "DOMO-S": (plots.COLORS[1], "--"),
  "DOMO": (plots.COLORS[1], "-"),
}
SIMILARITIES = ("0.05", "0.1", "0.2")
RATES = "0.4,0.2,0.1,0.05,0.01,0.005"
SEEDS = "0,1,2"
# Figure 2's constants, and Table 1's.
MU_S, MU_L = ("0.9", "0.6", "0.3"), ("0.9", "0.8", "0.6", "0.4", "0.2")
CONSTANTS = "1.0,0.9,0.8,0.6,0.4,0.2"


class Cell(NamedTuple):
  """A run: the name of its folder, and its flags."""

  name: str
  arguments: list[str]


def cell(name: str, method: str, *others: str, rounds: int = 0) -> Cell:
  return Cell(
    f"{name}-{FLAGS.rounds}",
    [
      "--flagfile=experiments/domo/cifar10.flags",
      f"--algorithm={METHODS[method]}",
      f"--rounds={rounds or FLAGS.rounds}",
      *others,
    ],
  )


def tuning(method: str) -> Cell:
  """All rates, for half of the rounds."""
  half = -(-FLAGS.rounds // 2)
  others = (f"--client_lr={RATES}", "--seed=0")
  return cell(f"tune-{method}", method, *others, rounds=half)


def comparison(method: str, s: str) -> Cell | None:
  """Three seeds at the chosen rate; None if no rate is chosen yet."""
  rate = chosen_rate(method)
  others = (f"--similarity={s}", f"--client_lr={rate}", f"--seed={SEEDS}")
  return None if rate is None else cell(f"final-{method}-s{s}", method, *others)


# DOMO's constants, at its chosen rate.
VARIATIONS = {
  "momenta": (f"--mu_s={','.join(MU_S)}", f"--mu_l={','.join(MU_L)}"),
  "beta": (f"--beta={CONSTANTS}",),
  "alpha": (f"--server_lr={CONSTANTS}",),
}


def variation(name: str) -> Cell | None:
  """DOMO with other constants; None if no rate is chosen yet."""
  rate = chosen_rate("DOMO")
  others = (f"--client_lr={rate}", "--seed=0", *VARIATIONS[name])
  return None if rate is None else cell(name, "DOMO", *others)


def folder(cell: Cell) -> pathlib.Path:
  return pathlib.Path(FLAGS.output_dir) / cell.name


def run(cell: Cell | None) -> None:
  """Does a run, unless it is there."""
  if cell is not None:
    reproduce.run_cell(folder(cell), cell.arguments)


def find(cell: Cell | None) -> Run | None:
  """A run, if it is there."""
  if cell is None:
    return None
  return reproduce.find(folder(cell), cell.arguments)


def chosen_rate(method: str) -> float | None:
  """The rate of the best accuracy after the last round."""
  found = find(tuning(method))
  if found is None or found.summary["selected"] is None:
    return None
  return found.points[found.summary["selected"]]["client_lr"]


def accuracies(found: Run) -> np.ndarray:
  """[S] in percent after the last round; NaN where diverged."""
  return 100 * found.history.values("test_accuracy")[:, -1]


def comparison_table() -> str:
  """Markdown: final test accuracy, mean and standard deviation over seeds."""
  lines = [
    "| method | rate | " + " | ".join(f"s = {s}" for s in SIMILARITIES) + " |",
    "|---" * (2 + len(SIMILARITIES)) + "|",
  ]
  for method in METHODS:
    cells = []
    for s in SIMILARITIES:
      found = find(comparison(method, s))
      ends = accuracies(found) if found else None
      shown = f"{ends.mean():.2f} ± {ends.std(ddof=1):.2f}" if found else "-"
      cells.append(shown)
    rate = chosen_rate(method)
    shown = "-" if rate is None else f"{rate:g}"
    lines.append(f"| {method} | {shown} | {' | '.join(cells)} |")
  return "\n".join(lines)


def constants_table() -> str:
  """Markdown: Table 1, one seed."""
  beta, alpha = find(variation("beta")), find(variation("alpha"))
  if beta is None or alpha is None:
    return ""
  lines = ["| | " + " | ".join(CONSTANTS.split(",")) + " |"]
  lines.append("|---" * (1 + len(CONSTANTS.split(","))) + "|")
  for name, found in (("β, α = 1", beta), ("α, β = 0.9", alpha)):
    cells = [f"{end:.2f}" for end in accuracies(found)]
    lines.append(f"| {name} | {' | '.join(cells)} |")
  return "\n".join(lines)


def draw_comparison(path: pathlib.Path) -> None:
  """Figure 1: test accuracy over epochs, one panel for each s."""
  with plots.figure(columns=len(SIMILARITIES)) as (figure, axes):
    for panel, s in zip(axes[0], SIMILARITIES, strict=True):
      for method, (color, style) in LOOKS.items():
        found = find(comparison(method, s))
        if found is not None:
          mean = 100 * found.history.values("test_accuracy").mean(0)
          look = {"color": color, "linestyle": style, "label": method}
          panel.plot(found.history.rounds, mean, **look)
      panel.set_title(f"s = {float(s):.0%}")
      panel.set_xlabel("Epoch")
      panel.set_ylabel("Test accuracy (%)")
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4)
    figure.savefig(path)


def draw_momenta(path: pathlib.Path) -> None:
  """Figure 2: final test accuracy over both momenta."""
  found = find(variation("momenta"))
  if found is not None:
    plots.heat_map(
      accuracies(found).reshape(len(MU_S), len(MU_L)),
      rows=("mu_s", MU_S),
      columns=("mu_l", MU_L),
      path=path,
      label="Test accuracy (%)",
      precision=".1f",
    )


def main(argv: list[str]) -> None:
  del argv
  reproduce.run_all(run, [(tuning(method),) for method in METHODS])
  pairs = [(method, s) for s in SIMILARITIES for method in METHODS]
  reproduce.run_all(run, [(comparison(*pair),) for pair in pairs])
  reproduce.run_all(run, [(variation(name),) for name in VARIATIONS])
  print(comparison_table())
  print(f"\n{constants_table()}")
  pictures = pathlib.Path(FLAGS.figures_dir)
  pictures.mkdir(parents=True, exist_ok=True)
  draw_comparison(pictures / "curves.png")
  draw_momenta(pictures / "momenta.png")


if __name__ == "__main__":
  reproduce.program(main)
