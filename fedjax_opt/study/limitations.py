"""What limits a comparison: edges of grids, divergence, seeds, budgets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

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
  cells: dict[str, dict[str, list[Cell]]] = {}
  for verdict in study.verdicts:
    cell = verdict.cell
    for text in [*_of_tuning(cell), *_of_report(verdict)]:
      cells.setdefault(text, {}).setdefault(cell.method, []).append(cell)
  return [
    *(f"{_whose(study, of)}: {text}" for text, of in cells.items()),
    *_of_seeds(study),
    *_of_power(study),
    *_of_runs(study),
    *_of_budgets(study),
    *_of_folders(study),
  ]


def _whose(study: JudgedStudy, cells: Mapping[str, Sequence[Cell]]) -> str:
  """Which cells a line is about: methods that have the same are together."""
  methods: dict[str, list[str]] = {}
  for method, of_method in cells.items():
    where = _where(study, of_method)
    methods.setdefault(where, []).append(names_of(study)[method])
  parts = [words.named(names) + where for where, names in methods.items()]
  return "; ".join(parts)


def _where(study: JudgedStudy, cells: Sequence[Cell]) -> str:
  """Under which of its conditions a line is about a method."""
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


def _of_tuning(cell: Cell) -> Iterator[str]:
  """What limits the choice of a cell's setting."""
  tuning = cell.tuning
  if tuning is None:
    return
  for edge in tuning.edges:
    yield (
      f"the best {name_of(edge.name)}, {exact(edge.value)}, is the {edge.side} "
      "that was tried; a better one may lie outside the grid."
    )
  if 0 < tuning.num_diverged < cell.budget:
    settings = words.counted(cell.budget, "setting")
    yield f"{tuning.num_diverged} of {settings} diverged in tuning."
  if lost := cell.num_collapsed:
    settings = words.counted(cell.budget, "setting")
    yield f"{lost} of {settings} collapsed in tuning."
  ties = 0 if cell.is_nested else num_near_ties(cell)
  if ties:
    yield (
      f"{ties} of the {cell.budget - 1} other settings {_were(ties)} not told "
      f"apart from the chosen one in tuning{_by(cell)}; with other seeds "
      "another may be chosen."
    )
  chosen = "the setting was chosen {}, so the values are somewhat too good."
  if not cell.is_fresh:
    yield chosen.format("with the seeds of the report")
  if "test_" in cell.criterion.metric:
    yield chosen.format(f"on test examples, by the {cell.criterion}")


def _by(cell: Cell) -> str:
  """By how many examples a setting was chosen, if that is known."""
  metric = cell.criterion.metric
  known, grain = cell.examples_of(metric), cell.grain(metric)
  if known is None:
    return ""
  points = f", of which one is {100 * grain:.2g} points" if grain else ""
  return f", by {known.size:,} examples{points}"


def _of_report(verdict: Verdict) -> Iterator[str]:
  """What limits the values of a cell, and its difference to the best."""
  if verdict.cell.measured is None:
    yield "every setting diverged."
  elif verdict.num_diverged:
    seeds = words.counted(verdict.num_seeds, "seed")
    yield f"{verdict.num_diverged} of {seeds} of the report diverged."
  has_interval = np.isfinite(verdict.behind.low)
  if verdict.verdict != TIED or verdict.num_seeds < 2 or has_interval:
    return
  if verdict.num_shared < 2:
    yield (
      "fewer than two seeds are those of the best, so the difference to it has "
      "no interval, and they are not told apart."
    )
  else:
    yield (
      f"the difference to the best is the same at all {verdict.num_shared} "
      "seeds that both have, so it has no interval, and p is of a sign test."
    )


