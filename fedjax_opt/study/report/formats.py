"""Tables as text: HTML, Markdown, LaTeX, CSV, and lines of a terminal.

The look of a format is in its template. Wherever a template shows a label, the
label is escaped by the format's own rules.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_opt.files import csv_files
from fedjax_opt.results.metric_names import COSTS, TIME
from fedjax_opt.results.text_tables import aligned
from fedjax_opt.study.cells import Cell
from fedjax_opt.study.report import templates
from fedjax_opt.study.report.study_tables import (
  Entry,
  ReportTable,
  axes_of,
  beside,
)
from fedjax_opt.study.study_cells import StudyCells
from fedjax_opt.study.tuning import num_near_ties
from fedjax_opt.study.verdicts import BEST, WORSE, Verdict
from fedjax_opt.study.words import all_digits

# In LaTeX: the most columns beside the names in a column of a paper, and the
# most rows on a page.
_MAX_COLUMNS, _MAX_ROWS = 3, 24
# Columns of intervals.
_MEAN = ("mean", "low", "high")
_DIFFERENCE = ("difference", "low", "high")
_BEHIND = ("behind", "behind_low", "behind_high")
_WINS = ("probability_best_is_better", "probability_low", "probability_high")


def markdown(table: ReportTable, title: str = "") -> str:
  """The table as GitHub's Markdown."""
  return templates.render("table.md", table=table, title=title)


