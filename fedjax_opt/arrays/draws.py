"""Random orders and different numbers, of counts known as the program runs."""

import math

import jax
import jax.numpy as jnp
from jax import lax

# Positions below this are packed into the low bits of the sorting key.
_PACKED = 1 << 12


def shuffle(key, epoch, n_max, size):
  """[n_max] int32: a random order of the positions below size, then the rest.

  The random bits of a position do not depend on n_max, so padding a client's
  list changes nothing.
  """
  position = lax.iota(jnp.int32, n_max)
  bits = jax.random.bits(jax.random.fold_in(key, epoch), (n_max,), jnp.uint32)
  top_bit = jnp.where(position < size, jnp.uint32(0), jnp.uint32(1 << 31))
  sort_key = (bits >> 1) | top_bit
  if n_max > _PACKED:
    return lax.sort_key_val(sort_key, position)[1]
  # Sorting one array is three times faster than sorting pairs, on CPU. The 19
  # random bits that stay leave two positions tied once in half a million.
  low = jnp.uint32(_PACKED - 1)
  return (
    lax.sort((sort_key & ~low) | position.astype(jnp.uint32)) & low
  ).astype(jnp.int32)


def first_of_shuffle(key, epoch, n_max, count):
  """[count] int32: how `shuffle(key, epoch, n_max, n_max)` begins.

  Of many positions only those with the smallest keys are sorted. Their bound is
  found bit by bit, by counting: an eighth of the time of sorting 100,000.
  """
  if n_max <= _PACKED:
    return shuffle(key, epoch, n_max, n_max)[:count]
  bits = jax.random.bits(jax.random.fold_in(key, epoch), (n_max,), jnp.uint32)
  sort_key = bits >> 1

  def try_bit(i, bound):
    higher = bound | (jnp.uint32(1 << 30) >> i.astype(jnp.uint32))
    return jnp.where(jnp.sum(sort_key < higher) < count, higher, bound)

  # All positions with a smaller key, and the first ones with the largest key.
  bound = lax.fori_loop(0, 31, try_bit, jnp.uint32(0))
  is_below, is_tied = sort_key < bound, sort_key == bound
  num_tied = count - jnp.sum(is_below)
  is_taken = is_below | (is_tied & (jnp.cumsum(is_tied) <= num_tied))
  positions = jnp.nonzero(is_taken, size=count)[0].astype(jnp.int32)
  return positions[jnp.argsort(sort_key[positions], stable=True)]


def is_few(limit: int, count: int) -> bool:
  """Whether `distinct` draws `count` of `limit` numbers one by one."""
  return limit > _PACKED and 8 * count <= limit


def distinct(
  key: jax.Array, most: int, count: int, limit: jax.Array | int | None = None
) -> jax.Array:
  """Different whole numbers, each set and each order of them as likely.

  A few of many numbers cost O(count log count): they are drawn one by one, and
  the first `count` different ones are kept. Else the numbers are shuffled.

  Args:
    key: [] random key.
    most: the largest `limit` that there can be.
    count: how many numbers.
    limit: the numbers are below this: `most - 1` or `most`, which None means.

  Returns:
    [count] int32, in a random order.
  """
  if not is_few(most, count):
    if limit is None:
      return first_of_shuffle(key, 0, most, count)
    return shuffle(key, 0, most, limit)[:count]
  num_bits = (most - 1).bit_length()
  num_draws = draws_needed(most, count, num_bits)
  key = jax.random.fold_in(key, 0)
  bits = jax.random.bits(key, (num_draws,), jnp.uint32) >> (32 - num_bits)
  turn = lax.iota(jnp.int32, num_draws)
  ordered, turns = lax.sort((bits, turn), num_keys=1, is_stable=True)
  # Of equal numbers the sort leaves the one drawn first in front.
  is_first = jnp.concatenate([jnp.ones(1, bool), ordered[1:] != ordered[:-1]])
  is_below = ordered < jnp.asarray(most if limit is None else limit, jnp.uint32)
  is_new = jnp.zeros(num_draws, bool).at[turns].set(is_first & is_below)
  place = jnp.where(is_new, jnp.cumsum(is_new) - 1, count)
  # The places from `count` on do not exist, and are not written.
  numbers = jnp.zeros(count, jnp.int32)
  return numbers.at[place].set(bits.astype(jnp.int32), mode="drop")


def draws_needed(most, count, num_bits):
  """D, so many draws that fewer than `count` new ones have P < 2^-64.

  A draw of `num_bits` bits is exactly uniform below 2^num_bits. It is below the
  limit and new with a probability of at least q = (most - count) / 2^num_bits,
  whatever was drawn before, so at least Binomial(D, q) draws are new. By
  Hoeffding P(fewer than count) <= exp(-2 (D q - count)^2 / D), which is 2^-64
  where sqrt(D) solves q x^2 - a x - count = 0 with a = sqrt(32 log 2).
  """
  q, a = (most - count) / 2**num_bits, math.sqrt(32 * math.log(2))
  return math.ceil(((a + math.sqrt(a * a + 4 * q * count)) / (2 * q)) ** 2)
