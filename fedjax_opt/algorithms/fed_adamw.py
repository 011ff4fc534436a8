"""FedAdamW: AdamW at the clients, with the second moment of all.

References:
  Liu et al., "FedAdamW: A Communication-Efficient Optimizer with Convergence
  and Generalization Guarantees for Federated Large Models", AAAI 2026.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_opt.base import Algorithm, LossFn, Params, Rate
from fedjax_opt.checks.fields import Decay, NonNegative, Positive, checked
from fedjax_opt.optimizers import mean_direction, rate_at


class FedAdamWState(NamedTuple):
  """The server between rounds."""

  params: Params  # x_t
  delta: Params  # Delta_t, the mean local step of the last round; 0 at first
  moment: Params  # v_t; of each array one number, with `whole_moments` all
  count: jax.Array  # [] float, the local steps since round 0


class _Moments(NamedTuple):
  """What a client has between its steps."""

  count: jax.Array  # [] int32, k
  m: Params
  v: Params


@checked()
def fed_adamw(
  loss_fn: LossFn,
  learning_rate: Rate = 1e-3,
  *,
  alpha: NonNegative = 0.5,
  b1: Decay = 0.9,
  b2: Decay = 0.999,
  eps: Positive = 1e-8,
  weight_decay: NonNegative = 0.01,
  whole_moments: bool = False,
  shared_count: bool = False,
) -> Algorithm:
  r"""Local AdamW that shares its second moment (Liu et al., 2026).

  The steps are also pulled along the last mean step of all clients. A client
  takes K steps from :math:`x_t`, with m = 0 and :math:`v = v_t`. The k-th step
  of a round is the :math:`\tau`-th since round 0:

  .. math::

    m &\leftarrow \beta_1 m + (1 - \beta_1) g_i(x), \qquad
    v \leftarrow \beta_2 v + (1 - \beta_2) g_i(x)^2 \\
    x &\leftarrow x - \eta \Bigl(
      \frac{m / (1 - \beta_1^k)}{\sqrt{v / (1 - \beta_2^\tau)} + \epsilon}
      + \alpha \Delta_t + \lambda x \Bigr)

  and then

  .. math::

    \Delta_{t+1} = \frac{1}{\eta K} \sum_i w_i (x_t - x_i), \qquad
    v_{t+1} = \sum_i w_i \text{mean}(v_i), \qquad x_{t+1} = \sum_i w_i x_i

  The mean of :math:`v_i` is over each array of the model, which is a block of
  the paper in the authors' program. If clients take different numbers of steps,
  :math:`\tau` and K use their weighted mean. The paper prints :math:`-\lambda
  x`, which would let weights grow; its program decays them.

  The authors' program has two forms. In its published form v is sent whole, in
  others as a mean. Both moments are corrected for all steps since round 0, so
  the first steps of each round are short. The program clips gradients at the
  norm 10.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    learning_rate: eta, or a function from the round to it; non-negative. The
      paper's is 3e-4, with a cosine over the rounds.
    alpha: pull along the last mean step of all clients; non-negative. The
      program's name for it is gamma. With 0, and `b2` 0, this is `fed_avg` with
      `optax.adamw`.
    b1: decay of the first moment; in [0, 1).
    b2: decay of the second moment; in [0, 1).
    eps: added to the root of the second moment; positive.
    weight_decay: strength of the decoupled weight decay; lambda, non-negative.
    whole_moments: whether to send and average the second moment entry by entry,
      not by the mean of each array; twice the bytes up, three models down.
    shared_count: whether to correct the first moment, too, for the steps since
      round 0 (the authors' program).

  Returns:
    The algorithm. The server sends the model, :math:`\Delta_t`, the second
    moment and the count, twice the bytes of `fed_avg`. A client sends its
    difference, its number of steps and, for each array, one number of its
    second moment. Uploads change only the difference. Clients keep nothing.

  Raises:
    ValueError: if `learning_rate` is an optimizer, or a number is out of range.
    TypeError: if an argument is of a wrong type.

  References:
    Liu et al., AAAI 2026, Algorithm 2.
  """

  def shared(v):
    return v if whole_moments else jax.tree.map(jnp.mean, v)

  def init(params):
    zeros = optax.tree.zeros_like(params)
    return FedAdamWState(params, zeros, shared(zeros), count=jnp.zeros(()))

  def round(state, cohort):
    rate = rate_at(learning_rate, cohort.round)

    def one_client(worker, broadcast):
      params, delta, moment, count = broadcast
      zeros = optax.tree.zeros_like(params)
      start = _Moments(
        jnp.int32(0), m=zeros, v=jax.tree.map(_filled, zeros, moment)
      )

      def corrected(k, m, v):
        total = count + k
        first_total = total if shared_count else k.astype(total.dtype)
        m = optax.tree.scale(1 / (1 - b1**first_total), m)
        v = optax.tree.scale(1 / (1 - b2**total), v)
        return jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + eps), m, v)

      def direction(moments, params):
        step = corrected(*moments)
        step = optax.tree.add_scale(step, alpha, delta)
        return optax.tree.add_scale(step, weight_decay, params)

      rule = _steps(rate, b1, b2, direction, start)
      end, last = worker.descend_from(loss_fn, rule, params, start)
      return optax.tree.sub(end, params), worker.num_steps, shared(last.v)

    reply = cohort.mean(one_client, broadcast=tuple(state))
    moved, num_steps, moment = reply.value
    params = optax.tree.add(state.params, moved)
    delta = mean_direction(moved, rate, num_steps)
    moment, num_steps = cohort.average(reply, (moment, num_steps))
    count = state.count + num_steps
    return FedAdamWState(params, delta, moment, count), reply

  return Algorithm(
    init,
    round,
    sends=lambda params: [params, None, None],
    averages_statistics=True,
  )


def _filled(zeros, moment):
  return jnp.broadcast_to(moment, zeros.shape).astype(zeros.dtype)


def _steps(rate, b1, b2, direction, start):
  """Steps from these moments, against a direction that depends on them."""

  def update(grads, state, params):
    mixed = lambda b: lambda old, new: b * old + (1 - b) * new
    m = jax.tree.map(mixed(b1), state.m, grads)
    v = jax.tree.map(mixed(b2), state.v, jax.tree.map(jnp.square, grads))
    moments = _Moments(state.count + 1, m, v)
    updates = optax.tree.scale(-rate, direction(moments, params))
    moments = optax.tree.cast_like(moments, state)
    return optax.tree.cast_like(updates, grads), moments

  return optax.GradientTransformation(lambda params: start, update)
