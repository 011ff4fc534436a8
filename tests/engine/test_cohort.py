"""What the verbs of a cohort and the bookkeeping of a run promise.

A toy algorithm shows which examples a client saw: on examples that are unit
vectors, one step of length B on the loss -<x, p> leaves the counts of the
batch's rows.
"""

import os
import signal
import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from fedjax_opt.program import Program

from fedjax_opt import (
  Algorithm,
  ClientData,
  delta_sgd,
  fed_avg,
  scaffold,
  simulate,
)
from fedjax_opt.simulator import run_rounds
from tests import jax_problems

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


def toy():
  """Two averaged phases, then one picked client, with memory and momentum."""

  def init(params, num_clients):
    return {
      "visits": jnp.zeros(num_clients, jnp.int32),  # counted by the clients
      "drawn": jnp.zeros(num_clients, jnp.int32),  # counted by the server
      "picked": jnp.zeros(num_clients, jnp.int32),
      "momentum": jnp.zeros(2),
      "last": {
        "cohort": jnp.zeros(3, jnp.int32),
        "each": jnp.zeros((3, N)),
        "mean": jnp.zeros(N),
        "whole": jnp.float32(0),
        "picked": jnp.zeros(N),
        "pick": jnp.int32(0),
      },
    }

  def round(state, cohort):
    start = jnp.zeros(N)
    clients, each = cohort.each(
      lambda worker, start: (worker.client, seen(worker, start)), start
    )

    def second(worker, broadcast, visits):
      start, momentum = broadcast
      message = {
        "seen": seen(worker, start),
        "momentum": 0.5 * momentum + 1,
        "client": worker.client,  # A whole number, whose mean is none.
      }
      return message, visits + 1

    broadcast = (start, state["momentum"])
    mean, visits = cohort.mean(second, broadcast, state["visits"])
    pick, picked = cohort.pick(
      lambda worker, start: (worker.client, seen(worker, start)), start
    )
    return {
      "visits": visits,
      "drawn": state["drawn"].at[clients].add(1),
      "picked": state["picked"].at[pick].add(1),
      "momentum": mean["momentum"],
      "last": {
        "cohort": clients,
        "each": each,
        "mean": mean["seen"],
        "whole": mean["client"],
        "picked": picked,
        "pick": pick,
      },
    }

  return Algorithm(init, round, params=lambda state: state["momentum"])


@pytest.fixture(scope="module")
def result():
  return simulate(
    toy(),
    np.zeros(1),
    DATA,
    rounds=ROUNDS,
    cohort_size=3,
    client_chunk=2,
    batch_size=B,
    local_steps=1,
  )


@pytest.fixture(scope="module")
def last(result):
  return jax.device_get(result.state["last"])


def test_each_gives_what_every_client_of_the_cohort_sent(last):
  assert len(set(last["cohort"])) == 3
  for client, counts in zip(last["cohort"], last["each"], strict=True):
    assert set(np.flatnonzero(counts)) <= set(np.flatnonzero(client == OWNER))
    assert counts.max() == 1
    assert counts.sum() == B


def test_each_phase_draws_fresh_batches_for_the_same_clients(last):
  owners = set(OWNER[np.flatnonzero(last["mean"])])
  assert owners == set(last["cohort"])
  first = last["each"].sum(0) > 0
  assert (first != (last["mean"] > 0)).any()
  assert (last["picked"] > 0).sum() == B
  assert set(OWNER[last["picked"] > 0]) == {int(last["pick"])}


def test_mean_weighs_clients_by_their_examples(last):
  sizes = np.array(SIZES)[last["cohort"]]
  weights = sizes / sizes.sum()
  for client, weight in zip(last["cohort"], weights, strict=True):
    own = last["mean"][client == OWNER]
    np.testing.assert_allclose(own[own > 0], weight, rtol=1e-6)
  np.testing.assert_allclose(last["whole"], weights @ last["cohort"], rtol=1e-6)


def test_state_that_is_broadcast_comes_back(result):
  expected = 2 - 2 * 0.5**ROUNDS
  np.testing.assert_allclose(result.params, [expected] * 2, rtol=1e-6)


def test_memory_changes_for_the_cohort_alone(result):
  visits = np.asarray(result.state["visits"])
  np.testing.assert_array_equal(visits, result.state["drawn"])
  assert visits.sum() == 3 * ROUNDS


