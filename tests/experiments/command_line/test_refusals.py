"""What the command line refuses: one line, nothing compiled, nothing written.

refusals.txt has the command lines of runs, refusals_of_studies.txt those of
studies; names in braces stand for those of a registry.
"""

import os
import shlex

import pytest

from experiments import compare, run
from experiments.specification.choice_flags import CHOICE_FLAGS as FLAGS
from tests.helpers.commands import call
from tests.helpers.compilations import compilations
from tests.helpers.tables_of_calls import read_cases

NAMES = {flag: ", ".join(entry.registry) for flag, entry in FLAGS.items()} | {
  "penalties": FLAGS["regularizer"].names(lambda entry: entry.is_finite),
  "composite": FLAGS["algorithm"].names(lambda entry: entry.takes("psi")),
}
NAMES["one_penalty"] = " or ".join(NAMES["penalties"].rsplit(", ", 1))


PROGRAMS = {
  "command_line/refusals.txt": run,
  "command_line/refusals_of_studies.txt": compare,
}
REFUSALS = [
  pytest.param(program, *case.values, id=case.id)
  for file, program in PROGRAMS.items()
  for case in read_cases(f"experiments/{file}")
]


def test_a_table_that_is_not_whole_is_noticed(tmp_path):
  file = tmp_path / "table.txt"
  for text in ("", "a\n", "a\nb\n", "  a\nb\n", "a\n  b\na\n  c\n"):
    file.write_text(text)
    with pytest.raises(AssertionError):
      read_cases(file)


@pytest.mark.parametrize(("program", "arguments", "message"), REFUSALS)
def test_is_refused(program, arguments, message, tmp_path, capsys):
  folder = tmp_path / "run"
  message = message.format(folder=folder, **NAMES)
  flags = (f"--output_dir={folder}", *shlex.split(arguments))
  with compilations() as programs:
    assert call(*flags, program=program) == 1
  captured = capsys.readouterr()
  assert captured.err == f"error: {message}\n"
  assert captured.out == ""
  assert not programs
  assert not os.listdir(tmp_path)
