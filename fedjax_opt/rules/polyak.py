"""Stochastic Polyak step sizes (SPS).

References:
  Loizou et al., "Stochastic Polyak Step-size for SGD: An Adaptive Learning
  Rate for Fast Convergence", AISTATS 2021.
"""

import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from fedjax_opt.checks.fields import Positive, checked


@checked(max_step="(0, inf]")
def sps(
  c: Positive = 0.5,
  f_min: ArrayLike = 0.0,
  max_step: ArrayLike = jnp.inf,
) -> optax.GradientTransformationExtraArgs:
  r"""Stochastic Polyak step sizes (Loizou et al., 2021).

  .. math::

    \eta_k = \min\Bigl\{
      \frac{f(x_k) - f_{\min}}{c \, \|g(x_k)\|^2 + 10^{-8}}, \;
      \eta_{\max} \Bigr\}

  The loss and the gradient are those of the current batch. With no cap this
  is the `constant` mode of the authors' program, which the Δ-SGD paper
  compares with.

  Args:
    c: divides the step size; positive.
    f_min: a lower bound of the batch loss, in units of the loss. A loss below
      it gives no step.
    max_step: the largest step size; positive, infinity for none.

  Returns:
    An optax transformation whose `update` needs the keyword argument `value`:
    the loss of the current batch.

  Raises:
    ValueError: if a number is out of range.
    TypeError: if it is no number.

  References:
    Loizou et al., "Stochastic Polyak Step-size for SGD", AISTATS 2021, eq. 2.
  """
  # optax's step is min(gap / (||g||^2 + eps), cap): to divide it by c, scale it
  # by 1 / c and give eps and cap beforehand what undoes that.
  rule = optax.chain(
    optax.scale_by_polyak(
      f_min=f_min, max_learning_rate=c * max_step, eps=1e-8 / c
    ),
    optax.scale_by_learning_rate(1.0 / c),
  )

  def update_fn(updates, state, params=None, *, value, **extra_args):
    # Below the bound the gap would be negative, and the step upwards.
    value = jnp.maximum(value, f_min)
    return rule.update(updates, state, params, value=value, **extra_args)

  return optax.GradientTransformationExtraArgs(rule.init, update_fn)
