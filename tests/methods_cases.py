"""The cases in which methods run against their loops.

Clients differ in size and one owns nothing, five of seven take part in a round,
last batches are partial, some drop out, and two clients are computed side by
side, so that a place is filled up with no client.
"""

import functools

import jax
import numpy as np
import pytest

from tests.user_algorithms import draws

X0, GRADIENT = draws.PROBLEM.x0, draws.PROBLEM.gradient
M = len(draws.SIZES)
ROUNDS = 7
LR = 0.3
PLAIN = {"cohort_size": 5, "batch_size": 4, "local_epochs": 1.5}
# Five clients in chunks of two: the sixth does not exist.
FAULTY = PLAIN | {"client_dropout": 0.3, "client_chunk": 2}
CASES = {"dropouts": FAULTY, "uniform": FAULTY | {"weighting": "uniform"}}


@pytest.fixture(params=["dropouts in float64"])
def case(request):
  """The name of a case; with `in_both` a test runs in each."""
  name, _, dtype = request.param.partition(" in ")
  with jax.enable_x64(dtype == "float64"):
    yield name


in_both = pytest.mark.parametrize(
  "case", ["dropouts in float64", "uniform in float32"], indirect=True
)


@pytest.fixture
def rtol(case):
  """The error allowed."""
  return 1e-10 if jax.config.jax_enable_x64 else 1e-5


def drawn(case):
  """Cohorts, batches and weights of a case, as the loops take them."""
  return _drawn(case, jax.config.jax_enable_x64)


@functools.cache
def _drawn(case, x64):  # Wider numbers are drawn otherwise.
  """Checks that the rounds are as hard as they should be."""
  del x64
  rounds = draws.draw(ROUNDS, **CASES[case])
  steps = [batch for own in rounds.batches for steps in own for batch in steps]
  assert {len(rows) for rows in steps} > {1, 4}
  assert any(M - 1 in cohort for cohort in rounds.cohorts)  # It owns nothing.
  assert all(np.sum(weights) > 0 for weights in rounds.weights)
  is_short = [len(c) < 5 for c in rounds.cohorts]
  assert any(is_short)
  assert not all(is_short)
  return rounds.cohorts, rounds.batches, rounds.weights
