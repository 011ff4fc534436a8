"""Constraints: value 0 on a convex set and infinity off it.

The prox is the Euclidean projection, for every step. The set constrains the
whole tree; `each_leaf` and `kernels` constrain each leaf by itself.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax import flatten_util, lax
from jax.typing import ArrayLike

from fedjax_opt.arrays import norms
from fedjax_opt.base import Params
from fedjax_opt.checks.fields import Positive, checked
from fedjax_opt.prox.regularizer import Regularizer

# The largest violation of a constraint at which a point still counts as inside:
# relative to the radius or scale of balls and simplex, absolute for bounds on
# entries. Rounding errors of float32 sums over 1e5 entries are smaller.
TOLERANCE = 1e-4


def _constraint(
  kind: str,
  is_inside: Callable[[Params], jax.Array],
  project: Callable[[Params], Params],
) -> Regularizer:
  def value(tree):
    return jnp.where(is_inside(tree), 0.0, jnp.inf)

  prox = lambda tree, step: project(tree)
  return Regularizer(kind, value, prox, is_finite=False)


@checked()
def l1_ball(radius: Positive) -> Regularizer:
  r"""The constraint :math:`\|w\|_1 \le \rho`.

  Args:
    radius: radius of the ball; rho, positive, may be traced.

  Returns:
    The regularizer.

  Raises:
    ValueError: if `radius` is out of range.
    TypeError: if it is no number.

  References:
    Duchi et al., "Efficient Projections onto the l1-Ball for Learning in High
    Dimensions", ICML 2008.
  """

  def project(tree):
    z, unravel = _raveled(tree)
    scale = jnp.asarray(radius, z.dtype)
    project_size = lambda z: _project_simplex(jnp.abs(z), scale)
    return unravel(
      lax.cond(
        jnp.sum(jnp.abs(z)) <= scale,
        lambda z: z,
        lambda z: jnp.sign(z) * project_size(z),
        z,
      )
    )

  return _constraint(
    "l1_ball",
    lambda tree: optax.tree.norm(tree, ord=1) <= radius * (1 + TOLERANCE),
    project,
  )


@checked()
def l2_ball(radius: Positive) -> Regularizer:
  r"""The constraint :math:`\|w\| \le \rho`; the prox is `z min(1, rho/||z||)`.

  Args:
    radius: radius of the ball; rho, positive, may be traced.

  Returns:
    The regularizer.

  Raises:
    ValueError: if `radius` is out of range.
    TypeError: if it is no number.
  """

  # Both compare squares in units of the largest entry, of which none overflows.
  def squares(tree):
    unit = norms.power_of_two(norms.largest(tree))
    scaled = optax.tree.scale(1 / unit, tree)
    return optax.tree.norm(scaled, squared=True), radius / unit

  def is_inside(tree):
    squared, limit = squares(tree)
    return jnp.sqrt(squared) <= limit * (1 + TOLERANCE)

  def project(tree):
    squared, limit = squares(tree)
    factor = jnp.where(squared > limit**2, limit / jnp.sqrt(squared), 1)
    return optax.tree.scale(factor, tree)

  return _constraint("l2_ball", is_inside, project)


@checked()
def simplex(scale: Positive = 1.0) -> Regularizer:
  r"""The constraint :math:`w \ge 0, \; \sum_i w_i = \text{scale}`.

  Args:
    scale: the sum of all entries; positive, may be traced.

  Returns:
    The regularizer.

  Raises:
    ValueError: if `scale` is out of range.
    TypeError: if it is no number.

  References:
    Duchi et al., "Efficient Projections onto the l1-Ball for Learning in High
    Dimensions", ICML 2008, Figure 1.
  """

  def is_inside(tree):
    error = jnp.abs(optax.tree.sum(tree) - scale)
    low = -TOLERANCE * scale
    return _all(tree, lambda w: w >= low) & (error <= TOLERANCE * scale)

  def project(tree):
    z, unravel = _raveled(tree)
    return unravel(_project_simplex(z, jnp.asarray(scale, z.dtype)))

  return _constraint("simplex", is_inside, project)


@checked(low="[-inf, inf]", high="[-inf, inf]")
def box(low: ArrayLike = -jnp.inf, high: ArrayLike = jnp.inf) -> Regularizer:
  r"""The constraint :math:`\text{low} \le w_i \le \text{high}` on each entry.

  Args:
    low: a scalar, may be traced.
    high: a scalar, may be traced.

  Returns:
    The regularizer.

  Raises:
    ValueError: if a bound is NaN, or `low` is above `high`.
    TypeError: if a bound is no number.
  """
  traced = any(isinstance(end, jax.core.Tracer) for end in (low, high))
  if not traced and low > high:
    raise ValueError(f"low={low} and high={high}: needs low <= high")

  def is_inside(tree):
    return _all(
      tree, lambda w: (w >= low - TOLERANCE) & (w <= high + TOLERANCE)
    )

  return _constraint(
    "box",
    is_inside,
    lambda tree: jax.tree.map(lambda w: jnp.clip(w, low, high), tree),
  )


def non_negative() -> Regularizer:
  r"""The constraint :math:`w_i \ge 0` on each entry."""
  return _constraint(
    "non_negative",
    lambda tree: _all(tree, lambda w: w >= -TOLERANCE),
    optax.projections.projection_non_negative,
  )


def _project_simplex(z: jax.Array, scale: jax.Array) -> jax.Array:
  r"""The nearest point with non-negative entries that sum to `scale`.

  Exact also far away from it. The textbook's threshold is `(sum of the k
  largest - scale) / k`. Where entries are much larger than `scale`, that sum
  has lost it to rounding. Two changes keep it:

  - Entries are taken relative to the largest one. No entry that is smaller by
    more than `scale` stays positive, and differences of numbers within a factor
    of two are exact.
  - The threshold is a sum of two numbers. The second one is what is left when
    the first one has been subtracted from the entries, which again is almost
    exact.

  Args:
    z: [n] floats, n at least 1.
    scale: [] of the same type, positive.

  Returns:
    [n]. Its error is a small multiple of the machine epsilon times `scale`,
    however large the entries of `z` are. NaN if an entry is.

  References:
    Duchi et al., "Efficient Projections onto the l1-Ball for Learning in High
    Dimensions", ICML 2008, Figure 1.
  """
  offsets = z - jnp.max(z)  # [n], not positive.
  # In units of the scale; entries at -1 or below are not positive in the end.
  units = jnp.maximum(offsets / scale, -2)
  threshold = _threshold(units)
  residual = offsets - threshold * scale
  is_kept = ~(units <= threshold)  # NaN is kept.
  # What the threshold has lost may keep or remove entries that are almost 0.
  for _ in range(2):
    second = _second(residual, is_kept, scale)
    is_kept = ~(residual <= second)
  return jnp.where(is_kept, residual - second, 0)


def _second(residual, is_kept, scale):
  """What must be subtracted yet so that the kept entries sum to the scale."""
  num_kept = jnp.maximum(jnp.sum(is_kept), 1).astype(residual.dtype)
  return (jnp.sum(jnp.where(is_kept, residual, 0)) - scale) / num_kept


def _threshold(units):
  """The threshold of a projection onto the unit simplex, by sorting."""
  descending = jnp.sort(units)[::-1]
  counts = jnp.arange(1, len(units) + 1).astype(units.dtype)
  candidates = (jnp.cumsum(descending) - 1) / counts
  index = jnp.maximum(jnp.sum(descending > candidates), 1) - 1
  return candidates[index]


def _raveled(tree):
  """All entries as one vector in one type, and the way back."""
  # Under x64 a bound may be wider than the leaves; the leaves' types come back.
  widest = jnp.promote_types(
    optax.tree.dtype(tree, "highest"), jnp.result_type(float)
  )
  return flatten_util.ravel_pytree(optax.tree.cast(tree, widest))


def _all(tree: Params, holds: Callable[[jax.Array], jax.Array]) -> jax.Array:
  """Whether `holds` is true for each entry of each leaf."""
  return jnp.all(
    jnp.stack([jnp.all(holds(leaf)) for leaf in jax.tree.leaves(tree)])
  )
