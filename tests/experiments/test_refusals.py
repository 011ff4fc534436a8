"""What the command line refuses: one line, nothing compiled, nothing written.

refusals.txt has the command lines, and below each, indented, the message; names
in braces stand for those of a registry.
"""

import os
import pathlib
import shlex

import pytest

from experiments.specification.kinds import ALGORITHM, KINDS, REGULARIZER
from tests.experiments.commands import call

NAMES = {flag: ", ".join(kind.registry) for flag, kind in KINDS.items()} | {
  "penalties": REGULARIZER.names(lambda each: each.is_finite),
  "composite": ALGORITHM.names(lambda each: each.takes_regularizer),
}
TEXT = pathlib.Path(__file__).with_name("refusals.txt").read_text()
LINES = [line for line in TEXT.splitlines() if line and line[0] != "#"]
REFUSALS = dict(zip(LINES[::2], LINES[1::2], strict=True))


def test_the_table_is_whole():
  assert len(REFUSALS) == len(LINES) / 2
  assert all(text.startswith("  ") for text in REFUSALS.values())
  assert not any(line.startswith(" ") for line in REFUSALS)


@pytest.mark.parametrize("arguments", REFUSALS)
def test_is_refused(arguments, tmp_path, capsys, compilations):
  folder = tmp_path / "run"
  message = REFUSALS[arguments].strip().format(folder=folder, **NAMES)
  assert call(f"--output_dir={folder}", *shlex.split(arguments)) == 1
  captured = capsys.readouterr()
  assert captured.err == f"error: {message}\n"
  assert captured.out == ""
  assert not compilations
  assert not os.listdir(tmp_path)
