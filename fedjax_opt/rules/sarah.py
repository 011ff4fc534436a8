"""SARAH: a gradient estimate that is carried along and corrected.

References:
  Nguyen, Liu, Scheinberg and Takac, "SARAH: A Novel Method for Machine Learning
  Problems Using Stochastic Recursive Gradient", ICML 2017.

  Murata and Suzuki, "Bias-Variance Reduced Local SGD for Less Heterogeneous
  Federated Learning", ICML 2021.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_opt.base import Params
from fedjax_opt.checks import rules
from fedjax_opt.checks.fields import NonNegative, checked


class SarahState(NamedTuple):
  """State of `sarah`."""

  previous: Params  # x_{k-2}
  direction: Params  # v_{k-1}
  count: jax.Array  # [] int32, steps taken


@checked()
def sarah(
  learning_rate: NonNegative, direction: Params | None = None
) -> optax.GradientTransformationExtraArgs:
  r"""Descent along a recursive estimate of the gradient.

  .. math::

    v_k = g_k(x_{k-1}) - g_k(x_{k-2}) + v_{k-1}, \qquad
    x_k = x_{k-1} - \eta v_k

  Both gradients are those of the current batch, so the noise of the batch
  cancels as the steps get small. At the first step both points are the same.

  >>> rule = sarah(0.1)
  >>> state = rule.init(params)
  >>> grads = grad_fn(params)
  >>> updates, state = rule.update(grads, state, params, grad_fn=grad_fn)

  Args:
    learning_rate: eta; non-negative.
    direction: v_0, an estimate of the gradient at the start; if None, v_1 is
      the gradient of the first batch.

  Returns:
    An optax transformation. `update` needs `params` and `grad_fn`, the gradient
    of the current batch at any point.

  Raises:
    ValueError: if `learning_rate` is negative; by `update`, without these.
    TypeError: if `learning_rate` is no number.

  References:
    Murata and Suzuki, 2021, Algorithm 3; Nguyen et al., 2017, Algorithm 1 if
    `direction` is None and the first batch is all data.
  """

  def init_fn(params):
    start = direction
    if direction is None:
      start = optax.tree.zeros_like(params)
    return SarahState(params, start, count=jnp.zeros([], jnp.int32))

  def update_fn(
    grads: Params, state: SarahState, params: Params = None, **extra: Any
  ):
    rules.check_needs("sarah", params, extra)
    difference = optax.tree.sub(grads, extra["grad_fn"](state.previous))
    new_direction = optax.tree.add(state.direction, difference)
    if direction is None:
      new_direction = optax.tree.where(state.count == 0, grads, new_direction)
    new_direction = optax.tree.cast_like(new_direction, state.direction)
    updates = optax.tree.scale(-learning_rate, new_direction)
    return updates, SarahState(params, new_direction, state.count + 1)

  return optax.GradientTransformationExtraArgs(init_fn, update_fn)
