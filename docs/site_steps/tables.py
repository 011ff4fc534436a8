"""Marks tables by what a phone does with them."""

import re

from docutils import nodes


def _for_phones(app, tree, name) -> None:
  """Marks tables by what a phone does with them.

  `stacked`: of sentences; its rows become blocks, whose cells have the names of
  their columns, which only a phone shows. `scrolled`: of numbers; its rows stay
  lines, and scroll beside their names.
  """
  for table in tree.findall(nodes.table):
    head = table.next_node(nodes.thead)
    rows = list(table.next_node(nodes.tbody))
    _mark_cells([*(head or ()), *rows])
    if head and has_sentences(rows):
      table["classes"].append("stacked")
      _name_cells(head[0], rows)
    else:
      of_numbers = any("number" in c["classes"] for c in rows[0][1:])
      is_wide = len(rows[0]) > 4 or (len(rows[0]) > 2 and of_numbers)
      table["classes"] += ["scrolled"] * is_wide
      if max(len(row[0].astext()) for row in rows) > 20:
        table["classes"].append("long-names")
      _keep_intervals(table)


def _mark_cells(rows: list[nodes.row]) -> None:
  """Marks short cells, and columns of numbers."""
  for column in zip(*rows, strict=True):
    texts = [_REMARK.sub("", cell.astext()) for cell in column[1:]]
    texts = [text for text in texts if text]
    is_number = bool(texts) and all(map(_NUMBER.fullmatch, texts))
    for cell in column:
      sides = ("text-left", "text-right")  # Whatever side Markdown says.
      cell["classes"] = [c for c in cell["classes"] if c not in sides]
      cell["classes"] += ["number"] * is_number
      cell["classes"] += ["short"] * (len(cell.astext()) <= _SHORT)


def _keep_intervals(table: nodes.table) -> None:
  """Intervals stay whole; a phone may put them below their number."""
  for cell in table.findall(nodes.entry):
    is_interval = re.search(r"[\d†] \(.* to .*\)", cell.astext())
    cell["classes"] += ["interval"] * bool(is_interval)
  for text in list(table.findall(nodes.Text)):
    new_text = text.replace(" to ", "\u00a0to\u00a0")
    text.parent.replace(text, nodes.Text(new_text))


def _name_cells(titles: nodes.row, rows: list[nodes.row]) -> None:
  """Gives cells the names of their columns, and marks empty ones."""
  for row in rows:
    for title, cell in zip(titles[1:], row[1:], strict=True):
      if not cell.astext():
        cell["classes"].append("empty")
      elif len(row) > 2 and title.astext() not in _PLAIN:
        label = nodes.inline("", f"{title.astext()}: ", classes=["column"])
        cell[0].insert(0, label)


_SHORT = 14  # Characters that stay on one line.
# Numbers, perhaps with intervals and marks, such as 1.2 (0.9 to 1.5)†, 3 of 8.
_NUMBER = re.compile(
  r"[<>≤≥~]?\s?[-+−(]?\d([-+−–\d.,;:()±%/<>~×†‡§✗\s]|to|of|in|e|x|\b[µm]?s\b"
  r"|[kMG]B|min|h)*"
)
# What a column of numbers has where there is none.
_REMARK = re.compile(r"[–-]|diverged.*|never.*|no limit")
# Titles of columns that a reader of a block does not need.
_PLAIN = ("", "what", "the pseudocode")


def has_sentences(rows: list[nodes.row]) -> bool:
  """Whether cells are too long for a table on a phone, in characters."""
  length = lambda cells: max((len(cell.astext()) for cell in cells), default=0)
  first = length(row[0] for row in rows)
  other_length = length(cell for row in rows for cell in row[1:])
  if len(rows[0]) == 2:
    return other_length > 100
  words = length(
    cell
    for row in rows
    for cell in row[1:]
    if not re.search(r"\d", cell.astext())
  )
  # Many columns are of numbers.
  return first > 60 or (len(rows[0]) < 7 and (other_length > 40 or words > 26))


def setup(app) -> None:
  app.connect("doctree-resolved", _for_phones)
