"""What is proved of the momentum family, and its rule.

test_loops.py has it against its loop.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_opt import domo, fed_avg, momentum_fusion
from fedjax_opt.engine.config import Config
from tests import cases, jax_problems, reference
from tests import reference_methods as loops
from tests.jax_problems import flat

# All clients take the same steps, as the box has it.
TASK = jax_problems.softmax(sizes=(13, 7, 20, 4))
EVEN = {"cohort_size": 4, "batch_size": 4, "local_steps": 3}
ROUNDS, P, ETA = 4, 3, 0.2
ALPHA, MU_S, MU_L, BETA = 0.8, 0.7, 0.6, 0.5
MOMENTA = {"mu_s": MU_S, "mu_l": MU_L}


def rate(r):
  """It drops, as in the paper's experiments."""
  return jnp.where(r < 2, ETA, ETA / 4)


def run(algorithm, task=TASK, **settings):
  """What the server has before the rounds and after each."""
  settings = EVEN | {"rounds": ROUNDS} | settings
  with jax.enable_x64(True):
    return [server for server, _ in cases.run(algorithm, task, **settings)]


def family(learning_rate=rate, alpha=ALPHA, **constants):
  return domo(TASK.loss_fn, learning_rate, alpha, **constants)


@functools.cache
def end(steps=P, **constants):
  """Where a method of the family ends."""
  return flat(run(family(**constants), local_steps=steps)[-1].params)


close = functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-12)


# ----------------------------------------------------- Special cases (M-P1..6)


def test_without_momenta_it_is_fed_avg():
  """M-P1, with and without buffers; more is in test_validity.py."""
  client = lambda r: optax.sgd(rate(r))
  expected = run(fed_avg(TASK.loss_fn, client, optax.sgd(ALPHA)))[-1].params
  for off in (None, 0.0):
    close(end(mu_s=off, mu_l=off, beta=off), flat(expected))


def test_without_fusion_all_options_are_one():
  """M-P2; with the other constants zeroed the loop is that of each name."""
  expected = end(**MOMENTA, beta=None, average_local=True)
  for intra in (False, True):
    close(end(**MOMENTA, beta=0.0, intra=intra, average_local=True), expected)


def test_a_client_can_infer_the_server_momentum_from_two_models():
  """With the rate of the round before, also where it drops (M-P3)."""
  states = run(family(**MOMENTA, beta=BETA))
  for r in (2, 3):
    before, now = (flat(state.params) for state in states[r - 1 : r + 1])
    momentum = flat(states[r].momentum)
    moved = (before - now) / ALPHA
    # Between them the rate drops to a quarter.
    close(moved / (ETA if r == 2 else ETA / 4), momentum)


ONE = jax_problems.least_squares(sizes=(12,))


def one_client(steps, **constants):
  """Its end, and of a rule's loop, a fresh one in each round if asked to."""
  algorithm = domo(ONE.loss_fn, 0.1, **constants)
  settings = {"cohort_size": 1, "batch_size": 12, "local_steps": steps}
  return flat(run(algorithm, ONE, **settings)[-1].params)


def test_one_client():
  """M-P4: momentum SGD restarted in each round, or the heavy ball."""
  restarted = reference.Round([0], [[np.arange(12)] * P], [1])
  make_rule = lambda r, client: reference.Momentum(0.1, MU_L)
  rounds = [restarted] * ROUNDS
  *_, (last, _) = reference.fed_avg(ONE.problem, rounds, make_rule)
  close(one_client(P, mu_s=0.0, mu_l=MU_L, beta=0.0), last)
  of_one_step = one_client(
    1, server_learning_rate=ALPHA, mu_s=MU_S, mu_l=0.0, beta=0.0
  )
  rule = reference.Momentum(0.1 * ALPHA, MU_S)
  rows = [np.arange(12)] * ROUNDS
  ball = reference.descend(ONE.problem.x0, ONE.problem.gradient, rows, rule)
  close(of_one_step, ball.xs[-1])


def test_one_client_of_one_step_with_pre_momentum_is_nesterov():
  """M-P5."""
  x, v = ONE.problem.x0, 0.0
  for _ in range(ROUNDS):
    ahead = ONE.problem.gradient(x + MU_S * v, np.arange(12))[1]
    v = MU_S * v - 0.1 * ahead
    x = x + v
  close(one_client(1, mu_s=MU_S, mu_l=0.0, beta=MU_S), x)


def test_of_one_step_intra_momentum_comes_too_late():
  """M-P5: it moves the model only after the one gradient."""
  without = end(1, **MOMENTA, beta=None)
  close(end(1, **MOMENTA, beta=BETA, intra=True), without)
  assert not np.allclose(end(1, **MOMENTA, beta=BETA), without)


