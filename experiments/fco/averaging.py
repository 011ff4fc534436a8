"""Figure 2: the curse of primal averaging.

The paper's figure is a drawing: sparse clients, server averaging, dense server.
Here it is measured: how dense are the models that clients arrive at, their
plain mean, and the server's model, which FedMiD thresholds once more and
FedDualAvg makes from the mean of dual points.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from experiments.artefacts import comparisons, drawing
from experiments.artefacts.artefact import (
  Block,
  Cell,
  Computed,
  Found,
  Key,
  Picture,
  Plan,
  Table,
)
from experiments.artefacts.claims import Claim
from experiments.artefacts.record import Record
from experiments.artefacts.values import value, with_interval
from experiments.fco import local_solutions
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


def cells(about: Any, plan: Plan) -> dict[Key, Cell]:
  """Each method on each data set, at all strengths."""
  del about
  smoke = plan.size == "smoke"
  found = {}
  for name, (method, client_lr, server_lr) in METHODS.items():
    for variant in VARIANTS:
      if smoke and (name, variant) != ("FedMiD", "II"):
        continue
      found[name, variant] = Computed(
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
  return found


def blocks(about: Any, found: Found) -> list[Block]:
  """Densities as a table and a picture, and what they say."""
  del about
  last = min(record.history.rounds[-1] for record in found.values())
  rounds = [r for r in _ROUNDS if r <= last] or [last]
  strengths = sorted({p["strength"] for r in found.values() for p in r.points})
  rows, lines, claims = [], {}, []
  for strength in strengths:
    own = {k: r.where(strength=strength) for k, r in found.items()}
    for (name, variant), record in own.items():
      densities = [
        with_interval(value(f"{who} at {r}").of(record), "density")
        for r in rounds
        for who in _WHO
      ]
      rows.append([variant, f"{strength:g}", name, *densities])
    for variant in VARIANTS:
      if of_panel := {k[0]: r for k, r in own.items() if k[1] == variant}:
        title = f"{variant}, λ = {strength:g}"
        lines[title] = drawing.Row(_by_who(of_panel), {})
    claims += _claims(own, f"(λ = {strength:g})", rounds)
  heads = [f"{who} at {r}" for r in rounds for who in _WHO]
  table = Table(
    ["data set", "λ", "algorithm", *heads],
    rows,
    "Density (the truth has 0.5 on I and 0.0625 on II)",
  )
  lines = dict(sorted(lines.items()))
  strongest = f"λ = {strengths[-1]:g}"
  brief = {k: row for k, row in lines.items() if k.endswith(strongest)}
  alt = "Density of clients' models, their mean and the server's model"
  draw = lambda rows: functools.partial(
    drawing.draw_metrics, rows, [*METHODS], _WHO
  )
  pictures = [
    Picture("densities", draw(lines), alt),
    Picture("brief", draw(brief), f"{alt}, {strongest}"),
  ]
  return [table, *pictures, *claims]


def _by_who(of_methods: dict[str, Record]) -> dict[str, Record]:
  """Records of clients, average and server, whose metrics are the methods."""
  first = next(iter(of_methods.values()))
  metrics = {
    who: {m: record.history.metrics[who] for m, record in of_methods.items()}
    for who in _WHO
  }
  history = lambda who: History(first.history.rounds, metrics[who])
  return {who: dataclasses.replace(first, history=history(who)) for who in _WHO}


def _claims(own: Found, where: str, rounds: Sequence[int]) -> list[Claim]:
  primal = [name for name in METHODS if name.startswith("FedMiD")]
  # Each of the three as a cell of its own, with one metric.
  parts = {
    (*key, who): dataclasses.replace(
      record,
      history=History(
        record.history.rounds, {"density": record.history.metrics[who]}
      ),
    )
    for key, record in own.items()
    for who in _WHO
  }

  def claim(text: str, pairs: Sequence[tuple[str, str, str, str]], slack=0.0):
    """That the second of two is denser, for (name, who, name, who)."""
    quantities = []
    for name, one, other_name, other in pairs:
      for variant in VARIANTS:
        for r in rounds:
          keys = (name, variant, one), (other_name, variant, other)
          found = comparisons.lead(parts, *keys, value(f"density at {r}"), 1)
          values = tuple(each + slack for each in found.values)
          name_of = f"{variant}, {name}, {found.name}"
          quantities.append(found._replace(name=name_of, values=values))
    return Claim(f"{text} {where}", quantities)

  within = lambda names, one, other: [(n, one, n, other) for n in names]
  return [
    claim(
      "Each client of FedMiD finds a sparse solution; their mean is denser",
      within(primal, "average", "clients"),
    ),
    claim(
      "FedMiD's server is denser than its clients",
      within(primal, "server", "clients"),
    ),
    claim(
      "FedDualAvg's server is at most as dense as its clients, up to 0.01",
      within(["FedDualAvg"], "clients", "server"),
      0.01,
    ),
    claim(
      "FedMiD's server is denser than FedDualAvg's",
      [(name, "server", "FedDualAvg", "server") for name in primal],
    ),
  ]
