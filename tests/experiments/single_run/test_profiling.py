"""--profile traces some rounds; clients are read while others compute."""

import gzip
import json
import threading

import jax
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt.engine import feed
from tests.helpers import jax_problems
from tests.helpers.commands import call

SMALL = (
  "--task=digits_logistic", "--num_clients=6", "--cohort_size=2",
  "--client=sgd", "--client_lr=0.1", "--batch_size=64", "--eval_every=2",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("rounds", "done"), [(0, None), (6, None), (12, 6)])
def test_the_rounds_between_evaluations_are_traced(
  rounds, done, tmp_path, capsys
):
  folder = tmp_path / "run"
  shared = (*SMALL, "--checkpoint_every=2", f"--output_dir={folder}")
  if done:
    assert call(*shared, f"--rounds={done}") == 0
  flags = (f"--rounds={rounds}", "--profile", "--resume")
  assert call(*shared, *flags) == 0
  (line,) = [
    line
    for line in capsys.readouterr().err.splitlines()
    if line.startswith("profile: ")
  ]
  (path,) = (folder / "profile").rglob("perfetto_trace.json.gz")
  assert str(path) in line
  with gzip.open(path, "rt") as file:
    names = {event.get("name", "") for event in json.load(file)["traceEvents"]}
  has_rounds = any("jit(rounds)" in name for name in names)
  assert has_rounds == (rounds > 0)
  assert list((folder / "profile").rglob("*.xplane.pb"))


@pytest.mark.slow
def test_a_segment_is_read_while_one_is_computed(tmp_path, monkeypatch):
  """Here its program waits until the next one is read."""
  task, rounds = jax_problems.softmax(), 5
  population = fo.Population.of_client_data(tmp_path / "clients", task.data)
  events, programs = [threading.Event() for _ in range(rounds)], []
  read, call_program = feed.Feed._read, jax.stages.Compiled.__call__

  def read_and_tell(self, clients):
    if (clients < task.data.num_clients).any():  # Of nobody: for the shapes.
      next(event for event in events if not event.is_set()).set()
    return read(self, clients)

  def call_and_wait(program, *inputs):
    if len(programs) < rounds - 1:  # After the last one nothing is read.
      assert events[len(programs) + 1].wait(60)
    programs.append(program)
    return call_program(program, *inputs)

  monkeypatch.setattr(feed.Feed, "_read", read_and_tell)
  monkeypatch.setattr(jax.stages.Compiled, "__call__", call_and_wait)
  monkeypatch.setattr(feed, "_SEGMENT_BYTES", 1)  # A round in each segment.
  fo.simulate(
    fo.fed_avg(task.loss_fn, optax.sgd(0.1)), task.params, population,
    rounds=rounds, cohort_size=3, batch_size=4, local_steps=2,
  )  # fmt: skip
  assert all(event.is_set() for event in events)
