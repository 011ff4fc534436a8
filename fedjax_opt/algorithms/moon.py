"""MOON: model-contrastive federated learning.

References:
  Li et al., "Model-Contrastive Federated Learning", CVPR 2021.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_opt import objectives
from fedjax_opt.algorithms.fed_avg import fed_avg_of
from fedjax_opt.base import (
  Algorithm,
  ClientOutput,
  ClientRule,
  FeaturesFn,
  LossFn,
  Params,
)
from fedjax_opt.checks.fields import NonNegative, Positive, checked


class Previous(NamedTuple):
  """What a client keeps from the last round it took part in."""

  params: Params  # its last local model
  exists: jax.Array  # [] bool, whether the client took part before


@checked()
def moon(
  loss_fn: LossFn,
  features_fn: FeaturesFn,
  client: ClientRule,
  server: optax.GradientTransformation | None = None,
  *,
  mu: NonNegative = 1.0,
  temperature: Positive = 0.5,
) -> Algorithm:
  r"""Model-contrastive local steps (Li et al., 2021).

  This is FedAvg on the loss plus :math:`\mu` times the contrastive loss
  (`objectives.contrastive`). The contrastive loss pulls a client's features
  towards those of the received model, and away from those of the client's last
  local model. For a client that never took part, the received model replaces
  its last local model.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    features_fn: `(params, batch, rng) -> [B, d]`, the features before the last
      layer.
    client: the rule of the local steps.
    server: the rule of the server; `optax.sgd(1.0)` if None.
    mu: strength of the contrastive loss; non-negative.
    temperature: divides the cosine similarities; positive.

  Returns:
    The algorithm. Each client keeps one model, its last local model; for a
    client that never took part, this is the server's model.

  Raises:
    ValueError: if `mu` is negative or `temperature` not positive.
    TypeError: see `fed_avg`.

  References:
    Li et al., "Model-Contrastive Federated Learning", CVPR 2021, Algorithm 1.
  """

  def init_client(params):
    return Previous(optax.tree.zeros_like(params), exists=jnp.array(False))

  def one_client(worker, received):
    own_state = worker.state
    previous = optax.tree.where(own_state.exists, own_state.params, received)
    loss = objectives.contrastive(
      loss_fn, features_fn, received, previous, mu, temperature
    )
    local_params = worker.descend(loss, client, received)
    delta = optax.tree.sub(local_params, received)
    own_state = Previous(local_params, exists=jnp.array(True))
    return ClientOutput(delta, state=own_state)

  def client_params(state, previous):
    return optax.tree.where(previous.exists, previous.params, state.params)

  return fed_avg_of(
    one_client,
    server,
    init_client=init_client,
    client_params=client_params,
    averages_statistics=False,
  )
