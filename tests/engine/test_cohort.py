"""What the verbs of a cohort and the bookkeeping of a run promise.

Which examples a client saw is what it sends: on examples that are unit vectors,
one step of length B on the loss -<x, p> leaves the counts of the batch's rows.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_opt import Algorithm, ClientData, ClientOutput, fed_avg, simulate
from fedjax_opt.engine.config import Config
from tests.helpers import jax_problems
from tests.helpers.jax_problems import client_of

SIZES = (6, 9, 12, 7, 5)
M, N, B = len(SIZES), sum(SIZES), 3
OWNER = np.repeat(np.arange(M), SIZES)
DATA = ClientData.from_client_ids({"x": np.eye(N, dtype=np.float32)}, OWNER)
ROUNDS = 40


def reward(params, batch, rng):
  return -batch["x"] @ params


def seen(worker, start):
  """[N], how often a client that takes one step saw each example."""
  return worker.descend(reward, optax.sgd(float(B)), start)


OPTIONS = {
  "cohort_size": 3, "client_chunk": 2, "batch_size": B, "local_steps": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def sent():
  """A run whose state is what clients last sent: all, their mean, and one."""
  who, counts = jnp.zeros(3, jnp.int32), jnp.zeros((3, N))

  def round(state, cohort):
    one_client = lambda worker, start: (worker.client, seen(worker, start))
    replies = {
      "each": cohort.each(one_client, jnp.zeros(N)),
      "mean": cohort.mean(one_client, jnp.zeros(N), phase=1),
      "picked": cohort.pick(one_client, jnp.zeros(N), phase=2),
    }
    state = {verb: reply.value for verb, reply in replies.items()}
    return state, tuple(replies.values())

  init = lambda params: {
    "each": (who, counts),
    "mean": (0.0, counts[0]),  # That of whole numbers is none.
    "picked": (who[0], counts[0]),
  }
  algorithm = Algorithm(init, round, params=lambda state: state["mean"][1])
  return simulate(algorithm, (), DATA, rounds=5, **OPTIONS)


def cohort_of(data, **options):
  """The cohort of the second round of a run."""
  config = Config.create(data, {"batch_size": B} | options)
  data, key = jax.device_put(data), jax.random.key(0)
  return jax_problems.cohort_of(config, data, key, jnp.int32(1))


@pytest.fixture(scope="module")
def last(sent):
  return jax.device_get(sent.state)


def test_each_gives_what_every_client_of_the_cohort_sent(last):
  clients, messages = last["each"]
  assert len(set(clients)) == 3
  for client, counts in zip(clients, messages, strict=True):
    assert set(np.flatnonzero(counts)) <= set(np.flatnonzero(client == OWNER))
    assert counts.max() == 1
    assert counts.sum() == B


def test_each_phase_draws_fresh_batches_for_the_same_clients(last):
  clients, messages = last["each"]
  _, mean = last["mean"]
  assert set(OWNER[np.flatnonzero(mean)]) == set(clients)
  assert ((messages.sum(0) > 0) != (mean > 0)).any()
  pick, counts = last["picked"]
  assert (counts > 0).sum() == B
  assert set(OWNER[counts > 0]) == {int(pick)}


def test_mean_weighs_clients_by_their_examples(last):
  clients, _ = last["each"]
  number, mean = last["mean"]
  sizes = np.array(SIZES)[clients]
  weights = sizes / sizes.sum()
  for client, weight in zip(clients, weights, strict=True):
    own_means = mean[client == OWNER]
    np.testing.assert_allclose(own_means[own_means > 0], weight, rtol=1e-6)
  np.testing.assert_allclose(number, weights @ clients, rtol=1e-6)


def test_cost_counts_all_phases(sent):
  # Two phases of every client and one of a single client of three.
  phases = 2 + 1 / 3
  assert sent.cost == {
    "bytes_down_per_round": pytest.approx(4 * N * phases),
    "bytes_up_per_round": pytest.approx(4 * (1 + N) * phases),
    "gradient_evaluations_per_round": pytest.approx(B * phases),
  }
  # Three clients of the four that are computed.
  assert sent.padding_waste == pytest.approx(1 / 4)


@pytest.fixture(scope="module")
def counted():
  """A run that counts who was drawn and picked; each client counts too."""

  def round(state, cohort):
    def one_client(worker, momentum):
      of_epoch = lambda e: jax.random.fold_in(client_of(worker).key, e)
      keys = jax.vmap(of_epoch)(jnp.arange(50))
      metrics = {"own_keys": jnp.sum(keys == worker.key)}
      message = 0.5 * momentum + 1
      return ClientOutput(message, state=worker.state + 1, metrics=metrics)

    number = lambda worker, _: worker.client
    each = cohort.each(number, ())
    mean = cohort.mean(one_client, state["momentum"], phase=1)
    picked = cohort.pick(number, (), phase=2)
    return {
      "drawn": state["drawn"].at[each.value].add(1),
      "picked": state["picked"].at[picked.value].add(1),
      "momentum": mean.value,
    }, (each, mean, picked)

  zeros = jnp.zeros(M, jnp.int32)
  algorithm = Algorithm(
    lambda params: {"drawn": zeros, "picked": zeros, "momentum": params},
    round,
    params=lambda state: state["momentum"],
    init_client=lambda params: jnp.int32(0),
  )
  return simulate(algorithm, jnp.zeros(2), DATA, rounds=ROUNDS, **OPTIONS)


def test_state_that_is_broadcast_comes_back(counted):
  expected = 2 - 2 * 0.5**ROUNDS
  np.testing.assert_allclose(counted.params, [expected] * 2, rtol=1e-6)


def test_a_client_s_own_key_is_no_epoch_s(counted):
  assert not counted.traces["own_keys"].any()


def test_what_clients_keep_changes_for_the_cohort_alone(counted):
  visits = np.asarray(counted.client_state)
  np.testing.assert_array_equal(visits, counted.state["drawn"])
  assert visits.sum() == 3 * ROUNDS


def test_cohort_and_pick_are_uniform(counted):
  times_drawn = np.asarray(counted.state["drawn"])
  times_picked = np.asarray(counted.state["picked"])
  assert times_picked.sum() == ROUNDS
  # Means 24 and 8 per client; four standard deviations.
  assert abs(times_drawn - 24).max() <= 4 * np.sqrt(ROUNDS * 0.6 * 0.4)
  assert abs(times_picked - 8).max() <= 4 * np.sqrt(ROUNDS * 0.2 * 0.8)


@pytest.mark.parametrize("weighting", ["uniform", "examples"])
@pytest.mark.default_cases("examples")
def test_a_picked_client_is_one_part_of_the_population(weighting):
  def round(state, cohort):
    sent = cohort.pick(lambda worker, _: jnp.float32(1), ())
    return state.at[cohort.round].set(sent.cohort_share), sent

  shares = simulate(
    jax_problems.own_algorithm(round, lambda *_: jnp.zeros(20)), (), DATA,
    rounds=20, cohort_size=3, batch_size=B, weighting=weighting,
  ).params  # fmt: skip
  expected = np.array(SIZES) / N if weighting == "examples" else np.array(1 / M)
  assert np.isclose(shares[:, None], expected).any(1).all()


@pytest.mark.slow
def test_a_place_for_no_client_does_no_harm():
  """It takes steps where all take equally many, and may overflow in them."""
  x = np.ones((24, 1), np.float32)
  x[0] = 10  # Seen again and again in the place for no client.
  owner = np.repeat([2, 0, 1], 8)

  def loss_fn(params, batch, rng):
    return (batch["x"] @ params - 1) ** 2 / 2

  def final(chunk):
    return simulate(
      fed_avg(loss_fn, optax.sgd(0.06)),
      np.zeros(1),
      ClientData.from_client_ids({"x": x}, owner),
      rounds=1,
      batch_size=8,
      local_steps=100,
      replacement=True,
      client_chunk=chunk,
    ).params

  np.testing.assert_allclose(final(2), final(3), rtol=1e-6)


def test_a_sample_is_of_all_examples_of_the_client():
  """Each is drawn as often as any other, the first and the last among them."""
  num_samples = 2000

  def one_client(worker, zeros):
    return -worker.sample_gradient(reward, zeros, num_samples)

  cohort = cohort_of(DATA)
  shares = np.asarray(cohort.each(one_client, jnp.zeros(N)).value)
  for client, of_client in zip(cohort.clients, shares, strict=True):
    is_own = client == OWNER
    assert not of_client[~is_own].any()
    mean = 1 / SIZES[client]
    error = np.sqrt(mean * (1 - mean) / num_samples)
    np.testing.assert_allclose(of_client[is_own], mean, atol=5 * error)


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_draws_are_the_same_in_double_precision(dropout):
  """Of a sample, of who drops out, and of the client that is picked."""

  def round():
    cohort = cohort_of(DATA, cohort_size=3, client_dropout=dropout)
    sample = lambda worker, start: worker.sample_gradient(reward, start, 9)
    sent = cohort.each(sample, jnp.zeros(N, np.float32))
    pick = cohort.pick(lambda worker, _: worker.client, (), phase=1)
    return sent.value, sent.counted, pick.value

  def drawn(x64):
    with jax.enable_x64(x64):
      return jax.device_get(jax.jit(round)())

  jax.tree.map(np.testing.assert_array_equal, drawn(False), drawn(True))


@pytest.mark.parametrize("chunk", [1, 7])
@pytest.mark.default_cases("1")
def test_the_mean_of_many_clients_is_exact(chunk):
  """One by one the mean of 1.0 over 100,000 clients was 1e-3 off."""
  num_clients = 20_001  # The last block of chunks is not full.
  examples = {"x": np.ones((num_clients, 1), np.float32)}

  def round(state, cohort):
    message = lambda worker, _: jnp.stack(
      [1.0, 3.0 + worker.client.astype(float) / num_clients]
    )
    reply = cohort.mean(message, state)
    return reply.value, reply

  mean_found = simulate(
    jax_problems.own_algorithm(round),
    jnp.zeros(2),
    ClientData.from_client_ids(examples, np.arange(num_clients)),
    rounds=1,
    batch_size=1,
    client_chunk=chunk,
  ).params
  expected = [1, 3 + np.mean(np.arange(num_clients) / num_clients)]
  np.testing.assert_allclose(mean_found, expected, rtol=1e-6)
