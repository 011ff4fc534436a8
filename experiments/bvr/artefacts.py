"""The figures of the BVR-L-SGD paper; table1.py has its table.

Settings: section 6 and appendix D. Of each method only the rate is tuned, by
the lowest training accuracy of the last 100 rounds, with a seed that is not
reported. (The paper does not say with which.)
"""

from collections.abc import Callable, Mapping, Sequence

from experiments.artefacts import drawing, views
from experiments.artefacts.base import (
  Artefact,
  Block,
  Cell,
  Found,
  Key,
  Plan,
  RunOf,
)
from experiments.artefacts.claims import Claim, Quantity, above
from experiments.artefacts.record import keep
from experiments.bvr import table1

METHODS = {
  "Minibatch SGD": "minibatch_sgd",
  "Minibatch SARAH": "minibatch_sarah",
  "Local SGD": "local_sgd",
  "SCAFFOLD": "scaffold",
  "BVR-L-SGD": "bvr_l_sgd",
}
NOT_LOCAL = ("Minibatch SGD", "Minibatch SARAH")
OURS = "BVR-L-SGD"
OTHERS = [method for method in METHODS if method != OURS]
FRACTIONS = ("0.1", "0.35", "0.6", "0.85")
BUDGETS = (256, 512, 1024)
METRICS = {
  "train_loss": "training loss",
  "train_accuracy": "training accuracy in percent",
  "test_loss": "test loss",
  "test_accuracy": "test accuracy in percent",
}
SHOWN = ("train_loss", "test_accuracy")  # In the paper's own figures.
BATCH_SIZE = 16  # Of local steps; the others take the budget at once.

_PRESETS = {"smoke": "experiments/bvr/smoke.flags"}
_PRESET = "experiments/bvr/cifar10.flags"
_RATES = {
  # Besides the paper's, rates between them, as BVR-L-SGD has its best there.
  "cpu": "0.005,0.01,0.02,0.05,0.1,0.2,0.5,1",
  "paper": "0.005,0.01,0.05,0.1,0.5,1",
}
_SEEDS = {"smoke": "1,2", "cpu": "1,2,3", "paper": "1,2,3,4,5"}
_CPU_ROUNDS = 150
# Size -> rounds between the evaluations of a grid. The paper looks at each of
# the last 100 rounds.
_TUNED_EVERY = {"cpu": 50, "paper": 1}
# Size -> what stands for the paper's class fractions and budgets.
_FRACTIONS = {"smoke": ("0.1", "0.85"), "cpu": ("0.1", "0.6", "0.85")}
_BUDGETS = {"smoke": (16,), "cpu": (64, 256)}


def q(fraction: str) -> str:
  """The column of a class fraction."""
  return f"q = {fraction}"


def budget(number: int) -> str:
  """The column of a budget."""
  return f"𝓑 = {number}"


def run(plan: Plan, method: str, fraction: str, examples: int) -> RunOf:
  """A method at its best rate, with all seeds of the report.

  Args:
    plan: of the artefact.
    method: key of `METHODS`.
    fraction: q.
    examples: the budget of a client in a round.
  """
  flags = [
    f"--flagfile={_PRESETS.get(plan.size, _PRESET)}",
    f"--algorithm={METHODS[method]}",
    f"--class_fraction={fraction}",
  ]
  batch_size = 4 if plan.size == "smoke" else BATCH_SIZE
  flags.append(f"--local_steps={examples // batch_size}")
  if plan.size == "cpu":
    flags.append(f"--rounds={_CPU_ROUNDS}")
  rate: tuple[str, ...] = ("--client_lr=0.1",)
  if plan.size != "smoke":
    rate = plan.best(
      *flags,
      f"--eval_every={_TUNED_EVERY[plan.size]}",
      f"--client_lr={_RATES[plan.size]}",
      "--seed=0",
    )
  if plan.size == "cpu":
    flags.append("--eval_every=15")
  return RunOf((*flags, *rate, f"--seed={_SEEDS[plan.size]}"))


def _methods(plan: Plan) -> Sequence[str]:
  return ("Local SGD", OURS) if plan.size == "smoke" else tuple(METHODS)


def _by_fraction(examples: int) -> Callable[[Plan], dict[Key, Cell]]:
  """All methods at all class fractions.

  Args:
    examples: the paper's budget; the other sizes have their largest.
  """

  def cells(plan: Plan) -> dict[Key, Cell]:
    own = _BUDGETS[plan.size][-1] if plan.size in _BUDGETS else examples
    return {
      (method, q(fraction)): run(plan, method, fraction, own)
      for fraction in _FRACTIONS.get(plan.size, FRACTIONS)
      for method in _methods(plan)
    }

  return cells


def _figure3(plan: Plan) -> dict[Key, Cell]:
  return {
    (method, budget(each)): run(plan, method, FRACTIONS[0], each)
    for each in _BUDGETS.get(plan.size, BUDGETS)
    for method in _methods(plan)
  }


