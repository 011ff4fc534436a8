"""Differences in fewer bytes, or of bounded norm.

The entries of all leaves count as one vector u of d numbers.
"""

import math
from collections.abc import Callable
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from fedjax_opt.arrays import norms, trees
from fedjax_opt.arrays.draws import distinct
from fedjax_opt.checks import fields
from fedjax_opt.checks.fields import Count, Positive
from fedjax_opt.transforms.upload import Upload

_INDEX = 4  # Bytes of an index, or of the seed of a draw.


_Fraction = Annotated[float, fields.plain_number("(0, 1]")]


@fields.checked()
def top_k(fraction: _Fraction) -> Upload:
  r"""The k entries of largest magnitude; the others are not sent.

  k is `fraction` times d, rounded, at least 1. Among equal entries the first
  ones are sent. This is a contraction: :math:`\|Q(u) - u\|^2 \le (1 - k/d)
  \|u\|^2`.

  Args:
    fraction: share of the entries that a client sends; in (0, 1].

  Returns:
    The upload; it sends k values and k indices of 4 bytes.

  Raises:
    ValueError: if `fraction` is out of range.
    TypeError: if it is no plain number: it shapes the program.

  References:
    Stich et al., "Sparsified SGD with Memory", NeurIPS 2018.
  """

  def compress(u, key):
    del key
    _, indices = jax.lax.top_k(jnp.abs(u), _count(fraction, u.size))
    return jnp.zeros_like(u).at[indices].set(u[indices])

  def num_bytes(tree):
    size, itemsize = _size(tree)
    return _count(fraction, size) * (itemsize + _INDEX)

  return Upload(_of_vector(compress), num_bytes)


@fields.checked()
def random_k(fraction: _Fraction) -> Upload:
  r"""k entries drawn uniformly, times d/k; the others are not sent.

  k is `fraction` times d, rounded, at least 1. The transform is unbiased. Under
  `error_feedback` the entries are sent without the factor d/k, which contracts
  in expectation: :math:`E \|Q(u) - u\|^2 = (1 - k/d) \|u\|^2`.

  Args:
    fraction: share of the entries that a client sends; in (0, 1].

  Returns:
    The upload; it sends k values and a seed of 4 bytes, from which the server
    knows the indices.

  Raises:
    ValueError: if `fraction` is out of range.
    TypeError: if it is no plain number: it shapes the program.

  References:
    Stich et al., "Sparsified SGD with Memory", NeurIPS 2018; Wangni et al.,
    "Gradient Sparsification for Communication-Efficient Distributed
    Optimization", NeurIPS 2018.
  """

  def compressor(is_scaled):
    def compress(u, key):
      k = _count(fraction, u.size)
      indices = distinct(key, u.size, k)
      scale = u.size / k if is_scaled else 1
      return jnp.zeros_like(u).at[indices].set(scale * u[indices])

    return _of_vector(compress)

  def num_bytes(tree):
    size, itemsize = _size(tree)
    return _count(fraction, size) * itemsize + _INDEX

  plain = Upload(compressor(is_scaled=False), num_bytes)
  return Upload(compressor(is_scaled=True), num_bytes, contraction=plain)


