"""FedLADA: AMSGrad at the clients, mixed with the mean step of all clients.

References:
  Sun et al., "Efficient Federated Learning via Local Adaptive Amended Optimizer
  with Linear Speedup", IEEE TPAMI 2023.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_opt.arrays import running_statistics
from fedjax_opt.base import Algorithm, LossFn, Params, Rate
from fedjax_opt.checks.fields import (
  Decay,
  Fraction,
  NonNegative,
  Positive,
  checked,
)
from fedjax_opt.optimizers import mean_direction, rate_at


class FedLadaState(NamedTuple):
  """The server between rounds."""

  params: Params  # x_t
  delta: Params  # g_a, the mean local step of the last round; 0 at first
  moment: Params  # v, the mean of the clients' second moments


class _Moments(NamedTuple):
  """What a client has between its steps."""

  m: Params
  # v / (1 - b2). XLA:CPU computes the larger of two trees several times
  # slower than that of one and a multiple of the other.
  total: Params
  largest: Params  # the largest v so far


@checked()
def fed_lada(
  loss_fn: LossFn,
  learning_rate: Rate = 1e-3,
  server_learning_rate: NonNegative = 1.0,
  *,
  alpha: Fraction = 0.1,
  b1: Decay = 0.9,
  b2: Decay = 0.99,
  eps: Positive = 1e-8,
  amsgrad: bool = True,
) -> Algorithm:
  r"""Adaptive local steps, mixed with the last mean step (Sun et al., 2023).

  A client takes K steps from :math:`x_t`, with m = 0 and :math:`v = \hat v =
  v_t`:

  .. math::

    m &\leftarrow \beta_1 m + (1 - \beta_1) g_i(x), \qquad
    v \leftarrow \beta_2 v + (1 - \beta_2) g_i(x)^2, \qquad
    \hat v \leftarrow \max(\hat v, v) \\
    x &\leftarrow x - \eta \Bigl( \alpha \frac{m}{\sqrt{\hat v}}
      + (1 - \alpha) \Delta_t \Bigr)

  and then

  .. math::

    \Delta_{t+1} = \frac{1}{\eta K} \sum_i w_i (x_t - x_i), \qquad
    v_{t+1} = \sum_i w_i \hat v_i, \qquad
    x_{t+1} = x_t - \eta_g \eta K \Delta_{t+1}

  :math:`v_0 = \epsilon^2`, and no bias is corrected. If clients take different
  numbers of steps, K is their weighted mean.

  A public program, by the authors of `fed_adamw`, uses v in place of
  :math:`\hat v`, starts it at 0, and adds :math:`\epsilon` to its root. Its
  gamma is :math:`1 - \alpha`.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    learning_rate: eta, or a function from the round to it; non-negative.
    server_learning_rate: eta_g; non-negative.
    alpha: weight of the client's own adaptive step; in [0, 1]. With gradients
      below eps everywhere and `b1` 0 this is `fed_cm` at the rate eta / eps.
    b1: decay of the first moment; in [0, 1).
    b2: decay of the second moment; in [0, 1).
    eps: root of the second moment's first value; positive.
    amsgrad: whether the second moment never falls (the paper); if not, eps is
      added to its root.

  Returns:
    The algorithm. The server sends the model, :math:`\Delta_t` and v, three
    times the bytes of `fed_avg`. A client sends its difference, its number of
    steps and :math:`\hat v_i`, twice the bytes. Uploads change only the
    difference. Clients keep nothing.

  Raises:
    ValueError: if `learning_rate` is an optimizer, or a number is out of range.
    TypeError: if an argument is of a wrong type.

  References:
    Sun et al., IEEE TPAMI 2023, FedLADA.
  """
  floor = eps**2 if amsgrad else 0.0

  def init(params):
    full = lambda leaf: jnp.full_like(leaf, floor)
    moment = running_statistics.zeroed(jax.tree.map(full, params))
    zeros = optax.tree.zeros_like(params)
    return FedLadaState(params, zeros, moment)

  def round(state, cohort):
    rate = rate_at(learning_rate, cohort.round)

    def one_client(worker, broadcast):
      params, delta, moment = broadcast

      def second(moments):
        if amsgrad:
          return moments.largest
        return optax.tree.scale(1 - b2, moments.total)

      def direction(moments):
        scaled = lambda m, v: alpha * m / _root(v, amsgrad, eps)
        step = jax.tree.map(scaled, moments.m, second(moments))
        return optax.tree.add_scale(step, 1 - alpha, delta)

      total = optax.tree.scale(1 / (1 - b2), moment)
      start = _Moments(optax.tree.zeros_like(params), total, moment)
      rule = _steps(rate, b1, b2, direction, start)
      end, last_moments = worker.descend_from(loss_fn, rule, params, start)
      moved = optax.tree.sub(end, params)
      return moved, worker.num_steps, second(last_moments)

    reply = cohort.mean(one_client, broadcast=tuple(state))
    moved, num_steps, moment = reply.value
    moment = cohort.average(reply, moment)
    params = running_statistics.moved(state.params, server_learning_rate, moved)
    delta = mean_direction(moved, rate, num_steps)
    return FedLadaState(params, delta, moment), reply

  return Algorithm(
    init,
    round,
    sends=lambda params: [params, None, None],
    averages_statistics=True,
  )


def _root(v, amsgrad, eps):
  if not amsgrad:
    return jnp.sqrt(v) + eps
  # Only running statistics, which make no step, have a moment of 0.
  return jnp.sqrt(jnp.where(v > 0, v, 1))


def _steps(rate, b1, b2, direction, start):
  """Steps from these moments, against a direction that depends on them."""

  def update(grads, state, params):
    del params
    m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.m, grads)
    add = lambda total, g: b2 * total + jnp.square(g)
    total = jax.tree.map(add, state.total, grads)
    larger = lambda largest, total: jnp.maximum(largest, (1 - b2) * total)
    moments = _Moments(m, total, jax.tree.map(larger, state.largest, total))
    updates = optax.tree.scale(-rate, direction(moments))
    moments = optax.tree.cast_like(moments, state)
    return optax.tree.cast_like(updates, grads), moments

  return optax.GradientTransformation(lambda params: start, update)
