"""The command line: flags in groups, their help, and one line for a mistake.

Flags are defined once, when `experiments.flags` is imported. `parse` reads a
command line into a copy of them, so that each call starts from the defaults.
"""

import contextlib
import copy
import difflib
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from absl import flags

from fedjax_opt.registry import Choice

_FLAGS = flags.FlagValues()  # What is defined; never parsed itself.
_GROUPS: dict[str, list[str]] = {}  # title -> names of flags

_WIDTH = 80
_INDENT = 23  # Where the text of a flag begins.


@contextlib.contextmanager
def group(title: str) -> Iterator[None]:
  """The flags that are defined inside stand under this title in the help."""
  before = set(_FLAGS)
  yield
  _GROUPS[title] = [name for name in _FLAGS if name not in before]


def text(name: str, default: str | None, help: str) -> None:
  """Defines a flag whose value is text."""
  flags.DEFINE_string(name, default, help, flag_values=_FLAGS)


def integer(name: str, default: int | None, help: str) -> None:
  """Defines a flag whose value is a whole number."""
  flags.DEFINE_integer(name, default, help, flag_values=_FLAGS)


def number(name: str, default: float | None, help: str) -> None:
  """Defines a flag whose value is a number."""
  flags.DEFINE_float(name, default, help, flag_values=_FLAGS)


def switch(name: str, default: bool | None, help: str) -> None:
  """Defines a flag that is given as --name or --noname."""
  flags.DEFINE_bool(name, default, help, flag_values=_FLAGS)


def listed(registry: Mapping[str, Choice]) -> str:
  """The entries of a registry, one on each line, for a flag's help."""
  width = max(map(len, registry))
  return "".join(
    f"\n{name:{width}}  {choice.help}" for name, choice in registry.items()
  )


def parse(argv: Sequence[str], intro: str) -> dict[str, Any]:
  """The values of all flags; prints the help instead if asked for it.

  Args:
    argv: name of the program, then its arguments.
    intro: first lines of the help.

  Raises:
    ValueError: one line, for what is not a flag or cannot be its value.
    SystemExit: after the help.
  """
  if {"-h", "-help", "--help", "--helpfull"} & set(argv):
    print(help_text(intro))
    sys.exit(0)
  values = copy.deepcopy(_FLAGS)
  try:
    _, *others = values(list(argv))
  except flags.Error as error:
    raise ValueError(_one_line(error)) from None
  if others:
    raise ValueError(f"{others[0]!r}: not a flag; flags are --name=value")
  return {name: values[name].value for name in names()}


def refuse(error: Exception) -> int:
  """Prints in one line what cannot be; returns the exit status."""
  print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
  return 1


def names() -> list[str]:
  """All flags, in the order of the help."""
  return [name for group in _GROUPS.values() for name in group]


# Flags of a process or of its folder, which say nothing about the run itself.
_OF_A_PROCESS = (
  "cluster", "coordinator", "num_processes", "output_dir", "process_id",
  "progress", "resume",
)  # fmt: skip


def flagfile(values: Mapping[str, Any]) -> str:
  """A flagfile that gives these values again: those that are no defaults.

  Args:
    values: of all flags, as `parse` gives them.

  Returns:
    One `--name=value` a line, in the order of the help.
  """
  lines = []
  for name in names():
    value = values[name]
    if name in _OF_A_PROCESS or value == _FLAGS[name].default:
      continue
    shown = str(value).lower() if _FLAGS[name].boolean else value
    lines.append(f"--{name}={shown}\n")
  return "".join(lines)


_WANTED = {
  "a number": "a number",
  "an integer": "a whole number",
  "": "true or false",
}


def _one_line(error: flags.Error) -> str:
  """What absl says about an argument, in this program's words."""
  if isinstance(error, flags.UnrecognizedFlagError):
    near = _nearest(error.flagname)
    hint = f"did you mean {near}?" if near else "--help lists all"
    return f"--{error.flagname}: no such flag; {hint}"
  if isinstance(error, flags.CantOpenFlagFileError):
    return f"flagfile: {error.__context__ or error}"
  wrong = re.match(r"flag --(\w+)=(.*?): ", str(error), re.DOTALL)
  if wrong and wrong[1] in _FLAGS:
    wanted = _WANTED[_FLAGS[wrong[1]].parser.syntactic_help]
    return f"{wrong[1]}={wrong[2]}: must be {wanted}"
  message = " ".join(str(error).split())
  return message[0].lower() + message[1:]


def _nearest(name: str) -> str:
  """The flags that were probably meant: --lr is --client_lr or --server_lr."""
  name = name.replace("learning_rate", "lr")
  near = [known for known in names() if known.endswith(f"_{name}")]
  near = near or difflib.get_close_matches(name, names(), 1)
  return " or ".join(f"--{known}" for known in near)


def help_text(intro: str) -> str:
  """The help: what the program does, then every flag, group by group."""
  parts = [intro.strip()]
  for title, group in _GROUPS.items():
    parts.append("\n".join([f"{title}:", *map(_entry, group)]))
  return "\n\n".join(parts)


def _entry(name: str) -> str:
  flag = _FLAGS[name]
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
