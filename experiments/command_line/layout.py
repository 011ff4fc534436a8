"""How the help is laid out: lines of at most 80 characters."""

import re
import textwrap
from collections.abc import Mapping

from experiments.command_line import texts
from experiments.specification.flag import Flag
from fedjax_opt.study.report.templates import command as in_lines

_WIDTH = 80
_INDENT = 23  # The column in which the text of a flag begins.


def entry(name: str, flag: Flag, text: str | None = None) -> str:
  """A flag with its text.

  Args:
    name: the flag's name.
    flag: the flag.
    text: what the flag means; None for its help and default. After the first
      line, it may have the lines of a list.
  """
  text_of_flag = texts.of_flag(name, flag) if text is None else text
  first, *lines = text_of_flag.split("\n")
  if text is None and flag.default is not None:
    first += f" Default: {str(flag.default).lower()}."
  left = f"  --{'[no]' if flag.type is bool else ''}{name}{flag.form}"
  return "\n".join([_beside(left, first), *map(_listed_line, lines)])


def pairs(meanings: Mapping[str, str]) -> str:
  """Lines of words and their meanings, in two columns."""
  width = max(map(len, meanings)) + 4
  return "\n".join(
    _fill(text, f"  {word}".ljust(width), width)
    for word, text in meanings.items()
  )


def paragraph(text: str) -> str:
  """Text with an indent."""
  return _fill(text, "  ", 2)


def command(text: str) -> str:
  """A command line, in lines that can be copied together."""
  return textwrap.indent(in_lines(text), "  ")


def one_line(word: str, text: str, width: int) -> str:
  """A word and as much of its text as fits beside it."""
  left = f"  {word:{width}}  "
  room = _WIDTH - len(left)
  return left + textwrap.shorten(text, room, placeholder=" ...")


def _beside(left: str, text: str) -> str:
  """Text in its column; if the left part is long, the text is below it."""
  if len(left) < _INDENT - 1:
    return _fill(text, left.ljust(_INDENT), _INDENT)
  return f"{left}\n{_fill(text, ' ' * _INDENT, _INDENT)}"


def _listed_line(line: str) -> str:
  """A line of a list in a flag's text, wrapped beside its name."""
  name = re.match(r"\S+\s+", line)
  return _fill(line, " " * (_INDENT + 2), _INDENT + 2 + name.end())


def _fill(text: str, first: str, indent: int) -> str:
  return textwrap.fill(
    text,
    _WIDTH,
    initial_indent=first,
    subsequent_indent=" " * indent,
    break_on_hyphens=False,
  )
