"""FedCM: clients step along the momentum of all clients.

References:
  Xu, Wang, Wang and Yao, "FedCM: Federated Learning with Client-level
  Momentum", 2021.
"""

from collections.abc import Callable
from typing import NamedTuple

import optax
from jax.typing import ArrayLike

from fedjax_opt.arrays import running_statistics
from fedjax_opt.base import Algorithm, LossFn, Params, Rate
from fedjax_opt.checks.fields import Fraction, NonNegative, checked
from fedjax_opt.optimizers import mean_direction, rate_at


class FedCmState(NamedTuple):
  """The server between rounds."""

  params: Params  # x_t
  delta: Params  # Delta_t, the mean local step of the last round; 0 at first


@checked()
def fed_cm(
  loss_fn: LossFn,
  learning_rate: Rate,
  server_learning_rate: NonNegative = 1.0,
  *,
  alpha: Fraction = 0.1,
) -> Algorithm:
  r"""Local steps mixed with all clients' last mean step (Xu et al., 2021).

  The mean step is mixed with the client's own gradient:

  .. math::

    x_i &\leftarrow x_i - \eta (\alpha g_i(x_i) + (1 - \alpha) \Delta_t)
      \quad \text{K times, from } x_t \\
    \Delta_{t+1} &= \frac{1}{\eta K} \sum_i w_i (x_t - x_i), \qquad
    x_{t+1} = x_t - \eta_g \eta K \Delta_{t+1}

  :math:`\Delta_t` is divided by the rate of the round that made it. If clients
  take different numbers of steps, K is their weighted mean.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    learning_rate: eta, or a function from the round to it; non-negative.
    server_learning_rate: eta_g; non-negative.
    alpha: weight of the client's own gradient; in [0, 1], at 1 this is
      `fed_avg`.

  Returns:
    The algorithm. The server sends the model and :math:`\Delta_t`, twice the
    bytes of `fed_avg`; a client sends its difference and its number of steps.

  Raises:
    ValueError: if `learning_rate` is an optimizer, or a number is out of range.
    TypeError: if an argument is of a wrong type.

  References:
    Xu et al., 2021, Algorithm 2.
  """
  return wrapped_fed_cm(loss_fn, learning_rate, server_learning_rate, alpha)


def wrapped_fed_cm(
  loss_fn: LossFn,
  learning_rate: Rate,
  server_learning_rate: ArrayLike,
  weight: ArrayLike,
  wrap: Callable[
    [optax.GradientTransformation], optax.GradientTransformation
  ] = lambda rule: rule,
) -> Algorithm:
  """FedCM, with `wrap` around the clients' rule."""

  def init(params):
    return FedCmState(params, delta=optax.tree.zeros_like(params))

  def round(state, cohort):
    rate = rate_at(learning_rate, cohort.round)

    def one_client(worker, broadcast):
      params, shared = broadcast
      rule = wrap(optax.chain(_mixed(weight, shared), optax.sgd(rate)))
      local_params = worker.descend(loss_fn, rule, params)
      return optax.tree.sub(local_params, params), worker.num_steps

    reply = cohort.mean(one_client, broadcast=(state.params, state.delta))
    moved, num_steps = reply.value
    params = running_statistics.moved(state.params, server_learning_rate, moved)
    return FedCmState(params, mean_direction(moved, rate, num_steps)), reply

  return Algorithm(
    init,
    round,
    sends=lambda params: [params, None],
    averages_statistics=True,
  )


def _mixed(weight, shared):
  def mix(grads, params):
    del params
    weighted = optax.tree.scale(weight, grads)
    mixed = optax.tree.add_scale(weighted, 1 - weight, shared)
    return optax.tree.cast_like(mixed, grads)

  return optax.stateless(mix)
