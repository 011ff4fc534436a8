"""Counters are exact where float32 and int32 are not."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_opt import ClientOutput, fed_avg, simulate
from fedjax_opt.arrays import counters
from fedjax_opt.engine import compilation
from fedjax_opt.engine.traced import replies
from tests.helpers import jax_problems

pytestmark = pytest.mark.quick

LARGE = [
  (1 << power) + offset
  for power in (8, 16, 24, 31, 32, 40, 53, 62)
  for offset in (-1, 0, 1)
]


TASK = jax_problems.softmax()


def read(counter):
  return counters.read(jax.device_get(counter))


@pytest.mark.parametrize("number", [0, 1, 255, *LARGE])
def test_a_number_is_read_as_it_was_given(number):
  assert read(counters.counter(number)) == number
  assert read(counters.add(counters.zero(), counters.counter(number))) == number


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64])
def test_integers_of_the_program(dtype):
  """Of 64 bits too, where JAX has them."""
  numbers = [n for n in (0, *LARGE) if n <= np.iinfo(dtype).max]
  with jax.enable_x64(np.dtype(dtype).itemsize == 8):
    counter = jax.jit(counters.counter)(jnp.asarray(np.array(numbers, dtype)))
    assert counter.shape == (len(numbers), 8)
    assert read(counter).tolist() == numbers


@pytest.mark.parametrize("number", [1, (1 << 24) + 1, (1 << 32) - 1])
def test_totals_of_many_clients(number):
  counts = jnp.full(100_003, number, jnp.uint32)
  total = jax.jit(lambda x: counters.total(counters.counter(x)))(counts)
  assert read(total) == 100_003 * number
  # And of such totals.
  assert read(counters.total(jnp.stack([total] * 7))) == 7 * 100_003 * number


@pytest.mark.parametrize("number", [1, 255, (1 << 24) + 1, (1 << 32) + 3])
def test_many_additions(number):
  """No digit grows without bound, and none is lost."""
  add = lambda _, total: counters.add(total, counters.counter(number))
  times = 200_001
  total = jax.jit(lambda: jax.lax.fori_loop(0, times, add, counters.zero()))()
  assert read(total) == times * number
  doubled = total
  for _ in range(10):
    doubled = counters.add(doubled, doubled)
  assert read(doubled) == 1024 * times * number


@pytest.mark.parametrize("up", [(1 << 31) - 1, (1 << 40) + 7])
def test_what_a_run_exchanges_is_exact(up):
  """Each client sends and gets more than float32 and int32 can add up."""
  down, rounds = (1 << 32) + 1, 5

  def round(state, cohort):
    def one_client(worker, _):
      sent = counters.counter(up) if up >> 31 else jnp.int32(up)
      return ClientOutput(jnp.float32(1), bytes_up=sent)

    sent = cohort.mean(one_client, (), bytes_down=down)
    return state + sent.value, sent

  result = simulate(
    jax_problems.own_algorithm(round),
    jnp.float32(0),
    TASK.data,
    rounds=rounds,
    cohort_size=3,
    client_chunk=2,
    batch_size=4,
    eval_every=2,
    evaluate=lambda params, data, test: {"sum": params},
  )
  assert result.cost["bytes_up_per_round"] == up
  assert result.cost["bytes_down_per_round"] == down
  rounds_done = np.array([0, 2, 4, 5])
  metrics = result.history.metrics
  assert metrics["bytes_up"].dtype == np.float64
  np.testing.assert_array_equal(metrics["bytes_up"][0], rounds_done * up)
  np.testing.assert_array_equal(metrics["bytes_down"][0], rounds_done * down)


@pytest.mark.parametrize("number", [0, 1, 255, (1 << 31) - 1, (1 << 40) + 7])
@pytest.mark.parametrize("factor", [0, 1, 3, 256, (1 << 20) + 1])
def test_products(number, factor):
  """Of examples and gradients: 2e9 examples twice do not fit into int32."""
  product = counters.times(counters.counter(number), factor)
  assert read(product) == number * factor
  assert read(counters.add(product, product)) == 2 * number * factor


def test_padding_of_chunks_of_many_examples():
  """2e9 examples in each of 4 clients made a negative number."""
  plan = types.SimpleNamespace(batch_size=1000)
  config = types.SimpleNamespace(client_chunk=4, plan=plan)
  steps = jnp.repeat(jnp.array([2_000_000, 1_000_000], jnp.int32), 4)
  records = types.SimpleNamespace(num_steps=steps)
  assert (
    read(replies.computed_examples(config, records, None)) == 3_000_000 * 4000
  )


@pytest.mark.parametrize("clients", [1, 7, 1000, 100_003])
def test_digits_of_a_round_leave_room_for_plain_sums(clients):
  """The bound that `fit` assumes, with the largest digits there can be."""

  @jax.jit
  def largest(value):
    of_clients = counters.times(counters.counter(value), 255)
    counters_found = [
      counters.totals(most=value)["most"],
      counters.total(of_clients),
      counters.times(counters.total(counters.counter(value)), (1 << 24) - 1),
    ]
    counters_found.append(counters.add(*counters_found[:2]))
    return [jnp.max(counter) for counter in counters_found]

  assert max(largest(jnp.full(clients, (1 << 31) - 1))) < 1024 + 8 * clients


def test_plain_sums_are_exact_as_long_as_they_fit():
  rounds, clients = 500_000, 900
  assert counters.fit(rounds, clients)
  assert not counters.fit(rounds, 1200)
  number = ((1 << 31) - 1) * clients
  counter = counters.totals(most=jnp.full(clients, (1 << 31) - 1))["most"]
  plain = jax.lax.fori_loop(0, rounds, lambda _, t: t + counter, counter)
  assert read(plain) == (rounds + 1) * number


@pytest.mark.slow
def test_a_run_counts_the_same_either_way(monkeypatch):
  def run():
    algorithm = fed_avg(TASK.loss_fn, optax.sgd(0.1))
    options = {"cohort_size": 3, "batch_size": 4, "local_steps": 2}
    return dict(TASK.simulate(algorithm, rounds=5, **options).cost)

  cost = run()
  monkeypatch.setattr(counters, "fit", lambda rounds, clients: False)
  compilation.clear()
  assert run() == cost
  assert cost["gradient_evaluations_per_round"] > 0
