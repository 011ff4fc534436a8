"""The tables of flags.md, made of the help when the site is built."""

import re
from collections.abc import Collection

from experiments.command_line import texts
from experiments.specification import spec as specs

_MOST_CHOICES = 12  # More have a page of their own.
_PAGES = {"task": "[tasks](tasks.md)"}
_SPECIAL = re.compile(r"[\\*<>|\[\]]")
# Names that are no plain words, so they are code wherever they stand.
_NAMES = (
  "sgd|sgdm|nesterov|adam|adamw|muon|adagrad|yogi|sps|lasso|nonconvex|fmri"
  "|femnist10|femnist62|scaffold|domo|diloco|f1|auc|r2|mae"
)
# What is code by its form.
_CODE = re.compile(
  r"(?<![\w`/.-])(?:"
  r"--[a-z]\w*(?:=\w+)?"
  r"|[a-z]+_\w+(?:\.\w+|,\w+/\w+)?|[a-z]+_\.\.\.|\.\.\._\w+"
  r"|[a-z]+\.(?:json|npz|png|csv|txt|safetensors)\b"
  r"|~/[\w./]*\w|\$[A-Z_]+"
  rf"|(?:{_NAMES})(?![\w-])"
  r")"
)
# Plain words that are names after other names, or at the end.
_AMONG_NAMES = re.compile(
  r"(?<=`, )(?:centralized|local)\b|(?<= for )(?:local|centralized)(?=[.,])"
)
# In brackets: who has a default, and which.
_OWNERS = re.compile(r"\(([^()]+)\)(?=\.|$)")
# Flags whose names are plain words, where a text speaks of the flag.
_FLAG = re.compile(r"(?<=[Nn]eeds )([a-z]+)(?!\w)|(?<=see )([a-z]+)(?=[ .]|$)")


def filled(text: str) -> str:
  """The page, with a table for each group of flags at its end."""
  flags = specs.all_flags()
  parts = [text.rstrip("\n")]
  for group in specs.GROUPS:
    names = [name for name, flag in flags.items() if flag.group == group]
    purpose = f"{group.purpose[0].upper()}{group.purpose[1:]}."
    rows = ["| flag | meaning |", "|---|---|", *map(_row, names)]
    # A phone shows the names first, which are no links.
    listed = ", ".join(f"<code>--{name}</code>" for name in names)
    summary = f"Its {len(names)} flags <small>{listed}</small>"
    parts += [
      f"## {group.title}",
      purpose,
      f'<details class="folded" open><summary>{summary}</summary>',
      "\n".join(rows),
      "</details>",
    ]
  return "\n\n".join(parts) + "\n"


def _row(name: str) -> str:
  flag = specs.all_flags()[name]
  text, *entries = texts.of_flag(name, flag).split("\n")
  is_list, text = text.startswith("[list] "), text.removeprefix("[list] ")
  text = _owners_as_code(text, flag.owners or ())
  text = _outside_code(_CODE, _as_code, text)
  text = _outside_code(_FLAG, _as_flag, text)
  for _ in range(2):  # The second one after the first one.
    text = _AMONG_NAMES.sub(r"`\g<0>`", text)
  if flag.default is not None:
    text += f" Default: `{str(flag.default).lower()}`."
  text = _SPECIAL.sub(r"\\\g<0>", text)
  text = "*List.* " * is_list + text.replace("\n. ", ".<br>").replace("\n", "")
  if len(entries) > _MOST_CHOICES:
    text += f" See {_PAGES.get(name, '[methods](methods.md)')}."
  elif entries:
    choices = (f"`{entry.split()[0]}`" for entry in entries)
    text += f" Choices: {', '.join(choices)}."
  shown = f"[no]{name}" if flag.type is bool else name
  return f"| `--{shown}` | {text} |"


def _owners_as_code(text: str, owners: Collection[str]) -> str:
  """The text with those who have a default as code, and a line after each."""

  def of_list(match):
    items = [item.split(" ") for item in match[1].split(", ")]
    names = [item[0] for item in items]
    if not all(name in owners or name.endswith("_...") for name in names):
      return match[0]
    return f"({', '.join(' '.join([f'`{n}`', *v]) for n, *v in items)})\n"

  return _OWNERS.sub(of_list, text)


def _outside_code(pattern, change, text: str) -> str:
  """Changes what a pattern finds outside of code."""
  parts = re.split("(`[^`]*`)", text)
  parts[::2] = (pattern.sub(change, part) for part in parts[::2])
  return "".join(parts)


def _as_code(word: re.Match) -> str:
  is_flag = word[0] in specs.all_flags()
  return f"`--{word[0]}`" if is_flag else f"`{word[0]}`"


def _as_flag(word: re.Match) -> str:
  return f"`--{word[0]}`" if word[0] in specs.all_flags() else word[0]
