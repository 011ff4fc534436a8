"""Algorithms as users write them: each against a plain loop of its box.

They use the public package alone, in files of at most 40 lines.
"""

import pathlib

import numpy as np
import optax

import fedjax_opt as fo
from tests import methods_cases, reference_methods
from tests.methods_cases import CASES, GRADIENT, LR, ROUNDS, X0, M
from tests.user_algorithms import draws, fed_dyn, top_k, trimmed_mean
from tests.user_algorithms import reference_user as reference

case, rtol = methods_cases.case, methods_cases.rtol


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
  for name in ("fed_dyn", "top_k", "trimmed_mean"):
    assert len((folder / f"{name}.py").read_text().splitlines()) <= 40


def test_fed_dyn(case, rtol):
  algorithm = fed_dyn.fed_dyn(draws.loss_fn, optax.sgd(LR), alpha=0.1)
  states, result = run(algorithm, case)
  kept = clients_after_each_round(algorithm, case)
  population = np.ones(M) if case == "uniform" else np.array(draws.SIZES)
  xs, hs, gs = reference_methods.fed_dyn(
    X0, GRADIENT, *methods_cases.drawn(case), LR, 0.1, population
  )
  assert_close([params for params, _ in states], xs, rtol)
  assert_close([h for _, h in states], hs, rtol)
  assert_close(kept, gs, rtol)
  assert_close([draws.flat(result.client_state, lead=1)], gs[-1:], rtol)
  # h is the mean of all g_i, at any time.
  for (_, h), g in zip(states, kept, strict=True):
    mean = np.average(g, axis=0, weights=population)
    np.testing.assert_allclose(draws.flat(h), mean, 0, rtol * np.abs(g).max())


def test_top_k(case, rtol):
  k = 4
  algorithm = top_k.top_k(draws.loss_fn, optax.sgd(LR), k)
  states, result = run(algorithm, case)
  kept = clients_after_each_round(algorithm, case)
  cohorts, batches, weights = methods_cases.drawn(case)
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
    moved = [i for i in cohort if i != M - 1]
    assert (after[moved] != before[moved]).any(axis=1).all()
    before = after


def test_trimmed_mean(case, rtol):
  algorithm = trimmed_mean.trimmed_mean(draws.loss_fn, optax.sgd(LR), 0.3)
  states, _ = run(algorithm, case)
  drawn = methods_cases.drawn(case)
  xs, cuts = reference.trimmed_mean(X0, GRADIENT, *drawn, LR, 0.3)
  assert_close(states, xs, rtol)
  # With dropouts it is not in every round as many.
  assert len(set(cuts)) > 1
