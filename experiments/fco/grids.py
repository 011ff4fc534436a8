"""Grids of rates: what is chosen, kept and shown of them.

A grid is one run: all rates, strengths and seeds. For each strength the first
seed chooses the rates, by each of `rules`; the others are reported. `metrics`
are kept and drawn, `results` are the columns of the table, and all claims are
decided under each condition. With `best_rates`, those of the paper, the ratios
of rates are compared; with `products` all points of the first seed are kept
whose product of rates is in that range.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.artefacts import captions, declared_claims, views
from experiments.artefacts.artefact import Block, Found, Key, Picture, Table
from experiments.artefacts.claims import Claim, Quantity
from experiments.artefacts.values import NOT_RUN, value, with_interval
from experiments.records import Kept, Record, rows_where
from fedjax_opt import Run
from fedjax_opt.results.history import History
from fedjax_opt.results.selection import Criterion, Tuning, outcome

RATES = ("client_lr", "server_lr")
OPTIMUM: Key = ("optimum",)
_FACTOR = 2.0  # Neighbours in the grids of rates differ about threefold.

About = Mapping[str, Any]
# Hyperparameter, or metric of a rule -> its values at all points. [S]
Means = Mapping[str, np.ndarray]


class Condition(NamedTuple):
  """The strength, and the rule of choosing rates, for which results are shown.

  Attributes:
    strength: of the regularizer; None if it has only one setting.
    rule: the rule by which rates are chosen, in words.
    criterion: the rule: a mean over the last evaluations.
  """

  strength: float | None
  rule: str
  criterion: Criterion

  @property
  def at_strength(self) -> str:
    """The strength in words."""
    return "" if self.strength is None else f"λ = {self.strength:g}"

  def __str__(self) -> str:
    return ", ".join(filter(None, [self.at_strength, f"by {self.rule}"]))


# What is chosen.


def rules_of(about: About) -> dict[str, Criterion]:
  """The rules that an artefact declares, by name."""
  return {
    name: Criterion(rule="mean_last_n", **each)
    for name, each in about["rules"].items()
  }


def strengths_of(means: Means) -> list[float | None]:
  """The strengths of a grid; [None] if it has one setting of it."""
  return sorted(set(means.get("strength", ()))) or [None]


def seeds_of(means: Means) -> list[int]:
  """The seeds of a grid, the one that chooses first."""
  return sorted(set(means["seed"]))


def conditions(found: Found, rules: Mapping[str, Criterion]) -> list[Condition]:
  """All conditions of the records, weak regularizers first."""
  strengths = {
    strength
    for record in found.values()
    if record.arrays
    for strength in strengths_of(record.arrays)
  }
  ordered = sorted(strengths, key=lambda each: each or 0.0)
  both = itertools.product(ordered, rules.items())
  return [Condition(strength, *rule) for strength, rule in both]


def tuning(
  means: Means, condition: Condition, seed: int | None = None
) -> Tuning:
  """The choice of a seed, by default the first, under a condition."""
  wanted = {"seed": seeds_of(means)[0] if seed is None else seed}
  if condition.strength is not None:
    wanted["strength"] = condition.strength
  names = [name for name in (*RATES, *wanted) if name in means]
  values = zip(*(means[name] for name in names), strict=True)
  points = [dict(zip(names, each, strict=True)) for each in values]
  rows, metric = rows_where(points, **wanted), condition.criterion.metric
  history = History([0], {metric: means[metric][rows, None]})
  return outcome(history, [points[row] for row in rows], condition.criterion)


def rates_of(tuned: Tuning) -> dict[str, float]:
  """The rates that were chosen; {} if all diverged."""
  best = tuned.best.hyperparameters if tuned.best else {}
  return {name: best[name] for name in RATES if name in best}


def reported(
  means: Means, points: Sequence[Mapping[str, Any]], condition: Condition
) -> list[int]:
  """Indices of the points that are reported; [] if all diverged.

  Args:
    means: of the grid.
    points: of the run, or the kept ones.
    condition: the strength and the rule.
  """
  best = tuning(means, condition).best
  if best is None:
    return []
  seeds = seeds_of(means)
  seeds = seeds[1:] or seeds
  rows = rows_where(points, **best.hyperparameters)
  return [row for row in rows if points[row]["seed"] in seeds]


def keep(about: About, run: Run) -> Kept:
  """Keeps curves of reported points, and the rules' metrics of all points."""
  rules = rules_of(about)
  means = {
    n: np.array([p[n] for p in run.points], float) for n in run.points[0]
  }
  means |= {each.metric: each.scores(run.history) for each in rules.values()}
  rows = {
    row
    for strength, rule in itertools.product(strengths_of(means), rules.items())
    for row in reported(means, run.points, Condition(strength, *rule))
  }
  if "products" in about:
    rows |= {*rows_of_products(about, run.points, means["seed"])}
  return Kept(about["metrics"], sorted(rows) or [0], arrays=means)


