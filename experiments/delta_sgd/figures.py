"""Figures 1 to 6 of the Delta-SGD paper; 7 and 8 are in inside.py."""

import itertools
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
  Table,
)
from experiments.artefacts.claims import Claim, Quantity
from experiments.delta_sgd import settings
from experiments.delta_sgd.settings import (
  ALPHAS,
  COLUMNS,
  OPTIMIZERS,
  OURS,
  R18,
  R50,
)
from experiments.delta_sgd.tables import three_seeds
from fedjax_opt import plots, statistics

_INTERVAL = "mean and 95 % interval over seeds"
_MNIST = "MNIST"


def _curves(found: Found, titles: Mapping[str, str], alt: str) -> Picture:
  there = {key[1] for key in found}
  own = {column: title for column, title in titles.items() if column in there}
  return views.curves_by_column(found, settings.DRAWN, own, "curves", alt)


# Figure 1: three tasks, with the step sizes of the first.

_FIGURE1 = {"CIFAR-10": "0.1", _MNIST: "0.01", R50: "0.1"}


def _figure1(plan: Plan) -> dict[Key, Cell]:
  own = _FIGURE1 if plan.size == "paper" else {_MNIST: "0.1"}
  return {
    (optimizer, column): settings.run(
      plan, column, optimizer, f"--alpha={alpha}"
    )
    for column, alpha in own.items()
    for optimizer in settings.optimizers(plan)
  }


def _figure1_blocks(found: Found) -> list[Block]:
  titles, claims = {}, []
  for column in settings.of_columns(found):
    alphas = {r.flags["alpha"] for k, r in found.items() if k[1] == column}
    titles[column] = f"{column}, α = {', '.join(f'{a:g}' for a in alphas)}"
    claims.append(settings.among_best(found, (column,), titles[column]))
  alt = "Test accuracy over rounds, by data set"
  return [_curves(found, titles, alt), *claims]


# Figure 2: over alpha. Keys: optimizer, data, alpha.


def _figure2(plan: Plan) -> dict[Key, Cell]:
  alphas = ("1", "0.1") if plan.size == "smoke" else ALPHAS
  return {
    (optimizer, column, alpha): settings.run(
      plan, column, optimizer, f"--alpha={alpha}"
    )
    for column in settings.columns(plan, "CIFAR-10", "FMNIST", R50)
    for alpha in alphas
    for optimizer in settings.optimizers(plan)
  }


def _figure2_blocks(found: Found) -> list[Block]:
  alphas = [alpha for alpha in ALPHAS if any(k[2] == alpha for k in found)]
  claims = [
    settings.best(found, (R50, alpha), f"{R50}, α = {alpha}")
    for alpha in ALPHAS
    if (OURS, R50, alpha) in found
  ]
  if ("Adam", "CIFAR-10", "0.01") in found:
    at = lambda name, alpha: (name, "CIFAR-10", alpha)
    lost = {
      name: settings.lead(found, at(name, "0.1"), at(name, "0.01")).values
      for name in OPTIMIZERS
    }
    quantities = [
      _difference(f"fall of {a} less that of {b}", lost[a], lost[b])
      for a in ("Adam", "Adagrad")
      for b in OPTIMIZERS
      if b not in ("Adam", "Adagrad")
    ]
    claims.append(
      Claim(
        "From α = 0.1 to 0.01 Adam and Adagrad lose more than all others: "
        "CIFAR-10",
        quantities,
      )
    )
  return [
    _over(found, "alpha", alphas, "by_alpha", "Test accuracy over α"),
    *claims,
  ]


def _difference(
  name: str, one: Sequence[float], other: Sequence[float]
) -> Quantity:
  if not len(one) or not len(other):
    return Quantity(name, (), "points")
  return Quantity(
    name, tuple(a - b for a, b in zip(one, other, strict=True)), "points"
  )