def test_gradients_that_are_constant_make_all_options_one():
  """M-P6: the fusion changes where gradients are taken, nothing else."""
  linear = jax_problems.from_start(
    TASK.problem,
    np.zeros(4),
    lambda x, rows: (0.0, TASK.problem.examples["x"][rows].sum(0)),
  )
  ends = [lemma_loop(option, problem=linear) for option in ("III", "I", "II")]
  servers = [rounds[-1].x for rounds in ends]
  close(servers[1:], [servers[0]] * 2)
  # Of I and II also the final local models.
  pre, intra = ([own[-1] for own in rounds[-1].points] for rounds in ends[1:])
  close(pre, intra)


# ------------------------------------------------------------ Lemmas (M-P7..9)


@functools.cache
def even_rounds():
  """Four clients of three steps and equal weights."""
  config = Config.create(TASK.data, EVEN)
  rounds = jax_problems.drawn_rounds(config, TASK.data, 0, ROUNDS)
  return [r._replace(weights=np.ones(4)) for r in rounds]


def lemma_loop(
  option, average_local=False, alpha=ALPHA, problem=TASK.problem, beta=BETA
):
  """The loop's rounds; with option III there is no fusion."""
  looped = loops.double_momentum(
    problem, even_rounds(), lambda r: ETA, alpha, **MOMENTA, beta=beta,
    option=option, average_local=average_local,
  )  # fmt: skip
  return list(looped)


def moved_by(buffers):
  """[P + 1, d], the sum of the buffers used up to each step."""
  return np.cumsum(np.concatenate([0 * buffers[:1], buffers[1:]]), 0)


def auxiliary(rounds, alpha=ALPHA):
  """Lemma 1's z_{r,p}, [R, P + 1, d]."""
  c = alpha * ETA / ((1 - MU_S) * 4)
  x, momentum, of_rounds = TASK.problem.x0, 0.0, []
  for done in rounds:
    y = x - MU_S / (1 - MU_S) * alpha * ETA * momentum
    buffers = np.sum(done.buffers, 0)  # [P + 1, d]
    z = y - c * moved_by(buffers) - MU_L / (1 - MU_L) * c * buffers
    of_rounds.append(z)
    x, momentum = done.x, done.momentum
  return np.array(of_rounds)


@pytest.mark.parametrize("average_local", [False, True])
@pytest.mark.parametrize("option", ["I", "II", "III"])
def test_lemma_1(option, average_local):
  """M-P7."""
  rounds = lemma_loop(option, average_local)
  z, gradient = auxiliary(rounds), TASK.problem.gradient
  c = ALPHA * ETA / ((1 - MU_S) * 4)
  for r, done in enumerate(rounds):
    for p in range(P):
      clients = zip(done.points, even_rounds()[r].batches, strict=True)
      grads = [gradient(xs[p], steps[p])[1] for xs, steps in clients]
      close(z[r, p + 1], z[r, p] - c / (1 - MU_L) * np.sum(grads, 0))
  joined = np.abs(z[1:, 0] - z[:-1, -1]).max()
  assert joined < 1e-12 if average_local else joined > 1e-3


@pytest.mark.parametrize("alpha", [ALPHA, 1 - MU_S])
def test_lemma_2(alpha):
  """How far z is from the clients' mean, with and without fusion (M-P8)."""
  fused = lemma_loop("I", alpha=alpha, beta=MU_S * alpha / (1 - MU_S))
  plain = lemma_loop("III", alpha=alpha)
  for rounds, share in ((fused, 0), (plain, MU_S / (1 - MU_S) * alpha)):
    z, momentum = auxiliary(rounds, alpha), 0.0
    for r, done in enumerate(rounds):
      buffers = np.mean(done.buffers, 0)
      expected = (1 - alpha / (1 - MU_S)) * ETA * moved_by(buffers)
      expected -= MU_L * alpha * ETA / ((1 - MU_L) * (1 - MU_S)) * buffers
      expected -= share * ETA * momentum
      close(z[r] - np.mean(done.points, 0), expected)
      momentum = done.momentum


def test_the_mean_of_the_clients_with_pre_momentum():
  """M-P9."""
  x, momentum = TASK.problem.x0, 0.0
  for done in lemma_loop("I"):
    moved = ETA * moved_by(np.mean(done.buffers, 0))
    close(np.mean(done.points, 0), x - BETA * ETA * momentum - moved)
    x, momentum = done.x, done.momentum


# --------------------------------------------------------- The rule, bad input


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


def test_what_cannot_be():
  with pytest.raises(ValueError, match="average_local=True: there is no local"):
    domo(TASK.loss_fn, 0.1, mu_l=None, average_local=True)
