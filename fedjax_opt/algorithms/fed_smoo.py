"""FedSMOO: FedDyn whose clients also agree on the direction uphill.

References:
  Sun et al., "Dynamic Regularized Sharpness Aware Minimization in Federated
  Learning: Approaching Global Consistency and Smooth Landscape", ICML 2023.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import optax

from fedjax_opt.algorithms.fed_dyn import corrected
from fedjax_opt.arrays import norms, running_statistics
from fedjax_opt.base import Algorithm, ClientOutput, LossFn, Params, Rate
from fedjax_opt.checks.fields import NonNegative, checked
from fedjax_opt.optimizers import rate_at
from fedjax_opt.rules.sharpness import perturbation


class FedSmooState(NamedTuple):
  """The server between rounds."""

  params: Params  # w
  h: Params  # the mean of the g_i of all clients, as FedDyn's
  ahead: Params  # s, the perturbation of all; 0 at first


class Duals(NamedTuple):
  """What a client keeps."""

  g: Params  # g_i, of the model
  mu: Params  # mu_i, of the perturbation


@checked()
def fed_smoo(
  loss_fn: LossFn,
  learning_rate: Rate,
  *,
  lam: NonNegative = 0.1,
  rho: NonNegative = 0.1,
) -> Algorithm:
  r"""`fed_dyn` with a perturbation that clients agree on (Sun et al., 2023).

  A client takes K steps from w, each with two gradients on the same batch:

  .. math::

    e &= \rho \frac{\nabla f_i(x) - \mu_i - s}{\|\nabla f_i(x) - \mu_i - s\|},
      \qquad \mu_i \leftarrow \mu_i + e - s \\
    x &\leftarrow x - \eta (\nabla f_i(x + e) - g_i + \lambda (x - w))

  and then

  .. math::

    g_i &\leftarrow g_i - \lambda (x_i - w), \qquad
    s \leftarrow \rho \frac{\sum_i w_i \mu_i}{\|\sum_i w_i \mu_i\|} \\
    w &\leftarrow \frac{1}{|S|} \sum_{i \in S} x_i
      - \frac{1}{\lambda} \frac{1}{M} \sum_{i=1}^M g_i

  All :math:`g_i`, :math:`\mu_i` and s start at 0. The formula of s is that of
  the authors' program. The program keeps :math:`h_i = -g_i / \lambda`, and
  clips gradients at the norm 10.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    learning_rate: eta, or a function from the round to it; non-negative.
    lam: strength of the dynamic regularization; lambda, non-negative. At 0
      there is no correction, as in `fed_dyn`.
    rho: how far uphill a gradient is taken; the length of e and s,
      non-negative. At 0 this is `fed_dyn` with plain steps, and with both 0
      `fed_avg`, at the cost of two gradients a step.

  Returns:
    The algorithm. The server sends w and s, clients their difference and
    :math:`\mu_i`: twice the bytes of `fed_avg`. Each client keeps two models,
    :math:`g_i` and :math:`\mu_i`.

  Raises:
    ValueError: if `learning_rate` is an optimizer, or a number is out of range.
    TypeError: if an argument is of a wrong type.

  References:
    Sun et al., ICML 2023, FedSMOO.
  """

  def init(params):
    zeros = optax.tree.zeros_like(params)
    return FedSmooState(params, h=zeros, ahead=zeros)

  def round(state, cohort):
    rate = rate_at(learning_rate, cohort.round)

    def one_client(worker, broadcast):
      (received, shared), own_state = broadcast, worker.state
      # A step reads one tree less with g_i + lambda w, and with mu_i + s.
      slope = optax.tree.add_scale(own_state.g, lam, received)
      rule = _steps(rate, rho, lam, shared, slope)
      ahead = optax.tree.add(own_state.mu, shared)
      params, ahead = worker.descend_from(loss_fn, rule, received, ahead)
      mu = optax.tree.sub(ahead, shared)
      delta = optax.tree.sub(params, received)
      g = optax.tree.add_scale(
        own_state.g, -lam, running_statistics.zeroed(delta)
      )
      return ClientOutput((delta, mu), state=Duals(g, mu))

    reply = cohort.mean(one_client, broadcast=(state.params, state.ahead))
    delta, mu = reply.value
    params, h = corrected(state.params, state.h, delta, reply.cohort_share, lam)
    return FedSmooState(params, h, ahead=perturbation(mu, rho)), reply

  def init_client(params):
    zeros = optax.tree.zeros_like(params)
    return Duals(g=zeros, mu=zeros)

  return Algorithm(
    init,
    round,
    init_client=init_client,
    sends=lambda params: [params, params],
    averages_statistics=True,
    may_be_clipped=False,
  )


def _steps(rate, rho, lam, shared, slope):
  """Plain steps along the gradient at x + e plus a pull.

  Their state is mu_i + s. The pull is lambda x minus the slope.
  """

  def update(grads, ahead, params, *, grad_fn, **extra: Any):
    del extra
    pair = [running_statistics.zeroed(tree) for tree in (grads, ahead)]
    length = norms.distance(*map(running_statistics.weights, pair))
    scale = rho / jnp.where(length > 0, length, 1)
    # A difference of multiples, as XLA:CPU computes a mere difference slowly.
    uphill = optax.tree.sub(*(optax.tree.scale(scale, tree) for tree in pair))
    point = optax.tree.cast_like(optax.tree.add(params, uphill), params)
    total = optax.tree.sub(grad_fn(point), slope)
    total = optax.tree.add_scale(total, lam, params)
    new_state = optax.tree.sub(optax.tree.add(ahead, uphill), shared)
    updates = optax.tree.cast_like(optax.tree.scale(-rate, total), grads)
    return updates, optax.tree.cast_like(new_state, ahead)

  return optax.GradientTransformationExtraArgs(
    init=optax.tree.zeros_like, update=update
  )
