"""Tables for notebooks, in HTML."""

import html
from collections.abc import Iterable
from typing import Any


def cell(tag: str, text: Any) -> str:
  """A text in a tag: "th", "td", "p"."""
  return f"<{tag}>{html.escape(str(text))}</{tag}>"


def row(tag: str, cells: Iterable[Any]) -> str:
  """A row of cells of one tag."""
  return f"<tr>{''.join(cell(tag, each) for each in cells)}</tr>"
