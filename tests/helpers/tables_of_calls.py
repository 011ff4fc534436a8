"""Tables of calls in text files, and what comes of each.

A call is a line, and below it, indented, is what comes of it. Empty lines, and
those that begin with #, say nothing. A line [name] begins a section.
"""

import pathlib

import pytest


def read_cases(file, section=None):
  """Cases for `parametrize`, each `(call, what comes of it)`.

  Args:
    file: its path from the folder `tests`.
    section: its name; None if the file has none.
  """
  text = (pathlib.Path(__file__).parents[1] / file).read_text()
  if section is not None:
    text = text.partition(f"\n[{section}]\n")[2].partition("\n[")[0]
  lines = [line for line in text.splitlines() if line and line[0] != "#"]
  calls, outcomes = lines[::2], lines[1::2]
  assert [line[0] == " " for line in lines] == [False, True] * len(calls)
  assert len(set(calls)) == len(calls) > 0
  pairs = zip(calls, outcomes, strict=True)
  return [pytest.param(call, text.strip(), id=call) for call, text in pairs]
