"""Tables as text: HTML, Markdown, LaTeX, CSV, and lines of a terminal.

What a format looks like is in its template; labels are escaped by the format's
own rules wherever a template shows them.
"""

import functools
import itertools
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_opt.results import names
from fedjax_opt.results.tables import aligned
from fedjax_opt.study import findings, verdicts, words
from fedjax_opt.study.plots.frame import check_module
from fedjax_opt.study.report import study_tables
from fedjax_opt.study.report.study_tables import Entry, Table
from fedjax_opt.study.verdicts import BEST

# Of LaTeX: columns beside names in a column of a paper, and rows on a page.
_MAX_COLUMNS, _MAX_ROWS = 3, 24
# Modules whose functions templates call.
_MODULES = {
  "findings": findings,
  "names": names,
  "tables": study_tables,
  "verdicts": verdicts,
  "words": words,
}


def check_installed() -> None:
  """Checks that what reports are made with is there.

  Raises:
    ImportError: naming what is missing, and what to install.
  """
  check_module("jinja2", "reports need Jinja2")
  check_module("pandas", "reports need pandas")


# Markdown, LaTeX, HTML and captions: templates.


@functools.cache
def _template(name: str) -> Any:
  """A template, which escapes whatever it shows as its format needs it."""
  import jinja2

  options: dict[str, Any] = {}
  kind = name.rpartition(".")[2]
  if kind in _ESCAPES:
    options = {
      # Braces are LaTeX's own.
      "variable_start_string": "<<",
      "variable_end_string": ">>",
      "block_start_string": "<%",
      "block_end_string": "%>",
      "comment_start_string": "<#",
      "comment_end_string": "#>",
      # What the filter `safe` has marked is in the format already.
      "finalize": lambda value: (
        value if hasattr(value, "__html__") else _ESCAPES[kind](str(value))
      ),
    }
  made = jinja2.Environment(
    loader=jinja2.PackageLoader("fedjax_opt.study.report"),
    autoescape=kind == "html",
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    **options,
  )
  # A line does not break at these signs.
  made.filters["prose"] = lambda text: text.replace(" %", "\u00a0%")
  made.filters["head"] = lambda text: text.replace(" = ", "\u00a0=\u00a0")
  made.globals.update(_MODULES)
  return made.get_template(name)


def html(name: str, **shown: Any) -> str:
  """What a template of HTML makes of what it is given."""
  return _template(name).render(shown)


def caption(kind: str, facts: Mapping[str, Any]) -> tuple[str, str]:
  """The question that a picture answers, and its caption."""
  made = _template("captions.txt").make_module({"kind": kind, **facts})
  question, text = (" ".join(x.split()) for x in (made.question, str(made)))
  return question, text


def markdown(table: Table, title: str = "") -> str:
  """The table as GitHub's Markdown."""
  return _template("table.md").render(table=table, title=title)


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
  return _template("table.tex").render(table=table, floats=floats)


def escape_markdown(text: str) -> str:
  """Text for Markdown: what would be markup or HTML is escaped."""
  text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
  return re.sub(r"([\\`*_\[\]|~#$])", r"\\\1", text)


def markdown_rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  """A table of cells that are Markdown themselves."""
  rule = "|---" * len(columns) + "|"
  head, *body = (f"| {' | '.join(row)} |" for row in (columns, *rows))
  return "\n".join([head, rule, *body])


_SYMBOLS = {
  "∞": "infty", "±": "pm", "×": "times", "·": "cdot", "≤": "leq", "≥": "geq",
  "→": "to", "←": "leftarrow", "≈": "approx", "≠": "neq", "‡": "ddagger",
  "†": "dagger", "∇": "nabla", "∈": "in", "√": "surd",
}  # fmt: skip
_LATEX = {
  **{symbol: f"$\\{name}$" for symbol, name in _SYMBOLS.items()},
  **{"−": "$-$", "–": "--", "—": "---", "…": "\\ldots{}", "\u00a0": "~"},
  **{"\\": "\\textbackslash{}", "~": "\\textasciitilde{}"},
  **{"§": "\\S{}"},
  **{"^": "\\textasciicircum{}", "<": "$<$", ">": "$>$", "|": "$|$"},
  **{'"': "''", "[": "{[}", "]": "{]}", "*": "{*}"},
  **{each: f"\\{each}" for each in "&%$#_{}"},
}  # fmt: skip
# Those that LaTeX has; the others look like Latin ones.
_GREEK = "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ"


def escape_latex(text: str) -> str:
  """Text for LaTeX: Greek letters become symbols, its own signs are escaped."""
  text = re.sub(r"[ \t\r\n\f\v]+", " ", text).strip()
  return "".join(map(_character_in_latex, text))


def _character_in_latex(character: str) -> str:
  if character in _LATEX:
    return _LATEX[character]
  kind, _, code = unicodedata.decomposition(character).partition(" ")
  if kind in ("<sub>", "<super>"):
    sign = "_" if kind == "<sub>" else "^"
    return f"${sign}{chr(int(code, 16))}$"
  character = unicodedata.normalize("NFKC", character)  # µ is a sign, μ is mu.
  if character not in _GREEK:
    return character
  name = unicodedata.name(character).split()[-1].replace("LAMDA", "LAMBDA")
  return f"$\\{name.capitalize() if character.isupper() else name.lower()}$"


_ESCAPES = {"md": escape_markdown, "tex": escape_latex}


# CSV.


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
  text = value.replace("\r", " ")  # Which would end a row.
  return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t")) else text


# For a terminal.


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
  text = f"{entry.text} ({entry.detail})" if entry.detail else entry.text
  if entry.verdict:
    text += {BEST: " *"}.get(entry.verdict, f" {entry.mark or ' '}")
  return text