# The best values: Figures 2 and 3.


def _best_values(
  found: Found, columns: Mapping[str, float], x_name: str
) -> list[Block]:
  """Tables and pictures of the best values against a condition."""
  shown = {c: x for c, x in columns.items() if any(c == k[1] for k in found)}
  tables, pictures = [], []
  for metric in SHOWN:
    title = f"Best {METRICS[metric]} within the run"
    value = views.best(metric)
    tables.append(
      views.beside_paper(
        found, [*METHODS], [*shown], {}, value=value, metric=metric, title=title
      )
    )
    pictures.append(
      views.values_by_column(
        found,
        [*METHODS],
        shown,
        metric,
        title,
        value=value,
        metric=metric,
        x_name=x_name,
      )
    )
  return [*tables, *pictures]


def _plain(metric: str) -> str:
  return METRICS[metric].removesuffix(" in percent")


def _gain(
  found: Found, metric: str, method: str, start: str, end: str
) -> Quantity:
  """By how much a best value is better in another column."""
  name = f"{method}, {_plain(metric)}"
  is_loss = metric.endswith("loss")
  scale, unit = (-1.0, "") if is_loss else (100.0, "points")
  value = views.best(metric)
  before, after = (
    views.values(found, (method, column), value) for column in (start, end)
  )
  sides = (f"{method} at {end}", f"{method} at {start}")
  return above(name, after, before, unit, scale, sides)


def _is_more(
  found: Found, metric: str, one: str, other: str | None, start: str, end: str
) -> Quantity:
  """That the best value of one gains more from start to end than another's.

  Args:
    found: what there is.
    metric: its name.
    one: a method.
    other: a method, or None if one has to gain at all.
    start: a column.
    end: a column.
  """
  gain = _gain(found, metric, one, start, end)
  if other is None:
    return gain
  theirs = _gain(found, metric, other, start, end)
  name = f"{one} over {other}, {_plain(metric)}"
  values = (gain.values or None, theirs.values or None)
  return above(name, *values, gain.unit, sides=(one, other))


# What counts as no change: points of accuracy, and of loss.
_SAME = {"points": 1.0, "": 0.02}


def _stays(
  found: Found, metric: str, method: str, start: str, end: str, verb: str
) -> Quantity:
  """That a best value 'gains' or 'loses' less than `_SAME`."""
  gain = _gain(found, metric, method, start, end)
  slack, sign = _SAME[gain.unit], 1 if verb == "gains" else -1
  return gain._replace(
    name=f"{gain.name}, {slack:g} less what it {verb}",
    values=tuple(slack - sign * value for value in gain.values),
  )


def _figure2_blocks(found: Found) -> list[Block]:
  least, most = q(FRACTIONS[0]), q(FRACTIONS[-1])
  suffer = ("Local SGD", "SCAFFOLD")
  # What q takes away is gained on the way back.
  more = lambda one, other: [
    _is_more(found, metric, one, other, most, least) for metric in SHOWN
  ]
  return [
    *_best_values(found, {q(f): float(f) for f in FRACTIONS}, "class_fraction"),
    Claim(
      "Local SGD and SCAFFOLD get worse from q = 0.1 to 0.85",
      [each for one in suffer for each in more(one, None)],
    ),
    Claim("BVR-L-SGD gets worse from q = 0.1 to 0.85", more(OURS, None)),
    Claim(
      "The minibatch methods do not get worse from q = 0.1 to 0.85, by 1 point "
      "or 0.02 of loss",
      [
        _stays(found, metric, one, least, most, "loses")
        for one in NOT_LOCAL
        for metric in SHOWN
      ],
    ),
    Claim(
      "Local SGD and SCAFFOLD get worse by more than the minibatch methods and "
      "BVR-L-SGD",
      [
        each
        for one in suffer
        for other in (*NOT_LOCAL, OURS)
        for each in more(one, other)
      ],
    ),
    Claim(
      "At q = 0.85 BVR-L-SGD is better than all others",
      [
        _lead(found, metric, other, most, views.best(metric))
        for metric in SHOWN
        for other in OTHERS
      ],
    ),
  ]


def _lead(
  found: Found, metric: str, other: str, column: str, value: views.Value
) -> Quantity:
  """By how much BVR-L-SGD is better than another method."""
  name = f"over {other}, {_plain(metric)}"
  unit, scale = ("", -1.0) if metric.endswith("loss") else ("points", 100.0)
  keys = (OURS, column), (other, column)
  return views.lead(found, name, *keys, value, unit=unit, scale=scale)


