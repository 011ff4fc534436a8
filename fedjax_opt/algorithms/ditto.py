"""Ditto: each client keeps its own model beside FedAvg's model.

References:
  Li et al., "Ditto: Fair and Robust Federated Learning Through
  Personalization", ICML 2021.
"""

import optax

from fedjax_opt import objectives
from fedjax_opt.algorithms.fed_avg import fed_avg_of
from fedjax_opt.base import Algorithm, ClientOutput, ClientRule, LossFn
from fedjax_opt.checks.fields import NonNegative, checked


@checked()
def ditto(
  loss_fn: LossFn,
  client: ClientRule,
  server: optax.GradientTransformation | None = None,
  *,
  lam: NonNegative = 1.0,
) -> Algorithm:
  r"""FedAvg, and a model for each client near the server's (Li et al., 2021).

  A client of the cohort takes FedAvg's local steps. From its own model
  :math:`v_i` it takes as many steps, on the same batches, on the loss

  .. math::

    F_i(v_i) + \frac{\lambda}{2} \|v_i - x_t\|^2

  No :math:`v_i` is ever sent: the server's model is that of `fed_avg`.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    client: the rule of both kinds of local steps, each with a state of its own.
    server: the rule of the server; `optax.sgd(1.0)` if None.
    lam: pull of the server's model on clients' own; :math:`\lambda`,
      non-negative (with 0 each client trains for itself).

  Returns:
    The algorithm. Each client keeps one model, :math:`v_i`; before its first
    round it is the initial model, :math:`x_0`.

  Raises:
    ValueError: if `lam` is negative.
    TypeError: see `fed_avg`.

  References:
    Li et al., "Ditto", ICML 2021, Algorithm 1.
  """

  def one_client(worker, received):
    loss = objectives.proximal(loss_fn, received, lam)
    personal = worker.descend(loss, client, worker.state)
    # Last, so that its steps are those that are traced.
    local_params = worker.descend(loss_fn, client, received)
    return ClientOutput(optax.tree.sub(local_params, received), state=personal)

  return fed_avg_of(
    one_client,
    server,
    init_client=lambda params: params,
    client_params=lambda state, client_state: client_state,
  )
