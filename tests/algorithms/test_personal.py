"""Clients with models of their own: what stays, what is sent, bad input."""

import functools

import chex
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from tests.helpers import cases, jax_problems
from tests.helpers.refusals import refusal

SGD, PER_EXAMPLE = optax.sgd(0.1), cases.TASK.per_example
OPTIONS = {"batch_size": 4, "local_steps": 3, "cohort_size": 4}


def run(algorithm, rounds=4, **options):
  return cases.TASK.simulate(algorithm, rounds=rounds, **OPTIONS | options)


assert_close = functools.partial(
  chex.assert_trees_all_close, rtol=1e-5, atol=1e-6
)


@pytest.mark.slow
def test_ditto_traces_the_steps_whose_difference_is_sent():
  results = [
    run(make(cases.loss_fn, fo.delta_sgd()), trace=["step_size"])
    for make in (functools.partial(fo.ditto, lam=10.0), fo.fed_avg)
  ]
  assert_close(*(result.traces for result in results))


def test_personal_leaves_are_not_sent():
  algorithm = fo.fed_rep(cases.loss_fn, SGD, personal=["bias"])
  result = run(algorithm)
  bytes_up = result.cost["bytes_up_per_round"]
  assert bytes_up == pytest.approx(4 * cases.PARAMS["kernel"].size)
  assert set(result.client_state) == {"bias", "kernel"}
  assert result.client_state["kernel"] is None
  assert_close(result.params["bias"], cases.PARAMS["bias"])
  others, _ = cases.DATA.split_clients(0.5)  # They keep nothing.
  call = functools.partial(fo.evaluate_clients, result, PER_EXAMPLE, others)
  assert refusal(call, algorithm=algorithm) == (
    "held_out: has 4 entries; must have one for each of the 7 clients of the "
    "run"
  )


@pytest.mark.slow
def test_clients_use_their_own_leaves():
  data = cases.DATA
  algorithm = fo.fed_per(cases.loss_fn, SGD, personal=["bias"])
  result = run(algorithm, rounds=1)
  metrics = fo.evaluate_clients(result, PER_EXAMPLE, data, algorithm=algorithm)
  for client, rows in enumerate(cases.PROBLEM.client_rows):
    if not len(rows):
      assert np.isnan(metrics.values["personal"]["loss"][client])
      continue
    bias = np.asarray(result.client_state["bias"][client], np.float64)
    kernel = np.asarray(result.params["kernel"], np.float64)
    x = np.concatenate([bias, kernel.ravel()])
    loss, _ = cases.PROBLEM.gradient(x, rows)
    personal_loss = metrics.values["personal"]["loss"][client]
    assert personal_loss == pytest.approx(loss, rel=1e-5)


@pytest.mark.slow
def test_models_of_per_fed_avg_are_one_step_from_the_server_s():
  """Of clients that were not in a round too."""
  algorithm = fo.per_fed_avg(cases.loss_fn, 0.1, inner_learning_rate=0.5)
  result = run(algorithm, rounds=1)
  evaluated = fo.evaluate_clients(
    result, PER_EXAMPLE, cases.DATA, train=cases.DATA, algorithm=algorithm
  )
  x = np.asarray(cases.flat(result.params), np.float64)
  for client, rows in enumerate(cases.PROBLEM.client_rows):
    if len(rows):
      own_model = x - 0.5 * cases.PROBLEM.gradient(x, rows)[1]
      loss, _ = cases.PROBLEM.gradient(own_model, rows)
      actual = evaluated.values["personal"]["loss"][client]
      assert actual == pytest.approx(loss, rel=1e-5)
  call = lambda: fo.evaluate_clients(
    result, PER_EXAMPLE, cases.DATA, algorithm=algorithm
  )
  assert refusal(call) == (
    "train: clients make their own models on their training examples; give them"
  )


@pytest.mark.slow
def test_some_trained_leaves_can_be_personal():
  def make(loss_fn):
    return fo.fed_per(loss_fn, SGD, personal=["hidden/bias"])

  task = jax_problems.mlp()
  algorithm = fo.train_only(make, ["hidden"], task.loss_fn)
  result = task.simulate(algorithm, rounds=2, **OPTIONS)
  assert result.client_state["hidden"]["kernel"] is None
  own_bias = result.client_state["hidden"]["bias"]
  assert np.ptp(own_bias, axis=0).max() > 0
  assert_close(result.params["output"], task.params["output"])
