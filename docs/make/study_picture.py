"""Draws study.png and study_phone.png: what the README's first command found.

  PYTHONPATH=. python docs/make/study_picture.py runs/study

The folder is that of the command. The last accuracies stand below the curves;
for phones all stand below one another.
"""

import pathlib
import sys
from collections.abc import Mapping
from typing import Any

import fedjax_opt as fo
from fedjax_opt.study.plots import frame, panels

FILE = pathlib.Path(__file__).parents[1] / "study.png"
# Algorithm and rule of each method, in the order of the command.
_LABELS = {
  ("fed_avg", "sgd"): "FedAvg",
  ("scaffold", "sgd"): "SCAFFOLD",
  ("domo", "sgd"): "DOMO",
  ("fed_avg", "delta_sgd"): "Δ-SGD",
  ("fed_prox", "sgd"): "FedProx",
  ("fed_avg_slm_z", "sgd"): "FedAvgSLM-Z",
}
_Curves = dict[str, dict[str, fo.plots.Curve]]
_HEIGHT = 1.15  # Of the last accuracies, in inches.


def curves_of(folder: pathlib.Path) -> _Curves:
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


def figure_of(curves: _Curves) -> Any:
  """The learning curves, a panel for each condition."""
  return fo.plots.study_curves(
    curves,
    None,
    metric="test_accuracy",
    interval="mean and 95 % interval over 20 seeds",
  )


def add_last(figure: Any, curves: _Curves) -> None:
  """Adds a row below the curves: the last mean and interval of each method."""
  width, height = figure.get_size_inches()
  figure.set_size_inches(width, height + _HEIGHT)
  ratios = {"height_ratios": (height - 0.5, _HEIGHT)}
  grid = figure.add_gridspec(2, len(curves), **ratios)
  for column, (axes, of_method) in enumerate(
    zip(list(figure.axes), curves.values(), strict=True)
  ):
    axes.set_subplotspec(grid[0, column])
    _draw_last(figure.add_subplot(grid[1, column]), of_method, column == 0)


def _draw_last(
  axes: Any, curves: Mapping[str, fo.plots.Curve], is_named: bool
) -> None:
  """Draws the last accuracies in percent, a line for each method."""
  for place, (name, look) in enumerate(fo.plots.method_styles(curves).items()):
    curve, color = curves[name], {"color": look.color}
    low, mean, high = (
      100 * line[-1] for line in (curve.low, curve.mean, curve.high)
    )
    axes.plot([low, high], [place, place], linewidth=1.3, **color)
    axes.plot(mean, place, marker=look.marker, markersize=4.5, **color)
  axes.set_yticks(range(len(curves)), curves)
  axes.tick_params(labelleft=is_named)
  axes.set(ylim=(len(curves) - 0.5, -0.5), xlabel="Last test accuracy (%)")


def main(folder: str) -> None:
  """Draws both pictures."""
  curves = curves_of(pathlib.Path(folder))
  figure = figure_of(curves)
  with frame.in_style():
    add_last(figure, curves)
  panels.save(figure, FILE)


if __name__ == "__main__":
  main(*sys.argv[1:])
