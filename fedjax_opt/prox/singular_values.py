r"""Soft thresholding of singular values by matrix products alone.

LAPACK's decomposition of a small matrix is slow, and a batch needs one call for
each matrix. But thresholding needs no singular vectors. Let :math:`Z = QH` be
the polar decomposition, where H is symmetric and its eigenvalues are the
singular values s of Z. Let P be the projector onto the eigenvectors of H whose
eigenvalue is above t. Then

.. math::

  U \, \text{diag}(\max(s - t, 0)) \, V^T = (Z - tQ) P, \quad
  P = \tfrac{1}{2} (I + \text{sign}(H - tI)).

The sign of a symmetric matrix is its polar factor, so Q and the sign are
computed by the same iteration of matrix products. The iteration brings singular
values to 1, the smaller the later. It may stop before it has reached:

- In Q, values below t. The projector removes them, whatever value in [0, 1]
  they have by then.
- In the sign, values :math:`|s - t| \le \epsilon \|Z\|`. Whether they are kept
  or removed makes a difference of at most :math:`\epsilon \|Z\|`, the size of
  rounding errors.
"""

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_opt.checks import fields
from fedjax_opt.checks.fields import NonNegative

_EYE = lambda x: jnp.eye(x.shape[-1], dtype=x.dtype)


@fields.checked(matrix=fields.array("[m, n]"))
def soft_threshold_singular_values(
  matrix: jax.Array, threshold: NonNegative
) -> jax.Array:
  """Subtracts the threshold from each singular value; smaller ones become 0.

  The error is a small multiple of the machine epsilon times the largest
  singular value, as with a singular value decomposition.

  Args:
    matrix: [m, n]; for a batch use `jax.vmap`.
    threshold: non-negative scalar.

  Returns:
    [m, n], of the dtype of `matrix`; floats if that is of integers.
  """
  matrix = jnp.asarray(matrix)
  matrix = matrix.astype(jnp.result_type(matrix, float))
  if not matrix.size:
    return matrix
  return _soft_threshold(matrix, jnp.asarray(threshold, matrix.dtype))


@jax.jit
def _soft_threshold(matrix: jax.Array, threshold: jax.Array) -> jax.Array:
  m, n = matrix.shape
  if m < n:  # Transposed, so that H is [min(m, n), min(m, n)].
    return _soft_threshold(matrix.T, threshold).T

  # An upper bound of the largest singular value, too large by a factor of at
  # most n^(1/4): ||Z||_2 = ||Z^T Z||_2^(1/2) <= ||Z^T Z||_F^(1/2).
  largest = jnp.max(jnp.abs(matrix))
  x = matrix / jnp.where(largest > 0, largest, 1)
  square = _dot(_copied_transpose(x), x)
  bound = jnp.sqrt(jnp.linalg.norm(square)) * 1.0001
  bound = jnp.where(bound > 0, bound, 1)
  x = x / bound
  t = threshold / jnp.where(largest > 0, largest * bound, 1)

  # Values whose distance to the threshold is smaller may be kept or removed.
  resolution = 100 * jnp.finfo(x.dtype).eps
  clipped = jnp.clip(t, 0, 1)
  # A matrix with NaN or infinity is not iterated: the result is NaN anyway.
  least = lambda value: jnp.where(jnp.isfinite(largest), value, 1)
  q = _polar_factor(x, least(jnp.maximum(clipped, resolution)))
  shifted = _dot(_copied_transpose(q), x) - clipped * _EYE(x)
  shifted = (shifted + shifted.T) / 2
  sign = _polar_factor(shifted, least(resolution), is_symmetric=True)
  new = _dot(x - clipped * q, (_EYE(x) + sign) / 2)
  return jnp.where(t < 1, largest * bound * new, 0 * x)


def _polar_factor(
  x: jax.Array, smallest: jax.Array, is_symmetric: bool = False
) -> jax.Array:
  """U V^T of x = U diag(s) V^T, by the scaled Newton-Schulz iteration.

  Each step applies an odd cubic polynomial to the singular values, which is
  chosen so that it brings all of [smallest, 1] as near as possible to 1.

  Args:
    x: matrix with singular values s in [0, 1].
    smallest: values of at least this become 1; smaller ones become any value
      below 1.
    is_symmetric: whether x is symmetric.

  References:
    Chen and Chow, "A Stable Scaling of Newton-Schulz for Improving the Sign
    Function Computation of a Hermitian Matrix", 2014.
  """
  # Each step squares the error. From this value on, one more step reduces it to
  # the size of rounding errors.
  almost_one = 1 - jnp.sqrt(jnp.finfo(x.dtype).eps)

  def step(state):
    x, smallest = state
    linear, cubic = _best_cubic(smallest)
    square = _dot(x if is_symmetric else _copied_transpose(x), x)
    x = linear * x - cubic * _dot(x, square)
    return x, smallest * (linear - cubic * smallest**2)

  state = lax.while_loop(
    lambda state: state[1] < almost_one, step, (x, smallest)
  )
  return step(state)[0]


def _best_cubic(smallest: jax.Array) -> tuple[jax.Array, jax.Array]:
  """The cubic a s - b s^3 that is nearest to constant on [smallest, 1].

  Its maximum is 1, and its values at both ends are equal. If `smallest` is
  tiny, so is the value at 1: very different singular values would become almost
  equal, and rounding errors would mix their directions. The interval is
  therefore at most [0.1, 1]. The factor by which small values grow in a step is
  then 2.5 instead of 2.6.

  Returns:
    (a, b).
  """
  low = jnp.maximum(smallest, 0.1)
  alpha = jnp.sqrt(3 / (1 + low + low**2))
  beta = 4 / (2 + low * (1 + low) * alpha**3)
  linear, cubic = 1.5 * alpha * beta, 0.5 * alpha**3 * beta
  # On [low, 1] the polynomial reaches from 1 - d to 1 + d: divide by 1 + d.
  top = 2 - low * (linear - cubic * low**2)
  return linear / top, cubic / top


def _copied_transpose(x: jax.Array) -> jax.Array:
  # XLA would fuse the transpose into the product. For a batch of small matrices
  # on CPU that is slower than a copy and a plain product.
  return lax.optimization_barrier(x.T)


def _dot(a: jax.Array, b: jax.Array) -> jax.Array:
  # The default precision on accelerators is too low for this iteration.
  return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)
