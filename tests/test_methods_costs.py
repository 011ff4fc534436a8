"""What a round of each method costs, and rules that they take."""

import jax
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from tests import cases, jax_problems

N, D, K, C = 6, 5, 3, 4
TASK = jax_problems.least_squares(sizes=(N,) * C, dim=D)
LOSS = TASK.loss_fn
SETTINGS = {"batch_size": N, "local_steps": K, "cohort_size": C}
MODEL, NUMBER = 4 * D, 4  # bytes
ONCE = K * N  # gradients of an example by plain local steps
SGD = optax.sgd(0.05)

# name -> (algorithm, bytes down, bytes up, gradients).
COSTS = {
  "fed_avg, averaged momenta": (
    fo.fed_avg(LOSS, optax.sgd(0.05, momentum=0.9), average_state=True),
    2 * MODEL,
    2 * MODEL,
    ONCE,
  ),
  "fed_dyn": (fo.fed_dyn(LOSS, SGD), MODEL, MODEL, ONCE),
  "fed_nova": (fo.fed_nova(LOSS, 0.05), MODEL, MODEL + NUMBER, ONCE),
  "fed_cm": (fo.fed_cm(LOSS, 0.05), 2 * MODEL, MODEL + NUMBER, ONCE),
  "fed_exp": (fo.fed_exp(LOSS, SGD), MODEL, MODEL + NUMBER, ONCE),
  "mime_lite": (
    fo.mime_lite(LOSS, 0.05),
    2 * MODEL + NUMBER,  # The count of optax.ema.
    2 * MODEL,
    ONCE + N,
  ),
  "fed_sam": (fo.fed_sam(LOSS, SGD), MODEL, MODEL, 2 * ONCE),
  "mo_fed_sam": (
    fo.mo_fed_sam(LOSS, 0.05),
    2 * MODEL,
    MODEL + NUMBER,
    2 * ONCE,
  ),
  "fed_speed": (fo.fed_speed(LOSS, 0.05), MODEL, MODEL, 2 * ONCE),
  "fed_acg": (fo.fed_acg(LOSS, SGD), MODEL, MODEL, ONCE),
  "fed_gamma": (fo.fed_gamma(LOSS, 0.05), 2 * MODEL, 2 * MODEL, 2 * ONCE),
  "fed_lesam": (fo.fed_lesam(LOSS, SGD), MODEL, MODEL, ONCE),
  "fed_lesam, last step": (
    fo.fed_lesam(LOSS, SGD, last_step=True),
    2 * MODEL,
    MODEL,
    ONCE,
  ),
  "fed_dc": (fo.fed_dc(LOSS, 0.05), 2 * MODEL, 2 * MODEL, ONCE),
  "fed_smoo": (fo.fed_smoo(LOSS, 0.05), 2 * MODEL, 2 * MODEL, 2 * ONCE),
  # Delta_t, one block's moment and the count; steps and that moment.
  "fed_adamw": (
    fo.fed_adamw(LOSS, 0.05),
    2 * MODEL + 2 * NUMBER,
    MODEL + 2 * NUMBER,
    ONCE,
  ),
  "fed_adamw, whole moments": (
    fo.fed_adamw(LOSS, 0.05, whole_moments=True),
    3 * MODEL + NUMBER,
    2 * MODEL + NUMBER,
    ONCE,
  ),
  "fed_lada": (
    fo.fed_lada(LOSS, 0.05),
    3 * MODEL,
    2 * MODEL + NUMBER,
    ONCE,
  ),
  "diloco": (fo.diloco(LOSS, SGD), MODEL, MODEL, ONCE),
  "ditto": (fo.ditto(LOSS, SGD), MODEL, MODEL, 2 * ONCE),
  "p_fed_me": (fo.p_fed_me(LOSS, 0.05, inner_steps=3), MODEL, MODEL, 3 * ONCE),
  "per_fed_avg": (fo.per_fed_avg(LOSS, 0.05), MODEL, MODEL, ONCE),
  "per_fed_avg, one batch": (
    fo.per_fed_avg(LOSS, 0.05, own_batches=False),
    MODEL,
    MODEL,
    2 * ONCE,
  ),
  "per_fed_avg, Hessian-free": (
    fo.per_fed_avg(LOSS, 0.05, hessian_difference=0.1),
    MODEL,
    MODEL,
    2 * ONCE,
  ),
  "per_fed_avg, Hessian-free, one batch": (
    fo.per_fed_avg(LOSS, 0.05, hessian_difference=0.1, own_batches=False),
    MODEL,
    MODEL,
    4 * ONCE,
  ),
  # The server's momentum is inferred, averaged buffers are sent.
  "domo": (fo.domo(LOSS, 0.05), MODEL, MODEL, ONCE),
  "fed_avg_slm": (
    fo.domo(LOSS, 0.05, beta=None, average_local=True),
    2 * MODEL,
    2 * MODEL,
    ONCE,
  ),
  "prox_skip, always": (
    fo.prox_skip(LOSS, 0.05, p=1.0),
    MODEL + 1,  # Whether they have met.
    MODEL,
    ONCE,
  ),
  "prox_skip, never": (fo.prox_skip(LOSS, 0.05, p=1e-6), MODEL + 1, 0, ONCE),
  "scaffold": (fo.scaffold(LOSS, 0.05), 2 * MODEL, 2 * MODEL, ONCE),
  "scaffold, exact": (
    fo.scaffold(LOSS, 0.05, exact_control=True),
    2 * MODEL,
    2 * MODEL,
    ONCE + N,
  ),
  "local_sgd": (fo.local_sgd(LOSS, 0.05), MODEL, MODEL, ONCE),
  "minibatch_sgd": (fo.minibatch_sgd(LOSS, 0.05), MODEL, MODEL, ONCE),
}
# The same of those whose rounds begin a stage, here the first of two; then the
# examples of its large gradient. Gradients are taken at two points, of which a
# client has the older one already.
STAGES = {
  "minibatch_sarah": (
    fo.minibatch_sarah(LOSS, 0.05),
    MODEL,
    MODEL,
    2 * ONCE,
    N,
  ),
  # Only one client of four has the local routine.
  "bvr_l_sgd": (
    fo.bvr_l_sgd(LOSS, 0.05),
    MODEL + MODEL / C,
    MODEL + MODEL / C,
    2 * ONCE + 2 * ONCE / C,
    N,
  ),
  "bvr_l_sgd, sampled": (
    fo.bvr_l_sgd(LOSS, 0.05, large_batch=4),
    MODEL + MODEL / C,
    MODEL + MODEL / C,
    2 * ONCE + 2 * ONCE / C,
    4,
  ),
  "bvr_l_sgd, theory": (
    fo.bvr_l_sgd(LOSS, 0.05, practical=False),
    2 * MODEL,
    3 * MODEL,
    4 * ONCE,
    N,
  ),
}
NAMES = "bytes_down", "bytes_up", "gradient_evaluations"


