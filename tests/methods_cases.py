"""The cases in which methods run against their loops.

Clients differ in size and one owns nothing, five of seven take part in a round,
last batches are partial, some drop out, and two clients are computed side by
side, so that a place is filled up with no client.
"""

import functools
import operator

import jax
import numpy as np
import pytest

import fedjax_opt as fo
from tests.user_algorithms import draws

X0, GRADIENT = draws.PROBLEM.x0, draws.PROBLEM.gradient
M = len(draws.SIZES)
ROUNDS = 7
LR = 0.3
PLAIN = {"cohort_size": 5, "batch_size": 4, "local_epochs": 1.5}
# Five clients in chunks of two: the sixth does not exist.
FAULTY = PLAIN | {"client_dropout": 0.3, "client_chunk": 2}
CASES = {"dropouts": FAULTY, "uniform": FAULTY | {"weighting": "uniform"}}


@pytest.fixture
def case(request):
  """The name of a case; another one and its type may be given indirectly."""
  given = getattr(request, "param", "dropouts in float64")
  name, _, dtype = given.partition(" in ")
  with jax.enable_x64(dtype == "float64"):
    yield name


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


def check_matches(case, algorithm, fields, loop):
  """Compares an algorithm with its loop after each round.

  Args:
    case: of `CASES`.
    algorithm: any.
    fields: names between blanks of what the loop returns: fields of the
      server's state, "kept" for what the clients keep, "model" for the model
      that is evaluated.
    loop: `(drawn, masses) -> [R, ...]`, or a tuple of several ones.

  Returns:
    The server's state and what the clients keep, after each round.
  """
  states, kept = run(algorithm, **CASES[case])
  own = {"kept": kept, "model": list(map(algorithm.params, states))}
  expected = loop((X0, GRADIENT, *drawn(case)), masses(case))
  expected = expected if isinstance(expected, tuple) else (expected,)
  rtol = 1e-10 if jax.config.jax_enable_x64 else 1e-5
  for field, values in zip(fields.split(), expected, strict=True):
    found = own.get(field) or list(map(operator.attrgetter(field), states))
    assert_close(found, values, rtol, lead=np.ndim(values[0]) - 1)
  assert np.linalg.norm(draws.flat(own["model"][-1]) - X0) > 0.05
  return states, kept


def assert_close(actual, expected, rtol, lead=0):
  """[R, ...], relative to the largest entry of each round."""
  assert len(actual) == ROUNDS
  for r, (one, other) in enumerate(zip(actual, expected, strict=True)):
    one = draws.flat(one, lead)
    atol = rtol * max(np.max(np.abs(other)), 1e-3)
    np.testing.assert_allclose(one, other, 0, atol, err_msg=f"round {r}")
