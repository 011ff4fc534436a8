"""Losses of predictions, and terms added to a client's loss.

A function that adds a term takes a loss `(params, batch, rng) -> [B]` and
returns another one. So these functions can be combined, and used with any
algorithm and client rule.
"""

from collections.abc import Callable
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_opt.arrays import running_statistics
from fedjax_opt.arrays.running_statistics import (
  with_statistics as with_statistics,
)
from fedjax_opt.arrays.trees import at_least_float32
from fedjax_opt.base import Batch, FeaturesFn, LossFn, Params
from fedjax_opt.checks import fields, functions
from fedjax_opt.checks.fields import NonNegative, Positive
from fedjax_opt.checks.values import check_shape

_Token = Annotated[int, fields.integer(-(2**31))]


@fields.checked()
def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
  """The cross-entropy of logits and classes.

  The values are those of `optax.softmax_cross_entropy_with_integer_labels`.
  Optax reads the logit of a class by its index. The gradient of this is a
  scatter, which is slow on a CPU, and one more kernel on a GPU. This function
  selects the logit with a mask.

  Args:
    logits: [..., classes].
    labels: [...] whole numbers.

  Returns:
    [...]; NaN for a label that is none of the classes.
  """
  logits, labels = jnp.asarray(logits), jnp.asarray(labels)
  check_shape("labels", labels, logits.shape[:-1], "as logits without classes")
  classes = jnp.arange(logits.shape[-1])
  is_label = labels[..., None] == classes
  label_logits = jnp.sum(jnp.where(is_label, logits, 0), axis=-1)
  losses = jax.nn.logsumexp(logits, axis=-1) - label_logits
  is_class = (labels >= 0) & (labels < len(classes))
  return jnp.where(is_class, losses, jnp.nan)


@fields.checked()
def next_token(
  logits: jax.Array, targets: jax.Array, padding: _Token = -1
) -> jax.Array:
  """The mean cross-entropy of the tokens that follow those of a sequence.

  >>> def loss_fn(params, batch, rng):
  ...   logits = model.apply({"params": params}, batch["x"])
  ...   return fo.objectives.next_token(logits, batch["y"])

  The mean of this loss over examples weights each sequence alike; e to it is
  the perplexity, see `evaluation.with_perplexity`.

  Args:
    logits: [B, T, tokens].
    targets: [B, T] whole numbers, the token after each one.
    padding: the target where nothing follows; it does not count.

  Returns:
    [B]; 0 for a sequence of nothing but padding.

  Raises:
    ValueError: if the shapes do not fit.
  """
  targets = jnp.asarray(targets)
  labels = jnp.where(targets == padding, 0, targets)
  return token_mean(cross_entropy(logits, labels), targets, padding)


@fields.checked()
def token_mean(
  of_tokens: jax.Array, targets: jax.Array, padding: _Token = -1
) -> jax.Array:
  """The mean over each sequence's targets, see `next_token`.

  Args:
    of_tokens: [B, T, ...], values of each token.
    targets: [B, T] whole numbers.
    padding: the target whose values do not count.

  Returns:
    [B, ...], float32.

  Raises:
    ValueError: if the shapes do not fit.
  """
  if np.ndim(targets) != 2:
    raise ValueError(
      f"targets: has shape {list(np.shape(targets))}; must be [B, T]"
    )
  shape = np.shape(of_tokens)[:2]
  check_shape("targets", targets, shape, "as the values of tokens")
  counts = (targets != padding).astype(jnp.float32)
  counts /= jnp.maximum(counts.sum(axis=1, keepdims=True), 1)
  return jnp.einsum("bt...,bt->b...", of_tokens.astype(jnp.float32), counts)


@fields.checked()
class RegularizedLoss(NamedTuple):
  """A loss with a term of the parameters added to that of each example.

  Attributes:
    loss_fn: the loss of each example.
    term: `params -> scalar`.
  """

  loss_fn: LossFn
  term: Callable[[Params], jax.Array]

  def __call__(
    self, params: Params, batch: Batch, rng: jax.Array | None
  ) -> jax.Array:
    """The loss of each example plus the term, [B]."""
    term = self.term(params)
    return self.loss_fn(params, batch, rng) + term


@fields.checked()
def l2(loss_fn: LossFn, strength: NonNegative) -> LossFn:
  r"""Adds :math:`\frac{\text{strength}}{2} \|x\|^2`.

  Args:
    loss_fn: the loss of each example.
    strength: non-negative.

  Returns:
    The loss of each example plus the term; x are all parameters except running
    statistics.

  Raises:
    ValueError: if `strength` is out of range.
    TypeError: if it is no number.
  """
  return RegularizedLoss(
    loss_fn, lambda params: strength / 2 * _squared_norm(params)
  )


@fields.checked()
def proximal(loss_fn: LossFn, center: Params, mu: NonNegative) -> LossFn:
  r"""Adds :math:`\frac{\mu}{2} \|x - \text{center}\|^2` (FedProx).

  Args:
    loss_fn: the loss of each example.
    center: the model received from the server.
    mu: strength; non-negative.

  Returns:
    The loss of each example plus the term.

  Raises:
    ValueError: if `mu` is out of range.
    TypeError: if it is no number.
  """

  def term(params):
    return mu / 2 * _squared_norm(optax.tree.sub(params, center))

  return RegularizedLoss(loss_fn, term)


def _squared_norm(params):
  """The squared norm of the parameters without running statistics, float32."""
  weights = jax.tree.map(at_least_float32, running_statistics.weights(params))
  return optax.tree.norm(weights, squared=True)


@fields.checked()
def contrastive(
  loss_fn: LossFn,
  features_fn: FeaturesFn,
  received: Params,
  previous: Params,
  mu: NonNegative,
  temperature: Positive,
) -> LossFn:
  r"""Adds :math:`\mu` times the model-contrastive loss (MOON).

  .. math::

    \ell = -\log \frac{e^{\cos(z, z_g) / \tau}}
                      {e^{\cos(z, z_g) / \tau} + e^{\cos(z, z_p) / \tau}}

  Args:
    loss_fn: the loss of each example.
    features_fn: `(params, batch, rng) -> [B, d]`, which computes z of the model
      that is trained, z_g of `received` and z_p of `previous`.
    received: the model received from the server.
    previous: the client's last local model.
    mu: strength; non-negative.
    temperature: tau; positive.

  Returns:
    The loss of each example plus the term of that example.

  Raises:
    ValueError: if `mu` or `temperature` is out of range.
    TypeError: if an argument is of a wrong type.

  References:
    Li et al., "Model-Contrastive Federated Learning", CVPR 2021, eq. 3.
  """
  loss_fn = functions.checked_loss(loss_fn)
  features_fn = functions.checked_features(features_fn)

  def regularized(params, batch, rng):
    def features(model):  # Computed in the dtype of the trained model.
      model = optax.tree.cast_like(model, params)
      return at_least_float32(features_fn(model, batch, rng))

    z = features(params)
    cos_g = optax.cosine_similarity(z, features(received), epsilon=1e-16)
    cos_p = optax.cosine_similarity(z, features(previous), epsilon=1e-16)
    # -log(e^a / (e^a + e^b)) = log(1 + e^(b - a)), which cannot overflow.
    term = jax.nn.softplus((cos_p - cos_g) / temperature)
    return loss_fn(params, batch, rng) + mu * term

  return regularized
