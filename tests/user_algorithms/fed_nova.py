"""FedNova: normalized averaging of clients that take unequal numbers of steps.

Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous
Federated Optimization", NeurIPS 2020, Algorithm 1; with local momentum.
"""

import jax.numpy as jnp
import optax

import fedjax_opt as fo


def fed_nova(loss_fn, learning_rate, momentum=0.0):
  r"""Local (heavy-ball) steps, divided by how far they reach.

  .. math::

    x_{t+1} = x_t + \sum_i p_i \|a_i\|_1 \sum_i p_i (x_i - x_t) / \|a_i\|_1

  The rate cancels. Of a rule other than these :math:`a_i` is not defined.
  """
  rule = optax.sgd(learning_rate, momentum)

  def one_client(worker, params):
    steps, rho = worker.num_steps, momentum
    reach = (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)  # |a_i|_1
    local = worker.descend(loss_fn, rule, params)
    scale = 1 / jnp.where(steps > 0, reach, 1)
    return optax.tree.scale(scale, optax.tree.sub(local, params)), reach

  def round(params, cohort):
    sent = cohort.mean(one_client, broadcast=params)
    direction, reach = sent.value
    return optax.tree.add_scale(params, reach, direction), sent

  return fo.Algorithm(
    init=lambda params, num_clients: params,
    round=round,
    params=lambda params: params,
  )
