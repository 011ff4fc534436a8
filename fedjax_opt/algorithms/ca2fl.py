"""CA2FL: a cache replaces the updates of absent clients.

References:
  Wang et al., "Tackling the Data Heterogeneity in Asynchronous Federated
  Learning with Cached Update Calibration", ICLR 2024.
"""

from typing import NamedTuple

import optax

from fedjax_opt import optimizers
from fedjax_opt.algorithms.fed_avg import server_step
from fedjax_opt.arrays import trees
from fedjax_opt.base import (
  Algorithm,
  ClientOutput,
  ClientRule,
  LossFn,
  Params,
)
from fedjax_opt.checks.fields import checked


class Ca2flState(NamedTuple):
  """The server between steps; its cache has a row h_i for each client."""

  params: Params  # x_t
  mean: Params  # h_t, the mean of all h_i
  server: optax.OptState


@checked()
def ca2fl(
  loss_fn: LossFn,
  client: ClientRule,
  server: optax.GradientTransformation | None = None,
) -> Algorithm:
  r"""Buffered updates, calibrated by cached ones (Wang et al., 2024).

  The server keeps the last update :math:`h_i` of each of the M clients, zero
  at first, and their mean :math:`h_t`:

  .. math::

    v_t &= \frac{1}{A} \sum_{k \in S_t} (\Delta_k - h_k) + h_t, \qquad
    x_{t+1} = \text{server}(x_t, -v_t) \\
    h_k &\leftarrow \Delta_k, \quad k \in S_t, \qquad
    h_{t+1} = \frac{1}{M} \sum_i h_i

  An update :math:`\Delta_k` may come from an older model. A step has A updates.
  The weights 1/A and 1/M are those of `weighting='uniform'`; other weights
  enter both means. If a client comes twice in a step, both differences count,
  and the last update is kept, unless it is lost.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    client: the rule of the local steps; its state starts afresh each time.
    server: the rule of the server; `optax.sgd(1.0)` if None, whose rate is eta
      of the paper.

  Returns:
    The algorithm. The cache is M models. It is stored like the states of
    clients, although it belongs to the server: clients send only their updates.

  Raises:
    TypeError: see `fed_avg`.

  References:
    Wang et al., ICLR 2024, Algorithm 1.
  """
  server = optax.sgd(1.0) if server is None else server

  def init(params):
    return Ca2flState(
      params,
      mean=optax.tree.zeros_like(params),
      server=optimizers.init("server", server, params),
    )

  def one_client(worker, params):
    local_params = worker.descend(loss_fn, client, params)
    update = optax.tree.sub(local_params, params)
    change = optax.tree.sub(update, worker.state)
    cache_change = optax.tree.where(
      worker.is_last, change, optax.tree.zeros_like(change)
    )
    return ClientOutput(
      (change, cache_change), state=update, bytes_up=trees.num_bytes(update)
    )

  def round(state, cohort):
    reply = cohort.mean(one_client, broadcast=state.params)
    change, cache_change = reply.value
    step = optax.tree.add(change, state.mean)
    params, server_state = server_step(server, state.params, state.server, step)
    mean = optax.tree.add_scale(state.mean, reply.cohort_share, cache_change)
    return Ca2flState(params, mean, server_state), reply

  return Algorithm(
    init,
    round,
    init_client=optax.tree.zeros_like,  # h_i
    broadcast=lambda state: state.params,
    may_be_clipped=False,
  )
