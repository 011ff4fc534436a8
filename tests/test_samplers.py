"""Who takes part in a round."""

import itertools
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import fedjax_opt as fo
from fedjax_opt import samplers
from fedjax_opt.base import round_key, run_key
from fedjax_opt.engine.config import Config
from tests.helpers import jax_problems, refusals

SIZES = (6, 9, 12, 7, 5)
DATA = fo.ClientData.from_client_ids(
  {"x": np.ones((sum(SIZES), 1), np.float32)}, np.repeat(range(5), SIZES)
)
OPTIONS = {"batch_size": 4, "local_steps": 1}


def cohorts_of(sampler, rounds=12, cohort_size=3, seed=0):
  """[R, C], the cohorts of a run."""
  sampler, sizes = samplers.resolve(sampler, 5, cohort_size), jnp.array(SIZES)
  draw = lambda round: samplers.draw(sampler, seed, round, sizes, cohort_size)[
    0
  ]
  return np.asarray(jax.jit(jax.vmap(draw))(jnp.arange(rounds)))


def recorded(sampler, one_client, rounds, cohort_size=3, data=DATA, **options):
  """The cohorts, means and shares of a run; -1 of rounds that are lost."""

  def round(state, cohort):
    sent = cohort.mean(one_client, jnp.zeros(2))
    record = lambda rows, values: rows.at[cohort.round].set(values)
    values = cohort.clients, sent.value, sent.cohort_share
    return jax.tree.map(record, state, values), sent

  algorithm = fo.Algorithm(
    init=lambda *_: (
      jnp.full((rounds, cohort_size), -1, jnp.int32),
      jnp.full(rounds, -1.0),
      jnp.full(rounds, -1.0),
    ),
    round=round,
    params=lambda state: state[1],
  )
  options = {"cohort_size": cohort_size, "eval_every": rounds} | options
  result = fo.simulate(
    algorithm, (), data, rounds=rounds, sampler=sampler, **OPTIONS | options
  )
  return jax.device_get(result.state), result


def drawn(sampler, num_keys, cohort_size, sizes=SIZES):
  """[many, C] cohorts, and their scale or None, of as many keys."""
  draw = lambda key: sampler.draw(
    key, jnp.int32(0), jnp.asarray(sizes), cohort_size
  )
  return jax.device_get(
    jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), num_keys))
  )


# Uniform cohorts.


def test_every_cohort_is_as_likely():
  """And every order: 5 x 4 x 3 of them."""
  num_draws = 6000
  clients, scale = drawn(samplers.uniform(), num_draws, 3)
  assert scale is None
  orders = list(itertools.permutations(range(5), 3))
  cohorts = [tuple(cohort) for cohort in clients.tolist()]
  counts = np.array([cohorts.count(order) for order in orders])
  assert counts.sum() == num_draws  # None has a client twice.
  assert stats.chisquare(counts).pvalue > 1e-4


def test_uniform_is_the_default_and_has_a_name():
  cohorts = cohorts_of("uniform")
  config = Config.create(DATA, {"cohort_size": 3} | OPTIONS)
  drawn = jax_problems.drawn_rounds(config, DATA, 0, 12)
  default = [clients for clients, _, _ in drawn]
  np.testing.assert_array_equal(default, cohorts)
  assert config.sampler is samplers.uniform()
  assert len({tuple(sorted(cohort)) for cohort in cohorts.tolist()}) > 3


def test_all_clients_are_in_their_own_order():
  cohorts = cohorts_of("uniform", rounds=2, cohort_size=5)
  np.testing.assert_array_equal(cohorts, [range(5)] * 2)


# Populations of which cohorts are drawn without a number for each client.


MANY = np.ones(6000, np.int32)


