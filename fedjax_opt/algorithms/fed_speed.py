"""FedSpeed: prox-corrected local steps along gradients taken uphill.

References:
  Sun et al., "FedSpeed", ICLR 2023.
"""

from typing import NamedTuple

import jax.numpy as jnp
import optax

from fedjax_opt.arrays import running_statistics
from fedjax_opt.base import Algorithm, ClientOutput, LossFn, Params, Rate
from fedjax_opt.checks.fields import Fraction, NonNegative, Positive, checked
from fedjax_opt.optimizers import rate_at
from fedjax_opt.rules.sharpness import sharpness_aware


class FedSpeedState(NamedTuple):
  """The server between rounds; each client keeps its dual d_i."""

  params: Params  # x_t
  dual: Params | None  # the mean of all d_i, with `all_duals`


@checked()
def fed_speed(
  loss_fn: LossFn,
  learning_rate: Rate,
  *,
  lam: Positive = 10.0,
  alpha: Fraction = 1.0,
  rho: NonNegative = 0.1,
  normalized: bool = True,
  all_duals: bool = False,
) -> Algorithm:
  r"""Prox-corrected steps, gradients at a point uphill (Sun et al., 2023).

  The steps are held near the server's model, and corrected by a dual variable:

  .. math::

    g &= (1 - \alpha) g_i(x) + \alpha g_i\left(x + \rho \frac{g_i(x)}
      {\|g_i(x)\|}\right) \\
    x &\leftarrow x - \eta \left(g - d_i + \frac{1}{\lambda} (x - x_t)\right) \\
    d_i &\leftarrow d_i - \frac{1}{\lambda} (x - x_t), \qquad
    x_{t+1} = \sum_i w_i (x - \lambda d_i)

  The K steps begin at x_t, and :math:`d_i` at 0. Both gradients are of one
  batch. The paper perturbs by :math:`\rho g_i(x)`, the authors' program as
  above. The program also subtracts the mean of all clients' :math:`\lambda
  d_i`. With this mean and rho 0 the algorithm is `fed_dyn`, and reaches the
  optimum of quadratics also with partial cohorts.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    learning_rate: eta, or a function from the round to it; non-negative.
    lam: inverse strength of the proximal term; lambda, positive.
    alpha: weight of the gradient uphill; in [0, 1].
    rho: how far uphill a gradient is taken; non-negative.
    normalized: whether rho is a length (the authors' program), not a multiple
      of the gradient (the paper).
    all_duals: whether the mean of all clients' dual variables is subtracted
      (the authors' program), not that of the cohort.

  Returns:
    The algorithm.

  Raises:
    ValueError: if a number is out of range, or `learning_rate` an optimizer.
    TypeError: if an argument is of a wrong type.

  References:
    Sun et al., ICLR 2023, Algorithm 1.
  """

  def init(params):
    zeros = optax.tree.zeros_like(params) if all_duals else None
    return FedSpeedState(params, dual=zeros)

  def round(state, cohort):
    rate = rate_at(learning_rate, cohort.round)
    strength = 1 / jnp.asarray(lam, float)

    def one_client(worker, received):
      shift = optax.tree.add_scale(worker.state, strength, received)

      def correct(grads, params):
        pull = optax.tree.sub(optax.tree.scale(strength, params), shift)
        return optax.tree.cast_like(optax.tree.add(grads, pull), grads)

      rule = optax.chain(optax.stateless(correct), optax.sgd(rate))
      rule = sharpness_aware(rule, rho, alpha, normalized=normalized)
      params = worker.descend(loss_fn, rule, received)
      moved = optax.tree.sub(params, received)
      dual = optax.tree.add_scale(
        worker.state, -strength, running_statistics.zeroed(moved)
      )
      message = moved if all_duals else optax.tree.add_scale(moved, -lam, dual)
      return ClientOutput(optax.tree.cast_like(message, moved), state=dual)

    reply = cohort.mean(one_client, broadcast=state.params)
    params, dual = optax.tree.add(state.params, reply.value), None
    if all_duals:
      moved = running_statistics.zeroed(reply.value)
      dual = optax.tree.add_scale(state.dual, -reply.cohort_share / lam, moved)
      params = optax.tree.add_scale(params, -lam, dual)
    return FedSpeedState(params, dual), reply

  return Algorithm(
    init,
    round,
    init_client=optax.tree.zeros_like,  # d_i
    sends=lambda params: [params],
    averages_statistics=True,
    may_be_clipped=not all_duals,
  )
