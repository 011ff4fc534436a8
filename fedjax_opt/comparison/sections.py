"""Sections of the page: how settings were chosen, costs, commands, settings."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_opt.comparison import page, words
from fedjax_opt.comparison.cells import Cell, Study, condition_label, exact
from fedjax_opt.comparison.tables import Entry, Table, axes_of
from fedjax_opt.comparison.tuning_pictures import score_words
from fedjax_opt.comparison.verdicts import Verdict, spent
from fedjax_opt.results.history import COSTS
from fedjax_opt.results.names import name_of, sentence
from fedjax_opt.results.statistics import Interval

_COST_NAMES = {
  "rounds": "Rounds",
  "bytes": "Exchanged",
  "gradient_evaluations": "Gradient evaluations",
}


# Up to so many hyperparameters have a column each.
_MAX_COLUMNS = 4


def _names(study: Study, cell: Cell) -> list[Entry]:
  """The columns that name a cell."""
  values = [cell.condition.get(name) for name in axes_of(study)]
  labels = study.labels
  return [*(Entry(exact(v)) for v in values), Entry(labels[cell.method])]


def _header(study: Study) -> list[str]:
  return [*(sentence(name_of(name)) for name in axes_of(study)), "Method"]


def _in_order(study: Study) -> list[Cell]:
  """The cells, condition after condition."""
  return [c for each in study.conditions for c in study.under(each).values()]


def tuning(study: Study) -> list[str]:
  """How settings were chosen: criterion, budget, chosen setting, edges."""
  cells = _in_order(study)
  parts = ["<h2>How settings were chosen</h2>"]
  tuned = [cell for cell in cells if cell.tried is not None]
  if not tuned:
    text = "Nothing was tuned: each method ran with a single setting."
    return [*parts, page.paragraph(text), *_settings(study, cells)]
  criteria = list(dict.fromkeys(cell.criterion for cell in tuned))
  for criterion in criteria:
    way = "highest" if criterion.direction == "max" else "lowest"
    text = (
      f"The setting with the {way} mean, over the seeds of tuning, of the "
      f"{score_words(criterion)} was chosen, of those with the fewest diverged "
      "seeds."
    )
    if "validation_" in criterion.metric:
      text += " No client has the validation examples."
    if all(cell.is_fresh for cell in tuned):
      text += (
        " It then ran again with seeds that tuning had not used: those of the "
        "report."
      )
    parts.append(page.paragraph(text))
  return parts + _settings(study, cells)


def _settings(study: Study, cells: Sequence[Cell]) -> list[str]:
  names = list(dict.fromkeys(n for c in cells for n in c.tuned or c.chosen))
  are_columns = 0 < len(names) <= _MAX_COLUMNS
  header = [sentence(name_of(name)) for name in names]
  rows = []
  for cell in cells:
    chosen = [_chosen(cell, name) for name in names]
    if not are_columns:
      chosen = [Entry(_setting(cell))]
    rows.append([*_names(study, cell), *chosen, *_budget(cell)])
  num_names = len(axes_of(study)) + 1 + (not are_columns)
  header = [
    *_header(study),
    *(header if are_columns else ["Chosen setting"]),
    "Settings",
    "Diverged",
    "Score",
  ]
  caption = (
    "The chosen settings. Settings: how many were tried, times the seeds of "
    "each. Diverged: settings of which a seed diverged. Score: that of the "
    "chosen setting, the mean over the seeds of tuning."
  )
  notes = []
  if any(cell.tuning and cell.tuning.edges for cell in cells):
    notes.append("‡ at the edge of the values that were tried.")
  return [page.table(Table(caption, header, rows, num_names, notes))]


def _chosen(cell: Cell, name: str) -> Entry:
  """A value of the chosen setting, marked at the edge of its grid."""
  if name not in cell.chosen:
    return _NONE
  edges = cell.tuning.edges if cell.tuning else ()
  mark = "‡" * any(edge.name == name for edge in edges)
  return Entry(exact(cell.chosen[name]) + mark)


def _setting(cell: Cell) -> str:
  """The chosen setting in one place."""
  names = cell.tuned or cell.chosen
  parts = [f"{name_of(n)} {_chosen(cell, n).text}" for n in names]
  return ", ".join(parts) if cell.chosen and parts else words.NOTHING


def _budget(cell: Cell) -> list[Entry]:
  """What was tried, and the score of what was chosen."""
  tuning = cell.tuning
  if tuning is None:
    return [Entry("1"), _NONE, _NONE]
  numbers = words.Numbers(cell.criterion.metric)
  return [
    Entry(f"{tuning.budget} × {words.counted(tuning.num_seeds, 'seed')}"),
    Entry(str(tuning.num_diverged)),
    Entry(numbers.whole(Interval(tuning.score, np.nan, np.nan))),
  ]


_NONE = Entry(words.NOTHING)


def costs(study: Study, found: Sequence[Verdict]) -> list[str]:
  """What runs cost: to the target, if there is one, and to the end."""
  measured = [v for v in found if v.cell.measured is not None]
  names = [
    cost
    for cost in COSTS
    if any(spent(v.cell, cost) is not None for v in measured)
  ]
  has_seconds = any(v.cell.seconds for v in found)
  if not names and not has_seconds:
    return []
  parts = ["<h2>Costs</h2>"]
  if study.target is not None:
    parts.append(_to_target(study, found, names))
  rows = []
  for verdict in found:
    cell = verdict.cell
    row = [*_names(study, cell)]
    for cost in names:
      ends = spent(cell, cost)
      row.append(Entry(words.cost(cost, None if ends is None else ends[-1])))
    row += [Entry(words.seconds(cell.seconds))] if has_seconds else []
    rows.append(row)
  header = [*_header(study), *(_COST_NAMES[cost] for cost in names)]
  header += ["Time"] if has_seconds else []
  caption = (
    "A whole run with the chosen setting. Bytes (down and up) and gradient "
    "evaluations (in examples) are those of one client of the cohort, on "
    "average; time is that of all rounds and of compilation, tuning included."
  )
  num_names = len(axes_of(study)) + 1
  parts.append(page.table(Table(caption, header, rows, num_names, [])))
  return parts


def _to_target(
  study: Study, found: Sequence[Verdict], names: Sequence[str]
) -> str:
  value = words.Numbers(study.metric).whole(
    Interval(study.target, np.nan, np.nan)
  )
  what = words.metric_words(study.metric)
  way = "at least" if study.is_larger_better else "at most"
  rows = [
    [
      *_names(study, v.cell),
      *(Entry(words.cost(cost, v.to_target.get(cost))) for cost in names),
    ]
    for v in found
  ]
  header = [*_header(study), *(_COST_NAMES[cost] for cost in names)]
  caption = (
    f"To a {what} of {way} {value}: the mean over the seeds of the report of "
    "what was spent at the first evaluated round that had it. "
    f"{words.NOTHING}: a seed never had it."
  )
  table = Table(caption, header, rows, len(axes_of(study)) + 1, [])
  return page.table(table)


def commands(study: Study) -> list[str]:
  """The exact commands, of the study and of each cell."""
  cells = [cell for cell in study.cells if cell.commands]
  if not cells and not study.command:
    return []
  parts = ["<h2>Commands</h2>"]
  if study.command:
    parts += ["<p>The whole study:</p>", page.code(study.command)]
  for cell in cells:
    where = condition_label(cell.condition)
    label = study.labels[cell.method]
    title = f"{label}, {where}" if where else label
    parts.append(page.details(title, "\n\n".join(cell.commands)))
  return parts


def shared(study: Study) -> list[str]:
  """What is the same in all cells, the versions and the device among it."""
  about = {name: value for name, value in study.about.items()}
  if not about:
    return []
  rows = [
    [Entry(sentence(name_of(str(name)))), Entry(_about_value(value))]
    for name, value in about.items()
  ]
  caption = "What all methods and conditions share."
  table = Table(caption, ["Setting", "Value"], rows, 2, [])
  return ["<h2>Shared settings</h2>", page.table(table)]


def _about_value(value: Any) -> str:
  if isinstance(value, Mapping):
    return ", ".join(f"{n} {_about_value(v)}" for n, v in value.items())
  if isinstance(value, list | tuple | set | frozenset):
    return ", ".join(map(_about_value, value))
  return value if isinstance(value, str) else exact(value)
