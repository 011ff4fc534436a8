"""FedAvg with the coordinate-wise trimmed mean.

Yin et al., "Byzantine-Robust Distributed Learning", ICML 2018, definition 2.
"""

import jax
import jax.numpy as jnp
import optax

import fedjax_opt as fo


def trimmed_mean(loss_fn, client, beta=0.1):
  """Drops the share beta < 1/2 at both ends of each coordinate.

  Of those alone whose message counts, and that have a weight; beyond that
  weights do not matter.
  """

  def one_client(worker, params):
    return optax.tree.sub(worker.descend(loss_fn, client, params), params)

  def round(params, cohort):
    sent = cohort.each(one_client, broadcast=params)
    counts = sent.counted & (sent.weights > 0)  # [C]
    n = jnp.sum(counts)
    cut = jnp.floor(beta * n + 1e-4)  # 0.29 x 100 is 28.999998 in float32.
    of = lambda vector, leaf: vector.reshape(-1, *[1] * (leaf.ndim - 1))

    def trim(leaf):  # [C, ...]; those that do not count are sorted to the end.
      leaf = jnp.sort(jnp.where(of(counts, leaf), leaf, jnp.inf), axis=0)
      rank = of(jnp.arange(len(leaf)), leaf)
      inner = jnp.where((rank >= cut) & (rank < n - cut), leaf, 0)
      return jnp.sum(inner, axis=0) / jnp.maximum(n - 2 * cut, 1)

    return optax.tree.add(params, jax.tree.map(trim, sent.value)), sent

  same = lambda params: params
  return fo.Algorithm(lambda params, num_clients: params, round, params=same)
