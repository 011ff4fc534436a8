"""Figures 2, 3 and 4 of the BVR-L-SGD paper: five methods on CIFAR-10.

  python -m experiments.bvr.figures --data_dir=D --output_dir=runs/bvr

Each method's six learning rates at one class fraction q are one run of
`experiments.run` (one compiled program) with its own folder; a folder that is
complete is not run again. The rate is picked by the paper's criterion: the
lowest training accuracy of the last 100 rounds, the higher the better.
"""

import pathlib
from typing import Any

from absl import flags

from experiments import reproduce
from fedjax_opt import Run, metrics, plots

FLAGS = flags.FLAGS
reproduce.define_flags("runs/bvr")
flags.DEFINE_string("figures_dir", "runs/bvr/figures", "Folder of pictures.")
flags.DEFINE_integer("rounds", 500, "Communication rounds.")
flags.DEFINE_integer("budget", 256, "Examples of a client in a round.")
flags.DEFINE_list("budgets", ["64", "256"], "Of Figure 3, at q = 0.1.")

METHODS = (
  "minibatch_sgd",
  "minibatch_sarah",
  "local_sgd",
  "scaffold",
  "bvr_l_sgd",
)
FRACTIONS = ("0.1", "0.35", "0.6", "0.85")
EVAL_EVERY = 50
# Batches of local steps; a method without them takes the budget at once.
BATCH_SIZE = 16

Cell = tuple[str, str, int]  # method, class fraction, budget


def folder(method: str, fraction: str, budget: int) -> pathlib.Path:
  root = pathlib.Path(FLAGS.output_dir)
  return root / f"{method}-q{fraction}-budget{budget}-{FLAGS.rounds}"


def arguments(method: str, fraction: str, budget: int) -> list[str]:
  return [
    "--flagfile=experiments/bvr/cifar10.flags",
    f"--algorithm={method}",
    f"--class_fraction={fraction}",
    f"--local_steps={budget // BATCH_SIZE}",
    f"--rounds={FLAGS.rounds}",
    f"--eval_every={EVAL_EVERY}",
  ]


def run(*cell: Any) -> None:
  """One method's rates in one setting, unless they are there."""
  reproduce.run_cell(folder(*cell), arguments(*cell))


def selected(run: Run) -> int | None:
  """The point of the picked rate."""
  last = 1 + 100 // EVAL_EVERY
  criterion = metrics.Criterion("train_accuracy", "max", "worst_last_n", last)
  return metrics.select(run.history, run.points, criterion)


Picked = dict[Cell, tuple[Run, int]]


def table(picked: Picked, settings: dict[str, tuple[str, int]]) -> str:
  """Markdown: the best values within the run, at the picked rates.

  Args:
    picked: what there is.
    settings: head of a column -> class fraction and budget.
  """
  head = [f"{name}: rate, test accuracy, train loss" for name in settings]
  lines = [
    "| method | " + " | ".join(head) + " |",
    "|---" * (1 + len(settings)) + "|",
  ]
  for method in METHODS:
    cells = []
    for setting in settings.values():
      if (method, *setting) not in picked:
        cells.append("-")
        continue
      run, point = picked[method, *setting]
      accuracy, _ = run.history.best(point, "test_accuracy")
      loss, _ = run.history.best(point, "train_loss")
      rate = run.points[point]["client_lr"]
      cells.append(f"{rate:g}: {100 * accuracy:.1f}, {loss:.3f}")
    lines.append(f"| {method} | " + " | ".join(cells) + " |")
  return "\n".join(lines)


PANELS = {
  "train_loss": "Training loss",
  "train_accuracy": "Training accuracy (%)",
  "test_loss": "Test loss",
  "test_accuracy": "Test accuracy (%)",
}


def draw_best(
  picked: Picked,
  settings: dict[str, tuple[str, int]],
  label: str,
  path: pathlib.Path,
) -> None:
  """Figures 2 and 3: the best value of each metric against q or the budget."""
  with plots.figure(columns=4) as (figure, axes):
    for panel, (name, shown) in zip(axes[0], PANELS.items(), strict=True):
      scale = 100 if "accuracy" in name else 1
      for method, color in zip(METHODS, plots.COLORS, strict=False):
        own = {
          x: picked[method, *setting]
          for x, setting in settings.items()
          if (method, *setting) in picked
        }
        best = [scale * _best(*found, name) for found in own.values()]
        at = [float(x.split()[-1]) for x in own]
        panel.plot(at, best, marker="o", markersize=3, color=color)
      panel.set_xlabel(label)
      panel.set_ylabel(f"Best {shown[0].lower()}{shown[1:]}")
    _legend(figure, axes[0][0])
    figure.savefig(path)


def _best(run: Run, point: int, name: str) -> float:
  return run.history.best(point, name)[0]


def draw_curves(picked: Picked, path: pathlib.Path) -> None:
  """Figure 4: training loss and test accuracy over rounds, for each q."""
  with plots.figure(columns=len(FRACTIONS), rows=2) as (figure, axes):
    for row, name in zip(axes, ("train_loss", "test_accuracy"), strict=True):
      scale = 100 if "accuracy" in name else 1
      for panel, fraction in zip(row, FRACTIONS, strict=True):
        for method, color in zip(METHODS, plots.COLORS, strict=False):
          if (method, fraction, FLAGS.budget) in picked:
            run, point = picked[method, fraction, FLAGS.budget]
            values = scale * run.history.values(name, point)
            # The first values would hide the rest.
            panel.plot(run.history.rounds[1:], values[1:], color=color)
        panel.set_title(f"q = {fraction}")
        panel.set_xlabel("Communication round")
        panel.set_ylabel(PANELS[name])
    _legend(figure, axes[0][0])
    figure.savefig(path)


def _legend(figure, axes) -> None:
  figure.legend(
    axes.get_lines(), METHODS, loc="outside lower center", ncols=len(METHODS)
  )


def main(argv: list[str]) -> None:
  del argv
  by_fraction = {f"q = {q}": (q, FLAGS.budget) for q in FRACTIONS}
  by_budget = {f"budget {b}": ("0.1", int(b)) for b in FLAGS.budgets}
  settings = dict.fromkeys([*by_fraction.values(), *by_budget.values()])
  cells = [(method, *setting) for setting in settings for method in METHODS]
  reproduce.run_all(run, cells)
  picked = {}
  for cell in cells:
    found = reproduce.find(folder(*cell), arguments(*cell))
    point = None if found is None else selected(found)
    if point is not None:
      picked[cell] = found, point
  print(f"{table(picked, by_fraction)}\n\n{table(picked, by_budget)}")
  pictures = pathlib.Path(FLAGS.figures_dir)
  pictures.mkdir(parents=True, exist_ok=True)
  draw_best(
    picked, by_fraction, "Class fraction q", pictures / "cifar10_best.png"
  )
  label = "Examples of a client in a round"
  draw_best(picked, by_budget, label, pictures / "cifar10_budgets.png")
  draw_curves(picked, pictures / "cifar10_curves.png")


if __name__ == "__main__":
  reproduce.program(main)
