"""The help: all of it, a group of flags, one flag, or one choice."""

import re
from collections.abc import Callable

from experiments.command_line import layout, pages
from experiments.specification import spec
from experiments.specification.spec import Group
from fedjax_opt.registry import nearest
from fedjax_opt.results import environment

_MOST = 4  # words that a message suggests


def answer(word: str | None, intro: str) -> str:
  """What `--help` or `--help=WORD` prints.

  Args:
    word: key or title of a group, a choice or a flag; case, dashes and
      underscores do not matter, and a group may be shortened.
    intro: first lines of the whole help.

  Raises:
    ValueError: if there is nothing of that name; it names what is near.
  """
  if word is None:
    return whole(intro)
  wanted = plain(word)
  begun = wanted.removesuffix("s") or wanted  # "reg", "algorithms"
  found = (
    _groups(lambda each: each == wanted)
    or _choices(wanted)
    or _flag(wanted)
    or _groups(lambda each: bool(begun) and each.startswith(begun))
    or _flag(begun)
  )
  if not found:
    raise ValueError(_unknown(word))
  return found


def plain(name: str) -> str:
  """A name without case, dashes and underscores: FedAvg is fed_avg."""
  return re.sub(r"[^a-z0-9]", "", name.lower())


def whole(intro: str) -> str:
  """What the program does, how to get less, then every flag by group."""
  first, _, rest = intro.strip().partition("\n\n")
  parts = [first, _overview(), *([rest] if rest else [])]
  return "\n\n".join([*parts, *map(_group, spec.GROUPS)])


def _overview() -> str:
  keys = ", ".join(group.key for group in spec.GROUPS)
  kinds = ", ".join(pages.KINDS)
  lines = {
    "--help=GROUP": f"the flags of one group: {keys}",
    "--help=NAME": "one choice: an algorithm, rule, ..., as in --help=scaffold",
    "--help=FLAG": "one flag, as in --help=client_lr",
    "--list": "all choices by name",
    "--list=KIND": f"those of one kind: {kinds}",
    "--version": "versions and device",
  }
  return f"Help in parts:\n{layout.pairs(lines)}"


def _groups(matches: Callable[[str], bool]) -> str:
  """The groups of which the key, the title or a word of it matches."""
  words = lambda group: (group.key, group.title, *group.title.split())
  return "\n\n".join(
    _group(group)
    for group in spec.GROUPS
    if any(matches(plain(word)) for word in words(group))
  )


def _choices(wanted: str) -> str:
  names = [name for name in pages.names() if plain(name) == wanted]
  return "\n\n".join(pages.page(name) for name in names)


def _flag(wanted: str) -> str:
  """One flag, and where it stands."""
  for name, group in spec.names().items():
    if plain(name) in (wanted, wanted.removeprefix("no")):
      return (
        f"{layout.entry(name)}\n\nIn group {group.title}: --help={group.key}"
      )
  return ""


def _unknown(word: str) -> str:
  keys = [group.key for group in spec.GROUPS]
  known = [*keys, *pages.names(), *spec.names()]
  within = [name for name in known if plain(word) in plain(name)]
  near = (nearest(word, known, _MOST) or within)[:_MOST]
  hint = "--list shows all choices"
  if near:
    hint = f"did you mean {' or '.join(dict.fromkeys(near))}?"
  return f"help={word!r}: no such group, choice or flag; {hint}"


def _group(group: Group) -> str:
  names = [name for name, where in spec.names().items() if where == group]
  return "\n".join([f"{group.title}:", *map(layout.entry, names)])


def version(word: str | None = None, intro: str = "") -> str:
  """The versions of fedjax_opt and jax, and the device that runs use."""
  del word, intro
  versions, device = environment.versions(), environment.device()
  return (
    f"fedjax_opt {versions['fedjax_opt']}, jax {versions['jax']}, device "
    f"{device['kind']} ({device['count']} on {device['platform']})"
  )


# Options that are answered instead of a run: (WORD or None, intro) -> text.
ANSWERS = {"help": answer, "list": pages.listed, "version": version}
