"""What a shell completes of `fedjax-opt`: commands, flags and their words.

The script contains all of these, so that a shell need not wait for Python. It
is made from the specification and the registries, as the help is.
"""

import shlex
from collections.abc import Iterable

from experiments import artefacts, reproduce
from experiments.artefacts.artefact import SIZES
from experiments.command_line import pages
from experiments.specification import spec
from experiments.specification.kinds import ALGORITHM
from experiments.studies import request
from fedjax_opt.study.tuning import BUDGETS

SHELLS = ("bash", "zsh")

_ANSWERS = ("help", "helpfull", "list", "version")
# Flags whose values are files, and endings of further such flags.
_ENDINGS = ("_dir", "_file")
_FILES = ("compilation_cache", "flagfile", "pretrained", "runs", "study")

_SCRIPT = """\
# What {shell} completes of fedjax-opt. To have it in each shell:
#   fedjax-opt --completion={shell} > {file}
# and add to {start}:
#   source {file}
{before}
_fedjax_opt() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" flag="" start="" words="" files=""
  # Bash has --flag, = and its value as three words, zsh as one.
  if [[ "$word" == --*=* ]]; then
    flag="${{word%%=*}}" start="${{word%%=*}}=" word="${{word#*=}}"
  elif [[ "$word" == "=" ]]; then
    flag="${{COMP_WORDS[COMP_CWORD - 1]}}" word=""
  elif (( COMP_CWORD > 1 )) && [[ "${{COMP_WORDS[COMP_CWORD - 1]}}" == "=" ]]
  then
    flag="${{COMP_WORDS[COMP_CWORD - 2]}}"
  fi
  if [[ -n "$flag" ]]; then
    case "$flag" in
{values}
    esac
  elif (( COMP_CWORD == 1 )); then
    words={commands}
  else
    case "${{COMP_WORDS[1]}}" in
{flags}
    esac
  fi
  local found each
  if [[ -n "$files" ]]; then
    found="$(printf '%s\\n' "$word"*)"
  else
    found="$(compgen -W "$words" -- "$word")"
  fi
  COMPREPLY=()
  while IFS= read -r each; do
    if [[ -z "$each" || ( -n "$files" && ! -e "$each" ) ]]; then
      continue
    elif [[ -n "$files" && -d "$each" ]]; then
      each="$each/"
    elif [[ "$each" != *= ]]; then
      each="$each "
    fi
    COMPREPLY+=("$start$each")
  done <<< "$found"
}}
complete -o nospace -F _fedjax_opt fedjax-opt"""

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
  return _SCRIPT.format(
    shell=shell,
    commands=_words([*commands, "help", "--completion="]),
    values="\n".join(
      [
        *(f"      --{n}) words={_words(w)} ;;" for n, w in values().items()),
        f"      {files}) files=1 ;;",
      ]
    ),
    flags="\n".join(
      f"      {name}) words={_words(words)} ;;" for name, words in flags.items()
    ),
    **_OF_SHELL[shell],
  )


def flags_of_commands() -> dict[str, list[str]]:
  """Command -> its flags, with = before a value."""
  of_run = list(spec.every())
  of_study = [name for name in of_run if name not in request.OF_A_RUN]
  own = [name for name in request.OF_STUDY if name not in of_study]
  of_reproduce = {
    name: kind for kind, names in reproduce.FLAGS.items() for name in names
  }
  return {
    "run": _typed([*of_run, "flagfile", *_ANSWERS]),
    "compare": _typed(
      [*own, *of_study, "flagfile", *_ANSWERS], spec.conditions()
    ),
    "convert": [*_typed([*of_run, "flagfile", *_ANSWERS]), "--verify"],
    "reproduce": [
      "--help",
      *(f"--{n}{'=' * (kind != 'bool')}" for n, kind in of_reproduce.items()),
    ],
  }


def _typed(names: Iterable[str], with_values: Iterable[str] = ()) -> list[str]:
  """Flags as they are typed: switches without a value, and off with no.

  Args:
    names: of the flags.
    with_values: switches that take several values, because they are conditions.
  """
  known, typed = spec.every(), []
  for name in names:
    if name in _ANSWERS or name == "nested":
      typed.append(f"--{name}")
    elif name not in with_values and name in known and known[name].type is bool:
      typed += [f"--{name}", f"--no{name}"]
    else:
      typed.append(f"--{name}=")
  return typed


def values() -> dict[str, list[str]]:
  """Flag -> the words that it accepts, for flags that accept words."""
  every = spec.every()
  found = {name: flag.words for name, flag in every.items() if flag.words}
  groups = [group.key for group in spec.GROUPS]
  return found | {
    "method": list(ALGORITHM.registry),
    "budget": list(BUDGETS),
    "artefact": [*artefacts.ARTEFACTS, "all"],
    "size": list(SIZES),
    "help": list(dict.fromkeys([*groups, *pages.names(), *every])),
    "list": _kinds(),
    "completion": list(SHELLS),
  }


def _kinds() -> list[str]:
  return [kind.replace(" ", "_") for kind in pages.KINDS]


def _files() -> list[str]:
  """Flags whose values are files or folders."""
  return [
    *_FILES,
    *(name for name in spec.FLAGS if name.endswith(_ENDINGS)),
    "pretrained_dir",
  ]


def _words(words: Iterable[str]) -> str:
  return shlex.quote(" ".join(words))
