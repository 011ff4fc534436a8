"""FADAS: AMSGrad at the server along buffered updates.

References:
  Wang et al., "FADAS: Towards Federated Adaptive Asynchronous Optimization",
  ICML 2024.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_opt.arrays import running_statistics
from fedjax_opt.base import Algorithm, ClientRule, LossFn, Params
from fedjax_opt.checks.fields import Decay, NonNegative, Positive, checked


class FadasState(NamedTuple):
  """The server between steps."""

  params: Params  # x_t
  m: Params  # m_t, the first moment
  v: Params  # v_t, the second moment
  largest: Params  # the largest v so far


@checked()
def fadas(
  loss_fn: LossFn,
  client: ClientRule,
  server_learning_rate: NonNegative = 0.001,
  *,
  b1: Decay = 0.9,
  b2: Decay = 0.99,
  eps: Positive = 1e-8,
  delay_threshold: NonNegative | None = 1.0,
) -> Algorithm:
  r"""AMSGrad along the mean of the buffered updates (Wang et al., 2024).

  .. math::

    \Delta_t &= \frac{1}{A} \sum_{k \in S_t} \Delta_k, \qquad
    m_t = \beta_1 m_{t-1} + (1 - \beta_1) \Delta_t \\
    v_t &= \beta_2 v_{t-1} + (1 - \beta_2) \Delta_t^2, \qquad
    \hat v_t = \max(\hat v_{t-1}, v_t) \\
    x_{t+1} &= x_t + \eta_t \frac{m_t}{\sqrt{\hat v_t} + \epsilon}

  Moments start at 0, without a correction of their bias. The delay-adaptive
  rate is :math:`\eta_t = \eta / \tau_t` if the largest staleness of the step,
  :math:`\tau_t`, is above a threshold :math:`\tau_c`, and :math:`\eta` if not.
  The A updates of a step have the weights 1/A if `weighting='uniform'`.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    client: the rule of the local steps; its state starts afresh each time.
    server_learning_rate: eta; non-negative.
    b1: decay of the first moment; in [0, 1).
    b2: decay of the second moment; in [0, 1).
    eps: added to the root of the second moment; in units of the update,
      positive.
    delay_threshold: staleness above which the rate is divided; tau_c, in server
      steps, non-negative, None for the same rate in all steps.

  Returns:
    The algorithm.

  Raises:
    ValueError: if a number is out of range.
    TypeError: see `fed_avg`.

  References:
    Wang et al., ICML 2024, Algorithms 1 and 2.
  """

  def init(params):
    zeros = optax.tree.zeros_like(params)
    return FadasState(params, zeros, zeros, zeros)

  def one_client(worker, params):
    local_params = worker.descend(loss_fn, client, params)
    return optax.tree.sub(local_params, params)

  def round(state, cohort):
    reply = cohort.mean(one_client, broadcast=state.params)
    decay = lambda b: lambda old, new: b * old + (1 - b) * new
    delta = running_statistics.zeroed(reply.value)
    m = jax.tree.map(decay(b1), state.m, delta)
    squares = jax.tree.map(jnp.square, delta)
    v = jax.tree.map(decay(b2), state.v, squares)
    largest = jax.tree.map(jnp.maximum, state.largest, v)
    rate = _rate(jnp.where(reply.counted, cohort.staleness, 0))
    step = lambda m, v: rate * m / (jnp.sqrt(v) + eps)
    moved = optax.tree.add(state.params, jax.tree.map(step, m, largest))
    # Running statistics are averaged, and make no step.
    params = running_statistics.replaced(
      moved, optax.tree.add(state.params, reply.value)
    )
    return FadasState(params, m, v, largest), reply

  def _rate(staleness):
    if delay_threshold is None:
      return server_learning_rate
    delay = jnp.max(staleness).astype(float)
    divisor = jnp.where(delay > delay_threshold, jnp.maximum(delay, 1), 1)
    return server_learning_rate / divisor

  return Algorithm(
    init,
    round,
    sends=lambda params: [params],
    broadcast=lambda state: state.params,
    averages_statistics=True,
  )
