"""What the command line refuses: one line, nothing compiled, nothing written.

refusals.txt has the command lines of runs, refusals_of_studies.txt those of
studies, and below each, indented, the message; names in braces stand for those
of a registry.
"""

import os
import pathlib
import shlex

import pytest

from experiments import compare, run
from experiments.specification.kinds import ALGORITHM, KINDS, REGULARIZER
from tests.experiments.commands import call

NAMES = {flag: ", ".join(kind.registry) for flag, kind in KINDS.items()} | {
  "penalties": REGULARIZER.names(lambda each: each.is_finite),
  "composite": ALGORITHM.names(lambda each: each.takes_regularizer),
}


def lines_of(name):
  text = pathlib.Path(__file__).with_name(name).read_text()
  return [line for line in text.splitlines() if line and line[0] != "#"]


FILES = {"refusals.txt": run, "refusals_of_studies.txt": compare}
REFUSALS = [
  (FILES[name], *pair)
  for name in FILES
  for pair in zip(lines_of(name)[::2], lines_of(name)[1::2], strict=True)
]


def test_the_tables_are_whole():
  assert len({each[:2] for each in REFUSALS}) == len(REFUSALS)
  assert all(message.startswith("  ") for _, _, message in REFUSALS)
  assert not any(arguments[0] == " " for _, arguments, _ in REFUSALS)


@pytest.mark.parametrize(("program", "arguments", "message"), REFUSALS)
def test_is_refused(
  program, arguments, message, tmp_path, capsys, compilations
):
  folder = tmp_path / "run"
  message = message.strip().format(folder=folder, **NAMES)
  flags = (f"--output_dir={folder}", *shlex.split(arguments))
  assert call(*flags, program=program) == 1
  captured = capsys.readouterr()
  assert captured.err == f"error: {message}\n"
  assert captured.out == ""
  assert not compilations
  assert not os.listdir(tmp_path)
