"""FedDyn, FedNova, FedCM and others against the loops of their boxes.

methods_cases.py says in which cases.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt.algorithms.fed_nova import _reach
from tests import methods_cases, reference
from tests import reference_methods as loops
from tests import reference_personal as personal
from tests.methods_cases import CASES, GRADIENT, LR, ROUNDS, X0, M
from tests.user_algorithms import draws

case, rtol = methods_cases.case, methods_cases.rtol
# Those that weigh clients which are not in the cohort.
in_both = methods_cases.in_both


def rate(r):
  """Drops from round to round."""
  return LR / (1 + 0.1 * r)


def drawn(case):
  """The problem and the rounds of a case, as the loops take them."""
  return X0, GRADIENT, *methods_cases.drawn(case)


def masses(case):
  """[M], the weights of all clients."""
  is_uniform = CASES[case].get("weighting") == "uniform"
  return np.ones(M) if is_uniform else np.array(draws.SIZES)


def run(algorithm, **settings):
  """What the server and the clients have after each round."""
  simulator = fo.Simulator(algorithm, draws.client_data(), **settings)
  state, states, kept = simulator.init(draws.PARAMS), [], []
  for _ in range(ROUNDS):
    state, _ = simulator.run(state, 1)
    states.append(jax.device_get(state.server))
    kept.append(jax.device_get(state.client_state))
  return states, kept


def assert_close(actual, expected, rtol, lead=0):
  """[R, ...], relative to the largest entry of each round."""
  assert len(actual) == ROUNDS
  for r, (one, other) in enumerate(zip(actual, expected, strict=True)):
    one = draws.flat(one, lead)
    atol = rtol * max(np.max(np.abs(other)), 1e-3)
    np.testing.assert_allclose(one, other, 0, atol, err_msg=f"round {r}")


def params_of(states):
  return [state.params for state in states]


@in_both
def test_fed_dyn(case, rtol):
  algorithm = fo.fed_dyn(draws.loss_fn, optax.sgd(LR), alpha=0.1)
  states, kept = run(algorithm, **CASES[case])
  xs, hs, gs = loops.fed_dyn(*drawn(case), LR, 0.1, masses(case))
  assert_close(params_of(states), xs, rtol)
  assert_close([state.h for state in states], hs, rtol)
  assert_close(kept, gs, rtol, lead=1)
  # h is the mean of all g_i, at any time.
  for state, g in zip(states, gs, strict=True):
    average = np.average(g, axis=0, weights=masses(case))
    np.testing.assert_allclose(draws.flat(state.h), average, 0, 10 * rtol)


@pytest.mark.parametrize("num_steps", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("pull", [0.0, 0.5, 2.5 - 1e-6, 2.5])
def test_fed_nova_never_divides_by_less_than_1(pull, num_steps):
  """With rho 0.5 and eta mu 2.5 the two weights of two steps are -1 and 1."""
  reach = _reach(jnp.int32(num_steps), 0.5, pull, 1.0)
  effect, buffers = np.zeros(num_steps), np.zeros(num_steps)
  for k in range(num_steps):
    buffers = 0.5 * buffers + np.eye(num_steps)[k] - pull * effect
    effect = effect + buffers
  np.testing.assert_allclose(reach, np.abs(effect).sum(), rtol=1e-5)
  assert num_steps == 0 or reach >= 1


@pytest.mark.parametrize(
  "how",
  [{"momentum": 0.8}, {"mu": 0.7}, {"mu": 1.5 / LR, "momentum": 0.3}],
  ids=str,
)
def test_fed_nova(case, how, rtol):
  states, _ = run(fo.fed_nova(draws.loss_fn, LR, **how), **CASES[case])
  named = {"rho": how.get("momentum", 0.0), "mu": how.get("mu", 0.0)}
  xs = loops.fed_nova(*drawn(case), LR, **named)
  assert_close(params_of(states), xs, rtol)


def test_fed_cm(case, rtol):
  algorithm = fo.fed_cm(draws.loss_fn, rate, 0.7, alpha=0.2)
  states, _ = run(algorithm, **CASES[case])
  xs, deltas = loops.fed_cm(*drawn(case), rate, 0.7, 0.2)
  assert_close(params_of(states), xs, rtol)
  assert_close([state.delta for state in states], deltas, rtol)


def test_mo_fed_sam(case, rtol):
  algorithm = fo.mo_fed_sam(draws.loss_fn, rate, 0.7, rho=0.2, beta=0.3)
  states, _ = run(algorithm, **CASES[case])
  xs, deltas = loops.fed_cm(*drawn(case), rate, 0.7, 0.3, rho=0.2)
  assert_close(params_of(states), xs, rtol)
  assert_close([state.delta for state in states], deltas, rtol)


def test_fed_exp(case, rtol):
  algorithm = fo.fed_exp(draws.loss_fn, optax.sgd(LR), eps=1e-3)
  states, _ = run(algorithm, **CASES[case])
  xs, evaluated, rates = loops.fed_exp(*drawn(case), LR, 1e-3)
  assert max(rates) > 1
  assert_close(params_of(states), xs, rtol)
  assert_close(list(map(algorithm.params, states)), evaluated, rtol)


def test_mime_lite(case, rtol):
  algorithm = fo.mime_lite(draws.loss_fn, rate, beta=0.8)
  states, _ = run(algorithm, **CASES[case])
  rows = draws.PROBLEM.client_rows
  xs, momenta = loops.mime_lite(*drawn(case), rate, 0.8, rows)
  assert_close(params_of(states), xs, rtol)
  assert_close([state.base.ema for state in states], momenta, rtol)


def test_fed_sam(case, rtol):
  algorithm = fo.fed_sam(draws.loss_fn, optax.sgd(LR), rho=0.3)
  states, _ = run(algorithm, **CASES[case])
  xs = loops.fed_sam(*drawn(case), LR, 0.3)
  assert_close(params_of(states), xs, rtol)


SPEED = {"lam": 5.0, "alpha": 0.7, "rho": 0.2}


@in_both
def test_fed_speed(case, rtol):
  check_fed_speed(case, {}, rtol)


@pytest.mark.parametrize(
  "how", [{"normalized": False}, {"all_duals": True}], ids=str
)
def test_fed_speed_otherwise(case, how, rtol):
  check_fed_speed(case, how, rtol)


def check_fed_speed(case, how, rtol):
  algorithm = fo.fed_speed(draws.loss_fn, LR, **SPEED, **how)
  states, kept = run(algorithm, **CASES[case])
  xs, duals = loops.fed_speed(
    *drawn(case), LR, **SPEED, population=masses(case), **how
  )
  assert_close(params_of(states), xs, rtol)
  assert_close(kept, duals, rtol, lead=1)


def test_the_loop_of_fed_speed_with_all_duals_is_that_of_fed_dyn(case):
  without = SPEED | {"alpha": 1.0, "rho": 0.0}
  speed, _ = loops.fed_speed(
    *drawn(case), LR, **without, population=masses(case), all_duals=True
  )
  dyn, *_ = loops.fed_dyn(*drawn(case), LR, 0.2, masses(case))
  np.testing.assert_allclose(speed, dyn, rtol=1e-10)


def test_diloco(case, rtol):
  client = optax.adamw(0.05, eps=1e-2, weight_decay=0.1)
  states, _ = run(fo.diloco(draws.loss_fn, client), **CASES[case])
  make_rule = lambda: reference.AdamW(0.05, eps=1e-2, weight_decay=0.1)
  xs = loops.diloco(*drawn(case), make_rule, 0.7, 0.9)
  assert_close(params_of(states), xs, rtol)


def test_prox_skip():
  """All clients; in some rounds the coin does not fall."""
  with jax.enable_x64(True):
    check_prox_skip(1e-10)


def check_prox_skip(rtol):
  p, num_steps = 0.3, 3
  settings = {
    "batch_size": 4,
    "local_steps": num_steps,
    "client_chunk": 2,
    "cohort_size": M,
  }
  algorithm = fo.prox_skip(draws.loss_fn, LR, p=p)
  states, kept = run(algorithm, **settings)
  rounds = draws.draw(ROUNDS, **settings)
  lengths = coins(p)
  order = [np.argsort(cohort) for cohort in rounds.cohorts]
  batches = [
    [own[i] for i in of_round]
    for own, of_round in zip(rounds.batches, order, strict=True)
  ]
  weights = np.array(rounds.weights[0])[order[0]]
  xs, points, h = loops.prox_skip(
    X0, GRADIENT, batches, weights, LR, p, lengths
  )
  assert_close(params_of(states), xs, rtol)
  have_met = [bool(state.have_met) for state in states]
  assert have_met == [length <= num_steps for length in lengths]
  assert {True, False} == set(have_met)
  for r, (state, own) in enumerate(zip(states, kept, strict=True)):
    # A client learns of a meeting at the start of the next round.
    x, control = draws.flat(own.params, 1), draws.flat(own.control, 1)
    mean = draws.flat(state.params)
    if state.have_met:
      control, x = control + p / LR * (mean - x), np.tile(mean, (M, 1))
    np.testing.assert_allclose(x, points[r], 0, 10 * rtol)
    np.testing.assert_allclose(control, h[r], 0, 100 * rtol)
    np.testing.assert_allclose(weights @ control, 0, atol=100 * rtol)


def coins(p):
  """[R], after how many steps of each round the coin falls."""
  lengths = []
  for r in range(ROUNDS):
    cohort = draws.cohort(r, cohort_size=M, batch_size=4, local_steps=3)
    lengths.append(int(jax.random.geometric(cohort.key, p)))
  return lengths


def test_ditto(case, rtol):
  algorithm = fo.ditto(draws.loss_fn, optax.sgd(LR), lam=0.4)
  states, kept = run(algorithm, **CASES[case])
  xs, vs = personal.ditto(*drawn(case), LR, 0.4, M)
  assert_close(params_of(states), xs, rtol)
  assert_close(kept, vs, rtol, lead=1)


@pytest.mark.parametrize("share", [None, 0.6, 1 / 11])
def test_fed_per_and_fed_rep(case, share, rtol):
  """FedRep with that share of shared steps, in one case a single one."""
  kernel = np.arange(draws.PROBLEM.num_classes, len(X0))
  given, steps = {"personal": ["kernel"]}, None
  if share is not None:
    given["shared_steps"] = share
    steps = lambda num_steps: max(1, round(share * num_steps))
  make = fo.fed_per if share is None else fo.fed_rep
  algorithm = make(draws.loss_fn, optax.sgd(LR), **given)
  states, kept = run(algorithm, **CASES[case])
  xs, hs = personal.fed_per(*drawn(case), LR, kernel, M, steps)
  assert_close([state.shared for state in states], xs, rtol)
  assert_close(kept, hs, rtol, lead=1)
