"""The console script: its commands, what is installed, and files of flags."""

import os
import subprocess
import sys

import pytest

from experiments import cli, convert, run
from experiments.command_line import flag_words, parser
from tests.helpers.commands import REPOSITORY, new_python, spec_of
from tests.helpers.refusals import refusal
from tests.helpers.tables_of_calls import read_cases


def command(*arguments):
  """Exit status of `fedjax-opt` with these arguments."""
  return cli.main(["fedjax-opt", *arguments])


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",), ("help",)])
def test_help_is_short(capsys, arguments):
  assert command(*arguments) == 0
  out, err = capsys.readouterr()
  assert err == ""
  assert out.startswith("usage: fedjax-opt COMMAND [flags]\n")
  assert len(out.splitlines()) < 16
  assert max(map(len, out.splitlines())) <= 80
  for name in ("run", "compare", "convert", "list", "version"):
    assert f"\n  {name} " in out


EXAMPLES = [
  (name, entry.example)
  for name, entry in cli._COMMANDS.items()
  if entry.option is None
]


@pytest.mark.parametrize(
  ("name", "example"), EXAMPLES, ids=[name for name, _ in EXAMPLES]
)
@pytest.mark.slow_cases("compare", "run")
def test_the_help_has_an_example_that_works(
  monkeypatch, tmp_path, capsys, name, example
):
  command()
  assert f"  fedjax-opt {name} {example}\n" in capsys.readouterr().out
  shorter = {
    "run": ["--rounds=1"],
    "compare": ["--rounds=1", "--report_seeds=2"],
  }.get(name, [])
  monkeypatch.chdir(tmp_path)
  assert command(name, *example.split(), *shorter) == 0
  assert list(tmp_path.iterdir())


@pytest.mark.parametrize(
  ("name", "hint"),
  [
    ("runn", "; did you mean run?"),
    ("train", ""),
    ("Convert", "; did you mean convert?"),
  ],
)
def test_no_such_command(capsys, name, hint):
  assert command(name, "--rounds=2") == 1
  assert capsys.readouterr() == (
    "",
    f"error: {name!r}: must be one of run, compare, reproduce, convert, list, "
    "version"
    f"{hint}\n",
  )


def test_a_flag_without_a_command(capsys):
  assert command("--rounds=2") == 1
  assert capsys.readouterr().err == (
    "error: '--rounds=2': must come after a command: fedjax-opt run "
    "--rounds=2\n"
  )


@pytest.mark.parametrize(
  ("name", "program"), [("run", run), ("convert", convert)]
)
def test_commands_get_the_flags_and_give_the_status(monkeypatch, name, program):
  calls = []
  monkeypatch.setattr(program, "main", lambda argv: calls.append(argv) or 7)
  assert command(name, "--client=sgd", "--rounds=2") == 7
  assert calls == [[f"fedjax-opt {name}", "--client=sgd", "--rounds=2"]]


def test_no_such_command_is_told_before_jax_is_imported():
  code = (
    "import sys\nfrom experiments import cli\n"
    "status = cli.main(['fedjax-opt', 'trian'])\n"
    "sys.exit(status != 1 or 'jax' in sys.modules)\n"
  )
  new_python("-c", code)


@pytest.mark.parametrize(
  "redirected", [">/dev/full", "2>/dev/full", ">&-", ">&- 2>&- <&-", "| true"]
)
def test_what_cannot_be_printed_ends_nothing(redirected):
  """Not the last word either: Python's own status would be 120."""
  program = f"set -o pipefail; {sys.executable} -m experiments"
  for word, status in (("help", 0), ("no-such", 1)):
    process = subprocess.run(
      ["bash", "-c", f"{program} {word} {redirected}"],
      cwd=REPOSITORY,
      check=False,
      capture_output=True,
    )
    assert process.returncode == status
    assert b"Traceback" not in process.stderr


def test_text_in_a_locale_without_it():
  locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
  child = subprocess.run(
    [sys.executable, "-m", "experiments", "\N{GREEK SMALL LETTER ETA}"],
    cwd=REPOSITORY,
    env={n: v for n, v in os.environ.items() if n != "PYTHONUTF8"} | locale,
    check=False,
    capture_output=True,
  )
  assert child.returncode == 1
  assert child.stderr.decode().startswith("error: '\N{GREEK SMALL LETTER ETA}'")


# Files of flags.


def test_files_in_place_of_their_names(tmp_path):
  inner, outer = tmp_path / "inner.flags", tmp_path / "outer.flags"
  inner.write_text("--rounds=3\n\n  --seed=1  \n")
  lines = f"--b=1\n# one\n// two\n--flagfile={inner}\n--seed=2\n"
  outer.write_text(lines, "utf-8-sig")  # As Windows' editors may write it.
  arguments = ["--a=1", f"--flagfile={outer}", "--flagfile", str(inner), "x"]
  assert parser.expanded(arguments) == [
    *("--a=1", "--b=1", "--rounds=3", "--seed=1", "--seed=2"),
    *("--rounds=3", "--seed=1", "x"),
  ]


def test_the_flags_of_a_run_are_not_those_of_a_process():
  of_process = ("--coordinator=a:1", "--num_processes=2", "--process_id=1")
  spec = spec_of("--rounds=7", *of_process, "--output_dir=a", "--resume")
  assert flag_words.arguments(spec) == ["--rounds=7"]


@pytest.mark.parametrize(
  "name", ["experiments/domo/cifar100.flags", "domo/cifar100.flags"]
)
def test_presets_are_found_in_every_folder(tmp_path, monkeypatch, name):
  monkeypatch.chdir(tmp_path)
  flags = parser.expanded([f"--flagfile={name}"])
  # Those of the files that it names are among them.
  assert not any("flagfile" in flag for flag in flags)
  assert {"--task=cifar100_vgg16"} < set(flags)
  # A file of one's own comes first.
  (tmp_path / "experiments" / "domo").mkdir(parents=True)
  own_file = tmp_path / "experiments" / "domo" / "cifar100.flags"
  own_file.write_text("--rounds=1")
  flags = parser.expanded(["--flagfile=experiments/domo/cifar100.flags"])
  assert flags == ["--rounds=1"]


@pytest.mark.parametrize(
  ("content", "message"), read_cases("experiments/bad_flag_files.txt")
)
def test_bad_files(tmp_path, content, message):
  path = tmp_path / "some.flags"
  content = eval(content, {"path": bytes(path)})
  if content is not None:
    path.write_bytes(content)
  line = refusal(parser.expanded, [f"--flagfile={path}"])
  assert line == message.format(path=path)


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_never_ends(tmp_path, kind):
  path = tmp_path / "some.flags"
  if kind == "pipe":
    os.mkfifo(path)
  else:
    path.symlink_to("/dev/zero")
  line = refusal(parser.expanded, [f"--flagfile={path}"])
  assert line.startswith(f"flagfile='{path}': cannot be read (it is no file)")