def _over(
  found: Found,
  x_name: str,
  values: Sequence[str],
  name: str,
  alt: str,
  lines: Sequence[str] = settings.DRAWN,
) -> Picture:
  """The last accuracy over a setting, the third part of the keys."""
  panels: dict[str, dict] = {}
  for row, column in dict.fromkeys(key[:2] for key in found):
    ends = []
    for value in values:
      record = found.get((row, column, value))
      final = [np.nan] if record is None else record.final(views.ACCURACY)
      ends.append(statistics.mean_interval(np.asarray(final, float)))
    panels.setdefault(column, {})[row] = tuple(
      np.array([getattr(end, part) for end in ends])
      for part in ("estimate", "low", "high")
    )
  numbers = [float(v) if _is_number(v) else v for v in values]

  def draw(path):
    plots.study_values(
      panels,
      path,
      metric=views.ACCURACY,
      x_name=x_name,
      x_values=numbers,
      interval=_INTERVAL,
      styles=plots.method_styles(lines),
    )

  return Picture(name, draw, alt)


def _is_number(text: str) -> bool:
  return text.replace(".", "", 1).isdigit()


# Figure 3: other network, other data. Keys: optimizer, panel, data.

_FIGURE3 = {
  "CIFAR-100, α = 0.1": ("0.1", {"ResNet-18": R18, "ResNet-50": R50}),
  "CNN, α = 0.01": ("0.01", {_MNIST: _MNIST, "FMNIST": "FMNIST"}),
  "ResNet-18, α = 0.01": ("0.01", {"CIFAR-10": "CIFAR-10", "CIFAR-100": R18}),
}


def _figure3(plan: Plan) -> dict[Key, Cell]:
  panels = list(_FIGURE3)[: 1 if plan.size == "smoke" else None]
  cells = {}
  for panel in panels:
    alpha, columns = _FIGURE3[panel]
    if plan.size == "smoke":  # Two that other artefacts have too.
      columns = {_MNIST: _MNIST}
      alpha = "0.1"
    for name, column in columns.items():
      for optimizer in settings.optimizers(plan):
        cells[optimizer, panel, name] = settings.run(
          plan, column, optimizer, f"--alpha={alpha}"
        )
  return cells


def _figure3_blocks(found: Found) -> list[Block]:
  pictures, claims = [], []
  for i, (panel, (_, columns)) in enumerate(_FIGURE3.items()):
    own = {key: each for key, each in found.items() if key[1] == panel}
    names = [n for n in columns if any(key[2] == n for key in own)]
    if names:
      alt = f"Test accuracy on two tasks: {panel}"
      pictures.append(_over(own, "task", names, "ABC"[i], alt))
  first = next(iter(_FIGURE3))
  if (OURS, first, "ResNet-50") in found:
    change = lambda name, a, b: settings.lead(
      found, (name, first, a), (name, first, b), name=name
    )
    better = [change(n, "ResNet-50", "ResNet-18") for n in ("Adam", OURS)]
    worse = [
      change(n, "ResNet-18", "ResNet-50")
      for n in OPTIMIZERS
      if n not in ("Adam", OURS)
    ]
    claims += [
      Claim(
        "ResNet-50 is better than ResNet-18 for Adam and Delta-SGD", better
      ),
      Claim("ResNet-50 is worse than ResNet-18 for all others", worse),
    ]
  return [*pictures, *claims]


# Figure 4: delta. Keys: 'Delta-SGD', data, delta.

_DELTAS = ("0.01", "0.1", "1")


def _figure4(plan: Plan) -> dict[Key, Cell]:
  deltas = ("0.1", "1") if plan.size == "smoke" else _DELTAS
  return {
    (OURS, column, delta): settings.run(
      plan, column, OURS, "--alpha=0.1", *_delta(delta)
    )
    for column in settings.columns(plan, *COLUMNS)
    for delta in deltas
  }


def _delta(delta: str) -> tuple[str, ...]:
  return () if delta == "0.1" else (f"--delta={delta}",)


def _figure4_blocks(found: Found) -> list[Block]:
  deltas = [delta for delta in _DELTAS if any(k[2] == delta for k in found)]
  own = settings.of_columns(found)
  rows = [
    [
      column,
      *(
        views.with_interval(
          views.values(found, (OURS, column, delta), views.final())
        )
        for delta in deltas
      ),
    ]
    for column in own
  ]
  claims = [
    Claim(
      f"δ changes the accuracy by less than a point: {column}",
      [
        settings.lead(
          found,
          (OURS, column, a),
          (OURS, column, b),
          by=-1.0,
          name=f"{a} to {b}",
        )
        for i, a in enumerate(deltas)
        for b in (*deltas[:i], *deltas[i + 1 :])
      ],
    )
    for column in own
  ]
  by_data = {(key[1], OURS, key[2]): each for key, each in found.items()}
  heads = ["data", *(f"δ = {delta}" for delta in deltas)]
  return [
    Table(heads, rows, "Last test accuracy of Delta-SGD in percent"),
    _over(by_data, "delta", deltas, "by_delta", "Test accuracy over δ", own),
    *claims,
  ]


