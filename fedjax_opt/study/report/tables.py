"""What the tables of a study say, before they become text.

`main_table` has a row for each method and a column for each condition or, of
many conditions, a row for each cell. All tables take their numbers from the
same verdicts; formats.py writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_opt.results.history import COSTS
from fedjax_opt.results.names import metric_name, name_of, sentence
from fedjax_opt.study import verdicts, words
from fedjax_opt.study.cells import Cell, Cells
from fedjax_opt.study.verdicts import (
  BEST,
  DIVERGED,
  TIED,
  Verdict,
  num_near_ties,
  spent,
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


Columns = Mapping[str, Callable[[Verdict], Entry]]  # Head -> entry of a row.


def axes_of(study: Cells) -> list[str]:
  """The names of what differs between conditions."""
  return list(dict.fromkeys(n for c in study.conditions for n in c))


def _of_cells(
  study: Cells, found: Sequence[Verdict], columns: Columns, caption: str = ""
) -> Table:
  """A table with a row for each cell, named by its condition and method.

  The caption of what is on the page alone is in the page's template.
  """
  axes, labels = axes_of(study), study.labels
  header = [*(sentence(name_of(name)) for name in axes), "Method", *columns]
  rows = [
    [
      *(Entry(exact(v.cell.condition.get(name))) for name in axes),
      Entry(labels[v.cell.method]),
      *(entry_of(v) for entry_of in columns.values()),
    ]
    for v in found
  ]
  return Table(caption, header, rows, len(axes) + 1)


# The values.


def main_table(study: Cells, found: Sequence[Verdict]) -> Table:
  """The metric of every cell, and what its tuning cost."""
  name, conditions = metric_name(study.metric), study.conditions
  caption = f"{name} after the last round{_over_seeds(found)}."
  numbers = verdicts.numbers_of(study, found)
  value = lambda v: _value(study, v, numbers)
  tuning = {
    "Settings tried": lambda *of: Entry(words.span(v.cell.budget for v in of)),
    "Diverged": _diverged,
  }
  is_wide = len(conditions) <= _MAX_CONDITIONS
  notes = _notes(study, found, is_wide and len(conditions) > 1)
  if not is_wide:
    table = _of_cells(study, found, {name: value} | tuning, caption)
    return table._replace(notes=notes)
  rows = []
  for method, label in study.labels.items():
    here = [v for v in found if v.cell.method == method]
    of = {str(dict(v.cell.condition)): value(v) for v in here}
    values = [of.get(str(c), Entry(words.NOTHING)) for c in conditions]
    rows.append([Entry(label), *values, *(f(*here) for f in tuning.values())])
  header = [condition_label(condition) or name for condition in conditions]
  return Table(caption, ["Method", *header, *tuning], rows, 1, notes)


def _over_seeds(found: Sequence[Verdict]) -> str:
  """Of which seeds the means are."""
  numbers = {v.num_seeds for v in found if v.num_seeds}
  if not numbers:
    return ""
  if numbers == {1}:
    return ", of one seed"
  return f": the mean over {words.span(numbers)} seeds, with its 95 % interval"


def _diverged(*here: Verdict) -> Entry:
  """Of the settings that were tried, how many diverged."""
  tunings = [v.cell.tuning for v in here if v.cell.tuning]
  lost = sum(each.num_diverged for each in tunings)
  tried = sum(each.budget for each in tunings)
  return Entry(f"{lost} of {tried}" if tried else words.NOTHING)


def _value(study: Cells, verdict: Verdict, numbers: words.Numbers) -> Entry:
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


def _notes(
  study: Cells, found: Sequence[Verdict], is_over_all: bool
) -> list[str]:
  marks = {v.verdict for v in found}
  notes = []
  if BEST in marks and verdicts.compared(study):
    notes.append("Bold: the best mean under a condition.")
  if TIED in marks:
    note = f"{DAGGER} not told apart from the best"
    if any(v.verdict == TIED and np.isfinite(v.behind.low) for v in found):
      note += ": the 95 % interval of the paired difference has 0 in it"
    notes.append(f"{note}.")
  if any(v.cell.tried for v in found):
    where = ", over all conditions" if is_over_all else ""
    notes.append(
      f"Diverged: of the settings that were tried{where}, those of which a "
      "seed diverged."
    )
  return notes


def differences(study: Cells, found: Sequence[Verdict]) -> Table | None:
  """By how much the others are behind the best; None if there is no other."""
  others = [v for v in found if v.verdict not in (BEST, DIVERGED)]
  if not others:
    return None
  numbers = verdicts.numbers_of(study, found)
  shares = words.Numbers("accuracy", 0)
  unit = " (points)" if numbers.unit else ""
  columns = {
    f"Behind the best{unit}": lambda v: Entry(*numbers.parts(v.behind, True)),
    "Best wins (%)": lambda v: Entry(*shares.parts(v.probability)),
    "Verdict": lambda v: Entry(v.verdict),
  }
  return _of_cells(study, others, columns)


# How settings were chosen, and what all of it cost.


def settings(study: Cells, found: Sequence[Verdict]) -> Table:
  """The chosen setting of every cell, and its score."""
  cells = [v.cell for v in found]
  names = list(dict.fromkeys(n for c in cells for n in c.tuned or c.chosen))
  is_wide = 0 < len(names) <= _MAX_HYPERPARAMETERS
  chosen: Columns = {"Chosen setting": lambda v: Entry(_setting(v.cell))}
  if is_wide:
    chosen = {
      sentence(name_of(n)): lambda v, n=n: Entry(_chosen(v.cell, n))
      for n in names
    }
  columns = chosen | {
    "Settings": lambda v: Entry(_budget(v.cell)),
    "Diverged": lambda v: Entry(
      str(v.cell.tuning.num_diverged) if v.cell.tuning else words.NOTHING
    ),
    "Score": lambda v: Entry(_score(v.cell)),
    "Near ties": lambda v: Entry(_near_ties(v.cell)),
  }
  table = _of_cells(study, found, columns)
  has_edges = any(cell.tuning and cell.tuning.edges for cell in cells)
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


def _budget(cell: Cell) -> str:
  if cell.tuning is None:
    return "1"
  seeds = words.counted(cell.tuning.num_seeds, "seed")
  return f"{cell.tuning.budget} × {seeds}"


def _score(cell: Cell) -> str:
  if cell.tuning is None:
    return words.NOTHING
  return words.Numbers(cell.criterion.metric).alone(cell.tuning.score)


def _near_ties(cell: Cell) -> str:
  ties = num_near_ties(cell)
  return words.NOTHING if ties is None else str(ties)


def costs(study: Cells, found: Sequence[Verdict]) -> tuple[Table | None, ...]:
  """What runs cost to the target, and to the end; None if nothing is known."""
  names = [
    cost for cost in COSTS if any(_total(v, cost) is not None for v in found)
  ]
  to_target: Columns = {
    _COST_NAMES[c]: lambda v, c=c: Entry(words.cost(c, v.to_target.get(c)))
    for c in names
  }
  in_all: Columns = {
    _COST_NAMES[c]: lambda v, c=c: Entry(words.cost(c, _total(v, c)))
    for c in names
  }
  if any(v.cell.seconds for v in found):
    in_all["Time"] = lambda v: Entry(words.seconds(v.cell.seconds))
  if study.target is None:
    to_target = {}
  return tuple(
    _of_cells(study, found, columns) if columns else None
    for columns in (to_target, in_all)
  )


def _total(verdict: Verdict, cost: str) -> float | None:
  of_rounds = spent(verdict.cell, cost)
  return None if of_rounds is None else of_rounds[-1]


def shared(study: Cells) -> Table | None:
  """What is the same in all cells, the versions and the device among it."""
  rows = [
    [Entry(sentence(name_of(str(name)))), Entry(words.about(value))]
    for name, value in study.about.items()
  ]
  return Table("", ["Setting", "Value"], rows, 2) if rows else None


# For programs.


def records(study: Cells, found: Sequence[Verdict]) -> list[dict[str, Any]]:
  """column -> value, of each cell: numbers with all their digits.

  Columns are the conditions; `method`; `chosen_<name>` of every hyperparameter;
  then what every study has. What there is no value of is None or NaN.
  """
  axes = axes_of(study)
  names = list(dict.fromkeys(n for v in found for n in v.cell.chosen))
  rows = []
  for verdict in found:
    cell = verdict.cell
    row = {"method": cell.method}
    row |= {f"chosen_{name}": cell.chosen.get(name) for name in names}
    row |= _fixed(study, verdict)
    conditions = {
      f"condition_{name}" if name in row else name: cell.condition.get(name)
      for name in axes
    }
    rows.append(conditions | row)
  return rows


def _fixed(study: Cells, verdict: Verdict) -> dict[str, Any]:
  """The columns that every study has."""
  cell, tuning = verdict.cell, verdict.cell.tuning
  edges = tuning.edges if tuning else ()
  row = {
    "tuning_settings": cell.budget,
    "tuning_seeds": tuning.num_seeds if tuning else 0,
    "diverged_settings": tuning.num_diverged if tuning else None,
    "edges": "; ".join(
      f"{edge.name}={exact(edge.value)} ({edge.side})" for edge in edges
    ),
    "criterion": str(cell.criterion) if tuning else None,
    "tuning_score": tuning.score if tuning else None,
    "near_ties": num_near_ties(cell),
    "metric": study.metric,
  }
  row |= zip(("mean", "low", "high"), verdict.value, strict=True)
  row |= {
    "seeds": verdict.num_seeds,
    "diverged_seeds": verdict.num_diverged,
    "verdict": verdict.verdict,
  }
  behind = ("behind", "behind_low", "behind_high")
  wins = ("probability_best_is_better", "probability_low", "probability_high")
  row |= zip(behind, verdict.behind, strict=True)
  row |= zip(wins, verdict.probability, strict=True)
  row |= {f"{cost}_to_target": verdict.to_target.get(cost) for cost in COSTS}
  return row | {"seconds": cell.seconds}
