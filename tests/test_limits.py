"""Settings at which a method is another one, and points at which one stops.

Those of the first kind are in the rounds of cases.py: unequal clients, partial
cohorts, dropouts. Where a method is FedAvg is in test_validity.py too, whose
quadratics those of the second kind are on.
"""

import jax
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from tests import cases
from tests.cases import LR, rate
from tests.test_validity import table

LOSS, SGD = cases.loss_fn, optax.sgd(LR)
# name -> (the method at that setting, what it is there).
LIMITS = {
  "fed_lesam, rho 0": (
    fo.fed_lesam(LOSS, SGD, rho=0.0),
    fo.fed_avg(LOSS, SGD),
  ),
  "fed_dc, alpha 0": (
    fo.fed_dc(LOSS, rate, alpha=0.0),
    fo.scaffold(LOSS, rate),
  ),
  "fed_smoo, rho 0": (
    fo.fed_smoo(LOSS, LR, lam=0.1, rho=0.0),
    fo.fed_dyn(LOSS, SGD, alpha=0.1),
  ),
  "fed_smoo, lam 0, rho 0": (
    fo.fed_smoo(LOSS, LR, lam=0.0, rho=0.0),
    fo.fed_avg(LOSS, SGD),
  ),
  "fed_acg, lam 0, beta 0": (
    fo.fed_acg(LOSS, SGD, lam=0.0, beta=0.0),
    fo.fed_avg(LOSS, SGD),
  ),
  "fed_gamma, rho 0": (
    fo.fed_gamma(LOSS, rate, 0.7, rho=0.0),
    fo.scaffold(LOSS, rate, 0.7),
  ),
  # Without a memory of squares nothing of the second moment is left.
  "fed_adamw, alpha 0, b2 0": (
    fo.fed_adamw(LOSS, rate, alpha=0.0, b2=0.0, weight_decay=0.1, eps=1e-3),
    fo.fed_avg(
      LOSS, lambda r: optax.adamw(rate(r), b2=0.0, weight_decay=0.1, eps=1e-3)
    ),
  ),
  # Each root is eps, as gradients are below it.
  "fed_lada, b1 0, large eps": (
    fo.fed_lada(LOSS, lambda r: 8 * rate(r), 0.7, alpha=0.3, b1=0.0, eps=8.0),
    fo.fed_cm(LOSS, rate, 0.7, alpha=0.3),
  ),
}


@pytest.fixture(autouse=True)
def x64():
  with jax.enable_x64(True):
    yield


def test_fed_adamw_is_local_adamw_in_its_first_round():
  """Nothing is shared yet."""
  first, other = (
    cases.flat(cases.run(algorithm, rounds=1, **cases.FAULTY)[1][0].params)
    for algorithm in (
      fo.fed_adamw(LOSS, 0.1, weight_decay=0.1),
      fo.fed_avg(LOSS, optax.adamw(0.1, weight_decay=0.1)),
    )
  )
  np.testing.assert_allclose(first, other, rtol=0, atol=1e-13)


def test_fed_lada_alone_stays_where_it_is():
  """Its steps are along those of the last round, of which there are none."""
  before, *after = cases.run(fo.fed_lada(LOSS, 0.1, alpha=0.0), **cases.PLAIN)
  for state, _ in after:
    np.testing.assert_array_equal(
      cases.flat(state.params), cases.flat(before[0].params)
    )


@pytest.mark.parametrize("name", LIMITS)
def test_is_the_other_method(name):
  one, other = (
    [
      cases.flat(algorithm.params(server))
      for server, _ in cases.run(algorithm, **cases.FAULTY)
    ]
    for algorithm in LIMITS[name]
  )
  for found, expected in zip(one, other, strict=True):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


def end(algorithm):
  return table.run(algorithm, table.ROUNDS).params["w"]


def gradients_uphill(w, rho):
  """[M, d], each client's, a length of rho ahead along its own."""
  data, _, _ = table.problem()
  found = []
  for rows in data.indices:
    x, y = data.examples["x"][rows], data.examples["y"][rows]
    gradient = lambda w, x=x, y=y: x.T @ (x @ w - y) / len(y)
    uphill = gradient(w)
    found.append(gradient(w + rho * uphill / np.linalg.norm(uphill)))
  return np.array(found)


def test_fed_acg_stops_where_fed_avg_does():
  """There its momentum is 0, so that it starts at its own model."""
  sgd = optax.sgd(table.RATE / 10)
  found = end(fo.fed_acg(table.loss_fn, sgd, beta=0.0))
  np.testing.assert_allclose(found, end(fo.fed_avg(table.loss_fn, sgd)), 1e-9)
  assert np.linalg.norm(found - table.problem()[2]) > 1e-3


def test_fed_gamma_stops_where_the_gradients_uphill_cancel():
  found = end(fo.fed_gamma(table.loss_fn, table.RATE, rho=0.1))
  np.testing.assert_allclose(gradients_uphill(found, 0.1).mean(0), 0, 0, 1e-9)
  at_optimum = gradients_uphill(table.problem()[2], 0.1).mean(0)
  assert np.linalg.norm(at_optimum) > 1e-3
