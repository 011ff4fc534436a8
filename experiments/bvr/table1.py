"""Table 1 of the BVR-L-SGD paper: orders of rounds, as rounds that were needed.

The paper has orders in the accuracy eps, the budget K B and the heterogeneity
zeta. Here each varies while the others stay, on a problem that has zeta as a
dial. Rates are chosen by other seeds than those that are reported.
"""

import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from experiments.artefacts import views
from experiments.artefacts.base import (
  Artefact,
  Block,
  Computed,
  Found,
  Key,
  Picture,
  Plan,
  Table,
)
from experiments.artefacts.claims import Claim, Quantity, above, lost_of
from experiments.artefacts.record import Record
from experiments.bvr import rounds
from fedjax_opt import plots, statistics
from fedjax_opt.metrics import Criterion, History
from fedjax_opt.results.selection import tune
from fedjax_opt.study.words import Numbers

ZETAS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
LOCAL_STEPS = (1, 4, 16, 64)  # K
EPS = (1e-2, 1e-3, 1e-4)
# Where the others vary.
ZETA, STEPS, LEAST = 0.1, 64, 1e-4
TUNING, REPORT = (0, 1), (2, 3, 4, 5, 6)  # seeds
BATCH_SIZE, ROUNDS = 2, 300
RATES = (0.001, 0.0025, 0.006, 0.016, 0.04, 0.1, 0.25, 0.6)
LOCAL = ("Local SGD", "SCAFFOLD", "BVR-L-SGD")
_NUMBERS = Numbers("rounds", 1)
_NOT_THERE = "did not get there"
OTHERS = [method for method in rounds.METHODS if method != "BVR-L-SGD"]


class At(NamedTuple):
  """One point of the table."""

  zeta: float = ZETA
  steps: int = STEPS
  eps: float = LEAST


def cells(plan: Plan) -> dict[Key, Computed]:
  """One program for each method and number of local steps."""
  if plan.size == "smoke":
    methods, all_steps = ("Minibatch SGD", "BVR-L-SGD"), (STEPS,)
    options = {"rates": [0.04, 0.25], "seeds": [0, 1, 2, 3], "rounds": 8}
    zetas = [ZETA, 10.0]
  else:
    methods, all_steps = rounds.METHODS, LOCAL_STEPS
    seeds = [*TUNING, *REPORT]
    options = {"rates": list(RATES), "seeds": seeds, "rounds": ROUNDS}
    zetas = list(ZETAS)
  found = {}
  for method in methods:
    for steps in all_steps:
      # In the mean over all clients at one point, zeta cancels.
      varies = steps == STEPS and method in LOCAL
      found[method, f"K = {steps}"] = Computed(
        rounds.rounds_to_small_gradient,
        {
          "method": method,
          "local_steps": steps,
          "zetas": zetas if varies else [ZETA],
          "batch_size": BATCH_SIZE,
          "eps": list(EPS),
          **options,
        },
      )
  return found


class Needed(NamedTuple):
  """What a method needs at its rate, by seed; NaN where it does not get there.

  Attributes:
    rounds: of each seed of the report.
    rate: the chosen one; None if no rate got there.
  """

  rounds: np.ndarray
  rate: float | None


def needed(
  found: Found, method: str, at: At, counts_stages: bool = True
) -> Needed | None:
  """The rounds that a method needs; None if that has not run."""
  record = found.get((method, f"K = {at.steps}"))
  if record is None:
    return None
  zeta = at.zeta if method in LOCAL else ZETA
  of_tuning = _rows(record, zeta, TUNING)
  if not of_tuning:
    return None
  metric = rounds.metric(at.eps, counts_stages)
  tuned = tune(
    _part(record.history, of_tuning),
    [record.points[row] for row in of_tuning],
    Criterion(metric, "min", "last"),
  )
  reported = [s for s in _seeds(record) if s not in TUNING]
  if tuned.best is None:
    return Needed(np.full(len(reported), np.nan), None)
  rate = tuned.best.hyperparameters["client_lr"]
  rows = _rows(record, zeta, reported, rate)
  return Needed(record.final(metric)[rows], rate)


def _part(history: History, rows: Sequence[int]) -> History:
  """Some points of a history."""
  metrics = {name: history.values(name)[rows] for name in history.metrics}
  return History(history.rounds, metrics)


def _seeds(record: Record) -> list[int]:
  return list(dict.fromkeys(point["seed"] for point in record.points))


