"""Figure 2: the curse of primal averaging.

The paper's figure is a drawing: sparse clients, server averaging, dense server.
Here it is measured: how dense are the models that clients arrive at, their
plain mean, and the server's model, which FedMiD thresholds once more and
FedDualAvg makes from the mean of dual points.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from experiments.artefacts import drawing, views
from experiments.artefacts.base import (
  Artefact,
  Block,
  Cell,
  Computed,
  Found,
  Key,
  Plan,
  Table,
)
from experiments.artefacts.claims import Claim, Quantity
from experiments.artefacts.record import Record
from experiments.fco import grids, local_solutions
from fedjax_opt.metrics import History

# The paper's best rates of FedMiD, and those of FedDualAvg with the largest
# client rate at which it can run here.
METHODS = {
  "FedMiD": ("fed_mid", 0.001, 0.3),
  "FedMiD, smaller rate": ("fed_mid", 0.0003, 3.0),
  "FedDualAvg": ("fed_dual_avg", 0.001, 1.0),
}
VARIANTS = ("I", "II")
_WHO = ("clients", "average", "server")
_ROUNDS = (10, 50, 500)


def _cells(plan: Plan) -> dict[Key, Cell]:
  smoke = plan.size == "smoke"
  cells = {}
  for name, (method, client_lr, server_lr) in METHODS.items():
    for variant in VARIANTS:
      if smoke and (name, variant) != ("FedMiD", "II"):
        continue
      cells[name, variant] = Computed(
        local_solutions.densities,
        {
          "method": method,
          "variant": variant,
          "client_lr": client_lr,
          "server_lr": server_lr,
          "strengths": [0.1] if smoke else [0.1, 0.2, 0.5],
          "seeds": [1, 2] if smoke else [1, 2, 3],
          "rounds": 2 if smoke else 500,
        },
      )
  return cells


def _strengths(found: Found) -> list[float]:
  return sorted({p["strength"] for r in found.values() for p in r.points})


def _at_strength(record: Record, strength: float) -> Record:
  rows = [i for i, p in enumerate(record.points) if p["strength"] == strength]
  metrics = {n: v[rows] for n, v in record.history.metrics.items()}
  history = History(record.history.rounds, metrics)
  points = [record.points[row] for row in rows]
  return Record((), record.flags, record.about, points, history)


def _rounds(found: Found) -> list[int]:
  """Of those that are looked at, the ones that ran; or the last."""
  last = min(record.history.rounds[-1] for record in found.values())
  return [r for r in _ROUNDS if r <= last] or [last]


def _blocks(found: Found) -> list[Block]:
  at = _rounds(found)
  rows, panels = [], {}
  for strength in _strengths(found):
    for key, record in found.items():
      own = _at_strength(record, strength)
      values = [
        views.with_interval(grids.at(who, r)(own), "density")
        for r in at
        for who in _WHO
      ]
      rows.append([key[1], f"{strength:g}", key[0], *values])
      panels.setdefault((key[1], strength), {})[key[0]] = own
  heads = [f"{who} at {r}" for r in at for who in _WHO]
  table = Table(
    ["data set", "λ", "algorithm", *heads],
    rows,
    "Density (the truth has 0.5 on I and 0.0625 on II)",
  )
  lines = {
    f"{variant}, λ = {strength:g}": drawing.Row(_by_who(of_panel), {})
    for (variant, strength), of_panel in sorted(panels.items())
  }
  alt = "Density of clients' models, their mean and the server's model"
  picture = drawing.metrics_by_row(lines, [*METHODS], _WHO, "densities", alt)
  claims = [claim for s in _strengths(found) for claim in _claims(found, s, at)]
  return [table, picture, *claims]


def _by_who(of_methods: dict[str, Record]) -> dict[str, Record]:
  """Records of clients, average and server, whose metrics are the methods."""
  first = next(iter(of_methods.values()))
  return {
    who: dataclasses.replace(
      first,
      history=History(
        first.history.rounds,
        {m: record.history.metrics[who] for m, record in of_methods.items()},
      ),
    )
    for who in _WHO
  }


def _claims(
  found: Found, strength: float, rounds: Sequence[int]
) -> list[Claim]:
  own = {k: _at_strength(record, strength) for k, record in found.items()}
  primal = [name for name in METHODS if name.startswith("FedMiD")]

  def denser(one: str, other: str, names: Sequence[str], slack: float = 0.0):
    return [
      _denser(own, (name, variant), one, other, r, slack)
      for name in names
      for variant in VARIANTS
      for r in rounds
    ]

  where = f"(λ = {strength:g})"
  return [
    Claim(
      "Each client of FedMiD finds a sparse solution; their mean is denser "
      f"{where}",
      denser("average", "clients", primal),
    ),
    Claim(
      f"FedMiD's server is denser than its clients {where}",
      denser("server", "clients", primal),
    ),
    Claim(
      "FedDualAvg's server is at most as dense as its clients, up to 0.01 "
      f"{where}",
      denser("clients", "server", ["FedDualAvg"], 0.01),
    ),
    Claim(
      f"FedMiD's server is denser than FedDualAvg's {where}",
      [
        views.lead(
          own, f"{variant}, {name}, round {r}", (name, variant),
          ("FedDualAvg", variant), grids.at("server", r), unit="", scale=1,
        )
        for name in primal
        for variant in VARIANTS
        for r in rounds
      ],
    ),
  ]  # fmt: skip


def _denser(
  found: Found, key: Key, one: str, other: str, round: int, slack: float
) -> Quantity:
  """That one of the three is denser than another, at a round."""
  name = f"{key[1]}, {key[0]}, {one} over {other}, round {round}"
  if key not in found:
    return Quantity(name, ())
  values = [grids.at(who, round)(found[key]) for who in (one, other)]
  return Quantity(name, tuple(np.subtract(*values) + slack))


ARTEFACTS = (
  Artefact(
    "fco/figure2",
    "Density of clients' models, of their mean and of the server's model",
    "a drawing, without data: sparse clients of FedMiD, server averaging, a "
    "dense server; measured here on LASSO",
    _cells,
    _blocks,
  ),
)
