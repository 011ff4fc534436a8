"""What precedes the Delta-SGD paper's experiments, and what it does not have.

The search of step sizes; variants of the authors' program, and a task of ours.
"""

import numpy as np

from experiments.artefacts import views
from experiments.artefacts.base import (
  Artefact,
  Block,
  Cell,
  Found,
  Key,
  Plan,
  RunOf,
  Table,
)
from experiments.artefacts.claims import Claim, above
from experiments.delta_sgd import settings
from experiments.delta_sgd.settings import OURS

# The search of rates: CIFAR-10, ResNet-18, alpha = 0.1.

_RATES = {
  "SGD": ("0.01", "0.05", "0.1", "0.5"),
  "SGD(↓)": ("0.01", "0.05", "0.1", "0.5"),
  "SGDM": ("0.01", "0.05", "0.1", "0.5"),
  "SGDM(↓)": ("0.01", "0.05", "0.1", "0.5"),
  "Adam": ("0.001", "0.01", "0.1"),
  "Adagrad": ("0.001", "0.01", "0.1"),
}
_FROZEN = {
  "SGD": "0.1", "SGD(↓)": "0.1", "SGDM": "0.1", "SGDM(↓)": "0.1",
  "Adam": "0.001", "Adagrad": "0.01",
}  # fmt: skip
_SEARCH = {"smoke": "smoke", "cpu": "cifar10_cpu", "paper": "cifar10"}


def _rate_search(plan: Plan) -> dict[Key, Cell]:
  names = ("SGD",) if plan.size == "smoke" else list(_RATES)
  cells = {}
  for name in names:
    rates = _RATES[name][:2] if plan.size == "smoke" else _RATES[name]
    # A later flag replaces an earlier one.
    flags = ("--alpha=0.1", f"--client_lr={','.join(rates)}")
    cells[(name,)] = settings.of_preset(
      plan, _SEARCH[plan.size], name, *flags, seeds="5821"
    )
  return cells


def _of_rate(found: Found, name: str, rate: str) -> np.ndarray | None:
  if (name,) not in found:
    return None
  return views.of_points(found[(name,)], views.final(), client_lr=float(rate))


def _rate_search_blocks(found: Found) -> list[Block]:
  rates = sorted({r for each in _RATES.values() for r in each}, key=float)
  at = lambda name, rate: _of_rate(found, name, rate)
  there = [name for name in _RATES if (name,) in found]
  rows = []
  for name in there:
    cells = [_cell(at(name, rate)) for rate in rates]
    frozen = rates.index(_FROZEN[name])
    if cells[frozen] != views.NOT_RUN:
      cells[frozen] = f"**{cells[frozen]}**"
    rows.append([name, *cells])
  heads = ["client optimizer", *(f"η = {rate}" for rate in rates)]
  title = "Last test accuracy in percent; in bold at the paper's rate"
  claims = [
    Claim(
      f"η = {_FROZEN[name]} is the best rate of {name}",
      [
        above(
          f"{_FROZEN[name]} over {rate}",
          at(name, _FROZEN[name]),
          at(name, rate),
          "points",
          100,
          (_FROZEN[name], rate),
        )
        for rate in _RATES[name]
        if rate != _FROZEN[name]
      ],
    )
    for name in there
  ]
  return [Table(heads, rows, title), *claims]


def _cell(of_seeds: np.ndarray | None) -> str:
  """An empty array is of a rate that is not in the grid."""
  if of_seeds is None or not len(of_seeds):
    return views.NOT_RUN
  return views.with_interval(of_seeds)


# Variants of the authors' program.

_VARIANTS = {
  "as in the tables": (),
  "the tail of each client cut": ("--tail_cut=0.1",),
  "independent dropout masks": ("--independent_dropout",),
  "ε = 1e-8": ("--client_eps=1e-8",),
  "all three": ("--tail_cut=0.1", "--independent_dropout", "--client_eps=1e-8"),
}
_NORMS = {
  "batch_untracked": "batch normalization, without running statistics in "
  "blocks",
  "batch": "batch normalization",
  "group": "group normalization",
}


