"""The projection onto a simplex, exact also far away from it.

The textbook's threshold is `(sum of the k largest - scale) / k`. Where entries
are much larger than `scale`, that sum has lost it to rounding. Two changes keep
it:

- Entries are taken relative to the largest one. No entry that is smaller by
  more than `scale` stays positive, and differences of numbers within a factor
  of two are exact.
- The threshold is a sum of two numbers. The second one is what is left when the
  first one has been subtracted from the entries, which again is almost exact.
"""

import jax
import jax.numpy as jnp
from jax import lax


def project_simplex(z: jax.Array, scale: jax.Array) -> jax.Array:
  r"""The nearest point with non-negative entries that sum to `scale`.

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
  below = z - lax.stop_gradient(jnp.max(z))  # [n], not positive.
  # In units of the scale; entries at -1 or below are not positive in the end.
  units = lax.stop_gradient(jnp.maximum(below / scale, -2))
  threshold = _threshold(units)
  first = threshold * scale
  rest = below - first  # Of the derivative too: the threshold is constant.
  is_kept = lax.stop_gradient(~(units <= threshold))  # NaN is kept.
  # What the threshold has lost may keep or remove entries that are almost 0.
  for _ in range(2):
    second = _second(rest, lax.stop_gradient(is_kept), scale)
    is_kept = ~(rest <= second)
  return jnp.where(is_kept, rest - second, 0)


def _second(rest, is_kept, scale):
  """What must be subtracted yet so that the kept entries sum to the scale."""
  number = jnp.maximum(jnp.sum(is_kept), 1).astype(rest.dtype)
  return (jnp.sum(jnp.where(is_kept, rest, 0)) - scale) / number


def _threshold(units):
  """The threshold of a projection onto the unit simplex, by sorting."""
  ordered = jnp.sort(units)[::-1]
  number = jnp.arange(1, len(units) + 1).astype(units.dtype)
  candidates = (jnp.cumsum(ordered) - 1) / number
  last = jnp.maximum(jnp.sum(ordered > candidates), 1) - 1
  return candidates[last]
