"""The momentum family against its loop, and what is proved of it.

methods_cases.py says in which cases it is compared.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_opt import domo, fed_avg, momentum_fusion, simulate, sweep
from fedjax_opt.algorithms import ALGORITHMS
from fedjax_opt.data.clients import ClientData
from fedjax_opt.engine.config import Config
from tests import jax_problems, methods_cases
from tests import reference_momentum as loops
from tests.jax_problems import assert_close
from tests.user_algorithms import draws

case = methods_cases.case
TASK = jax_problems.softmax()
ROUNDS = 4
ALPHA, MU_S, MU_L, BETA = 0.8, 0.7, 0.6, 0.5

# name -> the constants of the loop that are not those of FedAvg.
FAMILY = {
  "fed_avg_sm": {"mu_s": MU_S},
  "fed_avg_lm": {"mu_l": MU_L, "average_local": True},
  "fed_avg_lm_z": {"mu_l": MU_L},
  "fed_avg_slm": {"mu_s": MU_S, "mu_l": MU_L, "average_local": True},
  "fed_avg_slm_z": {"mu_s": MU_S, "mu_l": MU_L},
  "domo": {"mu_s": MU_S, "mu_l": MU_L, "beta": BETA, "option": "I"},
  "domo_s": {"mu_s": MU_S, "mu_l": MU_L, "beta": BETA, "option": "II"},
}


def rate(r):
  """It drops, as in the paper's experiments."""
  return jnp.where(r < 2, 0.2, 0.05)


def loop_rate(r):
  return 0.2 if r < 2 else 0.05


def make(name, loss_fn=TASK.loss_fn):
  momenta = {n: v for n, v in FAMILY[name].items() if n in ("mu_s", "mu_l")}
  if "beta" in FAMILY[name]:
    momenta["beta"] = BETA
  return ALGORITHMS[name].factory(loss_fn, rate, ALPHA, **momenta)


def check_against_loop(case, name):
  def loop(drawn, masses):
    of_rounds = loops.double_momentum(*drawn, loop_rate, ALPHA, **FAMILY[name])
    return [r.x for r in of_rounds], [r.momentum for r in of_rounds]

  algorithm = make(name, draws.loss_fn)
  methods_cases.check_matches(case, algorithm, "params momentum", loop)


@pytest.mark.parametrize("name", FAMILY)
def test_every_name_equals_the_loop(case, name):
  check_against_loop(case, name)


@pytest.mark.parametrize("case", ["uniform in float32"], indirect=True)
def test_single_precision_is_near_the_loop(case):
  check_against_loop(case, "domo")


# ----------------------------------------------------- Special cases (M-P1..6)


# All clients take the same steps, as the box has it.
EVEN = {"cohort_size": 4, "batch_size": 4, "local_steps": 3}
EVEN_TASK = jax_problems.softmax(sizes=(13, 7, 20, 4))


def run_even(algorithm, task=EVEN_TASK, **settings):
  with jax.enable_x64(True):
    settings = EVEN | {"rounds": ROUNDS} | settings
    return task.simulate(algorithm, **settings).state


def assert_same(actual, expected):
  assert_close(actual.params, jax_problems.flat(expected.params), 1e-12)


def family(learning_rate=rate, alpha=ALPHA, **constants):
  return domo(EVEN_TASK.loss_fn, learning_rate, alpha, **constants)


def test_without_momenta_it_is_fed_avg():
  """M-P1, with and without buffers; more is in test_validity.py."""
  client = lambda r: optax.sgd(rate(r))
  settings = {"cohort_size": 3, "batch_size": 4, "local_epochs": 1.5}
  run = lambda algorithm: run_even(
    algorithm, TASK, local_steps=None, **settings
  )
  expected = run(fed_avg(TASK.loss_fn, client, optax.sgd(ALPHA)))
  for off in (None, 0.0):
    none = {"mu_s": off, "mu_l": off, "beta": off}
    assert_same(run(domo(TASK.loss_fn, rate, ALPHA, **none)), expected)


def test_without_fusion_all_options_are_one():
  """M-P2; with the other constants zeroed the loop is that of each name."""
  momenta = {"mu_s": MU_S, "mu_l": MU_L, "average_local": True}
  expected = run_even(make("fed_avg_slm"))
  for intra in (False, True):
    actual = run_even(family(beta=0.0, intra=intra, **momenta))
    assert_same(actual, expected)


def test_a_client_can_infer_the_server_momentum_from_two_models():
  """With the rate of the round before, also where it drops (M-P3)."""
  states = {r: run_even(make("domo"), rounds=r) for r in (1, 2, 3)}
  for r in (2, 3):
    before, now = (jax_problems.flat(states[s].params) for s in (r - 1, r))
    momentum = jax_problems.flat(states[r].momentum) / EVEN["local_steps"]
    scale = ALPHA * EVEN["local_steps"]
    inferred = (before - now) / (scale * loop_rate(r - 1))
    np.testing.assert_allclose(inferred, momentum, rtol=1e-9, atol=1e-12)
    if r == 2:  # The rate has just dropped to a quarter.
      wrong = (before - now) / (scale * loop_rate(r))
      np.testing.assert_allclose(wrong, 4 * momentum, rtol=1e-9)


