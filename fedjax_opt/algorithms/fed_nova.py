"""FedNova: clients that take more steps do not pull harder.

References:
  Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous
  Federated Optimization", NeurIPS 2020.
"""

import jax.numpy as jnp
import optax
from jax import lax

from fedjax_opt import objectives
from fedjax_opt.algorithms.fed_avg import fed_avg_of
from fedjax_opt.arrays import running_statistics
from fedjax_opt.base import Algorithm, LossFn, Rate
from fedjax_opt.checks.fields import Decay, NonNegative, checked
from fedjax_opt.optimizers import momentum_sgd, rate_at


@checked()
def fed_nova(
  loss_fn: LossFn,
  learning_rate: Rate,
  server: optax.GradientTransformation | None = None,
  *,
  momentum: Decay | None = None,
  mu: NonNegative | None = None,
) -> Algorithm:
  r"""Differences divided by effective numbers of steps (Wang et al., 2020).

  This is normalized averaging of clients that take unequal numbers of steps:

  .. math::

    d_i = \frac{x_t - x_i}{\eta \|a_i\|_1}, \qquad
    \tau = \sum_i w_i \|a_i\|_1, \qquad
    x_{t+1} = x_t - \eta \tau \sum_i w_i d_i

  :math:`a_i` are the weights of the local gradients in :math:`(x_t - x_i) /
  \eta`, so :math:`d_i` is a mean gradient. With K plain steps :math:`\|a_i\|_1
  = K`, with momentum it is more, and with a proximal term less. With both, or
  with eta mu above 1, a step may undo earlier ones, and some weights are
  negative. Their magnitudes are added up, so :math:`\|a_i\|_1` is at least 1,
  while the sum of the weights may be 0. These weights are known only for SGD
  with momentum and a proximal term, so clients take such steps. If all clients
  take equally many steps, this is `fed_avg`. A client without a step has
  :math:`d_i = 0` and :math:`\|a_i\|_1 = 0`, and keeps its weight in both means.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    learning_rate: eta, or a function from the round to it; non-negative.
    server: takes :math:`\eta \tau \sum_i w_i d_i` as its gradient;
      `optax.sgd(1.0)` if None.
    momentum: heavy-ball momentum of the local steps; rho in [0, 1), none if
      None.
    mu: strength of the proximal term; FedProx's, in the local loss;
      non-negative, none if None.

  Returns:
    The algorithm. A client sends its difference divided by :math:`\|a_i\|_1`,
    and this number.

  Raises:
    ValueError: if `learning_rate` is an optimizer, or a number is out of range.
    TypeError: if an argument is of a wrong type.

  References:
    Wang et al., NeurIPS 2020, Algorithm 1.
  """

  def one_client(worker, params):
    rate = rate_at(learning_rate, worker.round)
    loss = loss_fn
    if mu is not None:
      loss = objectives.proximal(loss_fn, params, mu)
    rule = momentum_sgd(rate, momentum, params)
    local_params = worker.descend(loss, rule, params)
    num_effective = effective_steps(worker.num_steps, momentum, mu, rate)
    scale = 1 / jnp.where(num_effective > 0, num_effective, 1)
    delta = optax.tree.sub(local_params, params)
    return _scaled(scale, delta), num_effective  # -eta d_i

  def difference(cohort, reply):
    direction, tau = reply.value
    return _scaled(cohort.average(reply, tau), direction)

  sends = lambda params: [params, None]
  return fed_avg_of(one_client, server, difference, sends)


def _scaled(factor, delta):
  """A multiple of a difference; running statistics stay as they are."""
  return running_statistics.map_weights(
    lambda x: (factor * x).astype(x.dtype), delta
  )


def effective_steps(num_steps, momentum, mu, rate):
  """||a_i||_1 []; at least 1 if there is a step, as the last gradient has 1.

  A gradient has the same weight after n further steps, whenever it was taken:
  how far it has moved the client then, divided by eta.
  """
  if momentum is None and mu is None:
    return num_steps.astype(float)
  rho = jnp.asarray(0 if momentum is None else momentum, float)
  pull = jnp.asarray(0 if mu is None else rate * mu, float)

  def step(_, carry):
    buffer, weight, total = carry
    total = total + jnp.abs(weight)
    buffer = rho * buffer - pull * weight
    return buffer, weight + buffer, total

  initial = jnp.ones((), float), jnp.ones((), float), jnp.zeros((), float)
  return lax.fori_loop(0, num_steps, step, initial)[2]
