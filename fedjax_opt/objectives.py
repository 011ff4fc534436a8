"""Terms added to a client's loss.

Each function takes a loss `(params, batch, rng) -> [B]` and gives another, so
they compose, and any algorithm and client rule can use them.
"""

import jax
import optax

from fedjax_opt.base import FeaturesFn, LossFn, Params
from fedjax_opt.models import statistics


def l2(loss_fn: LossFn, strength: jax.typing.ArrayLike) -> LossFn:
  r"""Adds :math:`\frac{\text{strength}}{2} \|x\|^2`, over all parameters."""

  def regularized(params, batch, rng):
    weights = statistics.weights(params)
    term = strength / 2 * optax.tree.norm(weights, squared=True)
    return loss_fn(params, batch, rng) + term

  return regularized


def proximal(
  loss_fn: LossFn, center: Params, mu: jax.typing.ArrayLike
) -> LossFn:
  r"""Adds :math:`\frac{\mu}{2} \|x - \text{center}\|^2` (FedProx).

  Args:
    loss_fn: the loss of each example.
    center: the model received from the server.
    mu: strength; non-negative.

  Returns:
    The loss of each example with the term added to each.
  """

  def regularized(params, batch, rng):
    away = statistics.weights(optax.tree.sub(params, center))
    term = mu / 2 * optax.tree.norm(away, squared=True)
    return loss_fn(params, batch, rng) + term

  return regularized


def contrastive(
  loss_fn: LossFn,
  features_fn: FeaturesFn,
  received: Params,
  previous: Params,
  mu: jax.typing.ArrayLike,
  temperature: jax.typing.ArrayLike,
) -> LossFn:
  r"""Adds :math:`\mu` times the model-contrastive loss (MOON).

  .. math::

    \ell = -\log \frac{e^{\cos(z, z_g) / \tau}}
                      {e^{\cos(z, z_g) / \tau} + e^{\cos(z, z_p) / \tau}}

  Args:
    loss_fn: the loss of each example.
    features_fn: `(params, batch, rng) -> [B, d]`; gives z of the model that is
      trained, z_g of `received` and z_p of `previous`.
    received: the model received from the server.
    previous: the client's last local model.
    mu: strength; non-negative.
    temperature: tau; positive.

  Returns:
    The loss of each example with its own term added.

  References:
    Li et al., "Model-Contrastive Federated Learning", CVPR 2021, eq. 3.
  """

  def regularized(params, batch, rng):
    z = features_fn(params, batch, rng)
    towards = optax.cosine_similarity(
      z, features_fn(received, batch, rng), epsilon=1e-16
    )
    away = optax.cosine_similarity(
      z, features_fn(previous, batch, rng), epsilon=1e-16
    )
    # -log(e^a / (e^a + e^b)) = log(1 + e^(b - a)), which cannot overflow.
    term = jax.nn.softplus((away - towards) / temperature)
    return loss_fn(params, batch, rng) + mu * term

  return regularized