def _rows(
  record: Record,
  zeta: float,
  seeds: Sequence[int],
  rate: float | None = None,
) -> list[int]:
  """The points of a zeta and these seeds, of one rate or of all."""
  return [
    row
    for row, point in enumerate(record.points)
    if np.isclose(point["zeta"], zeta)
    and point["seed"] in seeds
    and rate in (None, point["client_lr"])
  ]


# What is shown.

# Title of a table -> what varies, by column.
VARIED: dict[str, Mapping[str, At]] = {
  f"ζ, at K = {STEPS} and ε = {LEAST:g}": {
    f"{zeta:g}": At(zeta=zeta) for zeta in ZETAS
  },
  f"K, at ζ = {ZETA:g} and ε = {LEAST:g}": {
    f"{steps}": At(steps=steps) for steps in LOCAL_STEPS
  },
  f"ε, at ζ = {ZETA:g} and K = {STEPS}": {
    f"{eps:g}": At(eps=eps) for eps in EPS
  },
}


def blocks(found: Found) -> list[Block]:
  """Tables of rounds and rates, a picture, and what the orders say."""
  if not found:
    return _claims(found)
  record = next(iter(found.values()))
  limit = int(record.history.rounds[-1])
  tables = [
    _table(found, title, columns, limit) for title, columns in VARIED.items()
  ]
  iterations = _table(
    found, *next(iter(VARIED.items())), limit, counts_stages=False
  )
  title = "The same without the large gradients, as the paper counts"
  draw = lambda path: _draw(found, limit, path)
  alt = "Rounds against ζ, K and ε"
  return [
    tables[0]._replace(title=_how(record, tables[0].title)),
    *tables[1:],
    iterations._replace(title=title),
    Picture("rounds", draw, alt),
    *_claims(found),
  ]


def _table(
  found: Found,
  title: str,
  columns: Mapping[str, At],
  limit: int,
  counts_stages: bool = True,
) -> Table:
  rows = []
  for method in rounds.METHODS:
    of_columns = (
      needed(found, method, at, counts_stages) for at in columns.values()
    )
    rows.append([method, *(_text(each, limit) for each in of_columns)])
  return Table(
    [title.split(",")[0], *columns],
    rows,
    title,
  )


def _text(found: Needed | None, limit: int) -> str:
  if found is None:
    return views.NOT_RUN
  late = int(np.isnan(found.rounds).sum())
  if late:
    text = f"> {limit}"
    some = f" in {late} of {len(found.rounds)}"
    text += some if late < len(found.rounds) else ""
  else:
    interval = statistics.mean_interval(found.rounds)
    text = "{} ({})".format(*_NUMBERS.parts(interval))
  return text if found.rate is None else f"{text}; {found.rate:g}"


def _how(record: Record, title: str) -> str:
  """What the numbers are, above the first table."""
  options = record.flags
  limit, seeds = options["rounds"], options["seeds"]
  return (
    f"Rounds, of at most {limit}, until the squared gradient norm is at most "
    f"ε, mean and 95 % interval of {_count(seeds, REPORT)} seeds; after the "
    f"semicolon the rate, the best of {len(options['rates'])} for "
    f"{_count(seeds, TUNING)} other seeds. The large gradient of a stage "
    f"counts as a round. B = {options['batch_size']}. Against {title}"
  )


def _count(seeds: Sequence[int], among: Sequence[int]) -> int:
  return len(set(seeds) & set(among))


def _draw(found: Found, limit: int, path: pathlib.Path) -> None:
  """Three panels; a cross above the line: some seed did not get there."""
  styles = plots.method_styles(rounds.METHODS)
  with plots.figure(columns=len(VARIED)) as (figure, axes):
    for panel, (title, columns) in zip(axes[0], VARIED.items(), strict=True):
      for i, (method, style) in enumerate(styles.items()):
        known = [needed(found, method, at) for at in columns.values()]
        _draw_method(panel, method, style, known, limit, 0.1 * (i - 2))
      panel.axhline(limit, color="#808080", linewidth=0.7)
      panel.set_yscale("log")
      panel.set_ylim(1.5, 2.2 * limit)
      panel.yaxis.set_major_formatter("{x:g}")
      panel.set_xticks(range(len(columns)), list(columns))
      panel.set_xlabel(title)
    axes[0][0].set_ylabel("Rounds")
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=5)
    figure.savefig(path)


