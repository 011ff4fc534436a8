"""The tables of a study: one model for people, in four formats, and the CSV.

`main_table` has a row for each method and a column for each condition or, of
many conditions, a row for each cell. `markdown`, `latex`, `lines` and the page
of report.py show it; all of them take the numbers from the same verdicts.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedjax_opt.comparison import verdicts, words
from fedjax_opt.comparison.cells import Study, condition_label, exact
from fedjax_opt.comparison.verdicts import BEST, DIVERGED, TIED, Verdict
from fedjax_opt.results.names import metric_name, name_of, sentence

# Up to so many conditions are columns.
MAX_COLUMNS = 6
DAGGER = "†"


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
  notes: list[str]


def main_table(study: Study, found: Sequence[Verdict]) -> Table:
  """The metric of every cell, and what its tuning cost."""
  few = len(study.conditions) <= MAX_COLUMNS
  header, rows, num_names = (_wide if few else _long)(study, found)
  is_over_all = few and len(study.conditions) > 1
  return Table(
    f"{metric_name(study.metric)} after the last round{_over_seeds(found)}.",
    header,
    rows,
    num_names,
    _notes(study, found, is_over_all),
  )


def _over_seeds(found: Sequence[Verdict]) -> str:
  """Of which seeds the means are."""
  numbers = {v.num_seeds for v in found if v.num_seeds}
  if not numbers:
    return ""
  if numbers == {1}:
    return ", of one seed"
  return f": the mean over {words.span(numbers)} seeds, with its 95 % interval"


def axes_of(study: Study) -> list[str]:
  """The names of what differs between conditions."""
  return list(dict.fromkeys(n for c in study.conditions for n in c))


def _condition(verdict: Verdict, name: str) -> str:
  return exact(verdict.cell.condition.get(name))


def _wide(
  study: Study, found: Sequence[Verdict]
) -> tuple[list[str], list[list[Entry]], int]:
  """A row for each method, a column for each condition."""
  numbers = verdicts.numbers_of(study, found)
  conditions = study.conditions
  names = [
    condition_label(condition) or metric_name(study.metric)
    for condition in conditions
  ]
  rows = []
  for method in study.methods:
    here = [v for v in found if v.cell.method == method]
    values = [
      next(
        (
          _value(study, v, numbers)
          for v in here
          if dict(v.cell.condition) == condition
        ),
        Entry(words.NOTHING),
      )
      for condition in conditions
    ]
    rows.append([Entry(study.labels[method]), *values, *_tuning(here)])
  return ["Method", *names, *_TUNING], rows, 1


def _long(
  study: Study, found: Sequence[Verdict]
) -> tuple[list[str], list[list[Entry]], int]:
  """A row for each cell."""
  numbers = verdicts.numbers_of(study, found)
  axes = axes_of(study)
  rows = [
    [
      *(Entry(_condition(v, name)) for name in axes),
      Entry(study.labels[v.cell.method]),
      _value(study, v, numbers),
      *_tuning([v]),
    ]
    for v in found
  ]
  header = [sentence(name_of(name)) for name in axes]
  header += ["Method", metric_name(study.metric), *_TUNING]
  return header, rows, len(axes) + 1


_TUNING = ("Settings tried", "Diverged")


def _tuning(here: Sequence[Verdict]) -> list[Entry]:
  """The settings that were tried, and how many of them diverged."""
  tunings = [v.cell.tuning for v in here]
  lost = sum(each.num_diverged for each in tunings if each)
  tried = sum(each.budget for each in tunings if each)
  return [
    Entry(words.span(v.cell.budget for v in here)),
    Entry(f"{lost} of {tried}" if tried else words.NOTHING),
  ]


def _value(study: Study, verdict: Verdict, numbers: words.Numbers) -> Entry:
  if verdict.cell.measured is None:
    return Entry("diverged", "every setting", DIVERGED)
  if verdict.verdict == DIVERGED:
    lost = (
      f"{verdict.num_diverged} of {words.counted(verdict.num_seeds, 'seed')}"
    )
    return Entry("diverged", lost, DIVERGED)
  value = verdict.value
  text, ends = numbers.value(value.estimate), numbers.ends(value)
  # There is no best of one.
  is_alone = len(study.under(verdict.cell.condition)) == 1
  return Entry(text, ends, "" if is_alone else verdict.verdict)


def _notes(
  study: Study, found: Sequence[Verdict], is_over_all: bool
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
    where = ", under all conditions" if is_over_all else ""
    notes.append(
      "Diverged: settings of which a seed diverged, of those that were tried"
      f"{where}."
    )
  return notes


def differences(study: Study, found: Sequence[Verdict]) -> Table | None:
  """By how much the others are behind the best; None if there is no other."""
  numbers = verdicts.numbers_of(study, found)
  axes = axes_of(study)
  rows = [
    [
      *(Entry(_condition(v, name)) for name in axes),
      Entry(study.labels[v.cell.method]),
      Entry(numbers.value(v.behind.estimate), numbers.ends(v.behind, True)),
      Entry(*_percent(v)),
      Entry(v.verdict),
    ]
    for v in found
    if v.verdict not in (BEST, DIVERGED)
  ]
  if not rows:
    return None
  is_fraction = metric_name(study.metric).endswith("(%)")
  unit = " (points)" if is_fraction else ""
  header = [sentence(name_of(name)) for name in axes]
  header += [
    "Method",
    f"Behind the best{unit}",
    "Best wins (%)",
    "Verdict",
  ]
  caption = (
    "How far the other methods are behind the best: the mean difference over "
    "the seeds that both ran with, with its 95 % interval; and the share of "
    "all pairs of a run of the best and one of the method in which the best is "
    "better, with an interval that is rough with fewer than ten seeds, and "
    "none where the best wins them all."
  )
  return Table(caption, header, rows, len(axes) + 1, [])


def _percent(verdict: Verdict) -> tuple[str, str]:
  estimate, low, high = (100 * each for each in verdict.probability)
  ends = f"{low:.0f} to {high:.0f}" if low == low else ""
  return f"{estimate:.0f}", ends


# For the terminal.


def lines(table: Table) -> list[str]:
  """The table as lines of a terminal; the best has a star."""
  columns = [
    [name, *(_plain(row[i]) for row in table.rows)]
    for i, name in enumerate(table.header)
  ]
  padded = []
  for i, column in enumerate(columns):
    width = max(map(len, column))
    is_name = i < table.num_names
    padded.append(
      [c.ljust(width) if is_name else c.rjust(width) for c in column]
    )
  notes = [note.replace("Bold:", "*") for note in table.notes]
  rows = ["  ".join(row).rstrip() for row in zip(*padded, strict=True)]
  return [table.caption, "", *rows, "", *notes]


def _plain(entry: Entry) -> str:
  text = f"{entry.text} ({entry.detail})" if entry.detail else entry.text
  if entry.verdict:
    text += {BEST: " *", TIED: f" {DAGGER}"}.get(entry.verdict, "  ")
  return text


# Markdown.


def markdown(table: Table, title: str = "") -> str:
  """The table as GitHub's Markdown."""
  rows = [table.header, *([_in_markdown(e) for e in row] for row in table.rows)]
  header = [_escape_markdown(name) for name in rows[0]]
  names = table.num_names
  rule = [":--" if i < names else "--:" for i in range(len(header))]
  body = [f"| {' | '.join(row)} |" for row in [header, rule, *rows[1:]]]
  parts = [f"# {_escape_markdown(title)}"] if title else []
  parts += [_escape_markdown(table.caption), "\n".join(body)]
  parts += [_escape_markdown(note) for note in table.notes]
  return "\n\n".join(parts) + "\n"


