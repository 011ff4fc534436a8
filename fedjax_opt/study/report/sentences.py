"""What a study says in sentences: the answer, and what limits it.

Their words are in templates/; every claim follows the rule of verdicts.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from fedjax_opt.base import LOSSES
from fedjax_opt.study import verdicts, words
from fedjax_opt.study.cells import Cell
from fedjax_opt.study.report import text
from fedjax_opt.study.verdicts import BEST, TIED, JudgedStudy, Verdict
from fedjax_opt.study.words import condition_label


def answer(study: JudgedStudy) -> str:
  """The best methods of the conditions, and how much worse the others are."""
  compared = verdicts.compared(study)
  groups: dict[Any, list[dict[str, Any]]] = {}
  for condition in compared:
    here = [v for v in study.verdicts if dict(v.cell.condition) == condition]
    groups.setdefault(tuple(_who(study, here).items()), []).append(condition)
  found = text.items(
    "answer.txt",
    study=study,
    labels=verdicts.names_of(study),
    numbers=verdicts.numbers_of(study),
    compared=compared,
    groups=[(dict(who), conditions) for who, conditions in groups.items()],
    counts=_counts(study),
    of_all=_who(study, study.verdicts),
  )
  begin = f"By mean {words.metric_words(study.metric)}, " * bool(compared)
  return f"{begin}{'; '.join(found)}."


def _who(
  study: JudgedStudy, of: Sequence[Verdict]
) -> dict[str, tuple[str, ...]]:
  """verdict -> the names of the methods that have it."""
  labels = verdicts.names_of(study)
  return {
    kind: tuple(
      dict.fromkeys(labels[v.cell.method] for v in of if v.verdict == kind)
    )
    for kind in dict.fromkeys(v.verdict for v in of)
  }


def _counts(study: JudgedStudy) -> list[tuple[str, int, int]]:
  """Methods, with how often each is best, and how often not told apart."""
  compared = verdicts.compared(study)
  here = [v for v in study.verdicts if dict(v.cell.condition) in compared]
  found = []
  for method, label in verdicts.names_of(study).items():
    mine = [v.verdict for v in here if v.cell.method == method]
    found.append((label, mine.count(BEST), mine.count(TIED)))
  shown = [each for each in found if sum(each[1:])]
  return sorted(shown, key=lambda each: -sum(each[1:]))


def limits_of(study: JudgedStudy) -> list[str]:
  """What limits the comparison: edges of grids, divergence, seeds, budgets."""
  labels = verdicts.names_of(study)
  cells: dict[str, dict[str, list[Cell]]] = {}
  for verdict in study.verdicts:
    for said in text.items("limits_of_a_cell.txt", verdict=verdict):
      of_method = cells.setdefault(said, {})
      of_method.setdefault(verdict.cell.method, []).append(verdict.cell)
  rounds: dict[int, dict[str, None]] = {}
  budgets: dict[str, list[int]] = {}
  ran = [cell for cell in study.cells if cell.measured is not None]
  for cell in study.cells:
    budgets.setdefault(labels[cell.method], []).append(cell.budget)
  for cell in ran:
    last = cell.measured.history.rounds[-1]
    rounds.setdefault(last, {})[labels[cell.method]] = None
  seeds = _unequal_seeds(study)
  return [f"{_whose(study, of)}: {said}" for said, of in cells.items()] + (
    text.items(
      "limits.txt",
      study=study,
      seeds=seeds,
      are_shared=any(one & other for one, other in seeds),
      labels=labels,
      rounds=rounds,
      has_losses=all(
        set(LOSSES) & set(c.measured.history.metrics) for c in ran
      ),
      budgets=budgets,
      tuned={name: n for name, n in budgets.items() if max(n) > 1},
    )
  )


def _whose(study: JudgedStudy, cells: Mapping[str, Sequence[Cell]]) -> str:
  """The cells that a line is about, grouped by their conditions."""
  methods: dict[str, list[str]] = {}
  for method, of_method in cells.items():
    where = _where(study, of_method)
    methods.setdefault(where, []).append(verdicts.names_of(study)[method])
  return "; ".join(words.named(who) + where for where, who in methods.items())


def _where(study: JudgedStudy, cells: Sequence[Cell]) -> str:
  """The conditions under which a line is about a method."""
  number = len(cells)
  total = sum(cell.method == cells[0].method for cell in study.cells)
  if not cells[0].condition:
    return ""
  if number == total > 1:
    return " under all conditions"
  if number > 3:
    return f" under {number} of {total} conditions"
  shown = [condition_label(cell.condition) for cell in cells]
  return f" at {' and at '.join(shown)}"


def _unequal_seeds(study: JudgedStudy) -> list[tuple[set[int], set[int]]]:
  """The seeds of each two methods under a condition, if they differ."""
  seeds = (
    [set(c.measured.seeds) for c in study.under(each).values() if c.measured]
    for each in study.conditions
  )
  pairs = itertools.chain(*(itertools.combinations(of, 2) for of in seeds))
  return [(one, other) for one, other in pairs if one != other]
