"""What is chosen, kept and shown of grids of rates.

A grid is one run: all rates, strengths and seeds. For each strength the first
seed chooses the rates; the others are reported.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.artefacts import captions, views
from experiments.artefacts.base import Block, Found, Key, Table
from experiments.artefacts.claims import Claim, Quantity
from experiments.artefacts.record import Kept, Record, means_of
from fedjax_opt import Run
from fedjax_opt.metrics import Criterion, History, select

ALGORITHMS = {
  "FedMiD": "fed_mid",
  "FedMiD-OSP": "fed_mid_osp",
  "FedDualAvg": "fed_dual_avg",
  "FedDualAvg-OSP": "fed_dual_avg_osp",
}
RATES = ("client_lr", "server_lr")

Means = Mapping[str, np.ndarray]  # Of all points, see `means_of`.


class Column(NamedTuple):
  """A column of a table of results.

  Attributes:
    metric: which is shown.
    value: of it, one for each seed.
    round: from which on it is known; 0 for all.
  """

  metric: str
  value: views.Value
  round: int = 0

  def cell(self, record: Record) -> str:
    """The mean over the seeds, with its interval."""
    rounds, metrics = record.history.rounds, record.history.metrics
    if self.metric not in metrics or rounds[-1] < self.round:
      return views.NOT_RUN
    return views.with_interval(self.value(record), self.metric)


class Rule(NamedTuple):
  """How rates are chosen.

  Attributes:
    name: in words.
    metric: whose mean over the last `n` evaluations decides.
    direction: 'max' or 'min'.
    n: evaluations.
  """

  name: str
  metric: str
  direction: str
  n: int


class Condition(NamedTuple):
  """At what strength, and by what rule, something is shown.

  Attributes:
    strength: of the regularizer; None where there is but one setting of it.
    rule: by which rates are chosen.
  """

  strength: float | None
  rule: Rule

  def __str__(self) -> str:
    by = f"by {self.rule.name}"
    return by if self.strength is None else f"λ = {self.strength:g}, {by}"


def strengths_of(means: Means) -> list[float | None]:
  """The strengths of a grid; [None] if it has one setting of it."""
  return sorted(set(means.get("strength", ()))) or [None]


def seeds_of(means: Means) -> list[int]:
  """The seeds of a grid, the one that chooses first."""
  return sorted(set(means["seed"]))


def choose(
  means: Means, condition: Condition, seed: int | None = None
) -> dict[str, float] | None:
  """The rates that a seed chooses; None if all diverged.

  Args:
    means: of the grid.
    condition: the strength and the rule.
    seed: which chooses; by default the first.
  """
  rule, rates = condition.rule, [n for n in RATES if n in means]
  seed = seeds_of(means)[0] if seed is None else seed
  rows = _rows(means, condition.strength, [seed])
  points = [{name: means[name][row] for name in rates} for row in rows]
  scores = np.array([means[rule.metric][row] for row in rows], float)
  history = History([0], {rule.metric: scores[:, None]})
  best = select(history, points, Criterion(rule.metric, rule.direction))
  return None if best is None else points[best]


def _rows(
  points: Means, strength: float | None, seeds: Sequence[int]
) -> list[int]:
  return [
    row
    for row, seed in enumerate(points["seed"])
    if seed in seeds
    and (strength is None or math.isclose(points["strength"][row], strength))
  ]


def reported(
  means: Means, points: Sequence[Mapping[str, Any]], condition: Condition
) -> list[int]:
  """Indices of the points that are reported; [] if all diverged.

  Args:
    means: of the grid.
    points: of the run, or those that were kept of it.
    condition: the strength and the rule.
  """
  rates = choose(means, condition)
  if rates is None:
    return []
  seeds = seeds_of(means)
  seeds = seeds[1:] or seeds
  columns = {name: [p.get(name) for p in points] for name in points[0]}
  return [
    row
    for row in _rows(columns, condition.strength, seeds)
    if all(math.isclose(columns[n][row], rates[n]) for n in rates)
  ]


def keep(*rules: Rule, metrics: Sequence[str]) -> Callable[[Run], Kept]:
  """Keeps curves of what is reported, and of all points what rules look at.

  Args:
    *rules: by which rates are chosen.
    metrics: whose curves are kept.
  """
  of_all = {rule.metric: rule.n for rule in rules}

  def kept(run: Run) -> Kept:
    means = means_of(run, of_all)
    rows = {
      row
      for strength in strengths_of(means)
      for rule in rules
      for row in reported(means, run.points, Condition(strength, rule))
    }
    return Kept(metrics, sorted(rows) or [0], arrays=means)

  return kept


def conditions(found: Found, rules: Sequence[Rule]) -> list[Condition]:
  """All conditions of what was found, weak regularizers first."""
  strengths = {
    strength
    for record in found.values()
    if record.arrays
    for strength in strengths_of(record.arrays)
  }
  ordered = sorted(strengths, key=lambda each: each or 0.0)
  return [Condition(strength, rule) for strength in ordered for rule in rules]


def pick(found: Found, condition: Condition) -> dict[Key, Record]:
  """What is reported under a condition: each record has one point a seed."""
  return {
    key: _picked(record, condition)
    for key, record in found.items()
    if record.arrays and condition.strength in strengths_of(record.arrays)
  }


def _picked(record: Record, condition: Condition) -> Record:
  rows = reported(record.arrays, record.points, condition)
  points = [record.points[row] for row in rows]
  metrics = {n: v[rows] for n, v in record.history.metrics.items()}
  if not rows:  # All diverged.
    seeds = seeds_of(record.arrays)
    points = [{"seed": seed} for seed in seeds[1:] or seeds]
    shape = (len(points), len(record.history.rounds))
    metrics = {name: np.full(shape, np.nan) for name in metrics}
  history = History(record.history.rounds, metrics)
  return dataclasses.replace(record, points=points, history=history)


# Values of a picked record, one for each seed.


def at(metric: str, round: int) -> views.Value:
  """A metric at the last evaluation up to a round."""

  def value(record: Record) -> np.ndarray:
    rounds = np.asarray(record.history.rounds)
    index = np.flatnonzero(rounds <= round)[-1]
    return record.history.values(metric)[:, index]

  return value


def mean_over_rounds(metric: str) -> views.Value:
  """The mean of a metric over all evaluated rounds: how fast, in one number."""
  return lambda record: record.history.values(metric).mean(axis=1)


def rounds_until(
  metric: str, reached: Callable[[np.ndarray], np.ndarray]
) -> views.Value:
  """The first evaluated round at which something is reached.

  Where it never is, one evaluation after the last: so late at least.
  """

  def value(record: Record) -> np.ndarray:
    rounds = [*record.history.rounds]
    rounds.append(2 * rounds[-1] - rounds[-2] if len(rounds) > 1 else 1)
    is_there = reached(record.history.values(metric))
    never = np.ones((len(is_there), 1), bool)
    first = np.concatenate([is_there, never], axis=1).argmax(axis=1)
    return np.asarray(rounds, float)[first]

  return value


def below(
  found: Found,
  name: str,
  key: Key,
  value: views.Value,
  limit: float,
  unit: str = "",
) -> Quantity:
  """That a value is below a limit: how much is left, by seed."""
  of_seeds = views.values(found, key, value)
  if of_seeds is None:
    return Quantity(name, (), unit)
  sides = ("the limit", key[0])
  limits = np.full_like(of_seeds, limit)
  return views.above(name, limits, of_seeds, unit, sides=sides)


# Verdicts and tables.


def verdicts(
  found: Found,
  rules: Sequence[Rule],
  claims: Callable[[Found, Condition], Sequence[Claim]],
) -> list[Block]:
  """Claims under all conditions, and a table of their verdicts.

  Args:
    found: what there is.
    rules: by which rates are chosen.
    claims: what was picked, under which condition -> claims, always the same.
  """
  columns = conditions(found, rules)
  decided = [claims(pick(found, each), each) for each in columns]
  if not columns or not decided[0]:
    return []
  rows = [
    [of_claim[0].text, *(claim.verdict for claim in of_claim)]
    for of_claim in zip(*decided, strict=True)
  ]
  table = Table(["claim", *map(str, columns)], rows, "Verdicts")
  blocks: list[Block] = [table] if len(columns) > 1 else []
  for column, of_column in zip(columns, decided, strict=True):
    where = f" ({column})" if len(columns) > 1 else ""
    blocks += [c._replace(text=f"{c.text}{where}") for c in of_column]
  return blocks


def results(
  found: Found,
  algorithms: Sequence[str],
  rules: Sequence[Rule],
  columns: Mapping[str, Column],
  optima: Mapping[float | None, Mapping[str, str]] | None = None,
) -> Table:
  """A table: the rates that were chosen, and what they reached.

  Its title says how many of the rates are at an edge of their grid.

  Args:
    found: what there is; its keys are `(algorithm,)`.
    algorithms: in order.
    rules: by which rates are chosen.
    columns: head -> what is in it.
    optima: strength -> head -> the optimum's value.
  """
  rows, strengths, at_edge = [], [], []
  for condition in conditions(found, rules):
    if condition.strength not in strengths:
      strengths.append(condition.strength)
      rows += _optimum_row(condition.strength, columns, optima or {})
    picked = pick(found, condition)
    for algorithm in algorithms:
      if (algorithm,) not in picked:
        continue
      means = found[algorithm,].arrays
      at_edge += _at_edge(means, condition)
      cells = [column.cell(picked[algorithm,]) for column in columns.values()]
      shown = [algorithm, condition.rule.name, _rates(means, condition)]
      rows.append(
        [_strength(condition.strength), *shown, *cells, _lost(means, condition)]
      )
  heads = ["λ", "algorithm", "chosen by", "η_c, η_s", *columns, "diverged"]
  title = captions.edges(at_edge) if at_edge else ""
  if strengths == [None]:
    return Table(heads[1:], [row[1:] for row in rows], title)
  return Table(heads, rows, title)


def _at_edge(means: Means, condition: Condition) -> list[bool]:
  """Of each rate that was chosen among several, whether it is an extreme."""
  rates = choose(means, condition) or {}
  tried = {name: set(means[name]) for name in rates}
  return [
    captions.is_at_edge(rate, [*tried[name]])
    for name, rate in rates.items()
    if len(tried[name]) > 1
  ]


def _optimum_row(strength, columns, optima) -> list[list[str]]:
  if strength not in optima:
    return []
  values = [optima[strength].get(head, "") for head in columns]
  return [[_strength(strength), "optimum", "", "", *values, ""]]


def _strength(strength: float | None) -> str:
  return "" if strength is None else f"{strength:g}"


def _rates(means: Means, condition: Condition) -> str:
  rates = choose(means, condition)
  if rates is None:
    return "none"
  return ", ".join(f"{value:g}" for value in rates.values())


def _lost(means: Means, condition: Condition) -> str:
  """Of how many rates the seed that chooses diverged."""
  rows = _rows(means, condition.strength, seeds_of(means)[:1])
  scores = np.array([means[condition.rule.metric][r] for r in rows], float)
  return f"{int(np.isnan(scores).sum())} of {len(rows)}"