def latex(table: ReportTable) -> str:
  """A table of methods and conditions as LaTeX, for booktabs and graphicx.

  Columns that do not fit into a column of a paper are set below the others. A
  table that is too long for a page becomes several tables.
  """
  columns, rows = np.arange(1, len(table.header)), np.arange(len(table.rows))
  parts = np.array_split(columns, -(-len(columns) // _MAX_COLUMNS))
  chunks = np.array_split(rows, -(-len(rows) // _MAX_ROWS))
  blocks = list(itertools.product(parts, chunks))
  is_long = len(parts) * len(rows) > _MAX_ROWS
  floats = [[block] for block in blocks] if is_long else [blocks]
  return templates.render("table.tex", table=table, floats=floats)


def markdown_rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  """A table in Markdown; its cells are Markdown already."""
  rule = "|---" * len(columns) + "|"
  head, *body = (f"| {' | '.join(row)} |" for row in (columns, *rows))
  return "\n".join([head, rule, *body])


def csv(records: Sequence[Mapping[str, Any]]) -> str:
  """Rows as CSV, numbers with all their digits.

  Text that a spreadsheet would take for a formula gets an apostrophe in front.
  """
  columns = dict.fromkeys(name for record in records for name in record)
  rows = (map(record.get, columns) for record in records)
  return csv_files.text_of(map(_in_csv, row) for row in (columns, *rows))


def _in_csv(value: Any) -> Any:
  if not isinstance(value, str):
    return value if value == value else None  # NaN is not itself.
  line = value.replace("\r", " ")  # A line break would end the row.
  is_formula = line.startswith(("=", "+", "-", "@", "\t"))
  return f"'{line}" if is_formula else line


def lines(table: ReportTable) -> list[str]:
  """The table as lines of a terminal; a star marks the best."""
  columns = [
    [name, *(_plain(row[i]) for row in table.rows)]
    for i, name in enumerate(table.header)
  ]
  notes = [note.replace("Bold:", "*") for note in table.notes]
  verdicts = {entry.verdict for row in table.rows for entry in row}
  notes += ["No mark: worse than the best."] * (WORSE in verdicts)
  rows = aligned(columns, [i for i, left in enumerate(table.left) if left])
  return [table.caption, "", *rows, "", *notes]


def _plain(entry: Entry) -> str:
  cell_text = f"{entry.text} ({entry.detail})" if entry.detail else entry.text
  if entry.verdict:
    cell_text += {BEST: " *"}.get(entry.verdict, f" {entry.mark or ' '}")
  return cell_text


# The tables for programs, with all digits; see `csv`.


def cell_records(study: StudyCells) -> list[dict[str, Any]]:
  """column -> value, of each cell: numbers with all their digits.

  Columns are the conditions; `method`; `chosen_<name>` of every hyperparameter;
  then columns that every study has. A missing value is None or NaN.
  """
  rows = []
  for verdict in study.verdicts:
    cell = verdict.cell
    row = _chosen(study, cell.chosen) | _tuning_of(cell)
    row |= {"metric": study.metric} | _measured_columns(study, verdict)
    row["min_effect"] = study.smallest_effect
    for part in ("validation", "test"):
      size, share = cell.sets.get(part, (None, None))
      row |= {f"{part}_examples": size, f"{part}_largest_class": share}
    rows.append(_row(study, cell, row))
  return rows


def _row(
  study: StudyCells, cell: Cell, other_columns: Mapping[str, Any]
) -> dict[str, Any]:
  """The columns of condition and method, and the others; no name twice."""
  row = {"method": cell.method, **other_columns}
  conditions = {name: cell.condition.get(name) for name in axes_of(study)}
  return beside(conditions, row, "condition_{}")


def _chosen(study: StudyCells, point: Mapping[str, Any]) -> dict[str, Any]:
  """The columns of the hyperparameters."""
  names = dict.fromkeys(n for cell in study.cells for n in cell.chosen)
  return {f"chosen_{name}": point.get(name) for name in names}


def seed_records(study: StudyCells) -> list[dict[str, Any]]:
  """column -> value, of each seed of the report of each cell."""
  rows = []
  for cell in (c for c in study.cells if c.report_runs is not None):
    history = cell.report_runs.history
    values = history.values(study.metric)
    for point, of_seed in zip(cell.report_runs.points, values, strict=True):
      row = {"seed": point["seed"], **_chosen(study, point)}
      row |= {"first_round": history.rounds[0], "first": of_seed[0]}
      rows.append(_row(study, cell, row | {"value": of_seed[-1]}))
  return rows


def pair_records(study: StudyCells) -> list[dict[str, Any]]:
  """column -> value, of every two methods under each condition."""
  rows = []
  for pair in study.pairs:
    row = {"other": pair.second.method}
    row |= dict(zip(_DIFFERENCE, pair.difference, strict=True))
    row |= {"sd": pair.sd, "seeds": pair.num_seeds, "p": pair.p}
    row |= {"p_holm": pair.adjusted, "detectable": pair.detectable}
    rows.append(_row(study, pair.first, row))
  return rows


def _tuning_of(cell: Cell) -> dict[str, Any]:
  """The columns on how a setting was chosen."""
  tuning = cell.tuning
  edges = tuning.edges if tuning else ()
  return {
    "tuning_settings": cell.budget,
    "tuning_seeds": tuning.num_seeds if tuning else 0,
    "diverged_settings": tuning.num_diverged if tuning else None,
    "collapsed_settings": cell.num_collapsed if tuning else None,
    "edges": "; ".join(
      f"{e.name}={all_digits(e.value)} ({e.side})" for e in edges
    ),
    "criterion": str(cell.criterion) if tuning else None,
    "tuning_score": tuning.score if tuning else None,
    "near_ties": num_near_ties(cell),
    "nested": cell.is_nested,
  }


def _measured_columns(study: StudyCells, verdict: Verdict) -> dict[str, Any]:
  """The columns on what was measured; time only in a study with a clock."""
  has_time = any(cell.spent(TIME) is not None for cell in study.cells)
  costs = [cost for cost in COSTS if has_time or cost != TIME]
  return {
    **dict(zip(_MEAN, verdict.value, strict=True)),
    "seeds": verdict.num_seeds,
    "diverged_seeds": verdict.num_diverged,
    "verdict": verdict.kind,
    "remark": verdict.remark,
    **dict(zip(_BEHIND, verdict.behind, strict=True)),
    "p_holm": verdict.pair.adjusted if verdict.pair else None,
    **dict(zip(_WINS, verdict.probability, strict=True)),
    **{f"{cost}_to_target": verdict.to_target.get(cost) for cost in costs},
    "seconds": verdict.cell.seconds,
  }