def _draw_method(panel, method, style, known, limit, shift) -> None:
  means = [
    np.nan if each is None else float(np.mean(each.rounds)) for each in known
  ]
  look = {"color": style.color, "markersize": 4}
  places = np.arange(len(known))
  panel.plot(
    places, means, label=method, marker="o", linestyle=style.linestyle, **look
  )
  lost = [
    place
    for place, each in zip(places, known, strict=True)
    if each is not None and np.isnan(each.rounds).any()
  ]
  # Beside one another where several fail.
  panel.plot([p + shift for p in lost], [1.5 * limit] * len(lost), "x", **look)


# What the orders say.


def _claims(found: Found) -> list[Claim]:
  bvr = "BVR-L-SGD"
  fewer = lambda name, one, at, other, at_other: _fewer(
    found, name, (one, at), (other, at_other)
  )
  steps = [At(steps=each) for each in LOCAL_STEPS]
  zetas = [At(zeta=each) for each in (ZETA, 1.0, 10.0)]
  return [
    Claim(
      f"BVR-L-SGD needs the fewest rounds where ζ is small (ζ = {ZETA:g})",
      [fewer(f"fewer than {o}", bvr, At(), o, At()) for o in OTHERS],
    ),
    Claim(
      "BVR-L-SGD needs fewer rounds as the budget K B grows (ζ small)",
      [
        fewer(f"K = {b.steps} below K = {a.steps}", bvr, b, bvr, a)
        for a, b in itertools.pairwise(steps)
      ],
    ),
    Claim(
      "The rounds of the others fall less from K = 16 to 64, by how many "
      "halvings",
      [_gain(found, bvr, o) for o in OTHERS],
    ),
    Claim(
      "The gain vanishes as ζ grows to L: BVR-L-SGD needs more rounds",
      [
        fewer(f"ζ = {a.zeta:g} below ζ = {b.zeta:g}", bvr, a, bvr, b)
        for a, b in itertools.pairwise(zetas)
      ],
    ),
    Claim(
      "Local SGD and SCAFFOLD need more rounds as ζ grows",
      [
        fewer(f"{o}: ζ = {ZETA:g} below ζ = 10", o, At(), o, At(zeta=10.0))
        for o in ("Local SGD", "SCAFFOLD")
      ],
    ),
    Claim(
      "Minibatch SARAH needs fewer rounds than minibatch SGD",
      [
        fewer(f"K = {at.steps}", "Minibatch SARAH", at, "Minibatch SGD", at)
        for at in steps
      ],
    ),
  ]


def _rounds(found: Found, method: str, at: At) -> np.ndarray | None:
  known = needed(found, method, at)
  return None if known is None else known.rounds


def _fewer(
  found: Found, name: str, one: tuple[str, At], other: tuple[str, At]
) -> Quantity:
  """By how many rounds one is quicker; that did not get there is slower."""
  a, b = _rounds(found, *one), _rounds(found, *other)
  if one[0] != other[0]:
    sides = one[0], other[0]
  else:
    sides = tuple(f"{one[0]}, {_where(at)}," for _, at in (one, other))
  return above(name, a, b, "rounds", -1.0, sides, _NOT_THERE)


def _where(at: At) -> str:
  return f"ζ = {at.zeta:g}, K = {at.steps}"


def _gain(found: Found, one: str, other: str) -> Quantity:
  """By how much more one's rounds fall, as a difference of log2 ratios."""
  gains = {}
  for method in (one, other):
    few, many = (_rounds(found, method, At(steps=k)) for k in (16, STEPS))
    if few is None or many is None:
      return Quantity(f"over {other}", (), "halvings")
    gains[method] = np.log2(few / many)
  # NaN where one did not get there, so that nothing is said.
  difference = (gains[one] - gains[other]).tolist()
  name, lost = f"less than {one}: {other}", lost_of(gains, _NOT_THERE)
  return Quantity(name, difference, "halvings", lost=lost)


ARTEFACT = Artefact(
  "bvr/table1",
  "Rounds until the gradient is small, against heterogeneity, local steps and "
  "accuracy",
  "orders of rounds, which it proves; here they are measured on a synthetic "
  "non-convex problem: 10 clients of 256 examples, 10 coordinates with two "
  "wells each, client gradients that differ by 3 in norm from their mean, L = "
  "5 + ζ / 2",
  cells,
  blocks,
)