def _variants(plan: Plan) -> dict[Key, Cell]:
  cells = {}
  for row, flags in _VARIANTS.items():
    if plan.size == "smoke" and row not in list(_VARIANTS)[:3:2]:
      continue
    for name in ("SGD", OURS):
      if name == "SGD" and not set(flags) <= {"--tail_cut=0.1"}:
        continue
      cells[row, name] = settings.run(
        plan, "MNIST", name, "--alpha=0.1", *flags
      )
  if plan.size != "paper":
    return cells
  for norm, row in _NORMS.items():
    flags = () if norm == "batch_untracked" else (f"--norm={norm}",)
    for name in ("SGD", OURS):
      cells[row, name] = settings.run(
        plan, "CIFAR-10", name, "--alpha=0.1", *flags
      )
  return cells


def _variants_blocks(found: Found) -> list[Block]:
  rows = [
    row
    for row in (*_VARIANTS, *_NORMS.values())
    if any(key[0] == row for key in found)
  ]
  base = next(iter(_VARIANTS))
  change = lambda row, name: views.lead(
    found, f"{name}, {row}", (row, name), (base, name)
  )
  differences = [
    [f"{row}, {name}", str(change(row, name)).rpartition(": ")[2]]
    for row in rows
    for name in ("SGD", OURS)
    if row in _VARIANTS and row != base and (row, name) in found
  ]
  return [
    views.beside_paper(
      found,
      rows,
      ["SGD", OURS],
      {},
      corner="variant",
      title="Last test accuracy in percent",
    ),
    Table(
      ["variant", "less that of the tables"],
      differences,
      "Paired differences over seeds",
    ),
  ]


# Shakespeare: not in the paper.

# Client optimizer -> its rule and the step sizes among which it is tuned.
_FOUR = {
  "SGD": ("sgd", "1,3,10"),
  "SGDM": ("sgdm", "0.1,0.3,1"),
  "Adam": ("adam", "0.001,0.003,0.01"),
  OURS: ("delta_sgd", ""),
}
_SPEAKERS = "Shakespeare"


def _shakespeare(plan: Plan) -> dict[Key, Cell]:
  if plan.size == "smoke":
    return {
      (name, _SPEAKERS): settings.run(plan, "MNIST", name, "--alpha=0.1")
      for name in settings.optimizers(plan)
    }
  preset = "--flagfile=experiments/delta_sgd/shakespeare.flags"
  rounds = () if plan.size == "cpu" else ("--rounds=500",)
  cells = {}
  for name, (client, rates) in _FOUR.items():
    flags = (preset, f"--client={client}", *rounds)
    tuned = plan.best(*flags, f"--client_lr={rates}") if rates else ()
    cells[name, _SPEAKERS] = RunOf((*flags, *tuned, "--seed=1,2,3"))
  return cells


def _shakespeare_blocks(found: Found) -> list[Block]:
  others = [name for name in _FOUR if name != OURS]
  return [
    views.beside_paper(
      found,
      list(_FOUR),
      [_SPEAKERS],
      {},
      corner="client optimizer",
      title="Last accuracy of the next character in percent",
    ),
    views.curves_by_column(
      found,
      (OURS, *(name for name in _FOUR if name != OURS)),
      {_SPEAKERS: "Next character by speaker"},
      "curves",
      "Accuracy of the next character over rounds",
    ),
    Claim(
      "Delta-SGD, not tuned, is the best or within 0.5 points of it",
      settings.above_others(
        found, (_SPEAKERS,), by=-settings.TIE, others=others
      ),
      is_ours=True,
    ),
  ]


ARTEFACTS = (
  Artefact(
    "delta_sgd/rate_search",
    "Test accuracy over the step size, from which the others' is frozen",
    "CIFAR-10 with ResNet-18, α = 0.1; the paper does not say on what it chose",
    _rate_search,
    _rate_search_blocks,
  ),
  Artefact(
    "delta_sgd/variants",
    "What the authors' program does otherwise",
    "not in the paper; MNIST, and for the normalization CIFAR-10, α = 0.1",
    _variants,
    _variants_blocks,
  ),
  Artefact(
    "delta_sgd/shakespeare",
    "The next character, with the speakers as clients",
    "not in the paper; every method tuned but Delta-SGD",
    _shakespeare,
    _shakespeare_blocks,
  ),
)
