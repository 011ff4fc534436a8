"""The README's Python, run as it stands."""

import pathlib
import re

import pytest

README = pathlib.Path(__file__).parent.parent / "README.md"


def blocks() -> list[str]:
  return re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def test_every_block_runs_after_those_before_it():
  names = {}
  assert len(blocks()) >= 4
  for block in blocks():
    exec(compile(block, str(README), "exec"), names)


@pytest.mark.parametrize("word", ["NormalizedState", "fed_exp"])
def test_an_own_rule_and_an_own_algorithm_take_at_most_30_lines(word):
  (block,) = [b for b in blocks() if f" {word}(" in b and "def " in b]
  assert len(block.splitlines()) <= 30
