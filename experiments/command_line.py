"""The command line: flags in groups, their help, and one line for a mistake."""

import contextlib
import difflib
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from absl import flags

from fedjax_opt.hyperparameters import Choice

FLAGS = flags.FLAGS

_WIDTH = 80
_INDENT = 23  # Where the text of a flag begins.
_GROUPS: dict[str, list[str]] = {}  # title -> names of flags


@contextlib.contextmanager
def group(title: str) -> Iterator[None]:
  """The flags that are defined inside stand under this title in the help."""
  before = set(FLAGS)
  yield
  _GROUPS[title] = [name for name in FLAGS if name not in before]


def listed(registry: Mapping[str, Choice]) -> str:
  """The entries of a registry, one on each line, for a flag's help."""
  width = max(map(len, registry))
  return "".join(
    f"\n{name:{width}}  {choice.help}" for name, choice in registry.items()
  )


def parse(argv: Sequence[str], intro: str) -> dict[str, Any]:
  """The values of all grouped flags; prints the help instead if asked for it.

  Args:
    argv: the program's name and its arguments.
    intro: what the help begins with.

  Raises:
    ValueError: one line, for what is not a flag or cannot be its value.
    SystemExit: after the help.
  """
  if {"-h", "-help", "--help", "--helpfull"} & set(argv):
    print(help_text(intro))
    sys.exit(0)
  try:
    _, *others = FLAGS(list(argv))
  except flags.Error as error:
    raise ValueError(_one_line(error)) from None
  if others:
    raise ValueError(f"{others[0]!r}: not a flag; flags are --name=value")
  return {name: FLAGS[name].value for name in _names()}


def refuse(error: Exception) -> int:
  """Says in one line what cannot be; the exit status."""
  print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
  return 1


def _names() -> list[str]:
  return [name for names in _GROUPS.values() for name in names]


_WANTED = {
  "a number": "a number",
  "an integer": "a whole number",
  "": "true or false",
}


def _one_line(error: flags.Error) -> str:
  """What absl says about an argument, in this program's words."""
  if isinstance(error, flags.UnrecognizedFlagError):
    near = difflib.get_close_matches(error.flagname, _names(), 1)
    hint = f"did you mean --{near[0]}?" if near else "--help lists all"
    return f"--{error.flagname}: no such flag; {hint}"
  if isinstance(error, flags.CantOpenFlagFileError):
    return f"flagfile: {error.__context__ or error}"
  wrong = re.match(r"flag --(\w+)=(.*?): ", str(error), re.DOTALL)
  if wrong and wrong[1] in FLAGS:
    wanted = _WANTED[FLAGS[wrong[1]].parser.syntactic_help]
    return f"{wrong[1]}={wrong[2]}: must be {wanted}"
  message = " ".join(str(error).split())
  return message[0].lower() + message[1:]


def help_text(intro: str) -> str:
  """The help: what the program does, then every flag, group by group."""
  parts = [intro.strip()]
  for title, names in _GROUPS.items():
    parts.append("\n".join([f"{title}:", *map(_entry, names)]))
  return "\n\n".join(parts)


def _entry(name: str) -> str:
  flag = FLAGS[name]
  first, *lines = flag.help.split("\n")
  if flag.default is not None:
    first += f" Default: {str(flag.default).lower()}."
  indent = " " * _INDENT
  text = textwrap.fill(
    first,
    _WIDTH,
    initial_indent=indent,
    subsequent_indent=indent,
    break_on_hyphens=False,
  )
  left = f"  --{'[no]' if flag.boolean else ''}{name}"
  if len(left) < _INDENT - 1:
    text = left + text[len(left) :]
  else:
    text = f"{left}\n{text}"
  return "\n".join([text, *(_listed_line(indent, line) for line in lines)])


def _listed_line(indent: str, line: str) -> str:
  """A line of `listed`, its text wrapped beside its name."""
  name = re.match(r"\S+\s+", line)
  return textwrap.fill(
    line,
    _WIDTH,
    initial_indent=f"{indent}  ",
    subsequent_indent=f"{indent}  {' ' * name.end()}",
    break_on_hyphens=False,
  )
