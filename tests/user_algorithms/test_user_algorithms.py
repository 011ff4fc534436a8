"""Algorithms as users write them: each against a plain loop of its box.

They use the public package alone, in files of at most 40 lines.
"""

import pathlib

import jax
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from tests import reference_methods
from tests.user_algorithms import (
  draws,
  fed_dyn,
  fed_exp,
  fed_nova,
  fed_speed,
  top_k,
  trimmed_mean,
)
from tests.user_algorithms import reference_user as reference

X0, GRADIENT = draws.PROBLEM.x0, draws.PROBLEM.gradient
M = len(draws.SIZES)
EMPTY = M - 1
ROUNDS = 7
LR = 0.3
PLAIN = {"cohort_size": 5, "batch_size": 4, "local_epochs": 1.5}
# Five clients in chunks of two: the sixth does not exist.
FAULTY = PLAIN | {"client_dropout": 0.3, "client_chunk": 2}
CASES = {
  "examples": PLAIN,
  "dropouts": FAULTY,
  "uniform_dropouts": FAULTY | {"weighting": "uniform"},
}
all_cases = pytest.mark.parametrize("case", CASES)


@pytest.fixture(params=[False, True], ids=["float32", "x64"], autouse=True)
def rtol(request):
  """Runs each test in both precisions; the error allowed in this one."""
  with jax.enable_x64(request.param):
    yield 1e-10 if request.param else 1e-5


def drawn(case):
  """The rounds of a case; that they are as hard as they should be."""
  rounds = draws.draw(ROUNDS, **CASES[case])
  steps = [batch for own in rounds.batches for steps in own for batch in steps]
  assert {len(rows) for rows in steps} > {1, 4}
  assert any(EMPTY in cohort for cohort in rounds.cohorts)
  assert all(np.sum(weights) > 0 for weights in rounds.weights)
  is_short = [len(c) < 5 for c in rounds.cohorts]
  assert any(is_short) == ("dropouts" in case)
  assert not all(is_short)
  return rounds.cohorts, rounds.batches, rounds.weights


def run(algorithm, case):
  """The states after each round, and the result of the same run at once."""
  states = []
  on_evaluation = lambda report: states.append(report.state)
  result = fo.simulate(
    algorithm,
    draws.PARAMS,
    draws.client_data(),
    rounds=ROUNDS,
    eval_every=1,
    on_evaluation=on_evaluation,
    evaluate=lambda params, data, test: {},
    **CASES[case],
  )
  assert len(states) == ROUNDS + 1
  return states[1:], result


def clients_after_each_round(algorithm, case):
  """[R, M, d], what clients keep."""
  simulator = fo.Simulator(algorithm, draws.client_data(), **CASES[case])
  state, kept = simulator.init(draws.PARAMS), []
  for _ in range(ROUNDS):
    state, _ = simulator.run(state, 1)
    kept.append(draws.flat(state.client_state, lead=1))
  return np.array(kept)


def assert_close(actual, expected, rtol):
  """[R, ...], relative to the largest entry of each round."""
  for r, (one, other) in enumerate(zip(actual, expected, strict=True)):
    one = one if isinstance(one, np.ndarray) else draws.flat(one)
    atol = rtol * np.max(np.abs(other))
    np.testing.assert_allclose(one, other, 0, atol, err_msg=f"round {r}")


def test_files_are_short():
  folder = pathlib.Path(__file__).parent
  for name in [
    "fed_nova",
    "fed_dyn",
    "fed_exp",
    "fed_speed",
    "top_k",
    "trimmed_mean",
  ]:
    assert len((folder / f"{name}.py").read_text().splitlines()) <= 40


@all_cases
@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_fed_nova(case, momentum, rtol):
  algorithm = fed_nova.fed_nova(draws.loss_fn, LR, momentum)
  states, result = run(algorithm, case)
  xs = reference_methods.fed_nova(X0, GRADIENT, *drawn(case), LR, momentum)
  assert_close(states, xs, rtol)
  assert result.cost["bytes_up_per_round"] == draws.flat(states[0]).size * (
    jax.tree.leaves(states[0])[0].dtype.itemsize
  ) + (8 if rtol < 1e-8 else 4)


