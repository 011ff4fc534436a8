"""Norms of whole trees, in the form that XLA:CPU computes fast.

XLA:CPU sums a leaf with vector instructions if it is flat by the time that its
entries are subtracted and squared. Along other axes it may add one element
after the other: 10 times slower for a leaf [1024, 1] of 10 clients side by
side, twice for a leaf [3072, 100]. So flatten a tree that is kept for a norm
when it is stored, not when it is used. Elsewhere a flat view costs nothing.
"""

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_opt.base import Params
from fedjax_opt.trees import at_least_float32


def flat(tree: Params) -> Params:
  """The tree with every leaf raveled, [n]."""
  return jax.tree.map(jnp.ravel, tree)


def norm(tree: Params) -> jax.Array:
  r"""The Euclidean norm :math:`\|x\|` of all leaves together.

  Args:
    tree: x, of any shapes.

  Returns:
    [], at least float32.
  """
  return jnp.sqrt(_sum(_squares(leaf) for leaf in jax.tree.leaves(tree)))


def distance(x: Params, y: Params) -> jax.Array:
  r"""The Euclidean distance :math:`\|x - y\|`.

  Args:
    x: a tree.
    y: a tree with the leaves of x, in the same order; their shapes may differ,
      as where one of them is `flat`.

  Returns:
    [], at least float32.
  """
  pairs = zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True)
  return jnp.sqrt(_sum(_squares(_wide(a) - _wide(b)) for a, b in pairs))


def power_of_two(values: jax.Array) -> jax.Array:
  """The power of two at most as large as each value; a constant for `grad`.

  A division by it is exact, so scaled numbers give the same bits wherever
  unscaled ones neither overflow nor vanish.

  Args:
    values: non-negative floats, at least float32. Zero, infinity and NaN give
      the nearest power whose inverse is a normal number.
  """
  values = lax.stop_gradient(values)
  info = jnp.finfo(values.dtype)
  bits = jnp.uint32 if info.bits == 32 else jnp.uint64
  fraction_bits = jnp.array(2**info.nmant - 1, bits)
  whole = lax.bitcast_convert_type(values, bits) & ~fraction_bits
  power = lax.bitcast_convert_type(whole, values.dtype)
  # The inverse of a larger one would be flushed to zero.
  least = 2.0 ** (info.minexp + 1)
  power = jnp.clip(power, least, 1 / least)
  return jnp.where(jnp.isnan(power), least, power)


def largest(tree: Params) -> jax.Array:
  """The largest absolute value of all entries, [], at least float32."""
  leaves = [_wide(leaf) for leaf in jax.tree.leaves(tree) if leaf.size]
  each = [jnp.max(jnp.abs(leaf)) for leaf in leaves]
  return jnp.max(jnp.stack(each)) if each else jnp.float32(0)


def is_safe(length: jax.Array, num_entries: int) -> jax.Array:
  """[] bool, whether no square of entries has overflowed, or been lost.

  Args:
    length: a norm, [], positive or zero.
    num_entries: of what it is the norm of.
  """
  info = jnp.finfo(length.dtype)
  least = (max(num_entries, 1) * float(info.tiny) / float(info.eps)) ** 0.5
  return (length > least) & jnp.isfinite(length)


def scaled_distance(x: Params, y: Params) -> tuple[jax.Array, jax.Array]:
  r"""The distance :math:`\|x - y\|` of any size, as a product.

  It reads both trees three times where `distance` reads them once.

  Args:
    x: a tree.
    y: see `distance`.

  Returns:
    The distance in units of a power of two, and this power; both [], at least
    float32. Their product may be too large or small for the type. NaN for
    entries that are not finite.
  """
  leaves = lambda tree: map(_wide, jax.tree.leaves(tree))
  pairs = list(zip(leaves(x), leaves(y), strict=True))
  # A difference may be twice as large as the largest number.
  half = jnp.where(largest(pairs) > 1, 0.5, 1)
  differences = [a * half - b * half for a, b in pairs]
  top = largest(differences)
  unit = power_of_two(top)
  length = norm([leaf / unit for leaf in differences])
  return jnp.where(jnp.isfinite(top), length / half, jnp.nan), unit


def in_one_unit(
  a: tuple[jax.Array, jax.Array], b: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
  """Two products `length * unit` as numbers whose ratio is theirs.

  Args:
    a: of `scaled_distance`.
    b: the same.

  Returns:
    Two numbers whose ratio is that of the products, if the type has it.
  """
  (length, unit), (other, other_unit) = a, b
  bound = 2.0 ** (jnp.finfo(unit.dtype).maxexp - 8)
  ratio = jnp.clip(unit / other_unit, 1 / bound, bound)
  return length * ratio, other


def _wide(leaf):
  return at_least_float32(jnp.ravel(leaf))


def _squares(leaf):
  return jnp.sum(jnp.square(_wide(leaf)))


def _sum(terms):
  return sum(terms, start=jnp.float32(0))
