"""FedDyn: each client's objective is bent until all have the same minimum.

References:
  Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from fedjax_opt import objectives
from fedjax_opt.arrays import running_statistics
from fedjax_opt.base import Algorithm, ClientOutput, ClientRule, LossFn, Params
from fedjax_opt.checks.fields import NonNegative, checked


class FedDynState(NamedTuple):
  """The server between rounds; each client keeps its g_i."""

  params: Params  # x_t
  h: Params  # the mean of the g_i of all clients


@checked()
def fed_dyn(
  loss_fn: LossFn,
  client: ClientRule,
  *,
  alpha: NonNegative = 0.01,
) -> Algorithm:
  r"""Local steps on a dynamically regularized loss (Acar et al., 2021).

  .. math::

    x_i &\approx \operatorname{argmin}_x f_i(x) - \langle g_i, x \rangle
      + \frac{\alpha}{2} \|x - x_t\|^2 \\
    g_i &\leftarrow g_i - \alpha (x_i - x_t) \\
    h &\leftarrow h - \alpha \frac{1}{M} \sum_{i \in S} (x_i - x_t), \qquad
    x_{t+1} = \frac{1}{|S|} \sum_{i \in S} x_i - \frac{1}{\alpha} h

  All :math:`g_i` start at 0. M is the number of all clients, not of the cohort,
  so h is the mean of all :math:`g_i` at any time.

  The paper's means are plain: `weighting='uniform'`. With 'examples' both are
  weighted, and h is the weighted mean of all :math:`g_i`. The authors' program
  clips gradients at the norm 10: `optax.chain(optax.clip_by_global_norm(10),
  optax.sgd(0.1))`.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    client: the rule of the local steps; its state starts afresh each round.
    alpha: strength of the dynamic regularization; non-negative. At 0 there is
      no correction and this is `fed_avg`. This is not the limit of small alpha:
      for any alpha above 0, h / alpha is a mean of past differences.

  Returns:
    The algorithm.

  Raises:
    ValueError: if `alpha` is negative.
    TypeError: see `fed_avg`.

  References:
    Acar et al., ICLR 2021, Algorithm 1.
  """

  def init(params):
    return FedDynState(params, h=optax.tree.zeros_like(params))

  def round(state, cohort):
    def one_client(worker, received):
      loss = objectives.l2(loss_fn, alpha)
      loss = objectives.RegularizedLoss(
        loss, _tilt(worker.state, received, alpha)
      )
      params = worker.descend(loss, client, received)
      delta = optax.tree.sub(params, received)
      # Running statistics have no gradient to be corrected.
      moved = running_statistics.zeroed(delta)
      new_g = optax.tree.add_scale(worker.state, -alpha, moved)
      return ClientOutput(delta, state=new_g)

    reply = cohort.mean(one_client, broadcast=state.params)
    params, h = corrected(
      state.params, state.h, reply.value, reply.cohort_share, alpha
    )
    return FedDynState(params, h), reply

  return Algorithm(
    init,
    round,
    init_client=optax.tree.zeros_like,  # g_i
    sends=lambda params: [params],
    averages_statistics=True,
    may_be_clipped=False,
  )


def corrected(
  params: Params,
  h: Params,
  delta: Params,
  share: jax.Array,
  alpha: ArrayLike,
) -> tuple[Params, Params]:
  """The server's next x and h, given the cohort's mean of x_i - x_t.

  The share of the cohort makes a mean over all clients of its mean.
  """
  h = optax.tree.add_scale(h, -alpha * share, running_statistics.zeroed(delta))
  params = optax.tree.add(params, delta)
  inverse = 1 / jnp.where(alpha > 0, alpha, 1)
  return optax.tree.add_scale(params, -inverse, h), h


def _tilt(g, received, alpha):
  """What l2 lacks of the box: -<g + alpha x_t, x> + alpha/2 ||x_t||^2.

  So a step reads one tree besides x and its gradient, not two. By elements, as
  products of matrices may be less precise.
  """
  center = running_statistics.zeroed(received)
  constant = alpha / 2 * optax.tree.norm(center, squared=True)
  slope = optax.tree.add_scale(g, alpha, center)
  return lambda x: constant - optax.tree.sum(optax.tree.mul(slope, x))
