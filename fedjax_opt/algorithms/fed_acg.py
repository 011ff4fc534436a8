"""FedACG: clients start ahead, where the server's momentum leads.

References:
  Kim, Kim and Han, "Communication-Efficient Federated Learning with Accelerated
  Client Gradient", CVPR 2024.
"""

from typing import NamedTuple

import optax

from fedjax_opt import objectives
from fedjax_opt.arrays import running_statistics
from fedjax_opt.base import Algorithm, ClientRule, LossFn, Params
from fedjax_opt.checks.fields import Decay, NonNegative, checked


class FedAcgState(NamedTuple):
  """The server between rounds."""

  params: Params  # w_t
  momentum: Params  # m_t, 0 at first


@checked()
def fed_acg(
  loss_fn: LossFn,
  client: ClientRule,
  *,
  lam: Decay = 0.85,
  beta: NonNegative = 1e-3,
) -> Algorithm:
  r"""Local steps from where the server's momentum leads (Kim et al., 2024).

  The steps are held near that point:

  .. math::

    z_t &= w_t + \lambda m_t \\
    x_i &\approx \operatorname{argmin}_x f_i(x) + \frac{\beta}{2} \|x - z_t\|^2
      \quad \text{from } z_t \\
    m_{t+1} &= \lambda m_t + \sum_i w_i (x_i - z_t), \qquad
    w_{t+1} = \sum_i w_i x_i

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    client: the rule of the local steps; its state starts afresh each round.
    lam: decay of the server's momentum; lambda, in [0, 1).
    beta: strength of the proximal term; non-negative. With both 0 this is
      `fed_avg`.

  Returns:
    The algorithm. The server sends only :math:`z_t`, as many bytes as
    `fed_avg`; its model is :math:`w_t`. Clients keep nothing.

  Raises:
    ValueError: if a number is out of range.
    TypeError: see `fed_avg`.

  References:
    Kim et al., CVPR 2024, FedACG.
  """

  def init(params):
    return FedAcgState(params, momentum=optax.tree.zeros_like(params))

  def one_client(worker, received):
    loss = objectives.proximal(loss_fn, received, beta)
    params = worker.descend(loss, client, received)
    return optax.tree.sub(params, received)

  def round(state, cohort):
    lookahead = optax.tree.add_scale(state.params, lam, state.momentum)
    lookahead = optax.tree.cast_like(lookahead, state.params)
    reply = cohort.mean(one_client, broadcast=lookahead)
    moved = running_statistics.zeroed(reply.value)  # These have no momentum.
    momentum = optax.tree.add_scale(moved, lam, state.momentum)
    params = optax.tree.add(lookahead, reply.value)
    return FedAcgState(params, momentum), reply

  return Algorithm(
    init,
    round,
    sends=lambda params: [params],
    averages_statistics=True,
  )
