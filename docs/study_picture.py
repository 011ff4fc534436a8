"""Draws study_phone.png: the README's study, its panels below one another.

  PYTHONPATH=. python docs/study_picture.py runs/study

The folder is that of the README's first command, whose own picture of the same
runs is study.png.
"""

import pathlib
import sys

import fedjax_opt as fo
from fedjax_opt.study.plots import panels

FILE = pathlib.Path(__file__).parent / "study_phone.png"
# Algorithm and rule of each method, in the order of the command.
_LABELS = {
  ("fed_avg", "sgd"): "FedAvg",
  ("scaffold", "sgd"): "SCAFFOLD",
  ("domo", "sgd"): "DOMO",
  ("fed_avg", "delta_sgd"): "Δ-SGD",
  ("fed_prox", "sgd"): "FedProx",
  ("fed_avg_slm_z", "sgd"): "FedAvgSLM-Z",
}


def curves_of(folder: pathlib.Path) -> dict[str, dict[str, fo.plots.Curve]]:
  """Condition -> method -> mean and interval over the fresh seeds."""
  curves = {}
  for run in map(fo.load_run, folder.glob("runs/*-1x20-*")):
    config = run.config
    values = run.history.values("test_accuracy")  # [seeds, evaluations]
    curve = fo.plots.Curve(
      run.history.rounds, *fo.statistics.mean_interval(values)
    )
    label = _LABELS[config["algorithm"], config["client"]]
    curves.setdefault(config["alpha"], {})[label] = curve
  return {
    f"α = {alpha:g}": {name: curves[alpha][name] for name in _LABELS.values()}
    for alpha in sorted(curves, reverse=True)
  }


def main(folder: str) -> None:
  """Draws the picture, 3.6 inches wide."""
  figure = fo.plots.study_curves(
    curves_of(pathlib.Path(folder)),
    None,
    metric="test_accuracy",
    interval="mean and 95 % interval over 20 seeds",
  )
  panels.stack(figure)
  figure.savefig(FILE)


if __name__ == "__main__":
  main(*sys.argv[1:])