def test_fed_nova_is_fed_avg_if_all_take_equally_many_steps(rtol):
  settings = PLAIN | {"local_epochs": None, "local_steps": 5}
  after = [
    fo.simulate(
      algorithm, draws.PARAMS, draws.client_data(), rounds=5, **settings
    ).params
    for algorithm in (
      fed_nova.fed_nova(draws.loss_fn, LR, 0.8),
      fo.fed_avg(draws.loss_fn, optax.sgd(LR, 0.8)),
    )
  ]
  assert_close(after[:1], [draws.flat(after[1])], rtol)


@all_cases
def test_fed_dyn(case, rtol):
  algorithm = fed_dyn.fed_dyn(draws.loss_fn, optax.sgd(LR), alpha=0.1)
  states, result = run(algorithm, case)
  kept = clients_after_each_round(algorithm, case)
  population = np.ones(M) if "uniform" in case else np.array(draws.SIZES)
  xs, hs, gs = reference_methods.fed_dyn(
    X0, GRADIENT, *drawn(case), LR, 0.1, population
  )
  assert_close([params for params, _ in states], xs, rtol)
  assert_close([h for _, h in states], hs, rtol)
  assert_close(kept, gs, rtol)
  assert_close([draws.flat(result.client_state, lead=1)], gs[-1:], rtol)
  # h is the mean of all g_i, at any time.
  for (_, h), g in zip(states, kept, strict=True):
    mean = np.average(g, axis=0, weights=population)
    np.testing.assert_allclose(draws.flat(h), mean, 0, rtol * np.abs(g).max())


@all_cases
def test_fed_exp(case, rtol):
  algorithm = fed_exp.fed_exp(draws.loss_fn, optax.sgd(LR), eps=1e-3)
  states, result = run(algorithm, case)
  xs, evaluated, rates = reference_methods.fed_exp(
    X0, GRADIENT, *drawn(case), LR, 1e-3
  )
  assert max(rates) > 1
  assert_close([params for params, _ in states], xs, rtol)
  assert_close([result.params], evaluated[-1:], rtol)


@all_cases
def test_fed_speed(case, rtol):
  options = {"lam": 10.0, "alpha": 0.7, "rho": 0.1}
  algorithm = fed_speed.fed_speed(draws.loss_fn, LR, **options)
  states, result = run(algorithm, case)
  xs, duals = reference_methods.fed_speed(
    X0, GRADIENT, *drawn(case), LR, **options, population=np.ones(M)
  )
  assert_close(states, xs, rtol)
  assert_close([draws.flat(result.client_state, lead=1)], duals[-1:], rtol)


@all_cases
def test_top_k(case, rtol):
  k = 4
  algorithm = top_k.top_k(draws.loss_fn, optax.sgd(LR), k)
  states, result = run(algorithm, case)
  kept = clients_after_each_round(algorithm, case)
  cohorts, batches, weights = drawn(case)
  xs, errors = reference.top_k(
    X0, GRADIENT, cohorts, batches, weights, LR, k, M
  )
  assert_close(states, xs, rtol)
  assert_close(kept, errors, rtol)
  # k values and k indices of 4 bytes.
  assert result.cost["bytes_up_per_round"] == k * (
    (8 if rtol < 1e-8 else 4) + 4
  )
  before = np.zeros_like(kept[0])
  for cohort, after in zip(cohorts, kept, strict=True):
    others = [i for i in range(M) if i not in cohort]
    np.testing.assert_array_equal(after[others], before[others])
    moved = [i for i in cohort if i != EMPTY]
    assert (after[moved] != before[moved]).any(axis=1).all()
    before = after


@all_cases
@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_trimmed_mean(case, beta, rtol):
  algorithm = trimmed_mean.trimmed_mean(draws.loss_fn, optax.sgd(LR), beta)
  states, _ = run(algorithm, case)
  xs, cuts = reference.trimmed_mean(X0, GRADIENT, *drawn(case), LR, beta)
  assert_close(states, xs, rtol)
  assert (max(cuts) > 0) == (beta > 0)
  # With dropouts it is not in every round as many.
  assert len(set(cuts)) > 1 or case == "examples" or beta == 0
