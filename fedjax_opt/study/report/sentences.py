"""What a study says in sentences: the answer, and what limits it.

Their words are in templates/; every claim follows the rule of verdicts.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_opt.base import LOSSES
from fedjax_opt.results.metric_names import TIME, is_accuracy
from fedjax_opt.study import words
from fedjax_opt.study.cells import Cell
from fedjax_opt.study.report import templates
from fedjax_opt.study.study_cells import StudyCells
from fedjax_opt.study.tuning import num_near_ties
from fedjax_opt.study.verdicts import BEST, TIED, Verdict
from fedjax_opt.study.words import condition_label

# A mean accuracy that was higher by more than this before the end is told.
_LEAST_FALL = 0.02
# Accuracies that must exceed chance by this much are measured on few examples.
_LONG_MARGIN = 0.05


def answer(study: StudyCells) -> str:
  """The best methods of the conditions, and how much worse the others are."""
  return joined(*answer_parts(study))


def joined(warning: str, begin: str, parts: Sequence[str]) -> str:
  """One text of what `answer_parts` returned."""
  text = f"{begin}, {'; '.join(parts)}." if begin else f"{'; '.join(parts)}."
  text = re.sub("^every", "Every", text)
  return f"{warning} {text}" if warning else text


def answer_parts(study: StudyCells) -> tuple[str, str, list[str]]:
  """The answer in parts: a warning, by what it is, and what holds where.

  The warning is "" if no method's tuning failed. The second part is "" if
  nothing was compared, or nothing can be best.
  """
  compared = study.compared
  groups: dict[Any, list[dict[str, Any]]] = {}
  shown_names = _marked_names(study)
  for condition in compared:
    subset = [v for v in study.verdicts if dict(v.cell.condition) == condition]
    names = tuple(_methods_by_verdict(shown_names, subset).items())
    groups.setdefault(names, []).append(condition)
  # The best methods, or how all were lost -> the groups where that is so.
  bests: dict[tuple[str, ...], list[Any]] = {}
  for names, conditions in groups.items():
    who = dict(names)
    bests.setdefault(who.get(BEST, tuple(who)), []).append((who, conditions))
  warning, *phrases = templates.items(
    "answer.txt",
    study=study,
    names=shown_names,
    bests=bests.items(),
    counts=_counts(study, shown_names),
    of_all=_methods_by_verdict(shown_names, study.verdicts),
    failed=_failed(study),
  )
  over = " over the seeds that all methods have" * study.has_shared_seeds
  begin = f"By mean {words.metric_words(study.metric)}{over}"
  has_best = any(verdict.kind == BEST for verdict in study.verdicts)
  return warning, begin if compared and has_best else "", phrases


def _marked_names(study: StudyCells) -> dict[str, str]:
  """Methods in a sentence; one beside others that tuned its flags is marked.

  A method without a grid, such as Δ-SGD at its default, is not marked: no other
  method tries several values of what it has.
  """
  tuned = {name for cell in study.cells for name in cell.tuned}
  fixed = {
    cell.method
    for cell in study.cells
    if cell.tuning_runs is None and tuned & cell.chosen.keys()
  }
  return {
    method: f"{name} (not tuned)" if method in fixed else name
    for method, name in study.names.items()
  }


def _methods_by_verdict(
  names: Mapping[str, str], verdicts: Sequence[Verdict]
) -> dict[str, tuple[str, ...]]:
  """verdict -> the names of the methods that have it."""
  return {
    kind: tuple(
      dict.fromkeys(names[v.cell.method] for v in verdicts if v.kind == kind)
    )
    for kind in dict.fromkeys(v.kind for v in verdicts)
  }


def _failed(study: StudyCells) -> list[str]:
  """Methods that tried several settings, of which somewhere all collapsed."""
  failed = (
    study.names[cell.method]
    for cell in study.cells
    if cell.num_collapsed == cell.budget > 1
  )
  return list(dict.fromkeys(failed))


def _counts(
  study: StudyCells, names: Mapping[str, str]
) -> list[tuple[str, int, int]]:
  """Methods, with how often each is best, and how often not told apart."""
  compared = study.compared
  verdicts = [v for v in study.verdicts if dict(v.cell.condition) in compared]
  rows = []
  for method, label in names.items():
    kinds = [v.kind for v in verdicts if v.cell.method == method]
    rows.append((label, kinds.count(BEST), kinds.count(TIED)))
  shown_rows = [row for row in rows if sum(row[1:])]
  return sorted(shown_rows, key=lambda row: -sum(row[1:]))


def limits_of(study: StudyCells) -> list[str]:
  """What limits the comparison: edges of grids, divergence, seeds, budgets."""
  labels = study.names
  cells: dict[str, dict[str, list[Cell]]] = {}
  for verdict in study.verdicts:
    for limit in templates.items("limits_of_a_cell.txt", verdict=verdict):
      by_method = cells.setdefault(limit, {})
      by_method.setdefault(verdict.cell.method, []).append(verdict.cell)
  budgets: dict[str, list[int]] = {}
  ran = [cell for cell in study.cells if cell.report_runs is not None]
  for cell in study.cells:
    budgets.setdefault(labels[cell.method], []).append(cell.budget)
  seeds = _unequal_seeds(study)
  return [f"{_whose(study, of)}: {limit}" for limit, of in cells.items()] + (
    templates.items(
      "limits.txt",
      study=study,
      ties=_near_ties(study),
      margin=_margin_of_chance(study),
      tests=_errors_of_examples(study),
      falls=_falls(study),
      least_fall=_LEAST_FALL,
      seeds=seeds,
      are_shared=any(first & second for first, second in seeds),
      lengths=_lengths(study),
      has_losses=all(
        set(LOSSES) & set(c.report_runs.history.metrics) for c in ran
      ),
      budgets=budgets,
      tuned={name: n for name, n in budgets.items() if max(n) > 1},
    )
  )


def _near_ties(study: StudyCells) -> list[tuple[str, list[int], Cell]]:
  """Cells in which other settings did about as well as the chosen one.

  Returns:
    For cells with equal budgets and equally many examples: which they are, how
    many other settings each has, and one of the cells.
  """
  groups: dict[Any, list[tuple[Cell, int]]] = {}
  for cell in (verdict.cell for verdict in study.verdicts):
    if cell.tuning and not cell.is_nested and (n := num_near_ties(cell)):
      metric = cell.criterion.metric
      examples = cell.examples_of(metric)
      size = examples.size if examples else None
      groups.setdefault((cell.budget, metric, size), []).append((cell, n))
  ties = []
  for group in groups.values():
    cells: dict[str, list[Cell]] = {}
    for cell, _ in group:
      cells.setdefault(cell.method, []).append(cell)
    ties.append((_whose(study, cells), [n for _, n in group], group[0][0]))
  return ties


def _margin_of_chance(study: StudyCells) -> tuple[float, int] | None:
  """By how much accuracies had to exceed chance, where all settings collapsed.

  Returns:
    The largest such margin, and its number of examples; None if it is short.
  """
  margins = [(_LONG_MARGIN, 0)]
  for cell in (verdict.cell for verdict in study.verdicts):
    is_failed = cell.num_collapsed and cell.have_collapsed.all()
    metric = cell.criterion.metric if is_failed else ""
    if cell.grain(metric):
      examples = cell.examples_of(metric)
      margin = cell.margin(metric, examples.largest_class)
      margins.append((margin, examples.size))
  margin, size = max(margins)
  return (margin, size) if size else None


def _errors_of_examples(study: StudyCells) -> list[tuple[float, int]]:
  """Of each accuracy, its standard error on so many examples, and their number.

  With other examples of the same kind it would differ by about as much.
  """
  return [
    (verdict.cell.standard_error(study.metric, share), round(1 / grain))
    for verdict in study.verdicts
    if (grain := verdict.cell.grain(study.metric))
    and 0 < (share := verdict.value.estimate) < 1
  ]


def _falls(study: StudyCells) -> list[tuple[str, float, int]]:
  """Where a mean accuracy was clearly better before the end.

  Returns:
    A method and its condition, by how much it was better, and at which round.
  """
  if not is_accuracy(study.metric):
    return []
  falls = []
  for cell in (v.cell for v in study.verdicts if v.cell.report_runs):
    history = cell.report_runs.history
    means = history.values(study.metric).mean(axis=0)  # [E]
    best = int(np.argmax(np.nan_to_num(means)))
    if (fall := means[best] - means[-1]) > _LEAST_FALL:
      whose = _whose(study, {cell.method: [cell]})
      falls.append((whose, fall, history.rounds[best]))
  return falls


def _lengths(study: StudyCells) -> dict[str, dict[str, list[str]]]:
  """A quantity that differs -> its value -> the methods with that value.

  Simulated times are compared, if all runs have them: in the same time methods
  take as many rounds as fit. They count as the same up to a tenth, for a last
  round may not fit. If a run has no time, numbers of rounds are compared. Each
  condition is compared by itself.
  """
  by_kind: dict[str, dict[str, list[str]]] = {}
  for cells in study.groups:
    cells = [cell for cell in cells if cell.report_runs]
    if not cells:
      continue
    times = [cell.spent(TIME) for cell in cells]
    if all(time is not None for time in times):
      ends = [time[-1] for time in times]
      is_same = max(ends) <= 1.1 * min(ends)
      kind, lengths = "simulated times", [words.cost(TIME, end) for end in ends]
    else:
      lengths = [str(cell.report_runs.history.rounds[-1]) for cell in cells]
      kind, is_same = "numbers of rounds", len(set(lengths)) < 2
    if not is_same:
      by_length = by_kind.setdefault(kind, {})
      for cell, length in zip(cells, lengths, strict=True):
        methods = by_length.setdefault(length, [])
        if study.names[cell.method] not in methods:
          methods.append(study.names[cell.method])
  return by_kind


def _whose(study: StudyCells, cells: Mapping[str, Sequence[Cell]]) -> str:
  """The cells that a line is about, grouped by their conditions."""
  methods: dict[str, list[str]] = {}
  for method, method_cells in cells.items():
    where = _where(study, method_cells)
    methods.setdefault(where, []).append(study.names[method])
  parts = []
  for where, names in methods.items():
    is_all = len(names) == len(study.methods) > 2
    who = "every method" if is_all else words.names_or_count(names)
    parts.append(who + where)
  text = "; ".join(parts)
  return re.sub("^every", "Every", text)


def _where(study: StudyCells, cells: Sequence[Cell]) -> str:
  """The conditions under which a line is about a method."""
  number = len(cells)
  total = sum(cell.method == cells[0].method for cell in study.cells)
  if not cells[0].condition:
    return ""
  if number == total > 1:
    return " under all conditions"
  if number > 3:
    return f" under {number} of {total} conditions"
  labels = [condition_label(cell.condition) for cell in cells]
  return f" at {' and at '.join(labels)}"


def _unequal_seeds(study: StudyCells) -> list[tuple[set[int], set[int]]]:
  """The seeds of each two methods under a condition, if they differ."""
  seeds = (
    [set(cell.report_runs.seeds) for cell in cells if cell.report_runs]
    for cells in study.groups
  )
  pairs = itertools.chain(*(itertools.combinations(sets, 2) for sets in seeds))
  return [(first, second) for first, second in pairs if first != second]
