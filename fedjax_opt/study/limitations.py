"""What limits a comparison: edges of grids, divergence, seeds, budgets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedjax_opt.base import LOSSES
from fedjax_opt.results.names import name_of
from fedjax_opt.study import words
from fedjax_opt.study.cells import Cell
from fedjax_opt.study.verdicts import (
  TIED,
  JudgedStudy,
  Verdict,
  names_of,
  num_near_ties,
)
from fedjax_opt.study.words import condition_label, exact


def limits_of(study: JudgedStudy) -> list[str]:
  """What limits the comparison: edges of grids, divergence, seeds, budgets."""
  cells: dict[tuple[str, str], list[Cell]] = {}
  for verdict in study.verdicts:
    for text in [*_of_tuning(verdict.cell), *_of_report(verdict)]:
      key = (verdict.cell.method, text)
      cells.setdefault(key, []).append(verdict.cell)
  lines = [f"{_where(study, c)}: {text}" for (_, text), c in cells.items()]
  lines += [
    *_of_seeds(study),
    *_of_rounds(study),
    *_of_losses(study),
    *_of_budgets(study),
    *_of_digests(study),
    *study.notes,
  ]
  missing = len(study.methods) * len(study.conditions) - len(study.cells)
  if missing:
    lines.append(
      f"{words.counted(missing, 'pair')} of a method and a condition did not "
      "run."
    )
  return lines


def _where(study: JudgedStudy, cells: Sequence[Cell]) -> str:
  """Which cells of a method a line is about."""
  method = cells[0].method
  label, number = names_of(study)[method], len(cells)
  total = sum(cell.method == method for cell in study.cells)
  if not cells[0].condition:
    return label
  if number == total > 1:
    return f"{label} under all conditions"
  if number > 3:
    return f"{label} under {number} of {total} conditions"
  shown = [condition_label(cell.condition) for cell in cells]
  return f"{label} at {'; '.join(shown)}"


def _of_tuning(cell: Cell) -> list[str]:
  """What limits the choice of a cell's setting."""
  lines, tuning = [], cell.tuning
  if tuning is None:
    return lines
  lines = [
    f"the best {name_of(edge.name)}, {exact(edge.value)}, is the {edge.side} "
    "that was tried; a better one may lie outside the grid."
    for edge in tuning.edges
  ]
  if 0 < tuning.num_diverged < cell.budget:
    settings = words.counted(cell.budget, "setting")
    lines.append(f"{tuning.num_diverged} of {settings} diverged in tuning.")
  ties = num_near_ties(cell)
  if ties:
    were = "was" if ties == 1 else "were"
    lines.append(
      f"{ties} of the {cell.budget - 1} other settings {were} not told apart "
      "from the chosen one in tuning; with other seeds another may be chosen."
    )
  how = {
    "with the seeds of the report": not cell.is_fresh,
    f"on test examples, by the {cell.criterion}": (
      "test_" in cell.criterion.metric
    ),
  }
  return lines + [
    f"its setting was chosen {what}, so its values are somewhat too good."
    for what, applies in how.items()
    if applies
  ]


def _of_report(verdict: Verdict) -> list[str]:
  """What limits the values of a cell, and its difference to the best."""
  lines = []
  if verdict.cell.measured is None:
    lines.append("every setting diverged.")
  elif verdict.num_diverged:
    seeds = words.counted(verdict.num_seeds, "seed")
    lines.append(f"{verdict.num_diverged} of {seeds} of the report diverged.")
  has_interval = np.isfinite(verdict.behind.low)
  if verdict.verdict != TIED or verdict.num_seeds < 2 or has_interval:
    return lines
  if verdict.num_shared < 2:
    return [
      *lines,
      "it shares fewer than two seeds with the best, so their difference has "
      "no interval and they are not told apart.",
    ]
  return [
    *lines,
    f"its difference to the best is the same at all {verdict.num_shared} seeds "
    "that they share, so it has no interval.",
  ]


def _of_seeds(study: JudgedStudy) -> list[str]:
  """What few or different seeds mean."""
  lines, numbers = [], [v.num_seeds for v in study.verdicts]
  few = [number for number in numbers if 1 < number < 4]
  if 1 in numbers:
    lines.append("With one seed there is no interval, and no verdict.")
  elif few:
    lines.append(
      f"With {min(few)} seeds intervals are long: only large differences can "
      "be told from chance."
    )
  seeds = [  # Of each condition, those of each method.
    [set(c.measured.seeds) for c in study.under(each).values() if c.measured]
    for each in study.conditions
  ]
  pairs = [(one, two) for each in seeds for one in each for two in each]
  if all(one == two for one, two in pairs):
    return lines
  what = (
    "The best is found over the seeds that all have, if these are two or more. "
    "A difference is over the seeds that its two methods share. The means in "
    "the tables are over all seeds of a method."
  )
  if all(one == two or not one & two for one, two in pairs):
    what = "Two methods without a common seed are not told apart."
  lines.append(f"The methods did not all run with the same seeds. {what}")
  return lines


def _of_rounds(study: JudgedStudy) -> list[str]:
  """Which methods ran longer than others."""
  rounds: dict[int, dict[str, None]] = {}
  for cell in study.cells:
    if cell.measured is not None:
      names = rounds.setdefault(cell.measured.history.rounds[-1], {})
      names[names_of(study)[cell.method]] = None
  if len(rounds) < 2:
    return []
  each = (f"{words.listed(list(names))} {n}" for n, names in rounds.items())
  return [f"Not all ran for as many rounds: {', '.join(each)}."]


def _of_losses(study: JudgedStudy) -> list[str]:
  """Says so if divergence cannot be seen."""
  measured = [cell.measured for cell in study.cells if cell.measured]
  if all(set(LOSSES) & set(each.history.metrics) for each in measured):
    return []
  return [
    "No loss was measured, so a run that diverged cannot be told from others; "
    "its values are shown like any."
  ]


def _of_budgets(study: JudgedStudy) -> list[str]:
  """Which methods tried more settings than others."""
  lines, labels = [], names_of(study)
  budgets: dict[str, list[int]] = {}
  for cell in study.cells:
    budgets.setdefault(labels[cell.method], []).append(cell.budget)
  tuned = {name: n for name, n in budgets.items() if max(n) > 1}
  if len({number for n in tuned.values() for number in n}) > 1:
    each = ", ".join(f"{name} {words.span(n)}" for name, n in tuned.items())
    lines.append(f"Tuning budgets differ: {each} settings.")
  untuned = [name for name in budgets if name not in tuned]
  if not tuned:
    lines.append("Nothing was tuned: each method ran at a single setting.")
  elif untuned:
    were = "was" if len(untuned) == 1 else "were"
    lines.append(f"{words.listed(untuned)} {were} not tuned: a single setting.")
  return lines


def _of_digests(study: JudgedStudy) -> list[str]:
  """Of which methods damage would not have been noticed."""
  bare = [cell.method for cell in study.cells if not cell.is_verified]
  names = [names_of(study)[method] for method in dict.fromkeys(bare)]
  if not names:
    return []
  return [
    f"Runs of {words.listed(names)} are not verified: their folders have no "
    "digests, by which damage is noticed."
  ]
