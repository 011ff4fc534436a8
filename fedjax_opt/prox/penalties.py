"""Penalties: regularizers that are finite everywhere, times a strength."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedjax_opt.arrays import norms
from fedjax_opt.checks import fields
from fedjax_opt.checks.fields import NonNegative
from fedjax_opt.checks.values import check_at_least
from fedjax_opt.prox.regularizer import Regularizer
from fedjax_opt.prox.singular_values import soft_threshold_singular_values
from fedjax_opt.prox.total_variation import total_variation_prox


def _penalty(
  kind: str,
  strength: ArrayLike,
  leaf_value: Callable[[jax.Array], jax.Array],
  leaf_prox: Callable[[jax.Array, jax.Array], jax.Array],
) -> Regularizer:
  """A penalty that is a sum over leaves.

  Args:
    kind: name of the factory.
    strength: factor of the penalty.
    leaf_value: `leaf -> scalar`, the value at strength 1.
    leaf_prox: `(leaf, threshold) -> leaf`, the prox at strength 1, where
      `threshold` is the step.
  """

  def value(tree):
    leaves = map(jnp.asarray, jax.tree.leaves(tree))
    return strength * sum(leaf_value(leaf) for leaf in leaves)

  def prox(tree, step):
    return jax.tree.map(lambda leaf: leaf_prox(leaf, step * strength), tree)

  return Regularizer(kind, value, prox)


@fields.checked()
def l1(strength: NonNegative) -> Regularizer:
  r"""The sum of absolute values, for sparsity.

  .. math::

    \psi(w) = \lambda \|w\|_1, \quad
    \text{prox}(z, \tau) = \text{sign}(z) \max(|z| - \tau\lambda, 0)

  Args:
    strength: factor of the regularizer; lambda, non-negative, may be traced.

  Returns:
    The regularizer.

  Raises:
    ValueError: if `strength` is out of range.
    TypeError: if an argument is of a wrong type.
  """
  return _penalty(
    "l1", strength, lambda leaf: jnp.sum(jnp.abs(leaf)), _soft_threshold
  )


def _soft_threshold(z: jax.Array, threshold: jax.Array) -> jax.Array:
  return jnp.sign(z) * jax.nn.relu(jnp.abs(z) - threshold)


@fields.checked()
def squared_l2(strength: NonNegative) -> Regularizer:
  r"""The squared Euclidean norm; there is no factor 1/2.

  .. math::

    \psi(w) = \lambda \|w\|^2, \quad
    \text{prox}(z, \tau) = z / (1 + 2 \tau\lambda)

  Args:
    strength: factor of the regularizer; lambda, non-negative, may be traced.

  Returns:
    The regularizer.

  Raises:
    ValueError: if `strength` is out of range.
    TypeError: if an argument is of a wrong type.
  """
  return _penalty(
    "squared_l2",
    strength,
    lambda leaf: jnp.sum(leaf**2),
    lambda z, threshold: z / (1 + 2 * threshold),
  )


@fields.checked()
def elastic_net(
  l1_strength: NonNegative, squared_l2_strength: NonNegative
) -> Regularizer:
  r"""`l1(l1_strength) + squared_l2(squared_l2_strength)`.

  .. math::

    \psi(w) = \lambda_1 \|w\|_1 + \lambda_2 \|w\|^2, \quad
    \text{prox}(z, \tau) =
      \frac{\text{sign}(z) \max(|z| - \tau\lambda_1, 0)}{1 + 2\tau\lambda_2}

  Args:
    l1_strength: lambda_1; non-negative, may be traced.
    squared_l2_strength: lambda_2; non-negative, may be traced.

  Returns:
    The regularizer.

  Raises:
    ValueError: if a strength is out of range.
    TypeError: if a strength is no number.

  References:
    Zou and Hastie, "Regularization and Variable Selection via the Elastic
    Net", JRSS B 2005.
  """
  return l1(l1_strength) + squared_l2(squared_l2_strength)


# More than the axes of any array.
_MOST_AXES = 64


def _is_axis(name: str, value: Any) -> None:
  """Raises an error if it is no axis, which may be counted from the end."""
  check_at_least(name, value, -_MOST_AXES, _MOST_AXES)


def _are_axes(name: str, value: Any) -> None:
  """Raises an error if it is neither an axis nor a list of such."""
  is_list = isinstance(value, list | tuple) and len(value)
  for axis in value if is_list else (value,):
    _is_axis(name, axis)


@fields.checked(axis=fields.Field(_are_axes))
def group_lasso(
  strength: NonNegative, axis: int | Sequence[int] = -1
) -> Regularizer:
  r"""The sum of Euclidean norms of groups, for zeros in whole groups.

  .. math::

    \psi(w) = \lambda \sum_g \|w_g\|, \quad
    \text{prox}(z, \tau)_g = \max(1 - \tau\lambda / \|z_g\|, 0) \, z_g

  The entries of a leaf that differ only in their index along `axis` are one
  group. By default a group of a kernel [inputs, outputs] is a row, all weights
  of one input; with axis 0 it is a column. A vector is one group.

  Args:
    strength: factor of the regularizer; lambda, the same for each group,
      non-negative, may be traced.
    axis: the axes within a group.

  Returns:
    The regularizer.

  Raises:
    ValueError: if `strength` is out of range.
    TypeError: if an argument is of a wrong type.

  References:
    Yuan and Lin, "Model Selection and Estimation in Regression with Grouped
    Variables", JRSS B 2006.
  """
  axis = tuple(axis) if isinstance(axis, Sequence) else (axis,)

  def squares(leaf, keepdims):
    """Squared norms of groups, each in units of its largest entry."""
    largest = jnp.max(jnp.abs(leaf), axis=axis, keepdims=True, initial=0)
    unit = norms.power_of_two(largest)
    squared = jnp.sum((leaf / unit) ** 2, axis=axis, keepdims=keepdims)
    return squared, unit.reshape(unit.shape if keepdims else squared.shape)

  def leaf_prox(z, threshold):
    squared, unit = squares(z, keepdims=True)
    is_kept = squared > (threshold / unit) ** 2
    return jnp.where(is_kept, 1 - threshold / unit / jnp.sqrt(squared), 0) * z

  def leaf_value(leaf):
    squared, unit = squares(leaf, keepdims=False)
    is_positive = squared > 0
    # The root of these groups only, because its derivative at 0 is infinite.
    norm = jnp.sqrt(jnp.where(is_positive, squared, 1))
    return jnp.sum(jnp.where(is_positive, unit * norm, 0))

  return _penalty("group_lasso", strength, leaf_value, leaf_prox)


@fields.checked()
def nuclear(strength: NonNegative) -> Regularizer:
  r"""The sum of singular values of each leaf, for low rank.

  .. math::

    \psi(W) = \lambda \|W\|_*, \quad
    \text{prox}(Z, \tau) = U \, \text{diag}(\max(s - \tau\lambda, 0)) \, V^T
    \quad \text{with} \quad Z = U \, \text{diag}(s) \, V^T

  Args:
    strength: factor of the regularizer; lambda, non-negative, may be traced.

  Returns:
    The regularizer; each leaf must be a matrix.

  Raises:
    ValueError: if `strength` is out of range; from `value` and `prox`, if a
      leaf is no matrix.
    TypeError: if `strength` is no number.

  References:
    Cai, Candes and Shen, "A Singular Value Thresholding Algorithm for Matrix
    Completion", SIAM J. Optim. 2010, Theorem 2.1.
  """

  def matrix(leaf):
    if leaf.ndim != 2:
      raise ValueError(
        f"nuclear: a leaf has shape {leaf.shape}; must be a matrix; in Python "
        "prox.on_leaves selects the leaves that are"
      )
    return leaf

  return _penalty(
    "nuclear",
    strength,
    lambda leaf: jnp.sum(jnp.linalg.svd(matrix(leaf), compute_uv=False)),
    lambda z, step: soft_threshold_singular_values(matrix(z), step),
  )


@fields.checked(axis=fields.Field(_is_axis))
def total_variation_1d(strength: NonNegative, axis: int = 0) -> Regularizer:
  r"""The absolute differences of neighbours, for piecewise constant weights.

  .. math::

    \psi(w) = \lambda \sum_i |w_{i+1} - w_i|

  Args:
    strength: factor of the regularizer; lambda, non-negative, may be traced.
    axis: the axis of a leaf along which entries are neighbours. The default is
      the inputs of a kernel [inputs, outputs].

  Returns:
    The regularizer. Its prox is exact, see `total_variation.py`.

  Raises:
    ValueError: if `strength` is out of range.
    TypeError: if an argument is of a wrong type.
  """

  def leaf_prox(z, threshold):
    lines = jnp.moveaxis(z, axis, -1)
    flat = lines.reshape(-1, lines.shape[-1])
    flat_prox = jax.vmap(total_variation_prox, (0, None))(flat, threshold)
    return jnp.moveaxis(flat_prox.reshape(lines.shape), -1, axis)

  def leaf_value(leaf):
    return jnp.sum(jnp.abs(jnp.diff(leaf, axis=axis)))

  return _penalty("total_variation_1d", strength, leaf_value, leaf_prox)
