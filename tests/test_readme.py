"""The README's Python, run as it stands, and the flags that it names."""

import pathlib
import re
import subprocess
import sys

import pytest

README = pathlib.Path(__file__).parent.parent / "README.md"


def blocks() -> list[str]:
  return re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def test_every_block_runs_after_those_before_it(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)  # Some write files.
  names = {}
  assert len(blocks()) >= 8
  for block in blocks():
    exec(compile(block, str(README), "exec"), names)


@pytest.mark.parametrize("word", ["NormalizedState", "fed_exp"])
def test_an_own_rule_and_an_own_algorithm_take_at_most_30_lines(word):
  (block,) = [b for b in blocks() if f" {word}(" in b and "def " in b]
  assert len(block.splitlines()) <= 30


# Flags of other programs: benchmarks, pip, Slurm, gcloud.
OTHERS = {
  "command", "fedjax_python", "gpus", "help", "nodes", "ntasks", "torch_python",
  "worker", "zone",
}  # fmt: skip


def test_every_flag_that_is_named_exists():
  known = set()
  for program in ("run", "compare"):
    command = [sys.executable, "-m", f"experiments.{program}", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    known |= set(re.findall(r"--(?:\[no\])?(\w+)", shown.stdout))
  named = set(re.findall(r"--(\w+)", README.read_text())) - OTHERS
  named = {n for n in named if n in known or n.removeprefix("no") not in known}
  assert len(named) > 30
  assert not named - known
