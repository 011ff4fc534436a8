"""FedProx: local steps held near the server's model.

References:
  Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020.
"""

import optax

from fedjax_opt import objectives
from fedjax_opt.algorithms.fed_avg import fed_avg
from fedjax_opt.base import Algorithm, ClientRule, LossFn
from fedjax_opt.checks.fields import NonNegative, checked


@checked()
def fed_prox(
  loss_fn: LossFn,
  client: ClientRule,
  server: optax.GradientTransformation | None = None,
  *,
  mu: NonNegative = 0.01,
) -> Algorithm:
  r"""Local steps held near the server's model (Li et al., 2020).

  FedAvg on :math:`F_i(x) + \frac{\mu}{2} \|x - x_t\|^2`.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    client: the rule of the local steps.
    server: the rule of the server; `optax.sgd(1.0)` if None.
    mu: strength of the proximal term; over all parameters, non-negative.

  Returns:
    The algorithm.

  Raises:
    ValueError: if `mu` is negative.
    TypeError: see `fed_avg`.

  References:
    Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020,
    Algorithm 2.
  """

  def local_loss(loss_fn, received):
    return objectives.proximal(loss_fn, received, mu)

  return fed_avg(loss_fn, client, server, local_loss=local_loss)
