"""Scores of all predictions of a split that are no means over examples.

Each is `(outputs, y) -> scalar` in JAX, for `evaluation.federated(scores=...)`.
The predictions are of `N` examples:

- of classes: outputs are logits [N, classes], y is [N] whole numbers;
- of `k` labels, each there or not: logits [N, k], y is [N, k] of 0 and 1;
- of numbers: outputs and y are [N, k] or [N].

They are those of `sklearn.metrics`. In a mean over classes or labels, all count
alike, for any number of examples.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_opt.arrays.trees import at_least_float32
from fedjax_opt.checks.fields import NAME, NAMES, checked
from fedjax_opt.checks.values import check_shape, form


def _indicators(outputs, y):
  """Which classes or labels are predicted, and which are there."""
  if outputs.ndim != 2:
    raise ValueError(
      f"outputs: is {form(outputs)}; must be logits [N, classes]"
    )
  check_shape("y", y, outputs.shape[: max(y.ndim, 1)], "as outputs")
  if y.ndim == 2:
    return outputs > 0, y > 0.5
  classes = jnp.arange(outputs.shape[-1])
  predicted = jnp.argmax(outputs, -1)
  return predicted[:, None] == classes, y[:, None] == classes


def _mean_of(values, counts):
  """The mean of the values that count; NaN if none does."""
  total = jnp.sum(jnp.where(counts, values, 0))
  number = jnp.sum(counts)
  return jnp.where(number > 0, total / jnp.maximum(number, 1), jnp.nan)


@checked()
def balanced_accuracy(outputs: jax.Array, y: jax.Array) -> jax.Array:
  """The mean over classes of the share of examples that are predicted right.

  For labels, it is the mean over labels of the mean of two shares: of the
  examples with the label, and of the examples without it.

  Args:
    outputs: logits, [N, classes] or [N, k].
    y: [N] classes, or [N, k] of 0 and 1.

  Returns:
    A scalar in [0, 1]. A class without an example does not count.
  """
  outputs, y = jnp.asarray(outputs), jnp.asarray(y)
  predicted, true = _indicators(outputs, y)
  if y.ndim == 2:
    predicted = jnp.stack([predicted, ~predicted])
    true = jnp.stack([true, ~true])
  num_true = jnp.sum(true, axis=-2)
  recalls = jnp.sum(predicted & true, axis=-2) / jnp.maximum(num_true, 1)
  if y.ndim == 1:
    return _mean_of(recalls, num_true > 0)
  label_means = jax.vmap(_mean_of, in_axes=1)(recalls, num_true > 0)
  return jnp.mean(label_means)


@checked()
def f1(outputs: jax.Array, y: jax.Array) -> jax.Array:
  """The mean over classes, or labels, of F1.

  F1 is 2 hits / (2 hits + false alarms + misses).

  Args:
    outputs: logits, [N, classes] or [N, k].
    y: [N] classes, or [N, k] of 0 and 1.

  Returns:
    A scalar in [0, 1]. A class that no example has and that is never predicted
    does not count; such a label counts as 0.
  """
  outputs, y = jnp.asarray(outputs), jnp.asarray(y)
  predicted, true = _indicators(outputs, y)
  hits = jnp.sum(predicted & true, axis=0)
  totals = jnp.sum(predicted, axis=0) + jnp.sum(true, axis=0)
  values = 2 * hits / jnp.maximum(totals, 1)
  return _mean_of(values, (totals > 0) | (y.ndim == 2))


@checked()
def auc(outputs: jax.Array, y: jax.Array) -> jax.Array:
  """The area under the ROC curve, of one class or label against the rest.

  This is the probability that an example of the class has a larger output than
  an example of another class; equal outputs count half.

  Args:
    outputs: logits, [N, classes] or [N, k].
    y: [N] classes, or [N, k] of 0 and 1.

  Returns:
    A scalar in [0, 1], the mean over classes or labels. A class or label that
    all examples have, or none, does not count.
  """
  outputs, y = jnp.asarray(outputs), jnp.asarray(y)
  _, true = _indicators(outputs, y)
  values = at_least_float32(outputs)
  if y.ndim == 1:
    values = _log_odds(values)
  areas, is_defined = jax.vmap(_area, in_axes=1)(values, true)
  return _mean_of(areas, is_defined)


def _log_odds(logits):
  """Of each class against all others, [N, classes].

  In float32 the logarithm of a probability near 1 is 0, but not its log odds.
  """
  log_p = jax.nn.log_softmax(logits, -1)
  is_sure = log_p > -0.1  # At most one class of an example.
  other_logits = jax.nn.logsumexp(jnp.where(is_sure, -jnp.inf, logits), -1)
  unsure = jnp.where(is_sure, -jnp.inf, log_p)
  odds = unsure - jnp.log1p(-jnp.exp(unsure))
  return jnp.where(is_sure, logits - other_logits[:, None], odds)


def _area(values, is_positive):
  """AUC of [N] values by ranks, as the statistic of Mann and Whitney."""
  sorted_values = jnp.sort(values)
  below = jnp.searchsorted(sorted_values, values, side="left")
  up_to = jnp.searchsorted(sorted_values, values, side="right")
  ranks = (below + up_to + 1) / 2  # Of equal values, their mean.
  positives = jnp.sum(is_positive).astype(ranks.dtype)
  negatives = len(values) - positives
  # The mean rank, not the sum: that does not fit into float32's 24 bits.
  mean_rank = jnp.sum(jnp.where(is_positive, ranks / len(values), 0))
  mean_rank *= len(values) / jnp.maximum(positives, 1)
  area = (mean_rank - (positives + 1) / 2) / jnp.maximum(negatives, 1)
  return area, (positives > 0) & (negatives > 0)


@checked()
def r2(outputs: jax.Array, y: jax.Array) -> jax.Array:
  """The share of the variance that is explained, as the mean over outputs.

  Args:
    outputs: [N, k] or [N].
    y: of the same shape.

  Returns:
    A scalar, at most 1; 0 for the mean of y as prediction, negative for worse
    ones. An output whose y is constant counts as 1 if all its predictions are
    right, else as 0.
  """
  outputs, y = jnp.asarray(outputs), jnp.asarray(y)
  check_shape("y", y, outputs.shape, "as outputs")
  y = at_least_float32(y)
  # Of a constant y they are exactly 0, unlike the distances from its mean.
  shifted, errors = y - y[:1], y - outputs
  range_, worst = (
    jnp.max(jnp.abs(values), axis=0, initial=0) for values in (shifted, errors)
  )
  # In this unit no square leaves the range of floats, whatever that of y is.
  unit = jnp.where(range_ == 0, 1, range_)
  shifted, errors = shifted / unit, errors / unit
  total = jnp.sum((shifted - jnp.mean(shifted, axis=0)) ** 2, axis=0)
  unexplained = jnp.where(
    range_ == 0, jnp.sign(worst), jnp.sum(errors**2, axis=0) / total
  )
  return jnp.mean(1 - unexplained)


@checked()
def mae(outputs: jax.Array, y: jax.Array) -> jax.Array:
  """The mean absolute error, in the unit of y.

  Args:
    outputs: [N, k] or [N].
    y: of the same shape.

  Returns:
    A non-negative scalar.
  """
  outputs, y = jnp.asarray(outputs), jnp.asarray(y)
  check_shape("y", y, outputs.shape, "as outputs")
  return jnp.mean(jnp.abs(y - outputs))


@checked(kinds=NAMES, help=NAME)
class Score(NamedTuple):
  """A score by name.

  Attributes:
    of: `(outputs, y) -> scalar`.
    kinds: what must be predicted: 'classes', 'labels', 'numbers'.
    help: one line.
  """

  of: Callable[[jax.Array, jax.Array], jax.Array]
  kinds: tuple[str, ...]
  help: str


_WORDS = ("classes", "labels")
SCORES: Mapping[str, Score] = {
  "balanced_accuracy": Score(
    balanced_accuracy, _WORDS, "accuracy, all classes alike"
  ),
  "f1": Score(f1, _WORDS, "F1, all classes alike"),
  "auc": Score(auc, _WORDS, "area under the ROC curve"),
  "r2": Score(r2, ("numbers",), "share of the variance explained"),
  "mae": Score(mae, ("numbers",), "mean absolute error"),
}