def simulate(algorithm, rounds=2, **settings):
  return TASK.simulate(algorithm, rounds=rounds, **SETTINGS | settings)


@pytest.mark.parametrize("name", COSTS)
def test_costs_are_those_counted_by_hand(name):
  algorithm, *counted = COSTS[name]
  per_round = [f"{name}_per_round" for name in NAMES]
  expected = dict(zip(per_round, counted, strict=True))
  assert simulate(algorithm).cost == expected


# name -> how many models each client keeps.
KEPT = {
  "fed_acg": 0,
  "fed_gamma": 1,
  "fed_lesam": 1,
  "fed_lesam, last step": 0,
  "fed_dc": 2,
  "fed_smoo": 2,
  "fed_adamw": 0,
  "fed_lada": 0,
}


@pytest.mark.parametrize("name", KEPT)
def test_clients_keep_so_many_models(name):
  """Algorithms say it in their docstrings."""
  result = simulate(COSTS[name][0])
  leaves = jax.tree.leaves(result.client_state)
  assert sum(leaf.nbytes for leaf in leaves) == C * KEPT[name] * MODEL


@pytest.mark.parametrize("name", STAGES)
def test_costs_of_stages_are_those_counted_by_hand(name):
  """Also along the run: what a client has spent so far."""
  algorithm, *counted, large = STAGES[name]
  result = simulate(
    algorithm, eval_every=1, evaluate=lambda params, data, test: {"x": 0.0}
  )
  expected = {"communication_rounds": 1.5}
  start = (MODEL, MODEL, large)
  for name, usual, more in zip(NAMES, counted, start, strict=True):
    expected[f"{name}_per_round"] = usual + more / 2
    expected[f"stage_start_{name}_per_round"] = more / 2
    so_far = result.history.metrics[name][0]
    np.testing.assert_allclose(so_far, [0, usual + more, 2 * usual + more])
  assert result.cost == pytest.approx(expected)


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
  one = jax_problems.least_squares(sizes=(N,), dim=D)
  with jax.enable_x64(True):
    result = one.simulate(
      fo.mime_lite(one.loss_fn, 0.1, base=base),
      rounds=4,
      batch_size=N,
      local_steps=1,
    )
    expected, state = one.params, base.init(one.params)
    for _ in range(4):
      _, grad = one.problem.gradient(expected["kernel"], np.arange(N))
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
  dropping, constant = (
    [
      server.params["kernel"]
      for server, _ in cases.run(factory(LOSS, rule), TASK, 2, **SETTINGS)
    ]
    for rule in (of_round, optax.sgd(0.1))
  )
  np.testing.assert_allclose(dropping[1], constant[1], rtol=1e-6)
  assert np.linalg.norm(dropping[2] - constant[2]) > 1e-3
