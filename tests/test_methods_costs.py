"""What a round of the newer methods costs, and rules that they take."""

import jax
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from tests import jax_problems

N, D, K = 6, 5, 3
TASK = jax_problems.least_squares(sizes=(N,) * 4, dim=D)
SETTINGS = {"batch_size": N, "local_steps": K, "cohort_size": 4}
MODEL, NUMBER = 4 * D, 4  # bytes
ONCE = K * N  # gradients of an example by plain local steps
SGD = optax.sgd(0.05)

# name -> (algorithm, bytes down, bytes up, gradients).
COSTS = {
  "fed_dyn": (fo.fed_dyn(TASK.loss_fn, SGD), MODEL, MODEL, ONCE),
  "fed_nova": (fo.fed_nova(TASK.loss_fn, 0.05), MODEL, MODEL + NUMBER, ONCE),
  "fed_cm": (fo.fed_cm(TASK.loss_fn, 0.05), 2 * MODEL, MODEL + NUMBER, ONCE),
  "fed_exp": (fo.fed_exp(TASK.loss_fn, SGD), MODEL, MODEL + NUMBER, ONCE),
  "mime_lite": (
    fo.mime_lite(TASK.loss_fn, 0.05),
    2 * MODEL + NUMBER,  # The count of optax.ema.
    2 * MODEL,
    ONCE + N,
  ),
  "fed_sam": (fo.fed_sam(TASK.loss_fn, SGD), MODEL, MODEL, 2 * ONCE),
  "mo_fed_sam": (
    fo.mo_fed_sam(TASK.loss_fn, 0.05),
    2 * MODEL,
    MODEL + NUMBER,
    2 * ONCE,
  ),
  "fed_speed": (fo.fed_speed(TASK.loss_fn, 0.05), MODEL, MODEL, 2 * ONCE),
  "diloco": (fo.diloco(TASK.loss_fn, SGD), MODEL, MODEL, ONCE),
  "ditto": (fo.ditto(TASK.loss_fn, SGD), MODEL, MODEL, 2 * ONCE),
  # The server's momentum is inferred, averaged buffers are sent.
  "domo": (fo.domo(TASK.loss_fn, 0.05), MODEL, MODEL, ONCE),
  "fed_avg_slm": (
    fo.domo(TASK.loss_fn, 0.05, beta=None, average_local=True),
    2 * MODEL,
    2 * MODEL,
    ONCE,
  ),
  "prox_skip, always": (
    fo.prox_skip(TASK.loss_fn, 0.05, p=1.0),
    MODEL + 1,  # Whether they have met.
    MODEL,
    ONCE,
  ),
  "prox_skip, never": (
    fo.prox_skip(TASK.loss_fn, 0.05, p=1e-6),
    MODEL + 1,
    0,
    ONCE,
  ),
}


def simulate(algorithm, rounds=2, **settings):
  return TASK.simulate(algorithm, rounds=rounds, **SETTINGS | settings)


@pytest.mark.parametrize("name", COSTS)
def test_costs_are_those_counted_by_hand(name):
  algorithm, bytes_down, bytes_up, gradients = COSTS[name]
  assert simulate(algorithm).cost == {
    "bytes_down_per_round": bytes_down,
    "bytes_up_per_round": bytes_up,
    "gradient_evaluations_per_round": gradients,
  }


def test_all_clients_of_prox_skip_meet_or_none():
  """Also those that have fewer steps than the coin takes to fall."""
  task = jax_problems.least_squares(sizes=(1, 6, 6, 6), dim=D)
  rounds = 20
  result = task.simulate(
    fo.prox_skip(task.loss_fn, 0.01, p=0.3),
    rounds=rounds,
    batch_size=1,
    weighting="uniform",
  )
  meetings = result.cost["bytes_up_per_round"] * rounds / MODEL
  assert 10 <= meetings < rounds
  assert meetings == pytest.approx(round(meetings))


def test_mime_lite_takes_any_base_optimizer():
  """One client, one step on all of its examples: that optimizer itself."""
  base = optax.scale_by_adam()
  problem = jax_problems.least_squares(sizes=(N,), dim=D)
  with jax.enable_x64(True):
    result = problem.simulate(
      fo.mime_lite(problem.loss_fn, 0.1, base=base),
      rounds=4,
      batch_size=N,
      local_steps=1,
    )
    expected, state = problem.params, base.init(problem.params)
    for _ in range(4):
      _, grad = problem.problem.gradient(expected["kernel"], np.arange(N))
      updates, state = base.update({"kernel": grad}, state)
      updates = optax.tree.scale(-0.1, updates)
      expected = optax.apply_updates(expected, updates)
  jax_problems.assert_close(result.params, expected["kernel"], rtol=1e-10)
  close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10)
  jax.tree.map(close, result.state.base, state)


@pytest.mark.parametrize("factory", [fo.fed_dyn, fo.ditto])
def test_a_rule_may_be_a_function_of_the_round(factory):
  rates = np.float32([0.1, 0.02])
  of_round = lambda round: optax.sgd(jax.numpy.asarray(rates)[round])
  both = simulate(factory(TASK.loss_fn, of_round), 1)
  first = simulate(factory(TASK.loss_fn, optax.sgd(0.1)), 1)
  np.testing.assert_allclose(
    both.params["kernel"], first.params["kernel"], rtol=1e-6
  )
  later = simulate(factory(TASK.loss_fn, of_round), 2)
  constant = simulate(factory(TASK.loss_fn, optax.sgd(0.1)), 2)
  gap = later.params["kernel"] - constant.params["kernel"]
  assert np.linalg.norm(gap) > 1e-3
