"""Tables as text: HTML, Markdown, LaTeX, CSV, and lines of a terminal.

What a format looks like is in its template; labels are escaped by the format's
own rules wherever a template shows them.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_opt.results.tables import aligned
from fedjax_opt.study.plots.frame import check_module
from fedjax_opt.study.report import text
from fedjax_opt.study.report.study_tables import Entry, Table
from fedjax_opt.study.verdicts import BEST

# Of LaTeX: columns beside names in a column of a paper, and rows on a page.
_MAX_COLUMNS, _MAX_ROWS = 3, 24


def check_installed() -> None:
  """Checks that what reports are made with is there.

  Raises:
    ImportError: naming what is missing, and what to install.
  """
  check_module("pandas", "reports need pandas")


def markdown(table: Table, title: str = "") -> str:
  """The table as GitHub's Markdown."""
  return text.render("table.md", table=table, title=title)


def latex(table: Table) -> str:
  """A table of methods and conditions as LaTeX, for booktabs and graphicx.

  Columns for which a column of a paper is too narrow are below the others. What
  is too long for its page is several tables.
  """
  columns, rows = np.arange(1, len(table.header)), np.arange(len(table.rows))
  parts = np.array_split(columns, -(-len(columns) // _MAX_COLUMNS))
  chunks = np.array_split(rows, -(-len(rows) // _MAX_ROWS))
  blocks = list(itertools.product(parts, chunks))
  is_long = len(parts) * len(rows) > _MAX_ROWS
  floats = [[block] for block in blocks] if is_long else [blocks]
  return text.render("table.tex", table=table, floats=floats)


def markdown_rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  """A table of cells that are Markdown themselves."""
  rule = "|---" * len(columns) + "|"
  head, *body = (f"| {' | '.join(row)} |" for row in (columns, *rows))
  return "\n".join([head, rule, *body])


def csv(records: Sequence[Mapping[str, Any]]) -> str:
  """Rows as CSV, numbers with all their digits.

  What a spreadsheet would take for a formula begins with an apostrophe.
  """
  import pandas

  frame = pandas.DataFrame(
    [{_no_formula(n): _no_formula(v) for n, v in r.items()} for r in records],
    dtype=object,  # No whole number becomes a float.
  )
  return frame.to_csv(index=False, lineterminator="\n")


def _no_formula(value: Any) -> Any:
  if not isinstance(value, str):
    return value
  found = value.replace("\r", " ")  # Which would end a row.
  is_formula = found.startswith(("=", "+", "-", "@", "\t"))
  return f"'{found}" if is_formula else found


def lines(table: Table) -> list[str]:
  """The table as lines of a terminal; the best has a star."""
  columns = [
    [name, *(_plain(row[i]) for row in table.rows)]
    for i, name in enumerate(table.header)
  ]
  notes = [note.replace("Bold:", "*") for note in table.notes]
  shown = aligned(columns, range(table.num_names))
  return [table.caption, "", *shown, "", *notes]


def _plain(entry: Entry) -> str:
  found = f"{entry.text} ({entry.detail})" if entry.detail else entry.text
  if entry.verdict:
    found += {BEST: " *"}.get(entry.verdict, f" {entry.mark or ' '}")
  return found
