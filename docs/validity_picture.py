"""Draws validity.png: who reaches the optimum of heterogeneous quadratics.

  PYTHONPATH=. python docs/validity_picture.py

The problem is that of validity_table.py, in float64.
"""

import functools
import importlib.util
import pathlib

import jax
import optax
from matplotlib import figure

import fedjax_opt as fo

_HERE = pathlib.Path(__file__).parent
FILE = _HERE / "validity.png"
_SPEC = importlib.util.spec_from_file_location(
  "validity_table", _HERE / "validity_table.py"
)
table = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(table)

ROUNDS = 300
_SGD = optax.sgd(table.RATE)
_of = lambda factory, *given, **others: functools.partial(
  factory, table.loss_fn, *given, **others
)
# label -> (method, color, style, whether a cohort can be a part).
METHODS = {
  "FedAvg": (_of(fo.fed_avg, _SGD), "C7", "-", True),
  "FedNova": (_of(fo.fed_nova, table.RATE), "black", ":", True),
  "FedCM": (_of(fo.fed_cm, table.RATE), "C5", "-", True),
  "MimeLite": (_of(fo.mime_lite, table.RATE), "C6", "-", True),
  "SCAFFOLD": (_of(fo.scaffold, table.RATE), "C0", "-", True),
  "FedDyn": (_of(fo.fed_dyn, _SGD, alpha=0.5), "C1", "-", True),
  "ProxSkip": (_of(fo.prox_skip, table.RATE, p=0.4), "C2", "-", False),
  "FedSpeed, ρ = 0": (
    _of(fo.fed_speed, table.RATE, lam=2.0, rho=0.0), "C3", "-", True,
  ),
  "FedSpeed, ρ = 0, all duals": (
    _of(fo.fed_speed, table.RATE, lam=2.0, rho=0.0, all_duals=True),
    "C4", "--", True,
  ),
}  # fmt: skip


def draw() -> figure.Figure:
  """The figure: all clients in a round, and some."""
  fig = figure.Figure(figsize=(10, 4), layout="constrained")
  both = fig.subplots(1, 2, sharey=True)
  for ax, cohort_size in zip(both, (table.CLIENTS, table.FEW), strict=True):
    for label, (make, color, style, may_be_few) in METHODS.items():
      if cohort_size == table.CLIENTS or may_be_few:
        settings = {"cohort_size": cohort_size, "eval_every": 1}
        distances = table.distances(make(), ROUNDS, **settings)
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