def test_cohort_and_pick_are_uniform(result):
  drawn = np.asarray(result.state["drawn"])
  picked = np.asarray(result.state["picked"])
  assert picked.sum() == ROUNDS
  # Means 24 and 8 per client; four standard deviations.
  assert abs(drawn - 24).max() <= 4 * np.sqrt(ROUNDS * 0.6 * 0.4)
  assert abs(picked - 8).max() <= 4 * np.sqrt(ROUNDS * 0.2 * 0.8)


def test_cost_counts_all_phases(result):
  assert result.cost == {
    # Two phases of every client and one of a single client of three.
    "bytes_down": pytest.approx(4 * (N + N + 2 + N / 3)),
    "bytes_up": pytest.approx(4 * ((1 + N) + (N + 2 + 1) + (1 + N) / 3)),
    "gradient_evaluations": pytest.approx(B * (2 + 1 / 3)),
  }
  # Three clients of the four that are computed.
  assert result.padding_waste == pytest.approx(1 / 4)


def test_uniform_weighting():
  def round(state, cohort):
    return cohort.mean(lambda worker, _: 1.0 * worker.client, broadcast=())

  algorithm = Algorithm(lambda p, m: jnp.zeros([]), round, lambda state: state)
  result = simulate(
    algorithm, (), DATA, rounds=1, batch_size=B, weighting="uniform"
  )
  assert float(result.params) == pytest.approx(2)


@pytest.mark.parametrize(
  ("sizes", "chunk"),
  [
    ([8] * 16, 16),
    ([8] * 15 + [0], 16),
    ([16] * 8 + [8] * 8, 16),  # A quarter is padding.
    ([32] * 2 + [8] * 14, 4),
    ([24] * 8 + [8] * 8, 8),
    ([80] + [1] * 15, 2),  # Nothing helps here.
  ],
)
def test_auto_computes_few_clients_at_a_time_where_sizes_differ(sizes, chunk):
  rows = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
  data = ClientData.from_partition({"x": np.ones(sum(sizes))}, rows)
  params, settings = {"x": np.ones(2)}, {"batch_size": 1}
  assert Program.create(data, params, **settings).chunk == chunk
  settings |= {"client_map": "vmap"}
  assert Program.create(data, params, **settings).chunk == 16


@pytest.mark.parametrize(
  ("size", "clients", "chunk"),
  [
    (1024, 10, 10),
    (1024, 1000, 91),  # 11 chunks of at most 97.
    (10_000, 40, 14),  # 3 of at most 16.
    (200_000, 40, 1),
  ],
)
def test_auto_keeps_what_is_side_by_side_in_the_caches(size, clients, chunk):
  rows = np.arange(10 * clients).reshape(clients, 10)
  data = ClientData.from_partition({"x": np.ones(10 * clients)}, list(rows))
  params = {"x": np.ones(size, np.float32)}
  assert Program.create(data, params, batch_size=10).chunk == chunk


def test_memory_of_a_large_population_is_held_once():
  """SCAFFOLD's, of 100,000 clients: XLA plans no copy of it."""
  population, size = 100_000, 50
  data = ClientData(
    {"x": np.ones((10, size), np.float32)},
    np.zeros((population, 1), np.int32),
    np.ones(population, np.int32),
  )
  loss = lambda params, batch, rng: batch["x"] @ params["w"]
  algorithm = scaffold(loss, 0.1)
  program = Program.create(data, cohort_size=4, batch_size=1, client_chunk=2)
  state = jax.eval_shape(
    lambda: algorithm.init({"w": jnp.zeros(size)}, population)
  )

  def rounds(state, key, data):
    args = (key, data, None, jnp.int32(0), jnp.int32(9))
    return run_rounds(program, algorithm, state, *args)

  key = jax.random.key(0)
  lowered = jax.jit(rounds, donate_argnums=0).lower(state, key, data)
  plan = lowered.compile().memory_analysis()
  memory = 4 * size * population
  assert plan.alias_size_in_bytes >= memory  # The same buffer, in and out.
  assert plan.temp_size_in_bytes < memory / 2