def _of_seeds(study: JudgedStudy) -> Iterator[str]:
  """What few or different seeds mean."""
  least = min((v.num_seeds for v in study.verdicts if v.num_seeds), default=4)
  if least == 1:
    yield "With one seed there is no interval, and no verdict."
  elif least < 4:
    yield (
      f"With {least} seeds intervals are long: only large differences can be "
      "told from chance."
    )
  seeds = [  # Of each condition, those of each method.
    [set(c.measured.seeds) for c in study.under(each).values() if c.measured]
    for each in study.conditions
  ]
  others = [
    (one, two) for each in seeds for one in each for two in each if one != two
  ]
  what = (
    "The best is found over the seeds that all have, if these are two or more. "
    "A difference is over the seeds that its two methods share. The means in "
    "the tables are over all seeds of a method."
  )
  if not any(one & two for one, two in others):
    what = "Two methods without a common seed are not told apart."
  if others:
    yield f"The methods did not all run with the same seeds. {what}"


def _of_power(study: JudgedStudy) -> Iterator[str]:
  """How large a difference to the best this study can find."""
  pairs = [verdict.pair for verdict in study.verdicts if verdict.pair]
  found = [pair for pair in pairs if np.isfinite(pair.detectable)]
  if not found:
    return
  tests = sum(bool(np.isfinite(pair.p)) for pair in study.pairs)
  numbers = words.Numbers(study.metric)
  unit = " points" if numbers.unit else ""
  sizes = sorted(pair.detectable for pair in found)
  ends = dict.fromkeys(map(numbers.value, (sizes[0], sizes[-1])))
  yield (
    f"By {words.span(p.num_seeds for p in found)} seeds and "
    f"{words.counted(tests, 'comparison')} in all, the smallest difference to "
    "the best that is found with a power of 80 % is "
    f"{' to '.join(ends)}{unit}, by the spread that was "
    "measured."
  )


def _of_runs(study: JudgedStudy) -> Iterator[str]:
  """Which methods ran longer than others, and if divergence is not seen."""
  rounds: dict[int, dict[str, None]] = {}
  has_losses = True
  for cell in study.cells:
    if cell.measured is not None:
      history, name = cell.measured.history, names_of(study)[cell.method]
      rounds.setdefault(history.rounds[-1], {})[name] = None
      has_losses &= bool(set(LOSSES) & set(history.metrics))
  if len(rounds) > 1:
    each = (f"{words.listed(list(names))} {n}" for n, names in rounds.items())
    yield f"Not all ran for as many rounds: {', '.join(each)}."
  if not has_losses:
    yield (
      "No loss was measured, so a run that diverged cannot be told from "
      "others; its values are shown like any."
    )


def _of_budgets(study: JudgedStudy) -> Iterator[str]:
  """Which methods tried more settings than others."""
  budgets: dict[str, list[int]] = {}
  for cell in study.cells:
    budgets.setdefault(names_of(study)[cell.method], []).append(cell.budget)
  tuned = {name: n for name, n in budgets.items() if max(n) > 1}
  if len({number for n in tuned.values() for number in n}) > 1:
    each = ", ".join(f"{name} {words.span(n)}" for name, n in tuned.items())
    yield f"Tuning budgets differ: {each} settings."
  untuned = [name for name in budgets if name not in tuned]
  if not tuned:
    yield "Nothing was tuned: each method ran at a single setting."
  elif untuned:
    were = _were(len(untuned))
    yield f"{words.listed(untuned)} {were} not tuned: a single setting."


def _of_folders(study: JudgedStudy) -> Iterator[str]:
  """What its folders lack, and what its maker says."""
  bare = [cell.method for cell in study.cells if not cell.is_verified]
  if bare:
    names = [names_of(study)[method] for method in dict.fromkeys(bare)]
    yield (
      f"Runs of {words.listed(names)} are not verified: their folders have no "
      "digests, by which damage is noticed."
    )
  yield from study.notes
  missing = len(study.methods) * len(study.conditions) - len(study.cells)
  if missing:
    yield (
      f"{words.counted(missing, 'pair')} of a method and a condition did not "
      "run."
    )


def _were(number: int) -> str:
  return "was" if number == 1 else "were"
