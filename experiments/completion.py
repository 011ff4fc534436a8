"""What a shell completes of `fedjax-opt`: commands, flags and their words.

The script contains all of these, so that a shell need not wait for Python. It
is made from the specification and the registries, as the help is.
"""

import pathlib
import re
import shlex
from collections.abc import Iterable

from experiments import artefacts, reproduce
from experiments.command_line import choice_pages
from experiments.command_line.help import ANSWERS
from experiments.specification import spec as specs
from experiments.specification.choice_flags import ALGORITHM
from experiments.specification.flag import Flag
from experiments.studies import request

SHELLS = ("bash", "zsh")

# Flags whose values are files, and endings of further such flags.
_ENDINGS = ("_dir", "_file")
_FILES = ("compilation_cache", "flagfile", "pretrained", "runs", "study")

# The script; each @NAME@ is replaced by a generated text.
_SCRIPT = pathlib.Path(__file__).with_name("completion.sh")

_OF_SHELL = {
  "bash": {"file": "~/.fedjax-opt.bash", "start": "~/.bashrc", "before": ""},
  "zsh": {
    "file": "~/.fedjax-opt.zsh",
    "start": "~/.zshrc",
    "before": "autoload -U +X compinit && compinit\n"
    "autoload -U +X bashcompinit && bashcompinit",
  },
}


def script(shell: str, commands: Iterable[str]) -> str:
  """The script for a shell.

  Args:
    shell: one of SHELLS.
    commands: names of the commands.
  """
  flags = flags_of_commands() | {"list": _kinds()}
  files = "|".join(f"--{name}" for name in _files())
  parts = {
    "shell": shell,
    "commands": _words([*commands, "help", "--completion="]),
    "values": "\n".join(
      [
        *(f"      --{n}) words={_words(w)} ;;" for n, w in values().items()),
        f"      {files}) files=1 ;;",
      ]
    ),
    "flags": "\n".join(
      f"      {name}) words={_words(words)} ;;" for name, words in flags.items()
    ),
    **_OF_SHELL[shell],
  }
  text = _SCRIPT.read_text("utf-8").rstrip("\n")
  return re.sub("@([a-z]+)@", lambda match: parts[match[1]], text)


def flags_of_commands() -> dict[str, list[str]]:
  """Command -> its flags, with = before a value."""
  run_flags = list(specs.all_flags())
  shared_flags = [
    name for name in run_flags if name not in request.ONLY_OF_A_RUN
  ]
  study_flags = [name for name in request.OF_STUDY if name not in shared_flags]
  return {
    "run": _typed([*run_flags, "flagfile", *ANSWERS]),
    "compare": _typed(
      [*study_flags, *shared_flags, "flagfile", *ANSWERS], specs.conditions()
    ),
    "convert": [*_typed([*run_flags, "flagfile", *ANSWERS]), "--verify"],
    "reproduce": _typed(["help", *reproduce.FLAGS]),
  }


def _typed(names: Iterable[str], with_values: Iterable[str] = ()) -> list[str]:
  """Flags as they are typed: switches without a value, and off with no.

  Args:
    names: the names of the flags.
    with_values: switches that take several values, because they are conditions.
  """
  flags, typed = _all_flags(), []
  for name in names:
    if name in ANSWERS:
      typed.append(f"--{name}")
    elif name not in with_values and name in flags and flags[name].type is bool:
      typed += [f"--{name}", f"--no{name}"]
    else:
      typed.append(f"--{name}=")
  return typed


def values() -> dict[str, list[str]]:
  """Flag -> the words that it accepts, for flags that accept words."""
  flags = _all_flags()
  words = {name: flag.words for name, flag in flags.items() if flag.words}
  groups = [group.key for group in specs.GROUPS]
  return words | {
    "method": list(ALGORITHM.registry),
    "artefact": [*artefacts.ARTEFACTS, "all"],
    "help": list(
      dict.fromkeys([*groups, *choice_pages.names(), *specs.all_flags()])
    ),
    "list": _kinds(),
    "completion": list(SHELLS),
  }


def _all_flags() -> dict[str, Flag]:
  """The flags of all commands."""
  return request.FLAGS | reproduce.FLAGS | specs.all_flags()


def _kinds() -> list[str]:
  return [kind.replace(" ", "_") for kind in choice_pages.CHOICE_PAGES]


def _files() -> list[str]:
  """Flags whose values are files or folders."""
  return [
    *_FILES,
    *(name for name in _all_flags() if name.endswith(_ENDINGS)),
  ]


def _words(words: Iterable[str]) -> str:
  return shlex.quote(" ".join(words))