ONE = jax_problems.least_squares(sizes=(12,))
ALL_ROWS = np.arange(12)


def descend_one(rule, num_steps, restart=None):
  """A plain loop on the exact gradient, restarted every so many steps."""
  x = jnp.asarray(ONE.problem.x0)
  state = rule.init(x)
  for k in range(num_steps):
    if restart and k % restart == 0:
      state = rule.init(x)
    grads = jnp.asarray(ONE.problem.gradient(np.asarray(x), ALL_ROWS)[1])
    updates, state = rule.update(grads, state, x)
    x = optax.apply_updates(x, updates)
  return np.asarray(x)


def run_one(steps, **constants):
  algorithm = domo(ONE.loss_fn, 0.1, **constants)
  settings = {"cohort_size": 1, "batch_size": 12, "local_steps": steps}
  return jax_problems.flat(run_even(algorithm, ONE, **settings).params)


def test_one_client_is_momentum_sgd_restarted_every_round():
  actual = run_one(3, mu_s=0.0, mu_l=MU_L, beta=0.0)
  with jax.enable_x64(True):
    rule = optax.sgd(0.1, momentum=MU_L)
    expected = descend_one(rule, 3 * ROUNDS, restart=3)
  np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_one_client_of_one_step_is_the_heavy_ball():
  actual = run_one(1, server_learning_rate=ALPHA, mu_s=MU_S, mu_l=0.0, beta=0.0)
  with jax.enable_x64(True):
    expected = descend_one(optax.sgd(0.1 * ALPHA, momentum=MU_S), ROUNDS)
  np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_one_client_of_one_step_with_pre_momentum_is_nesterov():
  actual = run_one(1, mu_s=MU_S, mu_l=0.0, beta=MU_S)
  x, v = ONE.problem.x0, 0.0
  for _ in range(ROUNDS):
    v = MU_S * v - 0.1 * ONE.problem.gradient(x + MU_S * v, ALL_ROWS)[1]
    x = x + v
  np.testing.assert_allclose(actual, x, rtol=1e-12)


def test_of_one_step_intra_momentum_comes_too_late():
  """M-P5: it moves the model only after the one gradient."""
  without = run_even(make("fed_avg_slm_z"), local_steps=1)
  assert_same(run_even(make("domo_s"), local_steps=1), without)
  pre = run_even(make("domo"), local_steps=1)
  assert not np.allclose(
    jax_problems.flat(pre.params), jax_problems.flat(without.params)
  )


def test_gradients_that_are_constant_make_all_options_one():
  """M-P6: the fusion changes where gradients are taken, nothing else."""
  linear = lambda x, rows: (0.0, EVEN_TASK.problem.examples["x"][rows].sum(0))
  ends = [
    lemma_loop(option, x0=np.zeros(4), gradient=linear)[0][-1].x
    for option in ("III", "I", "II")
  ]
  np.testing.assert_allclose(ends[1:], [ends[0]] * 2, rtol=1e-12)


# ------------------------------------------------------------ Lemmas (M-P7..9)


LEMMA = {"I": {"beta": BETA}, "II": {"beta": BETA}, "III": {}}


def lemma_loop(
  option,
  average_local=False,
  alpha=ALPHA,
  x0=EVEN_TASK.problem.x0,
  gradient=EVEN_TASK.problem.gradient,
  **constants,
):
  """Four clients of three steps; eta is 0.2."""
  config = Config.create(EVEN_TASK.data, EVEN)
  cohorts, batches, _ = jax_problems.drawn_rounds(
    config, EVEN_TASK.data, 0, ROUNDS
  )
  constants = {"mu_s": MU_S, "mu_l": MU_L} | LEMMA[option] | constants
  rounds = loops.double_momentum(
    x0,
    gradient,
    cohorts,
    batches,
    [np.ones(4)] * ROUNDS,
    lambda r: 0.2,
    alpha,
    **constants,
    option=option,
    average_local=average_local,
  )
  return rounds, batches


def auxiliary(rounds, alpha=ALPHA):
  """Lemma 1's z_{r,p}, [R, P + 1, d]."""
  c = alpha * 0.2 / ((1 - MU_S) * 4)
  x, momentum, of_rounds = EVEN_TASK.problem.x0, 0.0, []
  for done in rounds:
    y = x - MU_S / (1 - MU_S) * alpha * 0.2 * momentum
    buffers = np.sum(done.buffers, 0)  # [P + 1, d]
    moved = np.cumsum(np.concatenate([0 * buffers[:1], buffers[1:]]), 0)
    of_rounds.append(y - c * moved - MU_L / (1 - MU_L) * c * buffers)
    x, momentum = done.x, done.momentum
  return np.array(of_rounds)


