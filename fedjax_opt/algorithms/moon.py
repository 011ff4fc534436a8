"""MOON: model-contrastive federated learning.

References:
  Li et al., "Model-Contrastive Federated Learning", CVPR 2021.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_opt import objectives
from fedjax_opt.algorithms.fed_avg import server_step
from fedjax_opt.base import Algorithm, ClientRule, FeaturesFn, LossFn, Params


class ClientMemory(NamedTuple):
  """What a client keeps from the last round it took part in."""

  params: Params  # [M, ...] its last local model
  visited: jax.Array  # [M] bool, whether there is one


class MoonState(NamedTuple):
  """The server between rounds, with every client's memory."""

  params: Params  # x_t
  server: optax.OptState
  memory: ClientMemory


def moon(
  loss_fn: LossFn,
  features_fn: FeaturesFn,
  client: ClientRule,
  server: optax.GradientTransformation | None = None,
  *,
  mu: jax.typing.ArrayLike = 1.0,
  temperature: jax.typing.ArrayLike = 0.5,
) -> Algorithm:
  r"""FedAvg on the loss plus :math:`\mu` times the contrastive loss.

  The contrastive loss (`objectives.contrastive`) draws a client's features
  towards those of the received model and away from those of the client's own
  last local model. A client that never took part has the received model in
  that place.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    features_fn: `(params, batch, rng) -> [B, d]`, the features before the last
      layer.
    client: the rule of the local steps.
    server: the rule of the server; `optax.sgd(1.0)` if None.
    mu: strength of the contrastive loss; non-negative.
    temperature: divides the cosine similarities; positive.

  Returns:
    The algorithm. Its state holds one model per client of the population.

  References:
    Li et al., "Model-Contrastive Federated Learning", CVPR 2021, Algorithm 1.
  """
  server = optax.sgd(1.0) if server is None else server

  def init(params, num_clients):
    shape = lambda leaf: jnp.zeros((num_clients, *leaf.shape), leaf.dtype)
    memory = ClientMemory(
      params=jax.tree.map(shape, params),
      visited=jnp.zeros([num_clients], bool),
    )
    return MoonState(params, server.init(params), memory)

  def round(state, cohort):
    def one_client(worker, received, own):
      previous = optax.tree.where(own.visited, own.params, received)
      loss = objectives.contrastive(
        loss_fn, features_fn, received, previous, mu, temperature
      )
      local_params = worker.descend(loss, client, received)
      own = ClientMemory(local_params, visited=jnp.array(True))
      return optax.tree.sub(local_params, received), own

    delta, memory = cohort.mean(
      one_client, broadcast=state.params, memory=state.memory
    )
    params, server_state = server_step(
      server, state.params, state.server, delta
    )
    return MoonState(params, server_state, memory)

  return Algorithm(
    init,
    round,
    params=lambda state: state.params,
    memory=lambda state: state.memory,
  )
