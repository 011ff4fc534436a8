"""What the Delta-SGD paper has beside tables and figures, and what it has not.

The search of step sizes that precedes all of its experiments, its theorems on
small problems; variants of the authors' program, and a task of ours.
"""

import numpy as np

from experiments.artefacts import views
from experiments.artefacts.base import (
  Artefact,
  Block,
  Cell,
  Computed,
  Found,
  Key,
  Picture,
  Plan,
  RunOf,
  Table,
)
from experiments.artefacts.claims import Claim, Quantity, above
from experiments.delta_sgd import settings, theory
from experiments.delta_sgd.settings import OURS
from fedjax_opt import plots

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
    mark = lambda rate, n=name: f"**{_cell(at(n, rate))}**"
    rows.append(
      [
        name,
        *(
          mark(rate) if rate == _FROZEN[name] else _cell(at(name, rate))
          for rate in rates
        ),
      ]
    )
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
    if plan.size == "smoke" and len(flags) > 1:
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
  "SGD": ("sgd", "0.3,1,3"),
  "SGDM": ("sgdm", "0.03,0.1,0.3"),
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
      list(_FOUR),
      {_SPEAKERS: "Next character by speaker"},
      "curves",
      "Accuracy of the next character over rounds",
    ),
    Claim(
      "Delta-SGD, not tuned, is the best or within 0.5 points of it",
      settings.above_others(
        found, (_SPEAKERS,), by=-settings.TIE, others=others
      ),
    ),
  ]


# The theorems.


def _theorem1(plan: Plan) -> dict[Key, Cell]:
  rounds = [4, 16, 64] if plan.size == "smoke" else [25, 100, 400, 1600, 6400]
  seeds = [0, 1] if plan.size == "smoke" else [0, 1, 2]
  options = {"rounds": rounds, "scale": 8.0, "local_steps": 5, "seeds": seeds}
  return {("network",): Computed(theory.theorem1, options)}


def _theorem1_blocks(found: Found) -> list[Block]:
  if ("network",) not in found:
    return []
  history = found[("network",)].history
  rounds = np.asarray(history.rounds, float)
  values = history.values("mean_grad_norm_sq")
  first = values[:, 0].mean() * np.sqrt(rounds[0] / rounds)
  lines = {
    "measured": (rounds, values),
    "1/√T": (rounds, np.stack([first, first])),
  }
  ratio = np.log(values[:, -2] / values[:, -1])
  exponent = ratio / np.log(rounds[-1] / rounds[-2])
  last = f"{rounds[-2]:g} to {rounds[-1]:g}"
  return [
    Table(
      ["rounds T", "mean squared gradient norm", "times √T"],
      [
        [
          f"{number:g}",
          views.with_interval(values[:, i], "grad_norm_sq"),
          f"{values[:, i].mean() * number**0.5:.3g}",
        ]
        for i, number in enumerate(rounds)
      ],
    ),
    Picture(
      "rate",
      lambda path: plots.sensitivity(
        lines,
        path,
        metric="mean_grad_norm_sq",
        x_name="rounds",
        log_x=True,
        interval="mean and range over seeds",
      ),
      "Mean squared gradient norm over the number of rounds",
    ),
    Claim(
      "The mean squared gradient norm falls as 1/√T with γ and η0 as the "
      "theorem wants: the exponent is above 0.45",
      [
        Quantity(
          f"exponent from T = {last}, less 0.45",
          tuple((exponent - 0.45).tolist()),
        )
      ],
    ),
  ]


def _theorem5(plan: Plan) -> dict[Key, Cell]:
  seeds = list(range(3 if plan.size == "smoke" else 20))
  steps = 20 if plan.size == "smoke" else 200
  options = {"eta_0": [0.01, 0.2, 1.0], "steps": steps, "seeds": seeds}
  return {("least squares",): Computed(theory.theorem5, options)}


_OF_THEOREM5 = {
  "gap": "f - f* at the averaged point",
  "bound": "D / (2 S)",
  "rate": "2 D L² / (2 L t + 1)",
}


