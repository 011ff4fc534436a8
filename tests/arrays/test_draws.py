"""Random orders, and different numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_opt.arrays import draws
from fedjax_opt.arrays.draws import distinct, first_of_shuffle, shuffle


def orders(n_max, size, num_orders):
  epochs = jnp.arange(num_orders)
  key = jax.random.key(1)
  return np.asarray(
    jax.jit(jax.vmap(lambda e: shuffle(key, e, n_max, size)))(epochs)
  )


@pytest.mark.parametrize("n_max", [6, 5000], ids=["packed", "pairs"])
def test_shuffle_is_uniform(n_max):
  size, repeats = 5, 400 if n_max == 5000 else 4000
  drawn = orders(n_max, size, repeats)[:, :size]
  np.testing.assert_array_equal(np.sort(drawn, 1), [range(size)] * repeats)
  table = np.stack([np.sum(drawn == v, axis=0) for v in range(size)])
  # Sums of rows and columns are known: 16 degrees of freedom.
  assert stats.chisquare(table, ddof=8, axis=None).pvalue > 1e-3


@pytest.mark.parametrize("n_max", [4096, 4097])
def test_shuffle_of_long_lists_keeps_the_padding_last(n_max):
  (order,) = orders(n_max, 4000, 1)
  np.testing.assert_array_equal(np.sort(order), np.arange(n_max))
  np.testing.assert_array_equal(np.sort(order[:4000]), np.arange(4000))
  assert abs(np.corrcoef(order[:4000], np.arange(4000))[0, 1]) < 0.06


@pytest.mark.parametrize(
  ("n_max", "count"), [(9, 4), (4096, 7), (5000, 1), (5000, 17), (5000, 4999)]
)
def test_the_first_of_a_shuffle(n_max, count):
  for seed in range(3):
    key = jax.random.key(seed)
    order = jax.jit(shuffle, static_argnums=2)(key, 1, n_max, n_max)
    prefix = jax.jit(first_of_shuffle, static_argnums=(2, 3))
    np.testing.assert_array_equal(prefix(key, 1, n_max, count), order[:count])


def test_the_first_of_a_shuffle_where_keys_are_tied(monkeypatch):
  bits = lambda key, shape, dtype: jnp.arange(5000, dtype=dtype) % 7
  monkeypatch.setattr(jax.random, "bits", bits)
  key = jax.random.key(0)
  order = jax.jit(lambda key: shuffle(key, 0, 5000, 5000))(key)
  for count in (3, 800, 2500):
    prefix = jax.jit(lambda key, n=count: first_of_shuffle(key, 0, 5000, n))
    np.testing.assert_array_equal(prefix(key), order[:count])


# A few of many numbers: those of 5,000 are drawn one by one up to 625.
@pytest.mark.parametrize("count", [1, 7, 625, 626, 5000])
def test_distinct_numbers(count):
  draw = lambda key: distinct(key, 5000, count)
  drawn = np.asarray(
    jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), 20))
  )
  assert drawn.dtype == np.int32
  assert drawn.min() >= 0
  assert drawn.max() < 5000
  assert all(len(set(row)) == count for row in drawn.tolist())
  np.testing.assert_array_equal(
    drawn[3], jax.jit(draw)(jax.random.split(jax.random.key(0), 20)[3])
  )


def test_few_of_many_numbers_are_drawn_uniformly():
  """Single ones, each place, and pairs; also where almost half is refused."""
  limit, count, num_draws = 8193, 64, 3000
  draw = lambda key: distinct(key, limit, count)
  drawn = np.asarray(
    jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(2), num_draws))
  )
  of_numbers = np.bincount(drawn.ravel(), minlength=limit)
  cells = drawn * 16 // limit  # [num_draws, count], of 16 equal intervals.
  # 8193 is no multiple of 16: one cell has one number more, of 513.
  first, last = cells[:, 0], cells[:, -1]
  of_ends = np.bincount(first * 16 + last, minlength=256)
  neighbours = cells[:, ::2] * 16 + cells[:, 1::2]
  of_pairs = np.bincount(neighbours.ravel(), minlength=256)
  for counts in (of_numbers, of_ends, of_pairs):
    assert 1e-6 < stats.chisquare(counts).pvalue < 1 - 1e-6


def test_repeated_and_too_large_numbers_are_drawn_again(monkeypatch):
  """The others stay in the order in which they were drawn."""
  drawn = [9, 7000, 9, 4999, 5000, 0, 7000, 3, 0, 17]
  bits = np.resize(np.uint32(drawn) << (32 - 13), 1000)
  monkeypatch.setattr(
    jax.random, "bits", lambda key, shape, _: bits[: shape[0]]
  )
  key = jax.random.key(0)
  draw_five = jax.jit(lambda key: distinct(key, 5000, 5))
  np.testing.assert_array_equal(draw_five(key), [9, 4999, 0, 3, 17])
  draw_below = jax.jit(lambda key: distinct(key, 5000, 3, 4999))
  np.testing.assert_array_equal(draw_below(key), [9, 0, 3])


@pytest.mark.parametrize(
  ("most", "count"), [(5000, 1), (8193, 1024), (10**6, 10), (2**31 - 1, 9)]
)
def test_so_many_draws_that_enough_are_new(most, count):
  num_bits = (most - 1).bit_length()
  num_draws = draws.draws_needed(most, count, num_bits)
  share = (most - count) / 2**num_bits
  log2 = stats.binom.logcdf(count - 1, num_draws, share) / np.log(2)
  assert log2 < -64
  assert num_draws < 3 * count + 200
