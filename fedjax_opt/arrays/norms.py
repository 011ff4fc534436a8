"""Reductions of whole trees, in the form that XLA:CPU computes fast.

XLA:CPU sums a leaf with vector instructions if it is flat by the time that its
entries are subtracted and squared. Along other axes it may add one element
after the other: 10 times slower for a leaf [1024, 1] of 10 clients side by
side, 7 times for a leaf [3072, 100]. So flatten a tree that is kept for a norm
when it is stored, not when it is used. Elsewhere a flat view costs nothing.
"""

import functools
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from fedjax_opt.arrays import target
from fedjax_opt.arrays.trees import at_least_float32, is_float
from fedjax_opt.checks.fields import Params


def raveled(tree: Params) -> Params:
  """The tree with every leaf raveled, [n]."""
  return jax.tree.map(jnp.ravel, tree)


def norm(tree: Params, unit: jax.Array | None = None) -> jax.Array:
  r"""The Euclidean norm :math:`\|x\|` of all leaves together.

  In float32 it is inf from 2^64 on, and inexact below about 2^-50.

  Args:
    tree: x, of any shapes.
    unit: [], measures in this unit: the norm of `x / unit`. With that of
      `power_of_two` it has the same bits, but for the exponent.

  Returns:
    [], at least float32.
  """
  return _norm(map(_wide, jax.tree.leaves(tree)), unit)


def distance(x: Params, y: Params, unit: jax.Array | None = None) -> jax.Array:
  r"""The Euclidean distance :math:`\|x - y\|`.

  Args:
    x: a tree.
    y: a tree with the leaves of x, in the same order; their shapes may differ,
      as where one of them is `raveled`.
    unit: see `norm`.

  Returns:
    [], at least float32.
  """
  pairs = zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True)
  differences = (_wide(a) - _wide(b) for a, b in pairs)
  return _norm(differences, unit)


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
  power_bits = lax.bitcast_convert_type(values, bits) & ~fraction_bits
  power = lax.bitcast_convert_type(power_bits, values.dtype)
  # The inverse of a larger one would be flushed to zero.
  least = 2.0 ** (info.minexp + 1)
  power = jnp.clip(power, least, 1 / least)
  return jnp.where(jnp.isnan(power), least, power)


def largest(tree: Params) -> jax.Array:
  """The largest absolute value of all entries, [], at least float32."""
  leaves = [_wide(leaf) for leaf in jax.tree.leaves(tree) if leaf.size]
  maxima = [jnp.max(jnp.abs(leaf)) for leaf in leaves]
  return jnp.max(jnp.stack(maxima)) if maxima else jnp.float32(0)


def clipped(tree: Params, limit: ArrayLike) -> tuple[Params, jax.Array]:
  r"""The tree, scaled down to a norm of at most c.

  .. math::

    x \min(1, c / \|x\|)

  Args:
    tree: x; its floats count, and they alone are scaled.
    limit: c, positive.

  Returns:
    The tree, and [] bool, whether it was longer. Numbers that are not finite
    stay so.
  """
  floats = [leaf for leaf in jax.tree.leaves(tree) if is_float(leaf)]
  # Squares of entries overflow long before the entries do.
  unit = power_of_two(largest(floats))
  length = norm(floats, unit)
  is_long = length > limit / unit
  factor = limit / jnp.where(is_long, length, 1)

  def clip(leaf):
    if not is_float(leaf):
      return leaf
    shorter = (leaf / unit * factor).astype(leaf.dtype)
    return jnp.where(is_long, shorter, leaf)

  return jax.tree.map(clip, tree), is_long


def _wide(leaf):
  leaf = at_least_float32(jnp.ravel(leaf))
  # Else XLA:CPU undoes the flat view of a product of matrices.
  return lax.optimization_barrier(leaf) if target.platform() == "cpu" else leaf


def _norm(leaves, unit):
  """The norm of leaves [n], at least float32."""
  if unit is not None:
    leaves = [leaf * (1 / unit).astype(leaf.dtype) for leaf in leaves]
  squares = [_sum(jnp.square(leaf)) for leaf in in_one_array(leaves)]
  return jnp.sqrt(sum(squares, start=jnp.float32(0)))


# Numbers that XLA:CPU sums in its own way as fast.
_SHORT_SUM = 4096


def _sum(x):
  """The sum of numbers [n].

  XLA:CPU sums many numbers at half the speed at which it adds arrays. So on a
  processor parts are added until few numbers are left. The barrier keeps XLA
  from computing them again for each entry of the next sum.
  """
  if target.platform() != "cpu":
    return _in_parts(jnp.sum, jnp.add, x)
  total, parts = jnp.zeros([], x.dtype), 8
  while x.size > _SHORT_SUM:
    length = x.size // parts
    total += jnp.sum(x[parts * length :])
    x = sum(x[i * length : (i + 1) * length] for i in range(parts))
    x, parts = lax.optimization_barrier(x), 16
  return total + jnp.sum(x)


# Parts of an array that a GPU reduces in one kernel; and the most numbers of a
# part, of which XLA would make parts again.
_PARTS, _LONGEST = 16, 1 << 14


def _in_parts(reduce, combine, x):
  """The reduction of an array [n] to one number.

  Of a longer array XLA makes two kernels for a GPU, one for parts and one for
  the whole. These parts are combined in the kernel that needs the number.
  """
  is_fit = _PARTS < x.size <= _PARTS * _LONGEST
  if target.platform() != "gpu" or not is_fit:
    return reduce(x)
  neutral = reduce(jnp.zeros(0, x.dtype)).astype(x.dtype)
  x = lax.pad(x, neutral, [(0, -x.size % _PARTS, 0)])
  parts = reduce(x.reshape(_PARTS, -1), axis=1)
  return functools.reduce(combine, [parts[i] for i in range(_PARTS)])


def all_finite(tree: Any) -> jax.Array:
  """[] bool; whole numbers and random keys always are."""
  is_inexact = lambda leaf: jnp.issubdtype(leaf.dtype, jnp.inexact)
  leaves = [leaf for leaf in jax.tree.leaves(tree) if is_inexact(leaf)]
  if target.platform() == "cpu":
    # XLA:CPU adds numbers faster than it combines truth values. 0 times a
    # number that is not finite is NaN.
    finite = [jnp.isfinite(_sum(jnp.ravel(leaf) * 0)) for leaf in leaves]
  else:
    all_of = lambda leaf: _in_parts(jnp.all, jnp.logical_and, leaf)
    finite = [all_of(leaf) for leaf in in_one_array(map(jnp.isfinite, leaves))]
  return jnp.all(jnp.array(finite)) if finite else jnp.array(True)


# Entries of a small tree.
_SMALL = 1 << 20


def in_one_array(leaves: Iterable[jax.Array]) -> list[jax.Array]:
  """The leaves of a small tree as one array [n], where that is faster.

  A GPU or a TPU then sums all of them in one operation; of a small tree it
  would wait for one after the other to start. A processor would only copy them.
  """
  leaves = [jnp.ravel(leaf) for leaf in leaves]
  size = sum(leaf.size for leaf in leaves)
  if target.platform() == "cpu" or not 0 < size <= _SMALL or len(leaves) == 1:
    return leaves
  return [jnp.concatenate(leaves)]