def _theorem5_blocks(found: Found) -> list[Block]:
  if ("least squares",) not in found:
    return []
  record = found[("least squares",)]
  history = record.history
  logs = {n: np.log10(history.metrics[n]) for n in _OF_THEOREM5}
  panels = {}
  for eta in dict.fromkeys(point["eta_0"] for point in record.points):
    rows = [i for i, p in enumerate(record.points) if p["eta_0"] == eta]
    panels[f"η0 = {eta:g}"] = {
      label: (np.asarray(history.rounds, float), history.metrics[name][rows])
      for name, label in _OF_THEOREM5.items()
    }

  def draw(path):
    plots.study_curves(
      panels,
      path,
      metric="optimality_gap",
      x_label="Step",
      interval="mean and range over problems",
    )

  least = lambda a, b: tuple((logs[a] - logs[b]).min(axis=1).tolist())
  return [
    Picture("bounds", draw, "The averaged point's gap, its bound and its rate"),
    Claim(
      "At every step f - f* of the averaged point is below D / (2 S), and that "
      "is below 2 D L² / (2 L t + 1)",
      [
        Quantity(
          "least log10 of bound to gap", least("bound", "gap"), "", True
        ),
        Quantity(
          "least log10 of rate to bound", least("rate", "bound"), "", True
        ),
      ],
    ),
  ]


def _exact(name: str, values: tuple[float, ...]) -> Quantity:
  return Quantity(name, values, is_exact=True)


def _lyapunov(plan: Plan) -> dict[Key, Cell]:
  seeds = list(range(3 if plan.size == "smoke" else 20))
  steps = 20 if plan.size == "smoke" else 60
  options = {"gamma": [1.0, 2.0], "steps": steps, "seeds": seeds}
  return {("least squares",): Computed(theory.lyapunov, options)}


def _lyapunov_blocks(found: Found) -> list[Block]:
  if ("least squares",) not in found:
    return []
  record = found[("least squares",)]
  potential = record.history.metrics["potential"]
  gammas = np.array([point["gamma"] for point in record.points])
  rounds = np.asarray(record.history.rounds, float)
  lines = {
    f"γ = {gamma:g}": (rounds, potential[gammas == gamma])
    for gamma in np.unique(gammas)
  }
  # Of what is left, so that late steps count as early ones.
  growth = (potential[:, 1:] / potential[:, :-1]).max(axis=1)
  of_lemma = tuple((1 + 1e-6 - growth[gammas == 1]).tolist())

  def draw(path):
    plots.study_curves(
      lines,
      path,
      metric="optimality_gap",
      x_label="Step",
      interval="potential as a part of the first, mean and range over problems",
    )

  return [
    Picture("potential", draw, "The potential over steps"),
    Table(
      ["γ", "problems", "with a step in which the potential grew"],
      [
        [
          f"{gamma:g}",
          str(int(np.sum(gammas == gamma))),
          str(int(np.sum(growth[gammas == gamma] > 1 + 1e-6))),
        ]
        for gamma in np.unique(gammas)
      ],
    ),
    Claim(
      "With γ = 1 the potential never grows",
      [_exact("1 less the largest ratio of two steps", of_lemma)],
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
    "delta_sgd/theorem1",
    "The rate of Theorem 1",
    "any smooth loss, γ of the order of 1 / (K √T), η0 of that of γ; here a "
    "small network",
    _theorem1,
    _theorem1_blocks,
  ),
  Artefact(
    "delta_sgd/theorem5",
    "The bound of Theorem 5",
    "one client, a convex loss, exact gradients, γ = δ = 1, no growth term in "
    "the first step; here least squares",
    _theorem5,
    _theorem5_blocks,
  ),
  Artefact(
    "delta_sgd/lyapunov",
    "The potential behind Theorem 5",
    "one client, a convex loss, exact gradients, γ = δ = 1; here least "
    "squares, and also γ = 2, of which nothing is claimed",
    _lyapunov,
    _lyapunov_blocks,
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
