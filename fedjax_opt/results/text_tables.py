"""Tables as lines of a terminal, and in HTML for notebooks."""

import html
from collections.abc import Collection, Sequence
from typing import Any


def aligned(
  columns: Sequence[Sequence[str]], names: Collection[int]
) -> list[str]:
  """The rows of a table for a terminal.

  Args:
    columns: each is a head and a cell for each row.
    names: the columns that are flush left; numbers are flush right.
  """
  padded = []
  for i, column in enumerate(columns):
    width = max(map(len, column))
    pad = str.ljust if i in names else str.rjust
    padded.append([pad(cell, width) for cell in column])
  return ["  ".join(row).rstrip() for row in zip(*padded, strict=True)]


def html_table(
  title: str,
  head: Sequence[str],
  rows: Sequence[Sequence[Any]],
  below: str,
) -> str:
  """A table for notebooks, in HTML.

  Args:
    title: the line above it.
    head: of the columns.
    rows: a cell for each column; without any there is no table.
    below: the line below it, if there is one.
  """
  cell = lambda tag, text: f"<{tag}>{html.escape(str(text))}</{tag}>"
  lines = [
    f"<tr>{''.join(cell(tag, text) for text in cells)}</tr>"
    for tag, cells in (("th", head), *(("td", row) for row in rows))
  ]
  table = f"<table>{''.join(lines)}</table>" if rows else ""
  return cell("p", title) + table + (cell("p", below) if below else "")