def _figure3_blocks(found: Found) -> list[Block]:
  budgets = sorted({int(key[1].split()[-1]) for key in found})
  columns = {budget(each): float(each) for each in budgets}
  if len(budgets) < 2:
    return _best_values(found, columns, "budget")
  ends = budget(budgets[0]), budget(budgets[-1])
  local = [method for method in METHODS if method not in NOT_LOCAL]
  return [
    *_best_values(found, columns, "budget"),
    Claim(
      "Local methods get better with the budget",
      [
        _is_more(found, metric, one, None, *ends)
        for one in local
        for metric in SHOWN
      ],
    ),
    Claim(
      "The minibatch methods do not get better with the budget, by 1 point or "
      "0.02 of loss",
      [
        _stays(found, metric, one, *ends, "gains")
        for one in NOT_LOCAL
        for metric in SHOWN
      ],
    ),
    Claim(
      "Local methods get better by more than the minibatch methods",
      [
        _is_more(found, metric, one, other, *ends)
        for one in local
        for other in NOT_LOCAL
        for metric in SHOWN
      ],
      is_ours=True,
    ),
  ]


# Learning curves: Figures 4 to 7.


def _curve_blocks(
  metrics: Sequence[str],
) -> Callable[[Found], list[Block]]:
  def blocks(found: Found) -> list[Block]:
    columns = [q(fraction) for fraction in FRACTIONS]
    shown = [c for c in columns if any(c == key[1] for key in found)]
    of = lambda column: {
      m: found[m, column] for m in METHODS if (m, column) in found
    }
    picture = drawing.metrics_by_row(
      {column: drawing.Row(of(column), {}) for column in shown},
      metrics,
      [*METHODS],
      "curves",
      "Learning curves by metric and class fraction",
    )
    claims = [
      Claim(
        f"BVR-L-SGD leads throughout, {column} ({_plain(metric)} after each "
        "quarter of the rounds)",
        _leads(found, metric, column),
      )
      for metric in SHOWN
      for column in shown
    ]
    pictures = [picture] if shown else []
    return [_rates(found, shown), *pictures, *claims]

  return blocks


def _leads(found: Found, metric: str, column: str) -> list[Quantity]:
  """The lead over each other method after each quarter of the rounds."""
  quantities = []
  for quarter in range(1, 5):
    value = _after(metric, quarter / 4)
    of_quarter = (
      _lead(found, metric, o, column, value)._replace(
        name=f"over {o}, {25 * quarter} %"
      )
      for o in OTHERS
    )
    quantities += of_quarter
  return quantities


def _after(metric: str, part: float) -> views.Value:
  """The value of a metric at the evaluation nearest to a part of the run."""

  def value(record):
    rounds = record.history.rounds
    at = min(
      range(len(rounds)), key=lambda i: abs(rounds[i] - part * rounds[-1])
    )
    return record.history.values(metric)[:, at]

  return value


def _rates(found: Found, columns: Sequence[str]) -> views.Table:
  """The rates that were chosen."""
  rate = lambda key: f"{found[key].points[0]['client_lr']:g}"
  rows = [
    [
      method,
      *(
        rate((method, column)) if (method, column) in found else views.NOT_RUN
        for column in columns
      ),
    ]
    for method in METHODS
  ]
  return views.Table(["method", *columns], rows, "Rates")


_CIFAR = (
  "CIFAR-10, 3072-100-10 network, 10 clients, batches of 16, 3000 rounds, five "
  "seeds"
)
_KEEP = keep(*METRICS)
_OTHER_SIZES = ("smoke", "paper")


def _curves(number: int, examples: int, metrics: Sequence[str]) -> Artefact:
  """Figures 4 to 7."""
  what = "Loss and accuracy" if len(metrics) > 2 else "Loss and test accuracy"
  has_cpu = number in (4, 5)  # Those of 6 and 7 would be the same once more.
  return Artefact(
    f"bvr/figure{number}",
    f"{what} of five methods over rounds, by heterogeneity",
    f"{_CIFAR}, q = 0.1, 0.35, 0.6 and 0.85, a budget of {examples}",
    _by_fraction(examples),
    _curve_blocks(metrics),
    _KEEP,
    **({} if has_cpu else {"sizes": _OTHER_SIZES}),
  )


ARTEFACTS = (
  table1.ARTEFACT,
  Artefact(
    "bvr/figure2",
    "Best loss and accuracy of five methods against heterogeneity",
    f"{_CIFAR}, q = 0.1, 0.35, 0.6 and 0.85, a budget of 1024",
    _by_fraction(1024),
    _figure2_blocks,
    _KEEP,
  ),
  Artefact(
    "bvr/figure3",
    "Best loss and accuracy of five methods against the budget",
    f"{_CIFAR}, q = 0.1, budgets of 256, 512 and 1024",
    _figure3,
    _figure3_blocks,
    _KEEP,
  ),
  _curves(4, 1024, SHOWN),
  _curves(5, 256, [*METRICS]),
  _curves(6, 512, [*METRICS]),
  _curves(7, 1024, [*METRICS]),
)
