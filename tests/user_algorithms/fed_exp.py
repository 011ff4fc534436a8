"""FedExP: an extrapolated server step.

Jhunjhunwala et al., "FedExP: Speeding Up Federated Averaging via
Extrapolation", ICLR 2023, Algorithm 1.
"""

import jax.numpy as jnp
import optax

import fedjax_opt as fo


def fed_exp(loss_fn, client, eps=1e-3):
  r"""FedAvg with a server rate from how much the clients disagree.

  .. math::

    \eta_g = \max(1, \text{mean} \|\Delta_i\|^2 /
                     (2 (\|\text{mean} \Delta_i\|^2 + \epsilon)))

  The evaluated model is the mean of the last two iterates.
  """

  def one_client(worker, params):
    delta = optax.tree.sub(worker.descend(loss_fn, client, params), params)
    return delta, optax.tree.norm(delta, squared=True)

  def round(state, cohort):
    params, _ = state
    sent = cohort.mean(one_client, broadcast=params)
    delta, squares = sent.value
    of_mean = optax.tree.norm(delta, squared=True)
    rate = jnp.maximum(1, squares / (2 * (of_mean + eps)))
    return (optax.tree.add_scale(params, rate, delta), params), sent

  return fo.Algorithm(
    init=lambda params, num_clients: (params, params),
    round=round,
    params=lambda s: optax.tree.scale(0.5, optax.tree.add(*s)),
  )
