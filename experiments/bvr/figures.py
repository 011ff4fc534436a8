"""Figures 2 and 4 of the BVR-L-SGD paper: five methods on CIFAR-10.

  python -m experiments.bvr.figures --data_dir=D --output_dir=runs/bvr

Each method's six learning rates at one class fraction q are one run of
`experiments.run` (one compiled program) in a folder of its own; those that are
there are not run again. The rate is picked by the paper's criterion: the lowest
training accuracy of the last 100 rounds, the higher the better.
"""

import concurrent.futures
import pathlib

from absl import app, flags

from experiments import reproduce
from fedjax_opt import metrics, plots

FLAGS = flags.FLAGS
flags.DEFINE_string("data_dir", None, "Folder of tensorflow_datasets.")
flags.DEFINE_string("output_dir", "runs/bvr", "Folder of all runs.")
flags.DEFINE_string("figures_dir", "runs/bvr/figures", "Folder of pictures.")
flags.DEFINE_integer("rounds", 500, "Communication rounds.")
flags.DEFINE_integer("budget", 256, "Examples of a client in a round.")
flags.DEFINE_integer("jobs", 1, "Runs at a time.")
flags.DEFINE_bool("only_print", False, "Run nothing, show what is there.")

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


def folder(method: str, fraction: str) -> pathlib.Path:
  root = pathlib.Path(FLAGS.output_dir)
  return root / f"{method}-q{fraction}-budget{FLAGS.budget}-{FLAGS.rounds}"


def run(method: str, fraction: str) -> None:
  """One method's rates at one class fraction, unless they are there."""
  flags = [
    "--flagfile=experiments/bvr/cifar10.flags",
    f"--algorithm={method}",
    f"--class_fraction={fraction}",
    f"--local_steps={FLAGS.budget // BATCH_SIZE}",
    f"--rounds={FLAGS.rounds}",
    f"--eval_every={EVAL_EVERY}",
    f"--data_dir={FLAGS.data_dir}",
  ]
  cores = 1 if FLAGS.jobs > 1 else 0
  reproduce.run_once(folder(method, fraction), flags, cores)


def selected(run: reproduce.Run) -> int | None:
  """The point of the picked rate."""
  last = 1 + 100 // EVAL_EVERY
  criterion = metrics.Criterion("train_accuracy", "max", "worst_last_n", last)
  return metrics.select(run.history, run.points, criterion)


Picked = dict[tuple[str, str], tuple[reproduce.Run, int]]


def table(picked: Picked) -> str:
  """Markdown: the best values within the run, at the picked rates."""
  head = [f"q = {q}: rate, test accuracy, train loss" for q in FRACTIONS]
  lines = [
    "| method | " + " | ".join(head) + " |",
    "|---" * (1 + len(FRACTIONS)) + "|",
  ]
  for method in METHODS:
    cells = []
    for fraction in FRACTIONS:
      if (method, fraction) not in picked:
        cells.append("-")
        continue
      run, point = picked[method, fraction]
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


def draw_best(picked: Picked, path: pathlib.Path) -> None:
  """Figure 2: the best value of each metric against q."""
  with plots.figure(columns=4) as (figure, axes):
    for panel, (name, label) in zip(axes[0], PANELS.items(), strict=True):
      scale = 100 if "accuracy" in name else 1
      for method, color in zip(METHODS, plots.COLORS, strict=False):
        own = [q for q in FRACTIONS if (method, q) in picked]
        best = [scale * _best(*picked[method, q], name) for q in own]
        at = [float(q) for q in own]
        panel.plot(at, best, marker="o", markersize=3, color=color)
      panel.set_xlabel("Class fraction q")
      panel.set_ylabel(f"Best {label[0].lower()}{label[1:]}")
    _legend(figure, axes[0][0])
    figure.savefig(path)


def _best(run: reproduce.Run, point: int, name: str) -> float:
  return run.history.best(point, name)[0]


def draw_curves(picked: Picked, path: pathlib.Path) -> None:
  """Figure 4: training loss and test accuracy over rounds, for each q."""
  with plots.figure(columns=len(FRACTIONS), rows=2) as (figure, axes):
    for row, name in zip(axes, ("train_loss", "test_accuracy"), strict=True):
      scale = 100 if "accuracy" in name else 1
      for panel, fraction in zip(row, FRACTIONS, strict=True):
        for method, color in zip(METHODS, plots.COLORS, strict=False):
          if (method, fraction) in picked:
            run, point = picked[method, fraction]
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
  cells = [(m, q) for q in FRACTIONS for m in METHODS]
  if not FLAGS.only_print:
    with concurrent.futures.ThreadPoolExecutor(FLAGS.jobs) as pool:
      list(pool.map(lambda cell: run(*cell), cells))
  picked = {}
  for cell in cells:
    if (folder(*cell) / "summary.json").exists():
      found = reproduce.read(folder(*cell))
      point = selected(found)
      if point is not None:
        picked[cell] = found, point
  print(table(picked))
  pictures = pathlib.Path(FLAGS.figures_dir)
  pictures.mkdir(parents=True, exist_ok=True)
  draw_best(picked, pictures / "cifar10_best.png")
  draw_curves(picked, pictures / "cifar10_curves.png")


if __name__ == "__main__":
  app.run(main)
