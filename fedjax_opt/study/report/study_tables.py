"""What the tables of a study say, before they become text.

`main_table` has a row for each method and a column for each condition or, of
many conditions, a row for each cell. All tables take their numbers from the
verdicts of the study; formats.py writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.results.history import COSTS
from fedjax_opt.results.names import metric_name, name_of, sentence
from fedjax_opt.study import verdicts, words
from fedjax_opt.study.cells import Cell
from fedjax_opt.study.verdicts import (
  BEST,
  DIVERGED,
  TIED,
  JudgedStudy,
  Verdict,
  num_near_ties,
)
from fedjax_opt.study.words import condition_label, exact

# Up to so many conditions, or tuned hyperparameters, have a column each.
_MAX_CONDITIONS, _MAX_HYPERPARAMETERS = 6, 4
DAGGER = "†"
_COST_NAMES = {
  "rounds": "Rounds",
  "bytes": "Exchanged",
  "gradient_evaluations": "Gradient evaluations",
}


class Entry(NamedTuple):
  """What one place of a table says.

  Attributes:
    text: such as a mean, or a name.
    detail: what follows in smaller type, such as its interval.
    verdict: of `verdicts`; '' for what is no value of the metric.
  """

  text: str
  detail: str = ""
  verdict: str = ""

  @property
  def mark(self) -> str:
    """A dagger if it is not told apart from the best."""
    return DAGGER if self.verdict == TIED else ""


class Table(NamedTuple):
  """A table for people.

  Attributes:
    caption: what is in it.
    header: name of each column.
    rows: each as long as the header.
    num_names: columns that name the row; the others are numbers.
    notes: what its marks mean.
  """

  caption: str
  header: list[str]
  rows: list[list[Entry]]
  num_names: int
  notes: Sequence[str] = ()


# Head -> what a row says there: an entry, or its text alone.
Columns = Mapping[str, Callable[[Verdict], Entry | str]]


def axes_of(study: JudgedStudy) -> list[str]:
  """The names of what differs between conditions."""
  return list(dict.fromkeys(n for c in study.conditions for n in c))


def _of_cells(
  study: JudgedStudy,
  columns: Columns,
  rows: Sequence[Verdict] | None = None,
  caption: str = "",
) -> Table:
  """A table with a row for each cell, named by its condition and method.

  The caption of what is on the page alone is in the page's template.
  """
  names: Columns = {
    sentence(name_of(name)): lambda v, name=name: exact(
      v.cell.condition.get(name)
    )
    for name in axes_of(study)
  }
  names |= {"Method": lambda v: study.labels[v.cell.method]}
  lines = [
    [_entry(text(v)) for text in (*names.values(), *columns.values())]
    for v in (study.verdicts if rows is None else rows)
  ]
  return Table(caption, [*names, *columns], lines, len(names))


def _entry(said: Entry | str) -> Entry:
  return said if isinstance(said, Entry) else Entry(said)


# The values.


def main_table(study: JudgedStudy) -> Table:
  """The metric of every cell, and what its tuning cost."""
  name, conditions = metric_name(study.metric), study.conditions
  caption = f"{name} after the last round{_over_seeds(study)}."
  is_wide = len(conditions) <= _MAX_CONDITIONS
  notes = _notes(study, is_wide and len(conditions) > 1)
  numbers = verdicts.numbers_of(study)
  value = lambda v: _value(study, v, numbers)
  tuning = {
    "Settings tried": lambda *of: Entry(words.span(v.cell.budget for v in of)),
    "Diverged": _diverged,
  }
  if not is_wide:
    table = _of_cells(study, {name: value} | tuning, caption=caption)
    return table._replace(notes=notes)
  rows = []
  for method, label in study.labels.items():
    here = [v for v in study.verdicts if v.cell.method == method]
    of = {str(dict(v.cell.condition)): value(v) for v in here}
    values = [of.get(str(c), Entry(words.NOTHING)) for c in conditions]
    rows.append([Entry(label), *values, *(f(*here) for f in tuning.values())])
  header = [condition_label(condition) or name for condition in conditions]
  return Table(caption, ["Method", *header, *tuning], rows, 1, notes)


def _over_seeds(study: JudgedStudy) -> str:
  """Of which seeds the means are."""
  numbers = {v.num_seeds for v in study.verdicts if v.num_seeds}
  if numbers <= {1}:
    return ", of one seed" if numbers else ""
  return f": the mean over {words.span(numbers)} seeds, with its 95 % interval"


def _diverged(*here: Verdict) -> Entry:
  """Of the settings that were tried, how many diverged."""
  tunings = [v.cell.tuning for v in here if v.cell.tuning]
  lost = sum(each.num_diverged for each in tunings)
  tried = sum(each.budget for each in tunings)
  return Entry(f"{lost} of {tried}" if tried else words.NOTHING)


def _value(
  study: JudgedStudy, verdict: Verdict, numbers: words.Numbers
) -> Entry:
  if verdict.verdict == DIVERGED:
    seeds = words.counted(verdict.num_seeds, "seed")
    lost = f"{verdict.num_diverged} of {seeds}"
    every = verdict.cell.measured is None
    return Entry("diverged", "every setting" if every else lost, DIVERGED)
  # There is no best of one.
  is_alone = len(study.under(verdict.cell.condition)) == 1
  return Entry(
    *numbers.parts(verdict.value), "" if is_alone else verdict.verdict
  )


def _notes(study: JudgedStudy, is_over_all: bool) -> list[str]:
  """What the marks of the main table mean."""
  tied = [v for v in study.verdicts if v.verdict == TIED]
  has_best = any(v.verdict == BEST for v in study.verdicts)
  notes = []
  if has_best and verdicts.compared(study):
    notes.append("Bold: the best mean under a condition.")
  if tied:
    has_interval = any(np.isfinite(v.behind.low) for v in tied)
    why = ": the 95 % interval of the paired difference has 0 in it"
    notes.append(f"{DAGGER} not told apart from the best{why * has_interval}.")
  if any(cell.tried for cell in study.cells):
    where = ", over all conditions" * is_over_all
    notes.append(
      f"Diverged: of the settings that were tried{where}, those of which a "
      "seed diverged."
    )
  return notes


def differences(study: JudgedStudy) -> Table | None:
  """By how much the others are behind the best; None if there is no other."""
  others = [v for v in study.verdicts if v.verdict not in (BEST, DIVERGED)]
  if not others:
    return None
  numbers = verdicts.numbers_of(study)
  shares = words.Numbers("accuracy", 0)
  unit = " (points)" if numbers.unit else ""
  columns = {
    f"Behind the best{unit}": lambda v: Entry(*numbers.parts(v.behind, True)),
    "Best wins (%)": lambda v: Entry(*shares.parts(v.probability)),
    "Verdict": lambda v: v.verdict,
  }
  return _of_cells(study, columns, others)


# How settings were chosen, and what all of it cost.


def settings(study: JudgedStudy) -> Table:
  """The chosen setting of every cell, and its score."""
  names = list(
    dict.fromkeys(n for c in study.cells for n in c.tuned or c.chosen)
  )
  is_wide = 0 < len(names) <= _MAX_HYPERPARAMETERS
  chosen: Columns = {"Chosen setting": lambda v: _setting(v.cell)}
  if is_wide:
    chosen = {
      sentence(name_of(name)): lambda v, name=name: _chosen(v.cell, name)
      for name in names
    }
  table = _of_cells(study, chosen | _TUNING)
  has_edges = any(cell.tuning and cell.tuning.edges for cell in study.cells)
  return table._replace(
    num_names=table.num_names + (not is_wide),
    notes=["‡ at the edge of the values that were tried."] * has_edges,
  )


def _chosen(cell: Cell, name: str) -> str:
  """A value of the chosen setting, marked at the edge of its grid."""
  if name not in cell.chosen:
    return words.NOTHING
  edges = cell.tuning.edges if cell.tuning else ()
  return exact(cell.chosen[name]) + "‡" * any(e.name == name for e in edges)


def _setting(cell: Cell) -> str:
  """The chosen setting in one place."""
  names = (cell.tuned or cell.chosen) if cell.chosen else ()
  parts = [f"{name_of(name)} {_chosen(cell, name)}" for name in names]
  return ", ".join(parts) or words.NOTHING


def _if_tuned(
  text: Callable[[Cell], str], otherwise: str = words.NOTHING
) -> Callable[[Verdict], str]:
  """A column of what is known of cells whose setting was chosen."""
  return lambda v: text(v.cell) if v.cell.tuning else otherwise


_TUNING: Columns = {
  "Settings": _if_tuned(
    lambda cell: (
      f"{cell.budget} × {words.counted(cell.tuning.num_seeds, 'seed')}"
    ),
    "1",
  ),
  "Diverged": _if_tuned(lambda cell: str(cell.tuning.num_diverged)),
  "Score": _if_tuned(
    lambda cell: words.Numbers(cell.criterion.metric).alone(cell.tuning.score)
  ),
  "Near ties": lambda v: exact(num_near_ties(v.cell)),
}


def costs(study: JudgedStudy) -> tuple[Table | None, Table | None]:
  """What runs cost to the target, and to the end; None if nothing is known."""
  spent = {
    cost: [cell.spent(cost) for cell in study.cells] for cost in _COST_NAMES
  }
  known = [c for c, of in spent.items() if any(x is not None for x in of)]
  to_target: Columns = {
    _COST_NAMES[c]: lambda v, c=c: words.cost(c, v.to_target.get(c))
    for c in known
  }
  in_all: Columns = {
    _COST_NAMES[c]: lambda v, c=c: words.cost(c, _total(v.cell, c))
    for c in known
  }
  if any(cell.seconds for cell in study.cells):
    in_all["Time"] = lambda v: words.seconds(v.cell.seconds)
  return (
    _of_cells(study, to_target) if known and study.target is not None else None,
    _of_cells(study, in_all) if in_all else None,
  )


def _total(cell: Cell, cost: str) -> float | None:
  of_rounds = cell.spent(cost)
  return None if of_rounds is None else of_rounds[-1]


def shared(study: JudgedStudy) -> Table | None:
  """What is the same in all cells, the versions and the device among it."""
  rows = [
    [Entry(sentence(name_of(str(name)))), Entry(words.about(value))]
    for name, value in study.about.items()
  ]
  return Table("", ["Setting", "Value"], rows, 2) if rows else None


# For programs.


def records(study: JudgedStudy) -> list[dict[str, Any]]:
  """column -> value, of each cell: numbers with all their digits.

  Columns are the conditions; `method`; `chosen_<name>` of every hyperparameter;
  then what every study has. What there is no value of is None or NaN.
  """
  names = list(dict.fromkeys(n for c in study.cells for n in c.chosen))
  rows = []
  for verdict in study.verdicts:
    cell = verdict.cell
    row = {"method": cell.method}
    row |= {f"chosen_{name}": cell.chosen.get(name) for name in names}
    row |= _tuning_of(cell) | {"metric": study.metric} | _said_of(verdict)
    conditions = {
      f"condition_{name}" if name in row else name: cell.condition.get(name)
      for name in axes_of(study)
    }
    rows.append(conditions | row)
  return rows


def _tuning_of(cell: Cell) -> dict[str, Any]:
  """The columns on how a setting was chosen."""
  tuning = cell.tuning
  edges = tuning.edges if tuning else ()
  return {
    "tuning_settings": cell.budget,
    "tuning_seeds": tuning.num_seeds if tuning else 0,
    "diverged_settings": tuning.num_diverged if tuning else None,
    "edges": "; ".join(f"{e.name}={exact(e.value)} ({e.side})" for e in edges),
    "criterion": str(cell.criterion) if tuning else None,
    "tuning_score": tuning.score if tuning else None,
    "near_ties": num_near_ties(cell),
  }


def _said_of(verdict: Verdict) -> dict[str, Any]:
  """The columns on what was measured."""
  mean, behind, wins = verdict.value, verdict.behind, verdict.probability
  return {
    "mean": mean.estimate,
    "low": mean.low,
    "high": mean.high,
    "seeds": verdict.num_seeds,
    "diverged_seeds": verdict.num_diverged,
    "verdict": verdict.verdict,
    "behind": behind.estimate,
    "behind_low": behind.low,
    "behind_high": behind.high,
    "probability_best_is_better": wins.estimate,
    "probability_low": wins.low,
    "probability_high": wins.high,
    **{f"{cost}_to_target": verdict.to_target.get(cost) for cost in COSTS},
    "seconds": verdict.cell.seconds,
  }
