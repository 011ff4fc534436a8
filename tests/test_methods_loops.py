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
from tests.methods_cases import GRADIENT, LR, ROUNDS, X0, M, assert_close
from tests.user_algorithms import draws

case = methods_cases.case
LOSS, SGD = draws.loss_fn, optax.sgd(LR)
SPEED = {"lam": 5.0, "alpha": 0.7, "rho": 0.2}
ADAMW = {"eps": 1e-2, "weight_decay": 0.1}


def rate(r):
  """Drops from round to round."""
  return LR / (1 + 0.1 * r)


def fed_nova(rho=0.0, mu=0.0):
  algorithm = fo.fed_nova(LOSS, LR, momentum=rho or None, mu=mu or None)
  loop = lambda drawn, masses: loops.fed_nova(*drawn, LR, rho, mu)
  return algorithm, "params", loop


def fed_speed(**how):
  def loop(drawn, masses):
    return loops.fed_speed(*drawn, LR, **SPEED, population=masses, **how)

  return fo.fed_speed(LOSS, LR, **SPEED, **how), "params kept", loop


def fed_exp(drawn, masses):
  xs, evaluated, rates = loops.fed_exp(*drawn, LR, 1e-3)
  assert max(rates) > 1
  return xs, evaluated


def fed_dyn(drawn, masses):
  xs, hs, gs = loops.fed_dyn(*drawn, LR, 0.1, masses)
  for h, g in zip(hs, gs, strict=True):  # The mean of all g_i, at any time.
    np.testing.assert_allclose(h, np.average(g, axis=0, weights=masses))
  return xs, hs, gs


def fed_per(share=None):
  """FedRep with that share of shared steps."""
  kernel = np.arange(draws.PROBLEM.num_classes, len(X0))
  given, steps, make = {"personal": ["kernel"]}, None, fo.fed_per
  if share is not None:
    given["shared_steps"], make = share, fo.fed_rep
    steps = lambda num_steps: max(1, round(share * num_steps))
  loop = lambda drawn, masses: personal.fed_per(*drawn, LR, kernel, M, steps)
  return make(LOSS, SGD, **given), "shared kept", loop


# name -> what `check_matches` takes.
LOOPS = {
  "fed_dyn": (fo.fed_dyn(LOSS, SGD, alpha=0.1), "params h kept", fed_dyn),
  "fed_nova, momentum": fed_nova(rho=0.8),
  "fed_nova, proximal": fed_nova(mu=0.7),
  "fed_nova, both": fed_nova(rho=0.3, mu=1.5 / LR),
  "fed_cm": (
    fo.fed_cm(LOSS, rate, 0.7, alpha=0.2),
    "params delta",
    lambda drawn, masses: loops.fed_cm(*drawn, rate, 0.7, 0.2),
  ),
  "mo_fed_sam": (
    fo.mo_fed_sam(LOSS, rate, 0.7, rho=0.2, beta=0.3),
    "params delta",
    lambda drawn, masses: loops.fed_cm(*drawn, rate, 0.7, 0.3, rho=0.2),
  ),
  "fed_exp": (fo.fed_exp(LOSS, SGD, eps=1e-3), "params model", fed_exp),
  "mime_lite": (
    fo.mime_lite(LOSS, rate, beta=0.8),
    "params base.ema",
    lambda drawn, masses: loops.mime_lite(
      *drawn, rate, 0.8, draws.PROBLEM.client_rows
    ),
  ),
  "fed_sam": (
    fo.fed_sam(LOSS, SGD, rho=0.3),
    "params",
    lambda drawn, masses: loops.fed_sam(*drawn, LR, 0.3),
  ),
  "fed_speed": fed_speed(),
  "fed_speed, a multiple": fed_speed(normalized=False),
  "fed_speed, all duals": fed_speed(all_duals=True),
  "diloco": (
    fo.diloco(LOSS, optax.adamw(0.05, **ADAMW)),
    "params",
    lambda drawn, masses: loops.diloco(
      *drawn, lambda: reference.AdamW(0.05, **ADAMW), 0.7, 0.9
    ),
  ),
  "ditto": (
    fo.ditto(LOSS, SGD, lam=0.4),
    "params kept",
    lambda drawn, masses: personal.ditto(*drawn, LR, 0.4, M),
  ),
  "fed_per": fed_per(),
  "fed_rep": fed_per(0.6),
  "fed_rep, one step": fed_per(1 / 11),
}


@pytest.mark.parametrize("name", LOOPS)
def test_equals_the_loop(case, name):
  methods_cases.check_matches(case, *LOOPS[name])


@pytest.mark.parametrize("case", ["uniform in float32"], indirect=True)
@pytest.mark.parametrize("name", ["fed_dyn", "fed_speed"])
def test_those_that_weigh_absent_clients_equal_it_in_single(case, name):
  methods_cases.check_matches(case, *LOOPS[name])


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


def test_the_loop_of_fed_speed_with_all_duals_is_that_of_fed_dyn(case):
  without = SPEED | {"alpha": 1.0, "rho": 0.0}
  drawn = (X0, GRADIENT, *methods_cases.drawn(case))
  masses = methods_cases.masses(case)
  speed, _ = loops.fed_speed(
    *drawn, LR, **without, population=masses, all_duals=True
  )
  dyn, *_ = loops.fed_dyn(*drawn, LR, 0.2, masses)
  np.testing.assert_allclose(speed, dyn, rtol=1e-10)


@pytest.mark.usefixtures("case")  # float64
def test_prox_skip():
  """All clients; in some rounds the coin does not fall."""
  p, num_steps, rtol = 0.3, 3, 1e-10
  settings = {
    "batch_size": 4,
    "local_steps": num_steps,
    "client_chunk": 2,
    "cohort_size": M,
  }
  algorithm = fo.prox_skip(draws.loss_fn, LR, p=p)
  states, kept = methods_cases.run(algorithm, **settings)
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
  assert_close([state.params for state in states], xs, rtol)
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