def _in_markdown(entry: Entry) -> str:
  text, detail = _escape_markdown(entry.text), _escape_markdown(entry.detail)
  if entry.verdict == BEST:
    text = f"**{text}**"
  text += entry.mark
  return f"{text} ({detail})" if detail else text


def _escape_markdown(text: str) -> str:
  text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
  return re.sub(r"([\\`*_\[\]|~#$])", r"\\\1", text)


# LaTeX.

# Of more values in a row, intervals are below them, not beside them.
_MAX_VALUES = 3
_GREEK = {
  "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon",
  "ζ": "zeta", "η": "eta", "θ": "theta", "κ": "kappa", "λ": "lambda",
  "μ": "mu", "µ": "mu", "ν": "nu", "ξ": "xi", "π": "pi", "ρ": "rho",
  "σ": "sigma", "τ": "tau", "φ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega",
  "Γ": "Gamma", "Δ": "Delta", "Θ": "Theta", "Λ": "Lambda", "Ξ": "Xi",
  "Π": "Pi", "Σ": "Sigma", "Φ": "Phi", "Ψ": "Psi", "Ω": "Omega",
  "∞": "infty", "±": "pm", "×": "times", "·": "cdot", "≤": "leq", "≥": "geq",
  "→": "to", "←": "leftarrow", "≈": "approx", "≠": "neq", "−": "mathord-",
  "†": "dagger", "∇": "nabla", "∈": "in", "√": "surd",
}  # fmt: skip
_LATEX = {
  **{symbol: f"$\\{name}$" for symbol, name in _GREEK.items()},
  **{d: f"$_{i}$" for i, d in enumerate("₀₁₂₃₄₅₆₇₈₉")},
  **{d: f"$^{i}$" for i, d in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
  **{"ₗ": "$_l$", "ₛ": "$_s$", "−": "$-$", "–": "--", "—": "---"},
  **{"…": "\\ldots{}", "\u00a0": "~"},
  **{"\\": "\\textbackslash{}", "~": "\\textasciitilde{}"},
  **{"^": "\\textasciicircum{}", "<": "$<$", ">": "$>$", "|": "$|$"},
  **{'"': "''", "[": "{[}", "]": "{]}", "*": "{*}"},
  **{each: f"\\{each}" for each in "&%$#_{}"},
}  # fmt: skip


def latex(table: Table) -> str:
  """The table as LaTeX, for a document that has the package booktabs."""
  is_stacked = max(map(_details, table.rows)) > _MAX_VALUES
  header = [escape_latex(name) for name in table.header]
  if is_stacked:
    header = [_stack(name.replace(", ", ",\\\\")) for name in header]
  columns = "l" * table.num_names
  columns += "r" * (len(table.header) - table.num_names)
  rows = [[_in_latex(e, is_stacked) for e in row] for row in table.rows]
  notes = " ".join(map(escape_latex, table.notes))
  return "\n".join(
    [
      "% In the preamble: \\usepackage{booktabs}",
      "\\begin{table}",
      "  \\centering",
      f"  \\caption{{{escape_latex(table.caption)}}}",
      "  \\label{tab:study}",
      f"  \\begin{{tabular}}{{{columns}}}",
      "  \\toprule",
      _latex_row(header),
      "  \\midrule",
      *(_latex_row(row, "[3pt]" * is_stacked) for row in rows),
      "  \\bottomrule",
      "  \\end{tabular}",
      *(
        [f"  \\par\\smallskip{{\\footnotesize {notes}\\par}}"] if notes else []
      ),
      "\\end{table}",
      "",
    ]
  )


def _details(row: Sequence[Entry]) -> int:
  return sum(bool(entry.detail) for entry in row)


def _latex_row(entries: Sequence[str], space: str = "") -> str:
  return f"  {' & '.join(entries)} \\\\{space}"


def _stack(lines: str) -> str:
  return f"\\shortstack[r]{{{lines}}}" if "\\\\" in lines else lines


def _in_latex(entry: Entry, is_stacked: bool) -> str:
  text, detail = escape_latex(entry.text), escape_latex(entry.detail)
  if entry.verdict == BEST:
    text = f"\\textbf{{{text}}}"
  if entry.mark:
    text += "$^\\dagger$"
  if not detail:
    return text
  if is_stacked:
    return _stack(f"{text}\\\\{{\\scriptsize {detail}}}")
  return f"{text} {{\\footnotesize ({detail})}}"


def escape_latex(text: str) -> str:
  """Text for LaTeX: Greek letters become symbols, its own signs are escaped."""
  return "".join(_LATEX.get(each, each) for each in " ".join(text.split()))
