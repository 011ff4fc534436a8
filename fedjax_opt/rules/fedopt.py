"""FedOpt's adaptive rules, as its Algorithm 2 has them.

Unlike optax's rules of these names, none corrects the bias of its moments; the
first starts at 0 and the second at tau^2.

References:
  Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Algorithm 2.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from fedjax_opt.base import Params
from fedjax_opt.checks.fields import Decay, NonNegative, Positive, checked

# (v_{t-1}, Delta_t^2) -> v_t, of one leaf.
_SecondMoment = Callable[[jax.Array, jax.Array], jax.Array]


class FedOptState(NamedTuple):
  """State of the rules of this file."""

  m: Params  # m_t, the first moment
  v: Params  # v_t, the second moment


@checked()
def fedopt_adam(
  learning_rate: NonNegative = 0.01,
  b1: Decay = 0.9,
  b2: Decay = 0.99,
  eps: Positive = 1e-3,
) -> optax.GradientTransformation:
  r"""FedAdam's own step, no bias correction (Reddi et al., 2021).

  .. math::

    m_t &= \beta_1 m_{t-1} + (1 - \beta_1) \Delta_t, \quad
    v_t = \beta_2 v_{t-1} + (1 - \beta_2) \Delta_t^2 \\
    x_{t+1} &= x_t + \eta \, m_t / (\sqrt{v_t} + \tau)

  with :math:`m_{-1} = 0` and :math:`v_{-1} = \tau^2`. The rule takes
  :math:`-\Delta_t`, the pseudo-gradient, for a gradient.

  Args:
    learning_rate: step size; eta, non-negative.
    b1: decay of the first moment; in [0, 1).
    b2: decay of the second moment; in [0, 1).
    eps: added to a denominator; tau of FedOpt, the degree of adaptivity, in
      units of the gradient, positive.

  Returns:
    An optax transformation.

  Raises:
    ValueError: if an argument is out of range.
    TypeError: if it is no number.

  References:
    Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Algorithm 2,
    FedAdam; b1, b2 and tau as in its section 5.
  """
  return _fedopt(
    learning_rate, b1, eps, lambda v, square: b2 * v + (1 - b2) * square
  )


@checked()
def fedopt_yogi(
  learning_rate: NonNegative = 0.01,
  b1: Decay = 0.9,
  b2: Decay = 0.99,
  eps: Positive = 1e-3,
) -> optax.GradientTransformation:
  r"""FedYogi's own step, no bias correction (Reddi et al., 2021).

  As `fedopt_adam`, but for

  .. math::

    v_t = v_{t-1} - (1 - \beta_2) \, \Delta_t^2 \,
      \text{sign}(v_{t-1} - \Delta_t^2)

  Args:
    learning_rate: step size; eta, non-negative.
    b1: decay of the first moment; in [0, 1).
    b2: decay of the second moment; in [0, 1), 1 - b2 is how fast it moves.
    eps: added to a denominator; tau of FedOpt, the degree of adaptivity, in
      units of the gradient, positive.

  Returns:
    An optax transformation.

  Raises:
    ValueError: if an argument is out of range.
    TypeError: if it is no number.

  References:
    Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Algorithm 2,
    FedYogi; b1, b2 and tau as in its section 5.
  """
  return _fedopt(
    learning_rate,
    b1,
    eps,
    lambda v, square: v - (1 - b2) * square * jnp.sign(v - square),
  )


@checked()
def fedopt_adagrad(
  learning_rate: NonNegative = 0.01,
  b1: Decay = 0.0,
  eps: Positive = 1e-3,
) -> optax.GradientTransformation:
  r"""FedAdagrad's own step (Reddi et al., 2021).

  As `fedopt_adam`, but for :math:`v_t = v_{t-1} + \Delta_t^2`.

  Args:
    learning_rate: step size; eta, non-negative.
    b1: decay of the first moment; in [0, 1), 0 is usual for Adagrad.
    eps: added to a denominator; tau of FedOpt, the degree of adaptivity, in
      units of the gradient, positive.

  Returns:
    An optax transformation.

  Raises:
    ValueError: if an argument is out of range.
    TypeError: if it is no number.

  References:
    Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Algorithm 2,
    FedAdagrad; b1 and tau as in its section 5.
  """
  return _fedopt(learning_rate, b1, eps, lambda v, square: v + square)


def _fedopt(
  learning_rate: ArrayLike,
  b1: ArrayLike,
  eps: ArrayLike,
  second_moment: _SecondMoment,
) -> optax.GradientTransformation:
  """Algorithm 2 with its line for v_t left open; Delta_t = -gradient."""

  def init_fn(params: Params) -> FedOptState:
    square = lambda leaf: jnp.full_like(leaf, jnp.square(eps))
    return FedOptState(
      m=optax.tree.zeros_like(params), v=jax.tree.map(square, params)
    )

  def update_fn(grads, state, params=None):
    del params
    moments = lambda m, grad: b1 * m - (1 - b1) * grad
    m = jax.tree.map(moments, state.m, grads)
    v = jax.tree.map(
      lambda v, grad: second_moment(v, jnp.square(grad)), state.v, grads
    )
    m, v = (
      optax.tree.cast_like(new, old)
      for new, old in zip((m, v), state, strict=True)
    )
    step = lambda m, v: learning_rate * m / (jnp.sqrt(v) + eps)
    updates = optax.tree.cast_like(jax.tree.map(step, m, v), grads)
    return updates, FedOptState(m, v)

  return optax.GradientTransformation(init_fn, update_fn)
