"""The benchmarks: they can be imported, and divide time as they say."""

import importlib
import pathlib

import pytest

FOLDER = pathlib.Path(__file__).parent.parent / "benchmarks"
# Those that need another framework.
ELSEWHERE = {"fedjax_worker", "flower_worker", "torch_worker"}
NAMES = sorted({path.stem for path in FOLDER.glob("*.py")} - ELSEWHERE)


@pytest.fixture
def load(monkeypatch):
  monkeypatch.syspath_prepend(str(FOLDER))
  return importlib.import_module


@pytest.mark.parametrize("name", NAMES)
def test_benchmark_can_be_imported(load, name):
  assert load(name).__doc__


def test_rounds_of_a_turn_and_the_memory_planned_for_them(load):
  worker = load("fedjax_opt_worker")
  workload = load("workloads").WORKLOADS["least_squares"]
  run_rounds = worker.build_fed_avg(workload._replace(num_steps=1))
  found = run_rounds(2)
  assert found["seconds"] > 0
  assert found["planned"] > 0


def test_every_moment_counts_for_one_stage(load):
  first_result = load("first_result")
  interval = first_result.Interval
  stages = [interval("init", 1, 4), interval("other compilation", 5, 9)]
  events = [
    interval("tracing", 2, 3),  # Within another stage.
    interval("tracing", 5, 7),
    interval("compiling", 6, 8),  # In a thread, while tracing goes on.
  ]
  seconds = first_result.split(stages, events, 0, 10)
  some = {name: value for name, value in seconds.items() if value}
  assert some == {
    "init": 3,
    "tracing": 1,
    "compiling": 2,
    "other compilation": 1,
    "other": 3,
  }