@pytest.mark.parametrize("average_local", [False, True])
@pytest.mark.parametrize("option", LEMMA)
def test_lemma_1(option, average_local):
  rounds, batches = lemma_loop(option, average_local)
  z, gradient = auxiliary(rounds), EVEN_TASK.problem.gradient
  c = ALPHA * 0.2 / ((1 - MU_S) * 4)
  for r, done in enumerate(rounds):
    for p in range(3):
      grads = [gradient(done.points[i][p], batches[r][i][p])[1]
               for i in range(4)]  # fmt: skip
      expected = z[r, p] - c / (1 - MU_L) * np.sum(grads, 0)
      np.testing.assert_allclose(z[r, p + 1], expected, rtol=1e-9, atol=1e-12)
  joined = np.abs(z[1:, 0] - z[:-1, -1]).max()
  if average_local:
    assert joined < 1e-12
  else:
    assert joined > 1e-3


def mean_points(rounds):
  return np.array([np.mean(done.points, 0) for done in rounds])


@pytest.mark.parametrize("alpha", [ALPHA, 1 - MU_S])
def test_lemma_2(alpha):
  """How far z is from the clients' mean, with and without fusion (M-P8)."""
  fused, _ = lemma_loop("I", alpha=alpha, beta=MU_S * alpha / (1 - MU_S))
  plain, _ = lemma_loop("III", alpha=alpha)
  for rounds, share in ((fused, 0), (plain, MU_S / (1 - MU_S) * alpha)):
    gap = auxiliary(rounds, alpha) - mean_points(rounds)
    momentum = 0.0
    for r, done in enumerate(rounds):
      buffers = np.mean(done.buffers, 0)
      moved = np.cumsum(np.concatenate([0 * buffers[:1], buffers[1:]]), 0)
      expected = (1 - alpha / (1 - MU_S)) * 0.2 * moved
      expected -= MU_L * alpha * 0.2 / ((1 - MU_L) * (1 - MU_S)) * buffers
      expected -= share * 0.2 * momentum
      np.testing.assert_allclose(gap[r], expected, rtol=1e-9, atol=1e-12)
      momentum = done.momentum


def test_the_mean_of_the_clients_with_pre_momentum():
  """M-P9."""
  rounds, _ = lemma_loop("I")
  x, momentum = EVEN_TASK.problem.x0, 0.0
  for done, mean in zip(rounds, mean_points(rounds), strict=True):
    buffers = np.mean(done.buffers, 0)
    moved = np.cumsum(np.concatenate([0 * buffers[:1], buffers[1:]]), 0)
    expected = x - BETA * 0.2 * momentum - 0.2 * moved
    np.testing.assert_allclose(mean, expected, rtol=1e-9, atol=1e-12)
    x, momentum = done.x, done.momentum


# ------------------------------------------------------------ The rule, costs


def test_a_momentum_is_fused_into_any_rule():
  params = {"w": jnp.array([1.0, -2.0])}
  momentum = {"w": jnp.array([3.0, 1.0])}
  grads = {"w": jnp.array([0.5, 0.5])}
  for rule in (optax.sgd(0.1, momentum=0.9), optax.adam(0.1)):
    both = optax.chain(rule, momentum_fusion(momentum, 0.2))
    alone, _ = rule.update(grads, rule.init(params), params)
    fused, _ = both.update(grads, both.init(params), params)
    expected = alone["w"] - 0.2 * momentum["w"]
    np.testing.assert_allclose(fused["w"], expected, rtol=1e-6)


def test_half_precision_is_kept():
  name = "fed_avg_slm"
  half = lambda leaf: jnp.asarray(leaf, "bfloat16")
  params = jax.tree.map(half, TASK.params)
  momenta = {n: [v] for n, v in FAMILY[name].items() if n in ("mu_s", "mu_l")}
  make_half = lambda **momenta: ALGORITHMS[name].factory(
    TASK.loss_fn, 0.05, **momenta
  )
  result = sweep(make_half, momenta, params, TASK.data, rounds=4, batch_size=4)
  types = {leaf.dtype for leaf in jax.tree.leaves(result.state)}
  assert types == {jnp.dtype("bfloat16")}
  # Rounding does not stop the momentum of the server.
  momentum = jax_problems.flat(result.state.momentum)
  assert np.linalg.norm(momentum) > 1


def test_what_cannot_be():
  with pytest.raises(ValueError, match="average_local=True: there is no local"):
    domo(TASK.loss_fn, 0.1, mu_l=None, average_local=True)


def test_a_client_without_examples_weighs_as_any_other_if_asked_to():
  """It has moved by nothing, though others are moved by the fusion."""
  data = ClientData.from_partition(
    TASK.problem.examples, [np.arange(8), np.zeros(0, int)]
  )
  settings = {"batch_size": 4, "weighting": "uniform"}
  for name, option in (("domo", "I"), ("domo_s", "II")):
    with jax.enable_x64(True):
      config = Config.create(data, settings)
      drawn = jax_problems.drawn_rounds(config, data, 0, 3)
      algorithm = make(name)
      result = simulate(algorithm, TASK.params, data, rounds=3, **settings)
    gradient, x0 = TASK.problem.gradient, TASK.problem.x0
    constants = FAMILY[name] | {"option": option}
    rounds = loops.double_momentum(
      x0, gradient, *drawn, loop_rate, ALPHA, **constants
    )
    assert_close(result.params, rounds[-1].x, 1e-10)