def rows_of_products(
  about: About, points: Sequence[Mapping[str, Any]], seeds: Sequence[int]
) -> list[int]:
  """Indices of the first seed's points whose product of rates is in a range."""
  low, high = about["products"]
  return [
    row
    for row, point in enumerate(points)
    if point["seed"] == min(seeds)
    and "server_lr" in point
    and low * 0.999 <= math.prod(point[name] for name in RATES) <= high * 1.001
  ]


def pick(found: Found, condition: Condition) -> dict[Key, Record]:
  """The reported records under a condition, with one point for each seed."""
  return {
    key: _picked(record, condition)
    for key, record in found.items()
    if record.arrays and condition.strength in strengths_of(record.arrays)
  }


def _picked(record: Record, condition: Condition) -> Record:
  rows = reported(record.arrays, record.points, condition)
  if rows:
    return record.take(rows)
  seeds = seeds_of(record.arrays)  # All diverged.
  points = [{"seed": seed} for seed in seeds[1:] or seeds]
  shape = (len(points), len(record.history.rounds))
  metrics = {name: np.full(shape, np.nan) for name in record.history.metrics}
  return dataclasses.replace(record.with_metrics(metrics), points=points)


# What is shown.


def blocks(about: About, found: Found) -> list[Block]:
  """The chosen rates, what they reached, and all verdicts."""
  rules, pictures = rules_of(about), []
  for rule, criterion in rules.items():
    name = f"by_{rule.lower()}" if len(rules) > 1 else "curves"
    at, how = conditions(found, {rule: criterion}), "one row for each strength"
    pictures.append(_picture(about, found, name, at, about["metrics"], how))
  if brief := about.get("brief"):  # Records at one strength, by the first rule.
    at = Condition(brief["strength"], *next(iter(rules.items())))
    shown = [at], brief["metrics"], at.at_strength
    pictures.append(_picture(about, found, "brief", *shown))
  drawn = [each for each in pictures if each is not None]
  return [results(about, found), *drawn, *_verdicts(about, found)]


def results(about: About, found: Found) -> Table:
  """A table of the chosen rates, and of what they reached.

  Its title says how many of the rates are at an edge of their grid.
  """
  columns, of_optimum = about["results"], optima(found)
  rows, strengths, at_edge = [], [], []
  for condition in conditions(found, rules_of(about)):
    strength = condition.strength
    shown = "" if strength is None else f"{strength:g}"
    if strength not in strengths:
      strengths.append(strength)
      if numbers := of_optimum.get(strength):
        best = [_of_optimum(numbers, words) for words in columns.values()]
        rows.append([shown, "optimum", "", "", *best, ""])
    for (name, *beside), record in pick(found, condition).items():
      if beside:
        continue
      tuned = tuning(found[name,].arrays, condition)
      at_edge += captions.at_edges(tuned)
      rates = ", ".join(f"{rate:g}" for rate in rates_of(tuned).values())
      cells = [_cell(record, words) for words in columns.values()]
      lost = f"{tuned.num_diverged} of {tuned.budget}"
      rows.append([shown, name, condition.rule, rates or "none", *cells, lost])
  heads = ["λ", "algorithm", "chosen by", "η_c, η_s", *columns, "diverged"]
  title = "Mean over the seeds that are reported"
  title += f"; {captions.edges(at_edge)}" if at_edge else ""
  if strengths == [None]:
    return Table(heads[1:], [row[1:] for row in rows], title)
  return Table(heads, rows, title)


