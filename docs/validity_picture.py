"""Draws validity.png: who reaches the optimum of heterogeneous quadratics.

  PYTHONPATH=. python docs/validity_picture.py

The problem is that of validity_table.py, in float64.
"""

import pathlib

import jax
import validity_table as table
from matplotlib import figure

FILE = pathlib.Path(__file__).parent / "validity.png"
ROUNDS = 300
# Label -> row of the table, color, style.
METHODS = {
  "FedAvg": ("fed_avg", "C7", "-"),
  "FedNova": ("fed_nova", "black", ":"),
  "FedCM": ("fed_cm", "C5", "-"),
  "MimeLite": ("mime_lite", "C6", "-"),
  "SCAFFOLD": ("scaffold", "C0", "-"),
  "FedDyn": ("fed_dyn", "C1", "-"),
  "ProxSkip": ("prox_skip", "C2", "-"),
  "FedSpeed, ρ = 0": ("fed_speed, rho 0", "C3", "-"),
  "FedSpeed, ρ = 0, all duals": ("fed_speed, rho 0, all_duals", "C4", "--"),
}


def draw() -> figure.Figure:
  """The figure: all clients in a round, and some."""
  fig = figure.Figure(figsize=(10, 4), layout="constrained")
  both = fig.subplots(1, 2, sharey=True)
  for ax, cohort_size in zip(both, (table.CLIENTS, table.FEW), strict=True):
    for label, (name, color, style) in METHODS.items():
      if cohort_size == table.CLIENTS or table.may_be_few(name):
        settings = {"cohort_size": cohort_size, "eval_every": 1}
        made = table.ROWS[name].make()
        distances = table.distances(made, ROUNDS, **settings)
        ax.semilogy(distances, style, color=color, label=label, linewidth=1.4)
    ax.set(
      title=f"{cohort_size} of {table.CLIENTS} clients in a round",
      xlabel="rounds",
      xlim=(0, ROUNDS),
      ylim=(1e-16, 2),
    )
    ax.grid(alpha=0.3)
  both[0].set_ylabel("distance to the optimum, of the first")
  handles, labels = both[0].get_legend_handles_labels()
  fig.legend(handles, labels, loc="outside right center", frameon=False)
  return fig


def main() -> None:
  jax.config.update("jax_enable_x64", True)
  draw().savefig(FILE, dpi=150)


if __name__ == "__main__":
  main()
