"""What bash and zsh complete."""

import shutil
import subprocess

import pytest

from experiments import cli, compare, completion, convert, reproduce, run
from experiments.specification import spec as specs
from experiments.studies import request

# Words of a line, the last one as far as it was typed -> what follows.
LINES = [
  ("fedjax-opt ru", "run "),
  ("fedjax-opt run --client_lr", "--client_lr="),
  ("fedjax-opt run --noprog", "--noprogress "),
  ("fedjax-opt run --algorithm=scaf", "scaffold "),
  ("fedjax-opt run --rounds=3 --partition=sim", "similarity "),
  ("fedjax-opt compare --task=lass", "lasso "),
  ("fedjax-opt compare --nes", "--nested "),
  ("fedjax-opt convert --verif", "--verify "),
  ("fedjax-opt convert --verify --population_dir=clie", "clients/"),
  ("fedjax-opt run --flagfile=one.fl", "one.flags "),
  ("fedjax-opt run --events_file=one.fl", "one.flags "),
  ("fedjax-opt run --data_dir=a", "a\\ b/"),
  ("fedjax-opt run --help=clien", None),
  ("fedjax-opt reproduce --artefact=domo/table1", "domo/table1 "),
  ("fedjax-opt list client", "client_rules "),
  ("fedjax-opt --completion=z", "zsh "),
  ("fedjax-opt list none-such", ""),
]
# Ends a shell's list of words as bash has them.
BASH = """
{script}
COMP_WORDS=({words})
COMP_CWORD=$(({number} - 1))
_fedjax_opt
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
# Types each line of `lines` and a tab, and writes what became of it.
ZSH = """
zmodload zsh/zpty
zpty shell TERM=dumb zsh -f -i
zpty -w shell 'note() { print -r -- "$BUFFER|" >> completed; BUFFER= }'
zpty -w shell 'zle -N note; bindkey "^X" note; source ./script; touch ready'
until [[ -e ready ]]; do sleep 0.1; done
number=0
while read -r line; do
  zpty -n -w shell "$line"$'\\t\\x18'
  (( number += 1 ))
  until (( $(wc -l < completed) == number )); do sleep 0.02; done
done < lines
zpty -d shell
"""


def bash(line, folder):
  words = line.replace("=", " = ").split()
  code = BASH.format(
    script=completion.script("bash", cli._COMMANDS),
    words=" ".join(words), number=len(words),
  )  # fmt: skip
  process = subprocess.run(
    ["bash", "-c", code], cwd=folder, capture_output=True, text=True, check=True
  )
  assert process.stderr == ""
  return process.stdout.removesuffix("\n").split("\n")


@pytest.fixture
def folder(tmp_path):
  (tmp_path / "clients").mkdir()
  (tmp_path / "one.flags").touch()
  (tmp_path / "a b").mkdir()
  return tmp_path


def test_bash_looks_into_the_home_folder(folder, monkeypatch):
  monkeypatch.setenv("HOME", str(folder))
  line = "fedjax-opt run --data_dir=\\~/cl"
  assert bash(line, folder) == [f"{folder}/clients/"]


@pytest.mark.parametrize(("line", "word"), LINES)
def test_bash(line, word, folder):
  completions = bash(line, folder)
  if word is None:  # A group, rules and flags have this beginning.
    assert {"client ", "client_lr ", "client_map "} <= set(completions)
  else:
    assert completions == [word]


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh(folder):
  cases = [(line, word) for line, word in LINES if word][::3]
  lines = [line for line, _ in cases]
  script = completion.script("zsh", cli._COMMANDS)
  (folder / "script").write_text(script)
  (folder / "lines").write_text("".join(f"{line}\n" for line in lines))
  (folder / "completed").touch()
  subprocess.run(["zsh", "-f", "-c", ZSH], cwd=folder, check=True, timeout=60)
  completions = (folder / "completed").read_text().splitlines()
  starts = [line[: max(line.rfind("="), line.rfind(" ")) + 1] for line in lines]
  words = [word for _, word in cases]
  assert completions == [f"{b}{w}|" for b, w in zip(starts, words, strict=True)]


@pytest.mark.parametrize("name", ["run", "compare", "convert"])
def test_every_flag_of_a_command(name):
  flags = {
    word.removeprefix("--").removesuffix("=")
    for word in completion.flags_of_commands()[name]
  }
  known_flags = set(specs.all_flags())
  assert len(known_flags) > 100
  if name == "compare":
    known_flags = known_flags - set(request.ONLY_OF_A_RUN) | set(
      request.OF_STUDY
    )
  common_flags = {"flagfile", "help", "helpfull", "list", "version"}
  conditions = specs.conditions() if name == "compare" else []
  all_flags = request.FLAGS | specs.all_flags()
  switches = {n for n, flag in all_flags.items() if flag.type is bool}
  switches = (switches & known_flags) - set(conditions)
  switched_off = {f"no{n}" for n in switches}
  assert flags - {"verify"} == known_flags | common_flags | switched_off


@pytest.mark.parametrize("program", [run, compare, convert, reproduce])
def test_switches_take_no_value(program, capsys):
  """All at once, before a flag that does not exist."""
  name = program.__name__.removeprefix("experiments.")
  answers = ("--help", "--helpfull", "--list", "--version", "--verify")
  words = [
    word
    for word in completion.flags_of_commands()[name]
    if not word.endswith("=") and word not in answers
  ]
  assert words
  assert program.main([name, *words, "--none_such"]) == 1
  assert "--none_such: no such flag" in capsys.readouterr().err
