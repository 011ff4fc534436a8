"""The help, the lists and the version, as a user asks for them."""

import re
import shlex

import numpy as np
import pytest

import fedjax_opt
from experiments import compare, convert, run
from experiments.command_line import choice_pages
from experiments.command_line import help as help_of_flags
from experiments.specification import spec as specs
from experiments.specification.choice_flags import CHOICE_FLAGS
from experiments.studies import request
from tests.helpers.commands import call, new_python, printed, spec_of

pytestmark = pytest.mark.quick


@pytest.fixture
def ask(capsys):
  """`(*arguments) -> str`, what is printed; the exit status is 0."""

  def ask(*arguments):
    out, err = printed(capsys, *arguments)
    assert err == ""
    assert max(map(len, out.splitlines())) <= 80
    return out

  return ask


def flags_in(text):
  """The flags that have an entry of their own."""
  lines = [line.split() for line in text.splitlines() if line[:4] == "  --"]
  return [words[0].removeprefix("--").removeprefix("[no]") for words in lines]


BEGIN_WITH = "Flags to begin with:\n"


@pytest.mark.parametrize("program", [run, compare, convert])
def test_the_first_screen(program, capsys):
  text, _ = printed(capsys, "--help", program=program)
  assert len(text.splitlines()) <= 45
  assert max(map(len, text.splitlines())) <= 80
  for group in specs.GROUPS:
    assert f"\n  {group.key} " in text
  for word in ("--help=NAME", "--help=FLAG", "--helpfull", "--list"):
    assert f"\n  {word} " in text
  block = text.split(BEGIN_WITH)[1].split("\n\n")[0]
  begin_with = flags_in(re.sub(r"[=].*", "", block))
  assert 6 <= len(begin_with) <= 10
  other_flags = {*request.OF_STUDY, "verify"}
  assert set(begin_with) <= {*specs.all_flags(), *other_flags}


def test_the_first_screen_has_the_defaults():
  defaults = re.findall(r"^  --(\w+)=.*Default: (\S+)\.$", run.__doc__, re.M)
  assert len(defaults) == 7
  run_spec = spec_of("--noprogress")
  for name, default in defaults:
    value = getattr(run_spec, name) or specs.COHORT_SIZE
    value = getattr(value, "name", value)
    assert default == f"{specs.single_or_list(value)}".removesuffix(".0")


def test_whole(ask):
  text, first = ask("--helpfull"), ask("--help")
  assert text.startswith(first.rstrip())
  # Every flag once, below the first screen.
  assert flags_in(text.removeprefix(first)) == list(specs.all_flags())
  assert "(sgd 0.1, sgdm 0.1, nesterov 0.1, adam 0.001," in " ".join(
    text.split()
  )
  assert "pdb" not in text


GROUPS = {
  "rounds": "Rounds", "ROUNDS": "Rounds", "reg": "Regularizer",
  "Comp": "Computation", "client": "Clients' rule",
  "clients' data": "Clients' data", "devices": "Devices and processes",
  "algorithms": "Algorithm",
}  # fmt: skip


@pytest.mark.parametrize("word", GROUPS)
def test_one_group(ask, word):
  text, title = ask(f"--help={word}"), GROUPS[word]
  assert text.startswith(f"{title}:\n")
  names = [n for n, f in specs.all_flags().items() if f.group.title == title]
  assert flags_in(text) == names


@pytest.mark.parametrize("word", ["study", "nested", "min-effect"])
def test_a_flag_of_a_study(word, capsys):
  text, _ = printed(capsys, f"--help={word}", program=compare)
  names = flags_in(text.replace("=", " "))
  shared = ("output_dir", "progress", "track")  # With a run.
  study_flags = [name for name in request.OF_STUDY if name not in shared]
  expected = study_flags if word == "study" else [word.replace("-", "_")]
  assert sorted(names) == sorted(expected)


def test_one_flag(ask):
  text = ask("--help=client_lr")
  assert flags_in(text) == ["client_lr"]
  assert text.endswith("\n\nIn group Clients' rule: --help=client\n")
  assert ask("--help=Client-LR") == text
  assert flags_in(ask("--help=noprogress")) == ["progress"]


