"""Templates, and how each format escapes what they show.

The templates are in templates/. Wherever a template shows a label, it is
escaped by the format's own rules.
"""

import functools
import re
import shlex
import unicodedata
from collections.abc import Mapping
from typing import Any

from fedjax_opt.results import names
from fedjax_opt.study import tuning, verdicts, words
from fedjax_opt.study.numbers import NumberFormat

_WIDTH = 72  # The most characters in a line of a command.
# Names, and words of a command that fit a phone.
_WORD = re.compile(
  r"(?:^ +)?(?<!\S)"
  r"(?:(?:&#39;)?-\S{1,36}(?: \\$)?(?!\S)|\S{1,36} \\$|-[-\w]+=)",
  re.MULTILINE,
)
_HYPHENATED = re.compile(r"\b[^\W\d]\w{0,11}(?:-\w{1,9}){1,2}\b")
_GAP = re.compile(" (?=[%=])|(?<==) ")  # In 95 % and α = 0.1.
# What templates call.
_GLOBALS = {
  "NumberFormat": NumberFormat,
  "names": names,
  "tuning": tuning,
  "verdicts": verdicts,
  "words": words,
}


@functools.cache
def _template(name: str) -> Any:
  """A template, which escapes all values that it shows for its format."""
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
      # Text that the filter `safe` has marked is in the format already.
      "finalize": lambda value: (
        value if hasattr(value, "__html__") else _ESCAPES[kind](str(value))
      ),
    }
  env = jinja2.Environment(
    loader=jinja2.PackageLoader("fedjax_opt.study.report"),
    autoescape=kind == "html",
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    **options,
  )
  # A line does not break at these signs.
  env.filters["prose"] = lambda text: _whole(_GAP.sub("\u00a0", text))
  env.filters["head"] = lambda text: _GAP.sub("\u00a0", text)
  env.filters["whole"] = _whole
  env.filters["lines"] = command_lines
  env.filters["minus"] = lambda text: re.sub(r"(?<!\w)-(?=\d)", "−", text)
  env.filters["command"] = command
  env.globals.update(_GLOBALS)
  return env.get_template(name)


def _whole(text: str, pattern: re.Pattern[str] = _HYPHENATED) -> Any:
  """Text for HTML, in which no line ends within a name such as Δ-SGD."""
  import markupsafe

  escaped = str(markupsafe.escape(text))
  span = r'<span class="whole">\g<0></span>'
  return markupsafe.Markup(pattern.sub(span, escaped))


def command_lines(text: str) -> Any:
  """Commands for HTML: a span for each line, in which words stay whole."""
  import markupsafe

  line = markupsafe.Markup('<span class="line">{}</span>')
  lines = str(_whole(text, _WORD)).splitlines(keepends=True)
  return markupsafe.Markup("").join(
    line.format(markupsafe.Markup(x)) for x in lines
  )


def command(text: str) -> str:
  """A command in short lines, which can be copied together."""
  try:
    arguments = shlex.split(text)
  except ValueError:
    return text
  if shlex.join(arguments) != text:  # More than one program with its arguments.
    return text
  lines = [""]
  for argument in map(shlex.quote, arguments):
    if lines[-1] and len(f"{lines[-1]} {argument}") > _WIDTH:
      lines.append("")
    lines[-1] = f"{lines[-1]} {argument}".strip()
  return " \\\n    ".join(lines)


def render(template: str, **shown: Any) -> str:
  """The text that a template makes of the given values."""
  return _template(template).render(shown)


def items(template: str, **shown: Any) -> list[str]:
  """The items of the list that a template makes, each as one line."""
  _, *entries = re.split("^- ", render(template, **shown), flags=re.MULTILINE)
  return [" ".join(entry.split()) for entry in entries]


def caption(kind: str, facts: Mapping[str, Any]) -> tuple[str, str]:
  """The question that a picture answers, and its caption."""
  module = _template("captions.txt").make_module({"kind": kind, **facts})
  question, text = (" ".join(x.split()) for x in (module.question, str(module)))
  return question, text


def escape_markdown(text: str) -> str:
  """Text for Markdown: what would be markup or HTML is escaped."""
  text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
  return re.sub(r"([\\`*_\[\]|~#$])", r"\\\1", text)


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
  **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}  # fmt: skip
# The Greek letters that LaTeX has; the others look like Latin ones.
_GREEK = "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ"


def escape_latex(text: str) -> str:
  """Text for LaTeX: Greek letters become symbols, LaTeX's signs are escaped."""
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
