"""Draws validity.png: who reaches the optimum of heterogeneous quadratics.

  PYTHONPATH=. python docs/make/validity_picture.py

The problem is that of validity_table.py, in float64.
"""

import pathlib
from typing import Any

import jax
import validity_table as table

from fedjax_opt import plots
from fedjax_opt.study.plots import panels

FILE = pathlib.Path(__file__).parents[1] / "validity.png"
ROUNDS = 300
_LOOKS = plots.method_styles(["FedAvg", "SCAFFOLD"])
# Label -> row of the table, color, style.
METHODS = {
  "FedAvg": ("fed_avg", _LOOKS["FedAvg"].color, "-"),
  "FedNova": ("fed_nova", "black", ":"),
  "FedCM": ("fed_cm", "#56B4E9", "-"),
  "MimeLite": ("mime_lite", "#CC79A7", "-"),
  "SCAFFOLD": ("scaffold", _LOOKS["SCAFFOLD"].color, "-"),
  "FedDyn": ("fed_dyn", "#E69F00", "-"),
  "ProxSkip": ("prox_skip", "#009E73", "-"),
  "FedSpeed, ρ = 0": ("fed_speed, rho 0", "#808080", "-"),
  "FedSpeed, ρ = 0, all duals": ("fed_speed, rho 0, all_duals", "black", "--"),
}
# Lines on which others lie are broader, so that all are seen.
_WIDTHS = {"FedAvg": 3.6, "FedDyn": 3.6, "FedSpeed, ρ = 0": 2.2}


def draw() -> Any:
  """The figure: all clients in a round, and some."""
  entries = {}
  with plots.figure(2, 1, (1.2, 1.1)) as (figure, axes):
    for ax, cohort_size in zip(
      axes[0], (table.CLIENTS, table.FEW), strict=True
    ):
      for label, (name, color, style) in METHODS.items():
        if cohort_size == table.CLIENTS or table.may_be_few(name):
          settings = {"cohort_size": cohort_size, "eval_every": 1}
          algorithm = table.ROWS[name].make()
          distances = table.distances(algorithm, ROUNDS, **settings)
          options = {"color": color, "linestyle": style}
          width = _WIDTHS.get(label, 1.3)
          (line,) = ax.semilogy(distances, linewidth=width, **options)
          entries.setdefault(label, line)
      ax.set(
        title=f"{cohort_size} of {table.CLIENTS} clients in a round",
        xlabel="Communication round",
        xlim=(0, ROUNDS),
        ylim=(1e-16, 2),
      )
    axes[0, 0].set_ylabel("Share of the first distance")
    panels.add_legend(figure, entries, 2 * 2.8 * 1.2)
  return figure


def main() -> None:
  jax.config.update("jax_enable_x64", True)
  panels.save(draw(), FILE)


if __name__ == "__main__":
  main()