# Figure 5: local epochs. Keys: epochs, alpha.

_EPOCHS = ("E = 1", "E = 2", "E = 3")


def _figure5(plan: Plan) -> dict[Key, Cell]:
  alphas = ALPHAS if plan.size == "paper" else ("0.1",)
  epochs = _EPOCHS[:2] if plan.size == "smoke" else _EPOCHS
  column = settings.columns(plan, R50)[0]
  of = lambda name: (
    () if name == _EPOCHS[0] else (f"--local_epochs={name[4:]}",)
  )
  return {
    (each, f"α = {alpha}"): settings.run(
      plan, column, OURS, f"--alpha={alpha}", *of(each)
    )
    for alpha in alphas
    for each in epochs
  }


def _figure5_blocks(found: Found) -> list[Block]:
  alphas = list(dict.fromkeys(key[1] for key in found))
  over_rounds = views.mean_of_last(views.ACCURACY, 10**9)
  claims = [
    Claim(
      f"More local epochs are faster, by the mean over all rounds: {alpha}",
      [
        views.lead(
          found, f"{more} over {few}", (more, alpha), (few, alpha), over_rounds
        )
        for few, more in itertools.pairwise(_EPOCHS)
        if (more, alpha) in found
      ],
    )
    for alpha in alphas
  ]
  table = views.beside_paper(
    found,
    list(_EPOCHS),
    alphas,
    {},
    corner="local epochs",
    title="Last test accuracy of Delta-SGD in percent",
  )
  curves = views.curves_by_column(
    found,
    list(_EPOCHS),
    {alpha: alpha for alpha in alphas},
    "curves",
    "Test accuracy of Delta-SGD over rounds, by local epochs",
  )
  return [table, curves, *claims]


# Figure 6: the curves of Table 7.


def _figure6_blocks(found: Found) -> list[Block]:
  titles = {column: f"{column}, α = 0.1" for column in COLUMNS}
  return [
    _curves(found, titles, "Test accuracy over rounds, over three seeds"),
    *(
      settings.among_best(found, (column,), column)
      for column in settings.of_columns(found)
    ),
  ]


_OTHER_SIZES = ("smoke", "paper")

ARTEFACTS = (
  Artefact(
    "delta_sgd/figure1",
    "Test accuracy over rounds with step sizes tuned on another task",
    "CIFAR-10 with ResNet-18, MNIST with a CNN, CIFAR-100 with ResNet-50; the "
    "α are those at which the text fits Table 1, the paper does not say them",
    _figure1,
    _figure1_blocks,
  ),
  Artefact(
    "delta_sgd/figure2",
    "Test accuracy over the heterogeneity α",
    "CIFAR-10 with ResNet-18, Fashion-MNIST with a CNN, CIFAR-100 with "
    "ResNet-50",
    _figure2,
    _figure2_blocks,
    sizes=_OTHER_SIZES,
  ),
  Artefact(
    "delta_sgd/figure3",
    "Test accuracy where the network or the data change",
    "CIFAR-100 with ResNet-18 and -50 (α = 0.1), the CNN on MNIST and "
    "Fashion-MNIST (0.01), ResNet-18 on CIFAR-10 and -100 (0.01)",
    _figure3,
    _figure3_blocks,
    sizes=_OTHER_SIZES,
  ),
  Artefact(
    "delta_sgd/figure4",
    "Test accuracy of Delta-SGD over δ",
    "δ = 0.01, 0.1, 1; the paper does not say which tasks, here those of Table "
    "1 at α = 0.1",
    _figure4,
    _figure4_blocks,
  ),
  Artefact(
    "delta_sgd/figure5",
    "Test accuracy of Delta-SGD over local epochs",
    "CIFAR-100 with ResNet-50, E = 1, 2, 3",
    _figure5,
    _figure5_blocks,
  ),
  Artefact(
    "delta_sgd/figure6",
    "Test accuracy over rounds, three seeds",
    "CIFAR-10, Fashion-MNIST and CIFAR-100, α = 0.1",
    three_seeds,
    _figure6_blocks,
  ),
)