@pytest.mark.parametrize(
  ("rule", "gradients", "chunk"),
  [
    (optax.sgd(0.1), 1, 1),
    (delta_sgd(), 2, 2),
    (delta_sgd(reuse_gradients=True), 1, 3),
  ],
)
def test_cost_and_waste_are_exact(rule, gradients, chunk):
  task, rounds = jax_problems.least_squares(), 4
  settings = {
    "cohort_size": 3,
    "client_chunk": chunk,
    "batch_size": 4,
    "local_epochs": 1.5,
  }
  result = simulate(
    fed_avg(task.loss_fn, rule),
    task.params,
    task.data,
    rounds=rounds,
    eval_every=3,
    **settings,
  )
  program = Program.create(task.data, **settings)
  _, batches, _ = jax_problems.drawn_rounds(program, task.data, 0, rounds)
  examples, computed = 0, 0
  for of_round in batches:
    examples += sum(len(rows) for steps in of_round for rows in steps)
    taken = sorted((len(steps) for steps in of_round), reverse=True)
    for start in range(0, 3, chunk):  # A chunk waits for its slowest client.
      longest = taken[start]
      computed += chunk * longest * 4
  cost = result.cost["gradient_evaluations"]
  assert cost == pytest.approx(gradients * examples / (3 * rounds))
  assert result.padding_waste == pytest.approx(1 - examples / computed)
  size = task.params["kernel"].size * 4
  assert (result.cost["bytes_down"], result.cost["bytes_up"]) == (size, size)


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


def slow(rounds, **settings):
  return simulate(
    fed_avg(reward, optax.sgd(1e-6)),
    np.zeros(N),
    DATA,
    rounds=rounds,
    batch_size=B,
    evaluate=lambda params, data, test: {"sum": jnp.sum(params)},
    **settings,
  )


def test_interrupted_between_stretches():
  def stop(report):
    if report.round == 4:
      raise KeyboardInterrupt

  result = slow(10, eval_every=2, on_evaluation=stop)
  assert result.interrupted
  assert result.rounds == 4
  assert result.history.rounds == [0, 2, 4]
  complete = slow(4, eval_every=2)
  assert not complete.interrupted
  np.testing.assert_array_equal(result.params, complete.params)


@pytest.fixture
def heeds_ctrl_c():
  """A program that was started in the background may ignore it."""
  before = signal.signal(signal.SIGINT, signal.default_int_handler)
  yield
  signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_interrupted_within_a_stretch_keeps_a_whole_model():
  def later(report):
    if report.round == 0:
      interrupt = lambda: os.kill(os.getpid(), signal.SIGINT)
      threading.Timer(0.3, interrupt).start()

  result = slow(10**6, eval_every=5000, on_evaluation=later)
  assert result.interrupted
  assert result.rounds == result.history.rounds[-1] < 10**6
  last = result.history.metrics["sum"][0, -1]
  np.testing.assert_allclose(np.sum(result.params), last, rtol=1e-5)


def test_no_rounds_evaluate_the_initial_model():
  result = slow(0)
  assert result.history.rounds == [0]
  np.testing.assert_array_equal(result.params, np.zeros(N))


BAD = {
  "cohort_size=6: must be from 1 to the number of clients, 5": {
    "cohort_size": 6
  },
  "cohort_size=0: must be from 1 to the number of clients, 5": {
    "cohort_size": 0
  },
  "batch_size=0: must be at least 1": {"batch_size": 0},
  "batch_size=13: larger than every client; the largest has 12 examples": {
    "batch_size": 13
  },
  "local_epochs=2 and local_steps=3: give only one": {
    "local_epochs": 2.0,
    "local_steps": 3,
  },
  "local_steps=0: must be at least 1": {"local_steps": 0},
  "local_epochs=0: must be above 0": {"local_epochs": 0},
  "local_epochs=inf: must be above 0": {"local_epochs": float("inf")},
  "local_epochs=nan: must be above 0": {"local_epochs": float("nan")},
  "rounds=-1: must not be negative": {"rounds": -1},
  "eval_every=0: must be at least 1": {"eval_every": 0},
  "weighting='sizes': must be one of examples, uniform": {"weighting": "sizes"},
  "client_map='pmap': must be one of auto, vmap, scan; did you mean vmap?": {
    "client_map": "pmap"
  },
  "client_chunk=0: must be at least 1": {"client_chunk": 0},
  "client_chunk=2 with client_map='scan': scan takes one client after the "
  "other; use 'vmap' or 'auto'": {"client_chunk": 2, "client_map": "scan"},
  "trace='momentum': the client rule's state has no such field": {
    "trace": ("momentum",)
  },
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_one_clear_line(message):
  settings = {"rounds": 1, "batch_size": B} | BAD[message]
  with pytest.raises(ValueError) as error:  # noqa: PT011
    simulate(fed_avg(reward, optax.sgd(0.1)), np.zeros(N), DATA, **settings)
  assert str(error.value) == message
