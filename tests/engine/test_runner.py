"""A run from its start to its end, also an early one."""

import os
import signal
import threading

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_opt import fed_avg, simulate
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


def test_no_rounds_evaluate_the_initial_model():
  result = slow(0)
  assert result.history.rounds == [0]
  np.testing.assert_array_equal(result.params, np.zeros(N))