def sign() -> Upload:
  r"""The signs times the mean magnitude, :math:`\|u\|_1 / d \; \text{sign}(u)`.

  The transform is biased, and meant for `error_feedback`. Zeros stay zeros, as
  in `numpy.sign`. The bytes assume that there are no zeros, because one bit has
  no third value; an entry without a gradient is a zero.

  Returns:
    The upload; it sends one bit for each entry, and the mean magnitude.

  References:
    Karimireddy et al., "Error Feedback Fixes SignSGD and other Gradient
    Compression Schemes", ICML 2019.
  """

  def compress(u, key):
    del key
    return jnp.mean(jnp.abs(u)) * jnp.sign(u)

  def num_bytes(tree):
    size, _ = _size(tree)
    return -(-size // 8) + _scalar_bytes(tree)

  return Upload(_of_vector(compress), num_bytes)


@fields.checked()
def quantize(levels: Count) -> Upload:
  r"""Each magnitude rounded at random to s levels between 0 and the norm.

  .. math::

    Q(u)_j = \|u\|_2 \, \text{sign}(u_j) \, \xi_j / s

  with :math:`\xi_j` one of the two whole numbers around :math:`s |u_j| /
  \|u\|_2`, drawn so that its mean is this number. The transform is unbiased,
  with :math:`E \|Q(u) - u\|^2 \le \omega \|u\|^2`, :math:`\omega = \min(d /
  s^2, \sqrt{d} / s)`. Under `error_feedback` the result is divided by :math:`1
  + \omega`, which makes it a contraction: the errors of the plain transform
  grow without bound where :math:`\omega > 1`.

  Args:
    levels: levels of magnitudes above 0; s, at least 1.

  Returns:
    The upload; it sends the norm and, for each entry, a sign and a level.

  Raises:
    ValueError: if `levels` is below 1.
    TypeError: if it is no whole number.

  References:
    Alistarh et al., "QSGD: Communication-Efficient SGD via Gradient
    Quantization and Encoding", NeurIPS 2017, section 3.1. The division under
    error feedback: Beznosikov et al., "On Biased Compression for Distributed
    Learning", JMLR 2023.
  """

  def compressor(is_contraction):
    def compress(u, key):
      norm = norms.norm(u)
      level = jnp.abs(u) * (levels / jnp.where(norm > 0, norm, 1))
      # The whole number below, or with the right probability that above.
      level = jnp.floor(level + jax.random.uniform(key, u.shape, u.dtype))
      level = jnp.minimum(level, levels)  # Rounding may exceed the norm.
      sent = norm / levels * jnp.sign(u) * level
      omega = min(u.size / levels**2, math.sqrt(u.size) / levels)
      return sent / (1 + omega) if is_contraction else sent

    return _of_vector(compress)

  def num_bytes(tree):
    size, _ = _size(tree)
    bits = 1 + math.ceil(math.log2(levels + 1))
    return -(-size * bits // 8) + _scalar_bytes(tree)

  contraction = Upload(compressor(is_contraction=True), num_bytes)
  return Upload(compressor(is_contraction=False), num_bytes, contraction)


@fields.checked()
def clip_by_norm(max_norm: Positive) -> Upload:
  r"""The difference, scaled down to a norm of at most c.

  .. math::

    u \min(1, c / \|u\|_2)

  Args:
    max_norm: c, positive; may be tuned in a grid.

  Returns:
    The upload; it sends all entries.

  Raises:
    ValueError: if `max_norm` is not positive.
    TypeError: if it is no number.
  """

  def compress(u, key):
    del key
    return norms.clipped(u, max_norm)[0]

  return Upload(_of_vector(compress))


@fields.checked(
  upload=fields.instance_of(
    Upload, "an upload, such as error_feedback(top_k(0.01))"
  )
)
def error_feedback(upload: Upload) -> Upload:
  r"""The part that was not sent is added to the next difference.

  .. math::

    v = u + e, \qquad \text{send } Q(v), \qquad e \leftarrow v - Q(v)

  Each client keeps its e, of the size of a difference, which starts at 0. It
  does not change if the client drops out.

  Args:
    upload: Q. For `random_k` and `quantize` this is the form that contracts.

  Returns:
    The upload; it sends as many bytes as the given one.

  Raises:
    TypeError: if `upload` is no upload.

  References:
    Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014;
    Karimireddy et al., ICML 2019, Algorithm 2.
  """
  inner = upload.contraction or upload
  rule = optax.with_extra_args_support(inner.rule)

  def init(params):
    return optax.tree.zeros_like(params), rule.init(params)

  def update(u, state, params=None, **extra):
    error, state = state
    v = optax.tree.add(u, optax.tree.cast_like(error, u))
    sent, state = rule.update(v, state, params, **extra)
    return sent, (optax.tree.cast_like(optax.tree.sub(v, sent), error), state)

  transform = optax.GradientTransformationExtraArgs(init, update)
  return Upload(transform, inner.num_bytes)


def _of_vector(
  compress: Callable[[jax.Array, jax.Array], jax.Array],
) -> optax.GradientTransformationExtraArgs:
  """A transformation of all leaves as one vector, at least float32."""

  def update(u, state, params=None, *, key=None, **extra):
    del params, extra
    vector, unravel = ravel_pytree(u)
    sent = compress(trees.at_least_float32(vector), key)
    return unravel(sent.astype(vector.dtype)), state

  return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


def _count(fraction: float, size: int) -> int:
  """k, how many of d entries are sent."""
  return max(1, round(fraction * size))


def _size(tree: Any) -> tuple[int, int]:
  """d, the entries of all leaves, and the bytes of one."""
  leaves = jax.tree.leaves(tree)
  size = sum(int(np.prod(np.shape(leaf))) for leaf in leaves)
  return size, jnp.result_type(*leaves).itemsize


def _scalar_bytes(tree: Any) -> int:
  """The bytes of a norm, which is computed in at least float32."""
  dtype = jnp.result_type(*jax.tree.leaves(tree))
  return jnp.promote_types(dtype, jnp.float32).itemsize
