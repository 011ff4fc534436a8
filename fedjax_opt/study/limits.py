"""What limits a comparison: edges of grids, divergence, seeds, budgets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedjax_opt.base import LOSSES
from fedjax_opt.results.names import name_of
from fedjax_opt.study import words
from fedjax_opt.study.cells import Cell, Cells
from fedjax_opt.study.verdicts import (
  TIED,
  Verdict,
  names_of,
  num_near_ties,
  seeds_of,
)
from fedjax_opt.study.words import condition_label, exact


def limits_of(study: Cells, found: Sequence[Verdict]) -> list[str]:
  """What limits the comparison: edges of grids, divergence, seeds, budgets."""
  cells: dict[tuple[str, str], list[Cell]] = {}
  for verdict in found:
    for text in _of_cell(verdict):
      key = (verdict.cell.method, text)
      cells.setdefault(key, []).append(verdict.cell)
  lines = [f"{_where(study, c)}: {text}" for (_, text), c in cells.items()]
  lines += [
    *_of_seeds(found),
    *_of_rounds(study, found),
    *_of_losses(found),
    *_of_budgets(study),
    *_of_digests(study),
  ]
  lines += study.notes
  missing = len(study.methods) * len(study.conditions) - len(found)
  if missing:
    lines.append(
      f"{words.counted(missing, 'pair')} of a method and a condition did not "
      "run."
    )
  return lines


def _where(study: Cells, cells: Sequence[Cell]) -> str:
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


def _of_cell(verdict: Verdict) -> list[str]:
  """What limits one cell."""
  cell = verdict.cell
  lines = [
    f"the best {name_of(edge.name)}, {exact(edge.value)}, is the {edge.side} "
    "that was tried; a better one may lie outside the grid."
    for edge in (cell.tuning.edges if cell.tuning else ())
  ]
  if cell.measured is None:
    lines.append("every setting diverged.")
  elif verdict.num_diverged:
    lines.append(
      f"{verdict.num_diverged} of "
      f"{words.counted(verdict.num_seeds, 'seed')} of the report diverged."
    )
  if cell.tuning is not None and 0 < cell.tuning.num_diverged < cell.budget:
    settings = words.counted(cell.budget, "setting")
    lines.append(
      f"{cell.tuning.num_diverged} of {settings} diverged in tuning."
    )
  ties = num_near_ties(cell)
  if ties:
    were = "was" if ties == 1 else "were"
    lines.append(
      f"{ties} of the {cell.budget - 1} other settings {were} not told apart "
      "from the chosen one in tuning; with other seeds another may be chosen."
    )
  if verdict.verdict == TIED and verdict.num_seeds > 1:
    lines += _without_interval(verdict)
  if not cell.is_fresh:
    lines.append(
      "its setting was chosen with the seeds of the report, so its values are "
      "somewhat too good."
    )
  if cell.tried is not None and "test_" in cell.criterion.metric:
    lines.append(
      f"its setting was chosen on test examples, by the {cell.criterion}, so "
      "its values are somewhat too good."
    )
  return lines


def _without_interval(verdict: Verdict) -> list[str]:
  """Why the difference to the best has no interval, if it has none."""
  if np.isfinite(verdict.behind.low):
    return []
  if verdict.num_shared < 2:
    return [
      "it shares fewer than two seeds with the best, so their difference has "
      "no interval and they are not told apart."
    ]
  return [
    f"its difference to the best is the same at all {verdict.num_shared} seeds "
    "that they share, so it has no interval."
  ]


def _of_seeds(found: Sequence[Verdict]) -> list[str]:
  """What few or different seeds mean."""
  lines = []
  if any(v.num_seeds == 1 for v in found):
    lines.append("With one seed there is no interval, and no verdict.")
  elif any(1 < v.num_seeds < 4 for v in found):
    fewest = min(v.num_seeds for v in found if v.num_seeds > 1)
    lines.append(
      f"With {fewest} seeds intervals are long: only large differences can be "
      "told from chance."
    )
  seeds: dict[str, list[set[int]]] = {}  # Of each condition.
  for v in found:
    if v.cell.measured is not None:
      seeds.setdefault(repr(v.cell.condition), []).append(set(seeds_of(v.cell)))
  if any(each != of_all[0] for of_all in seeds.values() for each in of_all):
    lines.append(_other_seeds(list(seeds.values())))
  return lines


def _other_seeds(seeds: Sequence[Sequence[set[int]]]) -> str:
  """What follows where methods ran with different seeds, by condition."""
  have_none = all(
    one == two or not one & two
    for of_all in seeds
    for one in of_all
    for two in of_all
  )
  what = "Two methods without a common seed are not told apart."
  if not have_none:
    what = (
      "The best is found over the seeds that all have, if these are two or "
      "more. A difference is over the seeds that its two methods share. The "
      "means in the tables are over all seeds of a method."
    )
  return f"The methods did not all run with the same seeds. {what}"


def _of_rounds(study: Cells, found: Sequence[Verdict]) -> list[str]:
  """Which methods ran longer than others."""
  rounds: dict[int, list[str]] = {}
  for verdict in found:
    if verdict.cell.measured is not None:
      last = verdict.cell.measured.history.rounds[-1]
      names = rounds.setdefault(last, [])
      name = names_of(study)[verdict.cell.method]
      if name not in names:
        names.append(name)
  if len(rounds) < 2:
    return []
  each = ", ".join(f"{words.listed(names)} {n}" for n, names in rounds.items())
  return [f"Not all ran for as many rounds: {each}."]


def _of_losses(found: Sequence[Verdict]) -> list[str]:
  """Says so if divergence cannot be seen."""
  measured = [v.cell.measured for v in found if v.cell.measured is not None]
  if all(set(LOSSES) & set(each.history.metrics) for each in measured):
    return []
  return [
    "No loss was measured, so a run that diverged cannot be told from others; "
    "its values are shown like any."
  ]


def _of_budgets(study: Cells) -> list[str]:
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


def _of_digests(study: Cells) -> list[str]:
  """Of which methods damage would not have been noticed."""
  bare = [cell.method for cell in study.cells if not cell.is_verified]
  names = [names_of(study)[method] for method in dict.fromkeys(bare)]
  if not names:
    return []
  return [
    f"Runs of {words.listed(names)} are not verified: their folders have no "
    "digests, by which damage is noticed."
  ]
