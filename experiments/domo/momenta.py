"""Figure 2 of the DOMO paper: the server's and the clients' momentum.

0 is a method without that momentum: FedAvgSM, FedAvgLM or FedAvg.
"""

import itertools

import numpy as np

from experiments.artefacts import values, views
from experiments.artefacts.artefact import Entries, Records
from experiments.artefacts.blocks import Block, Claim, Picture, Table
from experiments.artefacts.declared_claims import lead
from experiments.artefacts.views import TableDeclaration
from fedjax_opt import plots
from fedjax_opt.study.plots.heat_maps import Grid

MU_S = [f"μ_s = {mu}" for mu in ("0.9", "0.6", "0.3", "0")]
MU_L = [f"μ_l = {mu}" for mu in ("0.9", "0.8", "0.6", "0.4", "0.2", "0")]


def by_momenta(records: Records, s: str) -> Records:
  """(μ_s, μ_l) -> the record of the method with these, at a similarity."""
  parts = {}
  for (_, similarity), record in records.items():
    for point in record.points if similarity == s else ():
      # A method has only the momenta that it takes.
      momenta = {n: point[n] for n in ("mu_s", "mu_l") if n in point}
      mu_s, mu_l = momenta.get("mu_s", 0), momenta.get("mu_l", 0)
      parts[f"μ_s = {mu_s:g}", f"μ_l = {mu_l:g}"] = record.where(**momenta)
  return parts


def blocks(entries: Entries, records: Records) -> list[Block]:
  """A table and a claim for each similarity, and a panel for each."""
  by_title = {
    entries["titles"][s]: by_momenta(records, s)
    for s in entries["columns"]
    if ("DOMO", s) in records
  }
  draw = lambda: plots.heat_maps(
    {title: _grid(parts) for title, parts in by_title.items()},
    None,
    metric=values.ACCURACY,
  )
  picture = Picture("momenta", draw, "Test accuracy over both momenta")
  return [
    *(_table(title, parts) for title, parts in by_title.items()),
    *([picture] if by_title else []),
    *(_best(title, parts) for title, parts in by_title.items()),
  ]


def _table(title: str, parts: Records) -> Table:
  title = f"Last test accuracy in percent, {title}"
  declared = TableDeclaration(MU_S, MU_L, title=title, corner="momentum")
  return views.table(declared, parts)


def _grid(parts: Records) -> Grid:
  """The panel of a similarity; it has 0 if all cells with 0 have run."""
  is_whole = all((mu_s, mu_l) in parts for mu_s in MU_S for mu_l in MU_L)
  rows, columns = (MU_S, MU_L) if is_whole else (MU_S[:-1], MU_L[:-1])
  accuracies = values.value().compute
  mean = lambda key: (
    float(np.mean(accuracies(parts[key]))) if key in parts else np.nan
  )
  cell_values = np.array(
    [[mean((row, column)) for column in columns] for row in rows]
  )
  numbers = lambda keys: [key.split()[-1] for key in keys]
  return Grid(cell_values, ("mu_s", numbers(rows)), ("mu_l", numbers(columns)))


def _best(title: str, parts: Records) -> Claim:
  """The claim that the paper's momenta are above all others that have run."""
  best = ("μ_s = 0.9", "μ_l = 0.6")
  over = [
    lead(parts, best, key)._replace(name=f"over {', '.join(key)}")
    for key in itertools.product(MU_S, MU_L)
    if key != best and key in parts
  ]
  return Claim(f"μ_s = 0.9 and μ_l = 0.6 are best, {title}", over)
