"""The help: one screen, a group of flags, one flag, one choice, or all.

The docstring of a program begins its help. `--help` shows it up to the flags to
begin with, `--helpfull` all of it, and every flag.
"""

import re
from collections.abc import Callable, Mapping

from experiments.command_line import choice_pages, layout
from experiments.specification import spec as specs
from experiments.specification.flag import Flag, Group
from fedjax_opt.checks.values import nearest
from fedjax_opt.results import environment

_MAX_SUGGESTIONS = 4
_BEGIN_WITH = "Flags to begin with:"  # A title in docstrings of programs.


def answer(
  word: str | None, intro: str, own_flags: Mapping[str, Flag] = {}
) -> str:
  """What `--help` or `--help=WORD` prints.

  Args:
    word: key or title of a group, a choice or a flag; case, dashes and
      underscores do not matter, and a group may be shortened.
    intro: the program's own text.
    own_flags: the program's own flags, beside those of a run.

  Raises:
    ValueError: if nothing has that name; the message suggests similar names.
  """
  if word is None:
    return first_screen(intro, own_flags)
  flags = {**own_flags, **specs.all_flags()}
  key = plain(word)
  stem = key.removesuffix("s") or key  # "reg", "algorithms"
  text = (
    _groups(flags, lambda name: name == key)
    or _choices(key)
    or _flag(flags, key)
    or _groups(flags, lambda name: bool(stem) and name.startswith(stem))
    or _flag(flags, stem)
  )
  if not text:
    raise ValueError(_unknown(word, flags))
  return text


def plain(name: str) -> str:
  """A name without case, dashes and underscores: FedAvg is fed_avg."""
  return re.sub(r"[^a-z0-9]", "", name.lower())


def first_screen(intro: str, own_flags: Mapping[str, Flag]) -> str:
  """What the program does, the flags to begin with, and how to see more."""
  return f"{_parts_of(intro)[0]}\n\n{_overview(own_flags)}"


def whole(
  word: str | None, intro: str, own_flags: Mapping[str, Flag] = {}
) -> str:
  """The program's whole text, then every flag by group."""
  if word is not None:
    return answer(word, intro, own_flags)
  _, rest = _parts_of(intro)
  flags = {**own_flags, **specs.all_flags()}
  parts = [first_screen(intro, own_flags), rest, _groups(flags, bool)]
  return "\n\n".join(filter(None, parts))


def _parts_of(intro: str) -> tuple[str, str]:
  """The first screen of a program's text, and the rest."""
  parts = intro.strip().split("\n\n")
  titles = [part.partition("\n")[0] for part in parts]
  end = titles.index(_BEGIN_WITH) + 1 if _BEGIN_WITH in titles else 1
  return "\n\n".join(parts[:end]), "\n\n".join(parts[end:])


def _overview(own_flags: Mapping[str, Flag]) -> str:
  lines = {
    "--help=NAME": "one choice: an algorithm, rule, ..., as in --help=scaffold",
    "--help=FLAG": "one flag, as in --help=client_lr",
    "--list": "all choices by name; --list=algorithms for one kind",
    "--version": "versions and device",
    "--helpfull": "everything, with every flag",
  }
  groups = {
    flag.group.key: flag.group.purpose
    for flag in (*own_flags.values(), *specs.FLAGS.values())
  }
  return (
    "All flags, by purpose; --help=rounds shows the flags of rounds:\n"
    f"{layout.pairs(groups)}\n\nMore help:\n{layout.pairs(lines)}"
  )


def _groups(flags: Mapping[str, Flag], matches: Callable[[str], bool]) -> str:
  """The groups whose key, title or a word of the title matches."""
  words = lambda group: (group.key, group.title, *group.title.split())
  return "\n\n".join(
    of_group(flags, group)
    for group in dict.fromkeys(flag.group for flag in flags.values())
    if any(matches(plain(word)) for word in words(group))
  )


def _choices(key: str) -> str:
  names = [name for name in choice_pages.names() if plain(name) == key]
  return "\n\n".join(choice_pages.page(name) for name in names)


def _flag(flags: Mapping[str, Flag], key: str) -> str:
  """One flag, and the group that it belongs to."""
  for name, flag in flags.items():
    if plain(name) in (key, key.removeprefix("no")):
      where = f"In group {flag.group.title}: --help={flag.group.key}"
      return f"{layout.entry(name, flag)}\n\n{where}"
  return ""


def _unknown(word: str, flags: Mapping[str, Flag]) -> str:
  keys = [flag.group.key for flag in flags.values()]
  names = [*dict.fromkeys(keys), *choice_pages.names(), *flags]
  within = [name for name in names if plain(word) in plain(name)]
  near = (nearest(word, names, _MAX_SUGGESTIONS) or within)[:_MAX_SUGGESTIONS]
  hint = "--list shows all choices"
  if near:
    hint = f"did you mean {' or '.join(dict.fromkeys(near))}?"
  return f"help={word!r}: no such group, choice or flag; {hint}"


def of_group(flags: Mapping[str, Flag], group: Group) -> str:
  """The flags of a group, under its title."""
  entries = (
    layout.entry(name, flag)
    for name, flag in flags.items()
    if flag.group == group
  )
  return "\n".join([f"{group.title}:", *entries])


def version() -> str:
  """The versions of fedjax_opt and jax, and the device that runs use."""
  versions, device = environment.versions(), environment.device()
  return (
    f"fedjax_opt {versions['fedjax_opt']}, jax {versions['jax']}, device "
    f"{device['kind']} ({device['count']} on {device['platform']})"
  )


# Options that are answered instead of a run:
# (WORD or None, intro, own flags) -> text.
ANSWERS = {
  "help": answer,
  "helpfull": whole,
  "list": lambda word, *_: choice_pages.listed(word),
  "version": lambda *_: version(),
}
