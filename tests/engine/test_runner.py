"""A run from its start to its end, also an early one."""

import os
import signal
import threading

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_opt import Checkpoints, Simulator, fed_avg
from fedjax_opt.engine import runner
from tests.helpers import jax_problems
from tests.helpers.refusals import refusal
from tests.helpers.tables_of_calls import read_cases

TASK = jax_problems.least_squares()
OPTIONS = {
  "batch_size": 4,
  "eval_every": 2,
  "evaluate": lambda params, data, test: {
    "train_loss": jnp.sum(params["kernel"] ** 2)
  },
}


def make(rate):
  return fed_avg(TASK.loss_fn, optax.sgd(rate))


def run(rounds=6, **options):
  return TASK.simulate(make(0.01), rounds=rounds, **OPTIONS | options)


def grid(rates, rounds=6, **options):
  options = OPTIONS | options
  return TASK.sweep(make, {"rate": rates}, rounds=rounds, **options)


@pytest.mark.parametrize(
  ("answer", "rounds"),
  [
    (lambda report: report.round == 4, 4),
    (lambda report: report.metrics["train_loss"] > -np.inf, 0),  # [S]
    (lambda report: report, 6),
  ],
)
def test_a_run_ends_where_on_evaluation_says_so(answer, rounds):
  result = run(on_evaluation=answer)
  assert result.rounds == result.history.rounds[-1] == rounds
  assert not result.interrupted


@pytest.mark.parametrize(
  ("answer", "rounds"), [([True, False], 6), ([True, True], 2), (True, 2)]
)
@pytest.mark.default_cases("answer0-6")
def test_a_grid_stops_when_all_its_points_may(answer, rounds):
  stop = lambda report: np.array(answer) & (report.round == 2)
  assert grid([0.01, 0.02], on_evaluation=stop).rounds == rounds


def test_what_is_overwritten_is_not_read():
  reports, params_read = [], []

  def on_evaluation(report):
    reports.append(report)
    if report.round == 0:
      params_read.append(report.params)

  run(rounds=2, on_evaluation=on_evaluation)
  assert reports[0].params is params_read[0]  # A copy that was taken in time.
  initial = np.float32(TASK.params["kernel"])
  np.testing.assert_array_equal(params_read[0]["kernel"], initial)
  message = "report: the model and the state of round 2 are overwritten"
  for name in ("params", "state", "client_state"):
    with pytest.raises(ValueError, match=message):
      getattr(reports[-1], name)


def test_interrupted_between_segments():
  def stop(report):
    if report.round == 4:
      raise KeyboardInterrupt

  result, complete = run(10, on_evaluation=stop), run(4)
  assert result.interrupted
  assert result.rounds == 4
  assert result.history.rounds == [0, 2, 4]
  assert not complete.interrupted
  np.testing.assert_array_equal(
    result.params["kernel"], complete.params["kernel"]
  )


@pytest.fixture
def heeds_ctrl_c():
  """A program that was started in the background may ignore it."""
  handler = signal.signal(signal.SIGINT, signal.default_int_handler)
  yield
  signal.signal(signal.SIGINT, handler)


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

  assert run(10, on_evaluation=press_thrice).interrupted
  assert steps == ["goes on", "tidied up"]


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_interrupted_within_a_segment_keeps_a_whole_model():
  def later(report):
    if report.round == 0:
      interrupt = lambda: os.kill(os.getpid(), signal.SIGINT)
      threading.Timer(0.3, interrupt).start()

  options = {"cohort_size": 1, "local_steps": 1, "eval_every": 5000}
  result = run(10**6, on_evaluation=later, **options)
  assert result.interrupted
  assert result.history.rounds[-1] <= result.rounds < 10**6
  whole = run(result.rounds, **options)
  np.testing.assert_array_equal(result.params["kernel"], whole.params["kernel"])


@pytest.mark.slow
def test_a_run_that_was_stopped_is_resumed(tmp_path):
  """At round 0, and where a stop that is replayed ends it at once."""

  def rounds_of(resume, stop):
    return run(
      on_evaluation=lambda report: report.round == stop,
      checkpoints=Checkpoints(tmp_path, every=2, resume=resume),
    ).history.rounds

  assert rounds_of(resume=False, stop=0) == [0]
  assert rounds_of(resume=True, stop=2) == [0, 2]
  assert rounds_of(resume=True, stop=2) == [0, 2]
  assert rounds_of(resume=True, stop=None) == [0, 2, 4, 6]


# Extra metrics.


def run_with(extra_metrics, rounds=2, checkpoints=None, **options):
  options = OPTIONS | options
  return Simulator(make(0.01), TASK.data, **options).run_all(
    TASK.params, rounds, extra_metrics=extra_metrics, checkpoints=checkpoints
  )


def of_round(report):
  return {"m": np.array([report.round])}


@pytest.mark.parametrize("others", [{}, {"evaluate": None}])
def test_extra_metrics_are_in_the_history(others):
  metrics = run_with(of_round, **others).history.metrics
  np.testing.assert_array_equal(metrics["m"], [[0, 2]])
  assert metrics["bytes_up"][0, 1] > 0
  assert ("train_loss" in metrics) == (not others)


@pytest.mark.parametrize(
  ("returned", "message"), read_cases("engine/extra_metrics.txt")
)
def test_extra_metrics_are_checked(returned, message):
  assert message in refusal(run_with, lambda report: eval(returned))


def test_extra_metrics_are_the_same_each_time():
  message = r"extra_metrics: returned \['m2'\]; must return \['m0'\], as after"
  with pytest.raises(ValueError, match=message):
    run_with(lambda report: {f"m{report.round}": [0.0]})


@pytest.mark.parametrize(
  ("first", "second", "message"),
  [
    (None, of_round, "extra_metrics: .* has no such metrics; leave"),
    (of_round, None, r"extra_metrics=None: .* has \['m'\]; give the function"),
  ],
)
def test_a_run_is_resumed_with_its_extra_metrics(
  first, second, message, tmp_path
):
  folder = lambda resume: Checkpoints(tmp_path, 2, resume=resume, identity={})
  run_with(first, checkpoints=folder(False))
  calls = []
  with pytest.raises(ValueError, match=message):
    run_with(
      second and (lambda report: calls.append(report)),
      rounds=4,
      checkpoints=folder(True),
    )
  assert not calls
  assert run_with(first, 4, folder(True)).history.rounds == [0, 2, 4]


@pytest.mark.parametrize(
  ("done", "last", "every"),
  [(-1, 20, (7,)), (-1, 0, (5,)), (0, 9, (3, 4)), (6, 14, (7, 2, 5))],
)
def test_stops(done, last, every):
  multiples = {stop for step in every for stop in range(0, last, step)}
  expected = sorted(stop for stop in multiples | {last} if stop > done)
  assert list(runner.stops(done, last, every)) == expected