@pytest.mark.parametrize(("num_clients", "turn"), [(6000, 0), (60_000, 6)])
def test_groups_of_many_clients(num_clients, turn):
  """Groups of 858 clients or ten times as many; the last has one less."""
  draw = lambda key: samplers.cyclic(7).draw(
    key, jnp.int32(turn), np.ones(num_clients), 20
  )
  keys = jax.random.split(jax.random.key(1), 300)
  clients = np.asarray(jax.jit(jax.vmap(draw))(keys)[0])
  assert set((clients % 7).ravel()) == {turn}
  assert clients.max() < num_clients
  assert all(len(set(row)) == 20 for row in clients.tolist())
  group = -(-(num_clients - turn) // 7)
  counts = np.bincount(clients.ravel() // 7 * 10 // group, minlength=10)
  assert stats.chisquare(counts).pvalue > 1e-4


def test_some_of_many_clients():
  """The number is binomial, up to the places; who comes is uniform."""
  num_draws, places, expected, sizes = 20_000, 12, 7.5, MANY
  clients, _ = drawn(samplers.poisson(expected), num_draws, places, sizes)
  is_client = clients < len(sizes)
  # Those that stay empty are the last ones.
  assert np.all(is_client[:, :-1] >= is_client[:, 1:])
  number = np.bincount(is_client.sum(1), minlength=places + 1)
  law = stats.binom(len(sizes), expected / len(sizes))
  shares = [*law.pmf(np.arange(places)), law.sf(places - 1)]
  assert stats.chisquare(number, num_draws * np.array(shares)).pvalue > 1e-4
  cells = np.bincount(clients[is_client] // 100, minlength=60)
  assert stats.chisquare(cells).pvalue > 1e-4


WEIGHTS = {"sizes": None, "given": [4.0, 0.0, 1.0, 2.5, 0.5]}


# By weights.


@pytest.mark.parametrize("kind", WEIGHTS)
def test_clients_are_drawn_with_replacement_as_likely_as_asked(kind):
  num_draws = 4000
  clients, scale = drawn(samplers.weighted(WEIGHTS[kind]), num_draws, 3)
  weights = np.array(WEIGHTS[kind] or SIZES)
  shares = weights / weights.sum()
  counts = np.bincount(clients.ravel(), minlength=5)
  expected = 3 * num_draws * shares
  deviation = np.sqrt(3 * num_draws * shares * (1 - shares))
  assert np.all(np.abs(counts - expected) <= 4 * deviation)
  np.testing.assert_allclose(scale, 1 / (3 * shares[clients]), rtol=1e-6)
  # Draws do not depend on one another: twice the same as often as that.
  share = np.mean(clients[:, 0] == clients[:, 1])
  mean = np.sum(shares**2)
  assert abs(share - mean) < 4 * np.sqrt(mean * (1 - mean) / num_draws)


def test_wherever_rounding_is_none_of_no_weight_is_drawn(monkeypatch):
  """The cumulative shares of XLA also differ where a share is 0."""
  rng = np.random.default_rng(0)
  sizes = jnp.asarray(rng.integers(1, 50, 20_000) * rng.integers(0, 2, 20_000))
  weights = sizes.astype(float)
  ends = np.asarray(jnp.cumsum(weights / jnp.sum(weights)))
  numbers = jnp.asarray(np.unique(np.nextafter(ends, 0)))
  monkeypatch.setattr(jax.random, "uniform", lambda *_: numbers)
  for sampler in (samplers.weighted(), samplers.weighted(np.asarray(sizes))):
    clients, scale = sampler.draw(None, 0, sizes, 1)
    assert np.all(np.asarray(sizes)[clients] > 0)
    assert np.isfinite(scale).all()


@pytest.mark.parametrize(
  ("weights", "shares"),
  [([1e308, 1e308], [0.5, 0.5]), ([5e-324, 0.0], [1, 0])],
)
def test_weights_outside_of_float32(weights, shares):
  clients, scale = drawn(samplers.weighted(weights), 200, 3, SIZES[:2])
  assert set(clients.ravel()) == set(np.flatnonzero(shares))
  expected = 1 / (3 * np.array(shares)[clients])
  np.testing.assert_allclose(scale, expected, rtol=1e-6)


@pytest.mark.parametrize(
  ("weights", "cohort_size", "weighting"),
  [(None, 2, "uniform"), ([4.0, 1.0, 2.5], 2, "examples")],
)
def test_means_are_unbiased(weighting, cohort_size, weights):
  """Exactly, over all cohorts that there can be, and on average over rounds.

  Means that are divided by the sum of the weights would not be.
  """
  sizes, rounds = np.array([2, 9, 4]), 600
  data = fo.ClientData.from_client_ids(
    {"x": np.ones((15, 1), np.float32)}, np.repeat(range(3), sizes)
  )
  values = np.array([3.0, -1.0, 7.0])

  one_client = lambda worker, _: jnp.asarray(values)[worker.client]
  (cohorts, means, _), _ = recorded(
    samplers.weighted(weights),
    one_client,
    rounds,
    cohort_size,
    data,
    weighting=weighting,
  )
  of_cohort = dict(zip(map(tuple, cohorts.tolist()), means, strict=True))
  all_cohorts = list(itertools.product(range(3), repeat=cohort_size))
  assert set(of_cohort) == set(all_cohorts)
  shares = np.array(weights or sizes) / np.sum(weights or sizes)
  likely = [np.prod(shares[list(cohort)]) for cohort in all_cohorts]
  of_all = [of_cohort[cohort] for cohort in all_cohorts]
  natural = sizes if weighting == "examples" else np.ones(3)
  expected = np.average(values, weights=natural)
  assert np.dot(likely, of_all) == pytest.approx(expected, rel=1e-5)
  deviation = np.sqrt(np.dot(likely, (of_all - expected) ** 2) / rounds)
  assert abs(np.mean(means) - expected) < 4 * deviation + 1e-6


# Fixed cohorts.


def test_cohorts_follow_one_another():
  cohorts = [[0, 3, 1], [4, 2, 0]]
  actual = cohorts_of(samplers.fixed(cohorts), rounds=5)
  np.testing.assert_array_equal(actual, [cohorts[r % 2] for r in range(5)])


def test_without_fixed_ones_the_population_is_cut():
  expected = [[0, 1, 2], [3, 4, 0], [0, 1, 2], [3, 4, 0]]
  for sampler in ("fixed", samplers.fixed()):
    np.testing.assert_array_equal(cohorts_of(sampler, rounds=4), expected)


# Groups in turn.


def test_groups_take_turns():
  cohorts = cohorts_of(samplers.cyclic(2), rounds=60, cohort_size=2)
  for r, cohort in enumerate(cohorts):
    assert set(cohort % 2) == {r % 2}
    assert len(set(cohort)) == 2
  # All of the three clients of the first group take part.
  assert set(cohorts[::2].ravel()) == {0, 2, 4}


def test_within_a_group_all_are_as_likely():
  clients, scale = drawn(samplers.cyclic(2), 3000, 1)
  assert scale is None
  counts = np.bincount(clients.ravel(), minlength=5)[::2]
  assert stats.chisquare(counts).pvalue > 1e-4


def in_turn(key, round):
  """Depends on both: client `round` is always there."""
  other = jax.random.randint(key, (2,), 1, 3)
  first = jnp.stack([jnp.int32(0), other[0], other[0] + 2])
  return (first + round) % 5


# Functions of the key and the round.


def test_a_function_gets_the_key_and_the_round():
  cohorts = cohorts_of(in_turn, rounds=20)
  np.testing.assert_array_equal(cohorts[:, 0], np.arange(20) % 5)
  offsets = (cohorts[:, 1] - cohorts[:, 0]) % 5
  assert set(offsets) == {1, 2}
  other_seed = cohorts_of(in_turn, rounds=20, seed=1)
  assert np.any(other_seed != cohorts)


def test_a_function_has_a_key_of_its_own():
  """Its keys are not those of clients, which fold a phase and a number."""
  keys = []
  own = lambda key, _: keys.append(key) or jnp.arange(3)
  sampler = samplers.resolve(own, 5, 3)
  key = round_key(run_key(0), 5)
  sampler.draw(key, 5, jnp.array(SIZES), 3)
  folded = [jax.random.fold_in(key, stream) for stream in range(1, 11)]
  data = lambda key: tuple(jax.random.key_data(key).tolist())
  assert data(keys[-1]) not in {*map(data, [key, *folded])}


def test_a_function_may_give_a_scale():
  """Of the weights in the population."""

  sampler = lambda key, round: (jnp.array([0, 2]), jnp.array([2.0, 0.5]))
  one_client = lambda worker, _: 1.0 + worker.client
  (_, means, _), _ = recorded(sampler, one_client, 1, cohort_size=2)
  expected = (2.0 * 6 * 1 + 0.5 * 12 * 3) / sum(SIZES)
  assert means[0] == pytest.approx(expected)


# Each client by itself, in a cohort of a random size.


def test_clients_come_by_themselves():
  num_draws, sizes, expected = 20_000, (1,) * 8, 2.4
  clients, scale = drawn(samplers.poisson(expected), num_draws, 8, sizes)
  assert scale is None
  counts = np.stack([(clients == i).sum(1) for i in range(8)], 1)
  assert counts.max() == 1
  assert np.all((clients < 8).sum(1) + (clients == 8).sum(1) == 8)
  rate, error = expected / 8, 5 / math.sqrt(num_draws)
  np.testing.assert_allclose(counts.mean(0), rate, atol=error / 2)
  covariance = np.cov(counts.T)
  np.testing.assert_allclose(
    covariance, rate * (1 - rate) * np.eye(8), atol=error / 2
  )


def test_only_those_who_came_count():
  """In means, costs and shares; a round of nobody is lost."""
  sampler = samplers.poisson(1.0)
  cohorts = cohorts_of(sampler, rounds=30)
  is_client = cohorts < 5
  assert {0, 1, 2} <= set(is_client.sum(1))

  one_client = lambda worker, _: worker.client.astype(float)
  (_, means, shares), result = recorded(
    sampler, one_client, 30, weighting="uniform"
  )
  for r, cohort in enumerate(cohorts):
    clients = cohort[is_client[r]]
    expected = clients.mean() if len(clients) else -1
    assert means[r] == pytest.approx(expected)
    assert shares[r] == pytest.approx(len(clients) / 5 if len(clients) else -1)
  # For each client that is expected, which is one.
  expected_bytes = {"bytes_up_per_round": 4, "bytes_down_per_round": 8}
  for name, num_bytes in expected_bytes.items():
    assert result.cost[name] == pytest.approx(num_bytes * is_client.sum() / 30)


# ----------------------------------------------- Wherever cohorts are drawn


TASK = jax_problems.softmax(sizes=(13, 7, 20, 4, 9))
# The options with which a sampler draws on the host. Two copies of the largest
# client are more than is read of a cohort: who is drawn twice is read once.
ON_THE_HOST = {
  "weighted": ("weighted", {"client_memory": "host"}),
  "poisson": (samplers.poisson(1.2), {}),
  "twice": (samplers.weighted([0, 0, 1, 0, 0]), {"client_chunk": None}),
}


# Populations with the default sampler are in engine/test_feed.py.
@pytest.mark.slow
@pytest.mark.parametrize("name", ON_THE_HOST)
def test_cohorts_are_drawn_alike_wherever_clients_are(name, tmp_path):
  """In the program, and on the host for what is on disk or kept there."""
  sampler, host_options = ON_THE_HOST[name]

  def run(data, **options):
    result = fo.simulate(
      fo.scaffold(TASK.loss_fn, 0.1),
      TASK.params,
      data,
      rounds=5,
      cohort_size=2,
      batch_size=4,
      eval_every=3,
      sampler=sampler,
      **{"client_chunk": 1} | options,
    )
    return result.params, result.state, result.client_state

  population = fo.Population.of_client_data(tmp_path / "clients", TASK.data)
  chex.assert_trees_all_close(
    run(population, **host_options), run(TASK.data), rtol=1e-5, atol=1e-6
  )


# ------------------------------------------------------------------ Bad input


# How each kind is refused is tested in checks/test_fields.py.
TWO, KEY = jnp.arange(2), jax.random.key(0)


test_is_refused = refusals.of_table(
  "samplers.txt", math, samplers, cohorts_of, TWO=TWO, KEY=KEY
)
