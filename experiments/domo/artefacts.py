"""The tables and figures of the DOMO paper.

Settings: section 5 and appendix C; methods.py says how rates are chosen.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.artefacts import views
from experiments.artefacts.base import (
  Artefact,
  Block,
  Cell,
  Found,
  Key,
  Picture,
  Plan,
)
from experiments.artefacts.claims import Claim, Quantity, above
from experiments.artefacts.record import Record
from experiments.domo import constants, explanations
from experiments.domo.methods import (
  METHODS,
  OTHERS,
  SIMILARITIES,
  all_methods,
  rounds,
  run,
  some,
)

# Figure 1 and Figure 3: all methods.


def _figure1(plan: Plan) -> dict[Key, Cell]:
  return all_methods(plan, {s: (f"--similarity={s}",) for s in SIMILARITIES})


def _figure1_blocks(found: Found) -> list[Block]:
  over = lambda s, one, *others: _over(found, s, SIMILARITIES[s], one, *others)
  table = views.beside_paper(found, list(METHODS), list(SIMILARITIES), {})
  heads = ["method", *SIMILARITIES.values()]
  return [
    table._replace(columns=heads, title="Last test accuracy in percent"),
    _curves(found, SIMILARITIES, "Test accuracy over rounds, by similarity"),
    *(
      Claim(
        f"{one} is above all others, {SIMILARITIES[s]}{by}",
        over(s, one, *OTHERS),
      )
      for s in SIMILARITIES
      for one, by in (
        ("DOMO", _GAINS.get(s, ("", ""))[0]),
        ("DOMO-S", _GAINS.get(s, ("", ""))[1]),
      )
    ),
    Claim(
      "At s = 5 %, DOMO is above FedAvgSLM-Z (by 5.00 points), FedAvgSM (5.68) "
      "and FedAvg (23.14)",
      over("0.05", "DOMO", "FedAvgSLM-Z", "FedAvgSM", "FedAvg"),
    ),
    Claim(
      "The lead of DOMO and DOMO-S over the others is larger at s = 5 % than "
      "at 20 %",
      [_more(found, one, o) for one in ("DOMO", "DOMO-S") for o in OTHERS],
    ),
    *(_order(found, column) for column in SIMILARITIES),
    Claim(
      "FedAvgSLM(-Z) may start slower than FedAvgSM (after a tenth of the "
      "rounds, s = 5 %)",
      [
        views.lead(
          found,
          f"FedAvgSM over {other}",
          ("FedAvgSM", "0.05"),
          (other, "0.05"),
          _after_a_tenth,
        )
        for other in ("FedAvgSLM", "FedAvgSLM-Z")
      ],
    ),
  ]


# By how many points DOMO and DOMO-S are above the best other, in the paper.
_GAINS = {
  "0.1": (" (by 2.13 points)", " (by 1.41)"),
  "0.2": (" (by 1.02 points)", " (by 0.85)"),
}


def _over(
  found: Found, column: str, title: str, one: str, *others: str
) -> list[Quantity]:
  """The leads of a method over others, in a column."""
  return [
    views.lead(found, f"{one} over {o}, {title}", (one, column), (o, column))
    for o in others
  ]


def _more(found: Found, one: str, other: str) -> Quantity:
  """By how much more one leads at s = 5 % than at s = 20 %."""
  few, many = (
    views.lead(found, "", (one, s), (other, s)).values for s in ("0.05", "0.2")
  )
  known = len(few) and len(many)
  pair = (few, many) if known else (None, None)
  return above(f"{one} over {other}", *pair, "points", sides=(one, other))


def _after_a_tenth(record: Record) -> np.ndarray:
  """The accuracy at the evaluation nearest to a tenth of the run."""
  rounds = np.asarray(record.history.rounds)
  at = int(np.argmin(abs(rounds - rounds[-1] / 10)))
  return record.history.values(views.ACCURACY)[:, at]


def _order(found: Found, column: str) -> Claim:
  """The order of the methods without DOMO."""
  order = [
    ("FedAvgSLM", "FedAvgSM"),
    ("FedAvgSLM-Z", "FedAvgSM"),
    ("FedAvgSM", "FedAvgLM"),
    ("FedAvgSM", "FedAvgLM-Z"),
    ("FedAvgLM", "FedAvg"),
    ("FedAvgLM-Z", "FedAvg"),
  ]
  title = SIMILARITIES[column]
  return Claim(
    f"FedAvgSLM(-Z) > FedAvgSM > FedAvgLM(-Z) > FedAvg, {title}",
    [
      views.lead(found, f"{a} over {b}", (a, column), (b, column))
      for a, b in order
    ],
  )


def _curves(
  found: Found, columns: Mapping[str, str], alt: str, name: str = "curves"
) -> Picture:
  return views.curves_by_column(found, list(METHODS), columns, name, alt)


EPOCHS = {
  "E = 0.5": ("--local_epochs=0.5", 2.0),
  "E = 2": ("--local_epochs=2", 0.5),
}
_RESNET = "ResNet-56"


def _figure3(plan: Plan) -> dict[Key, Cell]:
  columns = {
    name: (flag, rounds(plan, factor))
    for name, (flag, factor) in EPOCHS.items()
  }
  cells = all_methods(plan, columns)
  if plan.size == "paper":
    cells |= {
      (method, _RESNET): run(plan, method, network="cifar10_resnet56")
      for method in METHODS
    }
  return cells


def _figure3_blocks(found: Found) -> list[Block]:
  columns = [c for c in (*EPOCHS, _RESNET) if any(key[1] == c for key in found)]
  gains = {"E = 0.5": "1.25", "E = 2": "1.70", _RESNET: "1.35"}
  return [
    views.beside_paper(
      found, list(METHODS), columns, {}, title="Last test accuracy in percent"
    ),
    _curves(found, {c: c for c in columns}, "Test accuracy over rounds"),
    *(
      Claim(
        f"DOMO is above the best other, {c} (by {gains[c]} points)",
        _over(found, c, c, "DOMO", *OTHERS),
      )
      for c in columns
    ),
    *(_of_resnet(found) if _RESNET in columns else ()),
  ]


def _of_resnet(found: Found) -> list[Claim]:
  """What is said of ResNet-56 alone."""
  over = lambda one, other: _over(found, _RESNET, _RESNET, one, other)
  return [
    Claim(
      "DOMO and DOMO-S are above FedAvgSLM, ResNet-56 (by 2.45 and 2.03 "
      "points)",
      [*over("DOMO", "FedAvgSLM"), *over("DOMO-S", "FedAvgSLM")],
    ),
    Claim(
      "FedAvgSLM(-Z) is below FedAvgSM, ResNet-56",
      [*over("FedAvgSM", "FedAvgSLM"), *over("FedAvgSM", "FedAvgSLM-Z")],
    ),
  ]


# Tables 2 and 3: other data.

# Column -> the paper's mean and deviation, in the order of the methods.
_TABLE2 = {
  "SVHN, ResNet-20": (
    "87.79 ± 0.72", "88.81 ± 0.49", "88.86 ± 0.19", "87.93 ± 0.98",
    "88.67 ± 0.32", "88.89 ± 0.62", "90.45 ± 0.56", "90.34 ± 0.83",
  ),
}  # fmt: skip
_TABLE3 = {
  "VGG-16": (
    "20.77 ± 1.31", "35.14 ± 1.70", "38.29 ± 1.01", "35.45 ± 2.04",
    "60.01 ± 0.28", "57.89 ± 2.79", "61.69 ± 0.41", "62.47 ± 0.73",
  ),
  "ResNet-56": (
    "39.61 ± 0.66", "61.92 ± 0.43", "46.65 ± 1.38", "45.09 ± 0.26",
    "62.95 ± 0.51", "63.45 ± 0.61", "64.34 ± 0.59", "65.84 ± 0.30",
  ),
}  # fmt: skip


def _table2(plan: Plan) -> dict[Key, Cell]:
  preset = None
  if plan.size == "paper":
    preset = "experiments/domo/svhn_resnet20.flags"
  return {
    (method, column): run(plan, method, preset=preset)
    for column in _TABLE2
    for method in some(plan)
  }


def _table3(plan: Plan) -> dict[Key, Cell]:
  preset, networks = None, dict.fromkeys(_TABLE3)
  if plan.size == "paper":
    preset = "experiments/domo/cifar100.flags"
    networks["ResNet-56"] = "cifar100_resnet56"
  return {
    (method, column): run(plan, method, preset=preset, network=network)
    for column, network in networks.items()
    for method in some(plan)
  }


def _table_blocks(columns: Mapping[str, Sequence[str]]):
  def blocks(found: Found) -> list[Block]:
    paper = {
      (method, column): number
      for column, numbers in columns.items()
      for method, number in zip(METHODS, numbers, strict=True)
    }
    return [
      views.beside_paper(found, list(METHODS), list(columns), paper),
      *(
        Claim(
          f"{one} is above all others, {column}",
          _over(found, column, column, one, *OTHERS),
        )
        for column in columns
        for one in ("DOMO", "DOMO-S")
      ),
    ]

  return blocks


_CIFAR = "CIFAR-10, VGG-16, 16 clients, 200 epochs in batches of 32"
_OTHER_SIZES = ("smoke", "paper")

ARTEFACTS = (
  Artefact(
    "domo/figure1",
    "Test accuracy of eight methods for three similarities of the clients",
    f"{_CIFAR}, s = 5, 10 and 20 %",
    _figure1,
    _figure1_blocks,
  ),
  Artefact(
    "domo/figure2",
    "Test accuracy over server and local momentum",
    f"{_CIFAR}, β = 0.9; its three panels, of which the caption does not say "
    "what they are, are taken to be s = 5, 10 and 20 %",
    constants.figure2_cells,
    constants.figure2_blocks,
  ),
  Artefact(
    "domo/figure3",
    "Test accuracy of eight methods with fewer and more local epochs",
    f"{_CIFAR}, s = 10 %, E = 0.5 and 2; ResNet-56 with E = 1",
    _figure3,
    _figure3_blocks,
  ),
  Artefact(
    "domo/table1",
    "Test accuracy of DOMO over β and α",
    f"{_CIFAR}, s = 10 %",
    constants.table1_cells,
    constants.table1_blocks,
  ),
  Artefact(
    "domo/table2",
    "Test accuracy of eight methods on SVHN",
    "SVHN, ResNet-20, 16 clients, s = 2 %, E = 5, 200 epochs",
    _table2,
    _table_blocks(_TABLE2),
    sizes=_OTHER_SIZES,
  ),
  Artefact(
    "domo/table3",
    "Test accuracy of eight methods on CIFAR-100",
    "CIFAR-100, VGG-16 and ResNet-56, 16 clients, s = 40 %, E = 0.4, 200 "
    "epochs",
    _table3,
    _table_blocks(_TABLE3),
    sizes=_OTHER_SIZES,
  ),
  Artefact(
    "domo/server_momentum",
    "Server momentum against the rate",
    "not in the paper; it asks whether server momentum alone wants a smaller "
    "rate",
    explanations.server_momentum_cells,
    explanations.server_momentum_blocks,
  ),
  Artefact(
    "domo/more_rounds",
    "As many epochs in four times the rounds",
    "not in the paper; it asks whether server momentum wants more rounds",
    explanations.more_rounds_cells,
    explanations.more_rounds_blocks,
  ),
)