def _cell(record: Record, words: str) -> str:
  """The mean over the seeds, with its interval."""
  of = value(words)
  rounds = float(words.partition(" at ")[2] or 0)
  if (
    of.metric not in record.history.metrics
    or record.history.rounds[-1] < rounds
  ):
    return NOT_RUN
  return with_interval(of.of(record), of.metric)


def optima(found: Found) -> dict[float, dict[str, float]]:
  """strength -> metric -> its value at the optimum."""
  if OPTIMUM not in found:
    return {}
  record = found[OPTIMUM]
  return {
    point["strength"]: {
      name: float(values[row, -1])
      for name, values in record.history.metrics.items()
    }
    for row, point in enumerate(record.points)
  }


def _of_optimum(numbers: Mapping[str, float], words: str) -> str:
  """The optimum's value in a column, for metrics of the last round."""
  is_early = words.partition(" at ")[2] not in ("", "500")
  metric = value(words).metric
  return "" if is_early or metric not in numbers else f"{numbers[metric]:.4g}"


def _picture(
  about: About,
  found: Found,
  name: str,
  at: Sequence[Condition],
  metrics: Sequence[str],
  how: str,
) -> Picture | None:
  """Some metrics under conditions of one rule; None if nothing ran."""
  rows = {each.at_strength: _row(about, found, each) for each in at}
  if not any(row.methods for row in rows.values()):
    return None
  draw = functools.partial(views.draw_metrics, rows, metrics, about["rows"])
  title = about["title"].partition(", data set")[0]
  return Picture(name, draw, f"{title}, rates by {at[0].rule}, {how}")


def _row(about: About, found: Found, condition: Condition) -> views.Row:
  picked = pick(found, condition)
  own = {name: picked[name,] for name in about["rows"] if (name,) in picked}
  return views.Row(own, optima(found).get(condition.strength, {}))


def _verdicts(about: About, found: Found) -> list[Block]:
  """Claims under all conditions, and a table of their verdicts."""
  columns = conditions(found, rules_of(about))
  rows: dict[str, list[str]] = {}
  decided = []
  for i, condition in enumerate(columns):
    picked = pick(found, condition)
    claims = declared_claims.claims(about, picked)
    if about.get("best_rates"):
      claims.insert(0, _ratios(about, picked, condition))
    for claim in claims:
      row = rows.setdefault(claim.text, [NOT_RUN] * len(columns))
      row[i] = claim.verdict
      where = f" ({condition})" if len(columns) > 1 else ""
      decided.append(claim._replace(text=f"{claim.text}{where}"))
  lines = [[text, *row] for text, row in rows.items()]
  table = Table(["claim", *map(str, columns)], lines, "Verdicts")
  return [table, *decided] if lines and len(columns) > 1 else decided


def _ratios(about: About, found: Found, condition: Condition) -> Claim:
  """The claim that the best rates are as far apart as the paper's."""
  best = about["best_rates"]
  ours, others = "FedDualAvg", about["groups"]["others"]
  quantities = [
    _ratio(
      found, condition, rate, (ours, other), best[ours][i] / best[other][i]
    )
    for i, rate in enumerate(RATES)
    for other in others
  ]
  return Claim(
    "FedDualAvg has the best rates 0.01, 1, the others 0.001, 0.3: ten times "
    "the client rate and 3.3 times the server rate, within a factor of two",
    quantities,
  )


def _ratio(
  found: Found,
  condition: Condition,
  rate: str,
  methods: tuple[str, str],
  ratio: float,
) -> Quantity:
  """How far a ratio of rates is from the paper's; each seed chooses its own."""
  name = f"{rate.split('_')[0]} rate over that of {methods[1]}"
  if not all((method,) in found for method in methods):
    return Quantity(name, ())
  both = [found[method,].arrays for method in methods]
  chosen = [
    [rates_of(tuning(means, condition, seed)) for means in both]
    for seed in seeds_of(both[0])
  ]
  ours = [
    np.nan if {} in pair else pair[0][rate] / pair[1][rate] for pair in chosen
  ]
  shown = ", ".join(f"{each:.3g}" for each in ours)
  off = [max(each / ratio, ratio / each) for each in ours]
  name = f"{name}, by seed {shown}; factor to {ratio:.3g} below {_FACTOR:g} by"
  return Quantity(name, tuple(_FACTOR - each for each in off))
