"""FedAvg whose clients send the largest entries of their differences.

Stich et al., "Sparsified SGD with Memory", NeurIPS 2018, Algorithm 1.
"""

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

import fedjax_opt as fo


def top_k(loss_fn, client, k):
  """Sends the k largest by magnitude; what is left out is sent later.

  A client keeps its error, [d]. It sends k values and k indices of 4 bytes.
  """

  def one_client(worker, params):
    delta = optax.tree.sub(worker.descend(loss_fn, client, params), params)
    flat, unflatten = ravel_pytree(delta)
    flat = flat + worker.state
    _, largest = jax.lax.top_k(jnp.abs(flat), k)
    sent = jnp.zeros_like(flat).at[largest].set(flat[largest])
    return fo.ClientOutput(
      unflatten(sent), state=flat - sent, bytes_up=k * (flat.itemsize + 4)
    )

  def round(params, cohort):
    sent = cohort.mean(one_client, broadcast=params)
    return optax.tree.add(params, sent.value), sent

  return fo.Algorithm(
    init=lambda params, num_clients: params,
    round=round,
    params=lambda params: params,
    init_client=lambda params: jnp.zeros_like(ravel_pytree(params)[0]),
  )