def test_one_algorithm(ask):
  assert ask("--help=scaffold") == (
    "scaffold (algorithm)\n"
    "  local steps with control variates (Karimireddy et al., 2020).\n"
    "  Source: Karimireddy et al., ICML 2020, Algorithm 1.\n"
    "\n"
    "Its flags:\n"
    "  --[no]exact_control  Control variates are exact gradients (option I).\n"
    "  --client_lr          [list] Step size; 0 or more. Default: 0.1.\n"
    "  --server_lr          [list] Step size; 0 or more. Default: 1.\n"
    "\n"
    "It goes with:\n"
    "  client       sgd only: it takes plain steps, not those of another "
    "rule\n"
    "  server       sgd only, with step size server_lr\n"
    "  regularizer  none\n"
    "\n"
    "Example:\n"
    "  python -m experiments.run --algorithm=scaffold --client_lr=0.01,0.1\n"
  )


def test_a_name_of_two_kinds_has_two_pages(ask):
  text = ask("--help=sgd")
  assert text.startswith("sgd (client rule)\n")
  assert "\n\nsgd (server rule)\n" in text
  assert flags_in(text) == ["client_lr", "server_lr"]
  # The server's default is not the clients'.
  assert "Default: 0.1." in text
  assert "Default: 1." in text


@pytest.mark.parametrize(
  "kind", [kind for kind in choice_pages.CHOICE_PAGES if kind != "models"]
)
def test_examples_and_flags_are_accepted(kind, tmp_path):
  file = tmp_path / "own.npz"
  np.savez(file, x=np.ones((4, 8, 8)), y=np.arange(4) % 2)
  for name in choice_pages.CHOICE_PAGES[kind].registry:
    example = choice_pages.example(kind, name).replace("FILE.npz", str(file))
    example = example.replace("_file=FILE.csv", f"_file={file}")
    arguments = shlex.split(example)
    spec_of(*arguments)
    flags = choice_pages.CHOICE_PAGES[kind].flags(name)
    assert max(map(len, help_of_flags.answer(name, "").splitlines())) <= 80
    for flag, parameter in flags.items():
      if isinstance(parameter.default, str):
        spec_of(*arguments, f"--{flag}={parameter.default}")


def test_list(ask):
  text = ask("--list")
  flags = [page.choice_flag for page in choice_pages.CHOICE_PAGES.values()]
  assert all(kind in flags for kind in CHOICE_FLAGS.values())
  for kind, page in choice_pages.CHOICE_PAGES.items():
    block = text.split(f"{kind[0].upper()}{kind[1:]}:\n")[1].split("\n\n")[0]
    assert [row.split()[0] for row in block.splitlines()] == list(page.registry)


@pytest.mark.parametrize(
  ("word", "titles"),
  [
    ("algorithms", ["Algorithms"]),
    ("Algorithm", ["Algorithms"]),
    ("client", ["Client rules"]),
    ("client_rules", ["Client rules"]),
    ("rules", ["Client rules", "Server rules"]),
  ],
)
def test_list_of_a_kind(ask, word, titles):
  blocks = ask(f"--list={word}").split("\n\n")
  assert [block.splitlines()[0] for block in blocks] == [
    f"{title}:" for title in titles
  ]


def test_version(ask):
  import jax

  text = ask("--version")
  assert text.startswith(
    f"fedjax_opt {fedjax_opt.__version__}, jax {jax.__version__}, device "
  )
  assert jax.devices()[0].platform in text


def test_help_and_lists_start_no_device():
  code = (
    "import jax, sys\n"
    "from experiments.command_line import choice_pages, help\n"
    "help.answer('scaffold', ''), help.answer(None, '')\n"
    "choice_pages.listed(None)\n"
    "from jax._src import xla_bridge\n"
    "sys.exit(bool(xla_bridge._backends))\n"
  )
  new_python("-c", code)


@pytest.mark.parametrize(
  ("word", "flag"),
  [("report_seed", "report_seeds"), ("min_efect", "min_effect")],
)
def test_a_misspelt_flag_of_a_study_is_suggested(word, flag, capsys):
  assert call(f"--help={word}", program=compare) == 1
  assert f"did you mean --{flag}?" in capsys.readouterr().err
