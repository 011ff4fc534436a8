"""The tables of flags.md, made of the help when the site is built."""

import re

from experiments.command_line import texts
from experiments.specification import spec

_MOST_CHOICES = 12  # More have a page of their own.
_PAGES = {"task": "[tasks](tasks.md)"}
_SPECIAL = re.compile(r"[\\*<>|\[\]$]")


def filled(text: str) -> str:
  """The page, with a table for each group of flags at its end."""
  flags = spec.all_flags()
  parts = [text.rstrip("\n")]
  for group in spec.GROUPS:
    names = [name for name, flag in flags.items() if flag.group == group]
    purpose = f"{group.purpose[0].upper()}{group.purpose[1:]}."
    rows = ["| flag | meaning |", "|---|---|", *map(_row, names)]
    parts += [f"## {group.title}", purpose, "\n".join(rows)]
  return "\n\n".join(parts) + "\n"


def _row(name: str) -> str:
  flag = spec.all_flags()[name]
  text, *entries = texts.of_flag(name, flag).split("\n")
  if flag.default is not None:
    text += f" Default: {str(flag.default).lower()}."
  text = _SPECIAL.sub(r"\\\g<0>", text).replace(r"\[list\] ", "*List.* ")
  for owner in flag.owners or ():
    text = re.sub(rf"(?<=[(, ]){owner}(?= [\d.]|[,)])", rf"`{owner}`", text)
  # Names of other flags; words without an underscore are often plain words.
  text = re.sub(r"(?<![\w`/-])(?:--)?([a-z]+_\w+(?:\.\w+)?)", _as_code, text)
  if len(entries) > _MOST_CHOICES:
    text += f" See {_PAGES.get(name, '[methods](methods.md)')}."
  elif entries:
    choices = (f"`{entry.split()[0]}`" for entry in entries)
    text += f" Choices: {', '.join(choices)}."
  shown = f"[no]{name}" if flag.type is bool else name
  return f"| `--{shown}` | {text} |"


def _as_code(word: re.Match) -> str:
  is_flag = word[1] in spec.all_flags()
  return f"`--{word[1]}`" if is_flag else f"`{word[0]}`"
