"""DiLoCo: few clients that take many steps, and keep their optimizers.

References:
  Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language
  Models", 2023.
"""

import jax.numpy as jnp
import optax

from fedjax_opt import optimizers
from fedjax_opt.algorithms.fed_avg import fed_avg_of
from fedjax_opt.base import Algorithm, ClientOutput, ClientRule, LossFn
from fedjax_opt.checks.fields import checked


@checked()
def diloco(
  loss_fn: LossFn,
  client: ClientRule,
  server: optax.GradientTransformation | None = None,
) -> Algorithm:
  r"""FedAvg whose clients keep their rule's state (Douillard et al., 2023).

  .. math::

    x_i, s_i = \text{client}^K(x_t, s_i), \qquad
    \Delta_t = x_t - \sum_i w_i x_i, \qquad
    x_{t+1} = \text{server}(x_t, \Delta_t)

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    client: the rule of the local steps, or a function from the round to it. The
      paper's is `optax.adamw(4e-4, weight_decay=0.1)`, for 500 local steps. Its
      state does not change for a client that takes no part.
    server: takes :math:`\Delta_t` as its gradient; if None the paper's,
      `optax.sgd(0.7, momentum=0.9, nesterov=True)`.

  Returns:
    The algorithm. Each client keeps the state of its rule; for AdamW this is
    two models.

  Raises:
    TypeError: see `fed_avg`.

  References:
    Douillard et al., 2023, Algorithm 1.
  """
  if server is None:
    server = optax.sgd(0.7, momentum=0.9, nesterov=True)

  def init_client(params):
    first = optimizers.rule_at(client, jnp.int32(0))
    return optimizers.init("client", first, params)

  def one_client(worker, params):
    rule = optimizers.rule_at(client, worker.round)
    local_params, rule_state = worker.descend_from(
      loss_fn, rule, params, worker.state
    )
    return ClientOutput(optax.tree.sub(local_params, params), state=rule_state)

  return fed_avg_of(one_client, server, init_client=init_client)
