"""Counters inside the compiled program that are exact at any length.

Sums in float32 stop counting at 2^24 and those in int32 at 2^31, which bytes
pass within a round. A counter is [8] uint32, a number in base 256 whose digits
may stand above 255 until they are read.
"""

import jax
import jax.numpy as jnp
import numpy as np

_DIGITS = 8


def counter(number: int | jax.Array) -> jax.Array:
  """A counter, or one for each entry: [...] -> [..., 8].

  Args:
    number: a Python integer below 2^64, or integers, not negative.
  """
  if isinstance(number, int | np.integer):
    digits = [int(number) >> 8 * i & 255 for i in range(_DIGITS)]
    return jnp.array(digits, jnp.uint32)
  number = jnp.asarray(number)
  is_wide = number.dtype.itemsize == 8
  number = number.astype(jnp.uint64 if is_wide else jnp.uint32)
  shifts = 8 * np.arange(8 if is_wide else 4, dtype=number.dtype)
  digits = (number[..., None] >> shifts & 255).astype(jnp.uint32)
  missing = [(0, 0)] * number.ndim + [(0, _DIGITS - len(shifts))]
  return jnp.pad(digits, missing)


def zero() -> jax.Array:
  """[8], a counter at zero."""
  return jnp.zeros(_DIGITS, jnp.uint32)


def total(counters: jax.Array) -> jax.Array:
  """[n, ..., 8] -> [..., 8], their sum; n below 2^24."""
  return _settle(jnp.sum(counters, axis=0, dtype=jnp.uint32))


def totals(**columns: jax.Array) -> dict[str, jax.Array]:
  """{name: [8]}, the sums of [n] whole numbers, not negative; n below 2^24.

  All are summed at once: the compiled program has a kernel less for each.
  """
  sums = total(counter(jnp.stack(list(columns.values()), axis=1)))
  return {name: sums[i] for i, name in enumerate(columns)}


def add(a: jax.Array, b: jax.Array) -> jax.Array:
  """[..., 8], [..., 8] -> [..., 8], their sums."""
  return _settle(a + b)


def fit(rounds: int, clients: int) -> bool:
  """Whether the counters of so many rounds add up as they are, without `add`.

  A digit of what a round counts is below 1024 + 8 n for n clients. A plain sum
  is done in the place of the old one, where `add` needs three kernels of a GPU.
  """
  return rounds * (1024 + 8 * clients) < 1 << 32


def times(counter: jax.Array, number: int) -> jax.Array:
  """[..., 8] -> [..., 8], a counter times a Python integer below 2^64."""
  if number == 1:
    return counter
  product = jnp.zeros_like(counter)
  for place in range(_DIGITS):
    digit = number >> 8 * place & 255
    if digit:
      shifted = counter[..., : _DIGITS - place] * jnp.uint32(digit)
      product += jnp.pad(shifted, [(0, 0)] * (counter.ndim - 1) + [(place, 0)])
  return _settle(_settle(product))


def _settle(counter):
  """The same number with digits that leave room for another sum."""
  carry = counter[..., :-1] >> 8
  first = jnp.zeros_like(counter[..., :1])
  return (counter & 255) + jnp.concatenate([first, carry], axis=-1)


def read(counters: np.ndarray) -> np.ndarray:
  """[..., 8] -> [...] int64, on the host."""
  places = 1 << 8 * np.arange(_DIGITS, dtype=np.int64)
  return np.sum(np.asarray(counters).astype(np.int64) * places, axis=-1)
