"""A run from its start to its end, also an early one."""

import itertools
import os
import signal
import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_opt import Checkpoints, fed_avg, simulate, sweep
from fedjax_opt.engine import runner
from tests import jax_problems
from tests.engine.test_cohort import DATA, B, N, reward


def slow(rounds, **settings):
  return simulate(
    fed_avg(reward, optax.sgd(1e-6)),
    np.zeros(N),
    DATA,
    rounds=rounds,
    batch_size=B,
    evaluate=lambda params, data, test: {"sum": jnp.sum(params)},
    **settings,
  )


def test_interrupted_between_segments():
  def stop(report):
    if report.round == 4:
      raise KeyboardInterrupt

  result = slow(10, eval_every=2, on_evaluation=stop)
  assert result.interrupted
  assert result.rounds == 4
  assert result.history.rounds == [0, 2, 4]
  complete = slow(4, eval_every=2)
  assert not complete.interrupted
  np.testing.assert_array_equal(result.params, complete.params)


@pytest.fixture
def heeds_ctrl_c():
  """A program that was started in the background may ignore it."""
  before = signal.signal(signal.SIGINT, signal.default_int_handler)
  yield
  signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_a_third_ctrl_c_does_not_break_what_the_second_one_ends():
  steps = []

  def press_thrice(report):
    signal.raise_signal(signal.SIGINT)
    steps.append("goes on")
    try:
      signal.raise_signal(signal.SIGINT)
      steps.append("not reached")
    finally:
      signal.raise_signal(signal.SIGINT)
      steps.append("tidied up")

  assert slow(10, eval_every=2, on_evaluation=press_thrice).interrupted
  assert steps == ["goes on", "tidied up"]


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_interrupted_within_a_segment_keeps_a_whole_model():
  def later(report):
    if report.round == 0:
      interrupt = lambda: os.kill(os.getpid(), signal.SIGINT)
      threading.Timer(0.3, interrupt).start()

  result = slow(10**6, eval_every=5000, on_evaluation=later)
  assert result.interrupted
  assert result.rounds == result.history.rounds[-1] < 10**6
  last = result.history.metrics["sum"][0, -1]
  np.testing.assert_allclose(np.sum(result.params), last, rtol=1e-5)


def measured(params, data, test):
  del data, test
  return {"train_loss": jnp.sum(jax.tree.leaves(params)[0] ** 2)}


def resumed_run(folder, resume, on_evaluation=None, rounds=6):
  task = jax_problems.least_squares()
  return simulate(
    fed_avg(task.loss_fn, optax.sgd(0.01)),
    task.params,
    task.data,
    rounds=rounds,
    batch_size=4,
    evaluate=measured,
    eval_every=2,
    on_evaluation=on_evaluation,
    checkpoints=Checkpoints(folder, every=2, resume=resume),
  )


def test_a_run_that_was_stopped_is_resumed(tmp_path):
  """At round 0, and where a stop that is replayed ends it at once."""
  at = lambda round: lambda report: report.round == round
  assert resumed_run(tmp_path, False, at(0)).history.rounds == [0]
  assert resumed_run(tmp_path, True, at(2)).history.rounds == [0, 2]
  assert resumed_run(tmp_path, True, at(2)).history.rounds == [0, 2]
  assert resumed_run(tmp_path, True).history.rounds == [0, 2, 4, 6]


@pytest.mark.parametrize(
  ("answer", "rounds"), [([True, False], 6), ([True, True], 2), (True, 2)]
)
def test_a_grid_stops_when_all_its_points_may(answer, rounds):
  task = jax_problems.least_squares()
  result = sweep(
    lambda rate: fed_avg(task.loss_fn, optax.sgd(rate)),
    {"rate": [0.01, 0.02]},
    task.params,
    task.data,
    rounds=6,
    batch_size=4,
    evaluate=measured,
    eval_every=2,
    on_evaluation=lambda report: np.array(answer) & (report.round == 2),
  )
  assert result.rounds == rounds


def test_a_grid_is_resumed_with_another_map(tmp_path):
  """Settings that were done where they follow one another are dropped.

  After it, others diverge of those that were left.
  """
  task = jax_problems.least_squares()
  rates = [*np.geomspace(1e-3, 1e-2, 4), *np.geomspace(1, 16, 24)]

  def run(grid_map, rounds, resume):
    return sweep(
      lambda rate: fed_avg(task.loss_fn, optax.sgd(rate)),
      {"rate": rates},
      task.params,
      task.data,
      rounds=rounds,
      batch_size=4,
      evaluate=measured,
      eval_every=1,
      on_evaluation=lambda report: grid_map == "scan" and report.round == 3,
      checkpoints=Checkpoints(tmp_path, every=1, resume=resume),
      grid_map=grid_map,
    )

  first = run("scan", 40, resume=False)
  before = np.sum(~first.history.diverged()[:, -1])
  assert 16 <= before < 28
  result = run("vmap", 40, resume=True)
  status = [result.history.status(point) for point in range(28)]
  assert status == ["ok"] * 4 + ["diverged"] * 24


@pytest.mark.parametrize(
  ("done", "last", "every"),
  [(-1, 20, (7,)), (-1, 0, (5,)), (0, 9, (3, 4)), (6, 14, (7, 2, 5))],
)
def test_stops(done, last, every):
  multiples = {stop for step in every for stop in range(0, last, step)}
  expected = sorted(stop for stop in multiples | {last} if stop > done)
  assert list(runner.stops(done, last, every)) == expected


def test_stops_of_billions_of_rounds():
  """They are made one by one."""
  stops = runner.stops(-1, 2**31 - 1, (1,))
  assert list(itertools.islice(stops, 3)) == [0, 1, 2]
