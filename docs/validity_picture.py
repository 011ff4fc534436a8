"""Draws validity.png: who reaches the optimum of heterogeneous quadratics.

  PYTHONPATH=. python docs/validity_picture.py

The problem is that of validity_table.py, in float64.
"""

import functools
import importlib.util
import pathlib
from typing import Any

import jax
import optax

import fedjax_opt as fo
from fedjax_opt import plots
from fedjax_opt.study.plots import panels

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
  "FedAvg": (_of(fo.fed_avg, _SGD), "#808080", "-", True),
  "FedNova": (_of(fo.fed_nova, table.RATE), "black", ":", True),
  "FedCM": (_of(fo.fed_cm, table.RATE), "#56B4E9", "-", True),
  "MimeLite": (_of(fo.mime_lite, table.RATE), "#CC79A7", "-", True),
  "SCAFFOLD": (_of(fo.scaffold, table.RATE), "#0072B2", "-", True),
  "FedDyn": (_of(fo.fed_dyn, _SGD, alpha=0.5), "#E69F00", "-", True),
  "ProxSkip": (_of(fo.prox_skip, table.RATE, p=0.4), "#009E73", "-", False),
  "FedSpeed, ρ = 0": (
    _of(fo.fed_speed, table.RATE, lam=2.0, rho=0.0), "#D55E00", "-", True,
  ),
  "FedSpeed, ρ = 0, all duals": (
    _of(fo.fed_speed, table.RATE, lam=2.0, rho=0.0, all_duals=True),
    "black", "--", True,
  ),
}  # fmt: skip


def draw() -> Any:
  """The figure: all clients in a round, and some."""
  entries = {}
  with plots.figure(2, 1, (1.2, 1.1)) as (figure, axes):
    for ax, cohort_size in zip(
      axes[0], (table.CLIENTS, table.FEW), strict=True
    ):
      for label, (make, color, style, may_be_few) in METHODS.items():
        if cohort_size == table.CLIENTS or may_be_few:
          settings = {"cohort_size": cohort_size, "eval_every": 1}
          distances = table.distances(make(), ROUNDS, **settings)
          look = {"color": color, "linestyle": style, "linewidth": 1.3}
          (line,) = ax.semilogy(distances, **look)
          entries.setdefault(label, line)
      ax.set(
        title=f"{cohort_size} of {table.CLIENTS} clients in a round",
        xlabel="Communication round",
        xlim=(0, ROUNDS),
        ylim=(1e-16, 2),
      )
    axes[0, 0].set_ylabel("Share of the first distance")
    panels.add_below(figure, entries, 2 * 2.8 * 1.2)
  return figure


def main() -> None:
  jax.config.update("jax_enable_x64", True)
  panels.save(draw(), FILE)


if __name__ == "__main__":
  main()
