"""The help: one screen, a group of flags, one flag, one choice, or all.

The docstring of a program begins its help. `--help` shows it up to the flags to
begin with, `--helpfull` all of it, and every flag.
"""

import re
from collections.abc import Callable, Iterable

from experiments.command_line import choice_pages, layout
from experiments.specification import spec
from experiments.specification.spec import Group
from fedjax_opt.checks.values import nearest
from fedjax_opt.results import environment

_MAX_SUGGESTIONS = 4
_BEGIN_WITH = "Flags to begin with:"  # A title in docstrings of programs.


def answer(word: str | None, intro: str) -> str:
  """What `--help` or `--help=WORD` prints.

  Args:
    word: key or title of a group, a choice or a flag; case, dashes and
      underscores do not matter, and a group may be shortened.
    intro: the program's own text.

  Raises:
    ValueError: if nothing has that name; the message suggests similar names.
  """
  if word is None:
    return first_screen(intro)
  key = plain(word)
  stem = key.removesuffix("s") or key  # "reg", "algorithms"
  text = (
    _groups(lambda name: name == key)
    or _choices(key)
    or _flag(key)
    or _own_flags(key, intro)
    or _groups(lambda name: bool(stem) and name.startswith(stem))
    or _flag(stem)
  )
  if not text:
    raise ValueError(_unknown(word))
  return text


def plain(name: str) -> str:
  """A name without case, dashes and underscores: FedAvg is fed_avg."""
  return re.sub(r"[^a-z0-9]", "", name.lower())


def first_screen(intro: str) -> str:
  """What the program does, the flags to begin with, and how to see more."""
  first, rest = _parts_of(intro)
  return f"{first}\n\n{_overview(_own(rest))}"


def whole(word: str | None, intro: str) -> str:
  """The program's whole text, then every flag by group."""
  if word is not None:
    return answer(word, intro)
  _, rest = _parts_of(intro)
  parts = [first_screen(intro), *([rest] if rest else [])]
  return "\n\n".join([*parts, *map(_group, spec.GROUPS)])


def _parts_of(intro: str) -> tuple[str, str]:
  """The first screen of a program's text, and the rest."""
  parts = intro.strip().split("\n\n")
  titles = [part.partition("\n")[0] for part in parts]
  end = titles.index(_BEGIN_WITH) + 1 if _BEGIN_WITH in titles else 1
  return "\n\n".join(parts[:end]), "\n\n".join(parts[end:])


def _own(text: str) -> dict[str, str]:
  """{key: paragraph of the program's own flags}; {} if it has none."""
  title = r"^Flags of a (\w+),.*"
  parts = {re.match(title, part): part for part in text.split("\n\n")}
  return {match[1]: part for match, part in parts.items() if match}


def _overview(keys: Iterable[str]) -> str:
  lines = {
    "--help=NAME": "one choice: an algorithm, rule, ..., as in --help=scaffold",
    "--help=FLAG": "one flag, as in --help=client_lr",
    "--list": "all choices by name; --list=algorithms for one kind",
    "--version": "versions and device",
    "--helpfull": "everything, with every flag",
  }
  groups = {key: f"the flags that only a {key} has" for key in keys}
  groups |= {group.key: group.purpose for group in spec.GROUPS}
  return (
    "All flags, by purpose; --help=rounds shows the flags of rounds:\n"
    f"{layout.pairs(groups)}\n\nMore help:\n{layout.pairs(lines)}"
  )


def _own_flags(key: str, intro: str) -> str:
  """A program's own flags, or one of them, as its text explains them."""
  parts = _own(_parts_of(intro)[1])
  entry = re.compile(r"^  --(\w+).*\n?(?:^ {20,}.*\n?)*", re.MULTILINE)
  flags = {plain(e[1]): e[0] for p in parts.values() for e in entry.finditer(p)}
  return (parts.get(key) or flags.get(key, "")).rstrip()


def _groups(matches: Callable[[str], bool]) -> str:
  """The groups whose key, title or a word of the title matches."""
  words = lambda group: (group.key, group.title, *group.title.split())
  return "\n\n".join(
    _group(group)
    for group in spec.GROUPS
    if any(matches(plain(word)) for word in words(group))
  )


def _choices(key: str) -> str:
  names = [name for name in choice_pages.names() if plain(name) == key]
  return "\n\n".join(choice_pages.page(name) for name in names)


def _flag(key: str) -> str:
  """One flag, and the group that it belongs to."""
  for name, flag in spec.all_flags().items():
    if plain(name) in (key, key.removeprefix("no")):
      where = f"In group {flag.group.title}: --help={flag.group.key}"
      return f"{layout.entry(name)}\n\n{where}"
  return ""


def _unknown(word: str) -> str:
  keys = [group.key for group in spec.GROUPS]
  names = [*keys, *choice_pages.names(), *spec.all_flags()]
  within = [name for name in names if plain(word) in plain(name)]
  near = (nearest(word, names, _MAX_SUGGESTIONS) or within)[:_MAX_SUGGESTIONS]
  hint = "--list shows all choices"
  if near:
    hint = f"did you mean {' or '.join(dict.fromkeys(near))}?"
  return f"help={word!r}: no such group, choice or flag; {hint}"


def _group(group: Group) -> str:
  names = [n for n, flag in spec.all_flags().items() if flag.group == group]
  return "\n".join([f"{group.title}:", *map(layout.entry, names)])


def version() -> str:
  """The versions of fedjax_opt and jax, and the device that runs use."""
  versions, device = environment.versions(), environment.device()
  return (
    f"fedjax_opt {versions['fedjax_opt']}, jax {versions['jax']}, device "
    f"{device['kind']} ({device['count']} on {device['platform']})"
  )


# Options that are answered instead of a run: (WORD or None, intro) -> text.
ANSWERS = {
  "help": answer,
  "helpfull": whole,
  "list": lambda word, _: choice_pages.listed(word),
  "version": lambda *_: version(),
}
