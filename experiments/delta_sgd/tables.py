"""Tables 1 to 7 of the Delta-SGD paper."""

import numpy as np

from experiments.artefacts import views
from experiments.artefacts.base import (
  Artefact,
  Block,
  Cell,
  Found,
  Key,
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

_LAST = "Last test accuracy in percent"

# Table 1. Keys: optimizer, data, alpha.

_TABLE1 = {
  "1": {
    "SGD": "98.3 86.5 87.7 57.7 53.0",
    "SGD(↓)": "97.8 86.3 87.8 61.9 60.9",
    "SGDM": "98.5 85.2 88.7 58.8 60.5",
    "SGDM(↓)": "98.4 87.2 89.3 61.4 63.3",
    "Adam": "94.7 71.8 89.4 55.6 61.4",
    "Adagrad": "64.3 45.5 86.6 53.5 51.9",
    "SPS": "10.1 85.9 82.7 1.0 50.0",
    "Delta-SGD": "98.4 87.3 89.8 61.5 65.8",
  },
  "0.1": {
    "SGD": "98.1 83.6 72.1 54.4 44.2",
    "SGD(↓)": "98.0 84.7 78.4 59.3 48.7",
    "SGDM": "97.6 83.6 79.6 58.8 52.3",
    "SGDM(↓)": "98.0 86.1 77.9 60.4 52.8",
    "Adam": "96.4 80.4 85.0 55.4 58.2",
    "Adagrad": "89.9 46.3 84.1 49.6 48.0",
    "SPS": "96.0 85.0 70.3 42.2 42.2",
    "Delta-SGD": "98.1 86.4 84.5 61.1 64.1",
  },
  "0.01": {
    "SGD": "96.8 79.0 22.6 30.5 24.3",
    "SGD(↓)": "97.2 79.3 33.9 30.3 24.6",
    "SGDM": "77.9 75.7 28.4 24.8 22.0",
    "SGDM(↓)": "94.0 79.5 29.0 20.9 14.7",
    "Adam": "80.8 60.6 22.1 18.2 22.6",
    "Adagrad": "72.4 45.9 12.5 25.8 22.2",
    "SPS": "69.7 44.0 21.5 22.0 17.4",
    "Delta-SGD": "97.5 80.2 31.6 31.8 31.4",
  },
}


def cells_by_alpha(plan: Plan) -> dict[Key, Cell]:
  """The cells of Table 1, which several figures show too."""
  alphas = ALPHAS if plan.size == "paper" else ("0.1",)
  return {
    (optimizer, column, alpha): settings.run(
      plan, column, optimizer, f"--alpha={alpha}"
    )
    for alpha in alphas
    for column in settings.columns(plan, *COLUMNS)
    for optimizer in settings.optimizers(plan)
  }


def at_alpha(found: Found, alpha: str) -> dict[Key, object]:
  """Those of an alpha, by optimizer and data."""
  return {key[:2]: each for key, each in found.items() if key[2] == alpha}


def _table1_blocks(found: Found) -> list[Block]:
  tables, claims = [], []
  for alpha in ALPHAS:
    own = at_alpha(found, alpha)
    if not own:
      continue
    paper = settings.numbers(_TABLE1[alpha], *COLUMNS)
    tables.append(
      views.beside_paper(
        own,
        list(OPTIMIZERS),
        settings.of_columns(own),
        paper,
        corner="client optimizer",
        title=f"{_LAST}, α = {alpha}",
      )
    )
    for column in settings.of_columns(own):
      where = f"{column}, α = {alpha}"
      first = max(float(paper[each, column]) for each in OPTIMIZERS)
      if float(paper[OURS, column]) >= first - settings.TIE - 1e-9:
        claims.append(settings.among_best(own, (column,), where))
  return [*tables, *claims, *_prose(found)]


def _prose(found: Found) -> list[Claim]:
  """What the text says of Table 1 in numbers."""
  of = lambda name, alpha: (name, "CIFAR-10", alpha)
  claims = []
  if of(OURS, "0.1") in found:
    claims.append(
      Claim(
        "Delta-SGD is above SGDM (by about 5 points): CIFAR-10, α = 0.1",
        [settings.lead(found, of(OURS, "0.1"), of("SGDM", "0.1"))],
      )
    )
  if of("SGD", "0.01") in found:
    claims.append(
      Claim(
        "Without decay SGD loses more than 11 points: CIFAR-10, α = 0.01",
        [
          settings.lead(found, of("SGD(↓)", "0.01"), of("SGD", "0.01"), by=11.0)
        ],
      )
    )
  return claims


# Table 2a: text.

_TEXTS = {"AG News": ("agnews_distilbert", 4), "DBpedia": ("dbpedia_distilbert",
                                                          14)}  # fmt: skip
_TABLE2A = settings.numbers(
  {
    "SGD": "91.1 96.0",
    "SGD(↓)": "91.6 98.7",
    "SGDM": "25.0 7.1",
    "SGDM(↓)": "25.0 7.1",
    "Adam": "25.0 7.1",
    "Adagrad": "25.0 7.1",
    "SPS": "91.5 98.9",
    "Delta-SGD": "90.7 98.6",
  },
  *_TEXTS,
)
_LOST = ("SGDM", "SGDM(↓)", "Adam", "Adagrad")
_TEXT_CPU = ("SGD", OURS, "Adam", "SPS", "SGDM")
_CHECKPOINTS = {"paper": "distilbert-base-uncased", "cpu": "all-MiniLM-L6-v2"}


def _table2a(plan: Plan) -> dict[Key, Cell]:
  if plan.size == "smoke":
    return settings.table_of("AG News", flags=("--alpha=0.1",))(plan)
  preset, data, names, seeds = "text", list(_TEXTS), list(OPTIMIZERS), ""
  length = ("--max_length=512",)
  if plan.size == "cpu":
    preset, data, names, seeds = "text_cpu", ["AG News"], _TEXT_CPU, "5821"
    length = ()
  return {
    (optimizer, column): settings.of_preset(
      plan,
      preset,
      optimizer,
      f"--task={_TEXTS[column][0]}",
      f"--pretrained={_CHECKPOINTS[plan.size]}",
      *length,
      seeds=seeds,
    )
    for column in data
    for optimizer in names
  }


def _table2a_blocks(found: Found) -> list[Block]:
  there = {key[1] for key in found}
  data = [column for column in _TEXTS if column in there]
  blocks: list[Block] = [
    views.beside_paper(
      found,
      list(OPTIMIZERS),
      data,
      _TABLE2A,
      corner="client optimizer",
      title=_LAST,
    ),
    views.curves_by_column(
      found,
      list(OPTIMIZERS),
      {column: column for column in data},
      "curves",
      "Test accuracy over rounds on texts",
    ),
  ]
  for column in data:
    chance = 1 / _TEXTS[column][1]
    lost = [
      _near(found, (name, column), chance)
      for name in _LOST
      if (name, column) in found
    ]
    if lost:
      blocks.append(
        Claim(f"{_named(_LOST)} are within a point of chance: {column}", lost)
      )
    others = [name for name in _LOST if (name, column) in found]
    blocks.append(
      Claim(
        f"Delta-SGD is above {_named(_LOST)}: {column}",
        settings.above_others(found, (column,), others=others),
      )
    )
  return blocks


def _named(names: tuple[str, ...]) -> str:
  return f"{', '.join(names[:-1])} and {names[-1]}"


def _near(found: Found, key: Key, chance: float) -> Quantity:
  """That an accuracy is no more than a point above chance."""
  final = found[key].final(views.ACCURACY)
  values = tuple((100 * (chance - final) + 1).tolist())
  return Quantity(f"chance plus 1 over {key[0]}", values, "points")


# Tables 2b and 6: FedProx. Table 4: FedAdam.

_FED_PROX = ("--algorithm=fed_prox", "--mu=0.01", "--alpha=0.01")
_TABLE6 = {
  "SGD": "95.7 79.0 20.0 30.3 25.2",
  "SGD(↓)": "97.2 79.3 31.3 29.5 20.2",
  "SGDM": "73.8 72.8 29.3 22.9 23.8",
  "SGDM(↓)": "81.2 78.0 25.3 19.8 15.0",
  "Adam": "82.3 65.6 28.1 24.8 22.6",
  "Adagrad": "76.3 51.2 19.3 12.9 4.1",
  "SPS": "85.5 62.1 27.6 21.3 16.5",
  "Delta-SGD": "96.9 80.6 33.8 29.7 31.0",
}
_TABLE4 = {
  "SGD": "97.3 83.7 52.0 46.7",
  "SGD(↓)": "96.4 80.9 49.1 49.2",
  "SGDM": "97.5 84.6 53.7 13.3",
  "SGDM(↓)": "96.4 81.8 53.3 16.8",
  "Adam": "96.4 81.5 27.8 38.3",
  "Adagrad": "95.7 82.1 10.4 1.0",
  "SPS": "96.6 85.0 21.6 1.6",
  "Delta-SGD": "97.9 85.8 63.8 41.9",
}


def _beside(found: Found, paper: dict[Key, str]) -> Table:
  return views.beside_paper(
    found,
    list(OPTIMIZERS),
    settings.of_columns(found),
    paper,
    corner="client optimizer",
    title=_LAST,
  )


def _table2b_blocks(found: Found) -> list[Block]:
  claims = [
    Claim(
      f"Delta-SGD is above all others by at least 2.5 points: {column}",
      settings.above_others(found, (column,), by=2.4),
    )
    for column in settings.of_columns(found)
    if column != "MNIST"
  ]
  return [_beside(found, settings.numbers(_TABLE6, *COLUMNS)), *claims]


def _table4_blocks(found: Found) -> list[Block]:
  there = settings.of_columns(found)
  claims: list[Claim] = [
    settings.best(found, (column,), column) for column in there if column != R18
  ]
  if R18 in there:
    claims.append(
      Claim(
        f"SGD(↓) is above Delta-SGD: {R18}",
        [settings.lead(found, ("SGD(↓)", R18), (OURS, R18))],
      )
    )
  return [
    _beside(found, settings.numbers(_TABLE4, *list(COLUMNS)[:4])),
    *claims,
  ]


def _table6_blocks(found: Found) -> list[Block]:
  near = ("MNIST", R18)  # Second best, by 0.3 and 0.6 points.
  claims = [
    settings.among_best(found, (column,), column, by=0.6)
    if column in near
    else settings.best(found, (column,), column)
    for column in settings.of_columns(found)
  ]
  return [_beside(found, settings.numbers(_TABLE6, *COLUMNS)), *claims]


# Table 3: clients of unequal sizes.

_UNEQUAL = ("--alpha=0.1", "--examples_per_client=100-500")
_TABLE3 = settings.numbers(
  {
    "SGD": "80.7 53.5",
    "SGD(↓)": "78.8 53.6",
    "SGDM": "75.0 53.9",
    "SGDM(↓)": "66.6 53.1",
    "Adam": "79.9 51.1",
    "Adagrad": "79.3 44.5",
    "SPS": "64.4 37.2",
    "Delta-SGD": "80.4 57.5",
  },
  "CIFAR-10",
  R50,
)


def _table3(plan: Plan) -> dict[Key, Cell]:
  flags = _UNEQUAL
  if plan.size == "smoke":
    flags = ("--alpha=0.1", "--examples_per_client=50-100")
  return settings.table_of("CIFAR-10", R50, flags=flags)(plan)


def _table3_blocks(found: Found) -> list[Block]:
  claims = [
    settings.best(found, (column,), column)
    if column == R50
    else settings.among_best(found, (column,), column)
    for column in settings.of_columns(found)
  ]
  return [_beside(found, _TABLE3), *claims]


# Table 5: MOON.

_MOON = ("--algorithm=moon", "--mu=1", "--temperature=0.5")
_TABLE5 = {
  "SGD": "78.2", "SGD(↓)": "74.2", "SGDM": "76.4", "SGDM(↓)": "75.5",
  "Adam": "82.4", "Adagrad": "81.3", "SPS": "9.57", "Delta-SGD": "83.1",
}  # fmt: skip
_WITH, _WITHOUT = "MOON", "FedAvg"


def _table5(plan: Plan) -> dict[Key, Cell]:
  others = ["--alpha=0.1"]
  if plan.size == "paper":  # Running statistics would move several times.
    others += ["--norm=group", "--nodrop_remainder"]
  cells = {}
  for optimizer in settings.optimizers(plan):
    run = lambda *flags, o=optimizer, **s: settings.run(
      plan, "CIFAR-10", o, *others, *flags, **s
    )
    seeds = {"seeds": "5821"} if plan.size == "cpu" else {}
    cells[optimizer, _WITH] = run(*_MOON, **seeds)
    cells[optimizer, _WITHOUT] = run()
  return cells


def _table5_blocks(found: Found) -> list[Block]:
  paper = {(row, _WITH): number for row, number in _TABLE5.items()}
  fedavg = settings.numbers(_TABLE1["0.1"], *COLUMNS)
  paper |= {(row, _WITHOUT): fedavg[row, "CIFAR-10"] for row in OPTIMIZERS}
  table = views.beside_paper(
    found,
    list(OPTIMIZERS),
    [_WITH, _WITHOUT],
    paper,
    corner="client optimizer",
    title=f"{_LAST}; the paper's are CIFAR-10",
  )
  worse = [
    settings.lead(found, (name, _WITHOUT), (name, _WITH), name=name)
    for name in OPTIMIZERS
    if (name, _WITH) in found
  ]
  return [
    table,
    settings.among_best(found, (_WITH,), "with MOON"),
    *(
      Claim(f"MOON makes {each.name} worse", [each])
      for each in worse
      if each.name in ("SGD(↓)", "SGDM", "SGDM(↓)", "Adam", "Adagrad", OURS)
    ),
  ]


# Table 7: three seeds.

_TABLE7 = {
  "SGD": "73.96±2.63 83.43±1.78 49.44±3.76",
  "SGD(↓)": "67.79±15.50 77.83±8.15 40.26±16.87",
  "SGDM": "77.59±1.42 83.27±1.86 53.80±1.49",
  "SGDM(↓)": "72.11±6.11 81.36±6.06 46.77±7.62",
  "Adam": "83.24±1.26 79.98±2.28 58.89±0.98",
  "Adagrad": "83.86±0.48 53.06±4.87 49.93±1.77",
  "SPS": "68.38±1.92 84.59±1.54 43.16±0.72",
  "Delta-SGD": "83.89±0.52 85.21±1.52 64.02±0.51",
}
_THREE = ("CIFAR-10", "FMNIST", R50)


def three_seeds(plan: Plan) -> dict[Key, Cell]:
  """The cells of Table 7 and Figure 6, which are some of Table 1."""
  return settings.table_of(*_THREE, flags=("--alpha=0.1",))(plan)


def _table7_blocks(found: Found) -> list[Block]:
  paper = settings.numbers(_TABLE7, *_THREE)
  there = settings.of_columns(found)
  heads, rows = ["client optimizer"], []
  for column in there:
    heads += [f"{column}, paper"] if column in _THREE else []
    heads += [f"{column}, ours", "95 % interval"]
  for name in OPTIMIZERS:
    row = [name]
    for column in there:
      if column in _THREE:
        row.append(paper[name, column].replace("±", " ± "))
      row += _spread(found, (name, column))
    rows.append(row)
  title = "Last test accuracy in percent, mean and standard deviation"
  claims = [
    settings.among_best(found, (column,), f"on average, {column}")
    for column in there
  ]
  return [Table(heads, rows, title), *claims]


def _spread(found: Found, key: Key) -> list[str]:
  """Mean ± standard deviation, and the interval of the mean."""
  if key not in found:
    return [views.NOT_RUN, views.NOT_RUN]
  final = 100 * found[key].final(views.ACCURACY)
  text = views.with_interval(final / 100)
  if not np.isfinite(final).all() or len(final) < 2:
    return [text, views.NOT_RUN]
  interval = text.partition(" ")[2].strip("()")
  return [f"{final.mean():.2f} ± {final.std(ddof=1):.2f}", interval]


_IMAGES = "100 clients, 10 a round, 500 examples each, one local epoch"
_NOT_HERE = "the paper's first seed is 5821, its only one but for Table 7"
_OTHER_SIZES = ("smoke", "paper")

ARTEFACTS = (
  Artefact(
    "delta_sgd/table1",
    "Test accuracy of eight client optimizers with frozen step sizes",
    f"MNIST, Fashion-MNIST, CIFAR-10 and -100, {_IMAGES}; {_NOT_HERE}",
    cells_by_alpha,
    _table1_blocks,
  ),
  Artefact(
    "delta_sgd/table2a",
    "Test accuracy on texts",
    "AG News and DBpedia, DistilBERT, 50 clients, 5 a round, α = 1, 100 rounds",
    _table2a,
    _table2a_blocks,
  ),
  Artefact(
    "delta_sgd/table2b",
    "Test accuracy with FedProx, the large networks",
    f"CIFAR-10 and -100, α = 0.01, {_IMAGES}; μ is that of the authors' "
    "example, the paper does not say it",
    settings.table_of("CIFAR-10", R50, flags=_FED_PROX),
    _table2b_blocks,
    sizes=_OTHER_SIZES,
  ),
  Artefact(
    "delta_sgd/table3",
    "Test accuracy with clients of 100 to 500 examples",
    "CIFAR-10 with ResNet-18, CIFAR-100 with ResNet-50, α = 0.1",
    _table3,
    _table3_blocks,
  ),
  Artefact(
    "delta_sgd/table4",
    "Test accuracy with FedAdam",
    f"MNIST, Fashion-MNIST, CIFAR-10 and -100, α = 0.1, {_IMAGES}",
    settings.table_of(
      *list(COLUMNS)[:4],
      flags=("--algorithm=fed_adam", "--server_lr=0.001", "--alpha=0.1"),
    ),
    _table4_blocks,
  ),
  Artefact(
    "delta_sgd/table5",
    "Test accuracy with MOON, and without",
    "CIFAR-10 with ResNet-18, α = 0.1; here with group normalization, because "
    "MOON runs the model several times in a step",
    _table5,
    _table5_blocks,
  ),
  Artefact(
    "delta_sgd/table6",
    "Test accuracy with FedProx",
    f"MNIST, Fashion-MNIST, CIFAR-10 and -100, α = 0.01, {_IMAGES}; μ is that "
    "of the authors' example, the paper does not say it",
    settings.table_of(*COLUMNS, flags=_FED_PROX),
    _table6_blocks,
  ),
  Artefact(
    "delta_sgd/table7",
    "Test accuracy over three seeds",
    f"CIFAR-10, Fashion-MNIST and CIFAR-100, α = 0.1, {_IMAGES}",
    three_seeds,
    _table7_blocks,
  ),
)
