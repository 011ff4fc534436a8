"""Mirror descent and dual averaging with a regularizer, as optax rules.

References:
  Yuan et al., "Federated Composite Optimization", ICML 2021, section 2.

  Xiao, "Dual Averaging Methods for Regularized Stochastic Learning and Online
  Optimization", JMLR 2010.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_opt.base import Params
from fedjax_opt.checks import rules
from fedjax_opt.checks.fields import NonNegative, checked
from fedjax_opt.prox import Regularizer
from fedjax_opt.prox.mirror import MirrorMap, euclidean


@checked()
def mirror_step(
  learning_rate: NonNegative,
  psi: Regularizer,
  mirror_map: MirrorMap | None = None,
) -> optax.GradientTransformation:
  r"""Mirror descent with a regularizer; proximal gradient if Euclidean.

  .. math::

    w_{k+1} = \nabla (h + \eta \psi)^* (\nabla h(w_k) - \eta g_k)

  Args:
    learning_rate: eta; non-negative.
    psi: the regularizer or constraint, from `fedjax_opt.prox`.
    mirror_map: h; half the squared Euclidean norm if None.

  Returns:
    An optax transformation; `update` needs `params`.

  Raises:
    ValueError: if `learning_rate` is negative, or `psi` is no regularizer; by
      `update`, without `params`.
    TypeError: if `learning_rate` is no number, or `mirror_map` no mirror map.

  References:
    Yuan et al., "Federated Composite Optimization", ICML 2021, eq. 2.3 (which
    lacks the rate before the gradient).
  """
  h = euclidean() if mirror_map is None else mirror_map

  def update_fn(grads, state, params=None):
    rules.check_needs("mirror_step", params)
    dual = optax.tree.add_scale(h.grad_h(params), -learning_rate, grads)
    point = h.grad_h_plus_psi_conjugate(dual, learning_rate, psi)
    return optax.tree.sub(point, params), state

  return optax.GradientTransformation(optax.init_empty_state, update_fn)


class DualAveragingState(NamedTuple):
  """What dual averaging carries; the primal point is its image."""

  dual: Params  # z_k
  elapsed: jax.Array  # [] the sum of the rates so far: the weight of psi


@checked()
def dual_averaging(
  learning_rate: NonNegative,
  psi: Regularizer,
  mirror_map: MirrorMap | None = None,
) -> optax.GradientTransformation:
  r"""Regularized dual averaging.

  .. math::

    z_{k+1} = z_k - \eta g_k, \qquad
    w_{k+1} = \nabla (h + \eta (k+1) \psi)^* (z_{k+1})

  with :math:`z_0 = \nabla h(w_0)`. After each step the parameters are the
  primal image of the state, whatever they were before: only the gradient
  counts.

  Args:
    learning_rate: eta; non-negative.
    psi: the regularizer or constraint, from `fedjax_opt.prox`.
    mirror_map: h; half the squared Euclidean norm if None.

  Returns:
    An optax transformation; `update` needs `params`.

  Raises:
    ValueError: if `learning_rate` is negative, or `psi` is no regularizer; by
      `update`, without `params`.
    TypeError: if `learning_rate` is no number, or `mirror_map` no mirror map.

  References:
    Yuan et al., "Federated Composite Optimization", ICML 2021, section 2.2.
  """
  h = euclidean() if mirror_map is None else mirror_map

  def init_fn(params):
    return DualAveragingState(dual=h.grad_h(params), elapsed=jnp.zeros([]))

  def update_fn(grads, state, params=None):
    rules.check_needs("dual_averaging", params)
    dual = optax.tree.add_scale(state.dual, -learning_rate, grads)
    state = DualAveragingState(
      # A traced rate may have a wider dtype.
      dual=optax.tree.cast_like(dual, state.dual),
      elapsed=state.elapsed + learning_rate,
    )
    point = h.grad_h_plus_psi_conjugate(state.dual, state.elapsed, psi)
    return optax.tree.sub(point, params), state

  return optax.GradientTransformation(init_fn, update_fn)


def check_is_penalty(psi: Regularizer) -> None:
  """Raises ValueError if psi is a constraint, or a sum with one."""
  if not psi.is_finite:
    raise ValueError(
      f"psi={psi.kind}: must be finite everywhere, for subgradient steps; a "
      "constraint needs mirror_step or dual_averaging, fed_mid or fed_dual_avg"
    )


@checked()
def subgradient_step(
  learning_rate: NonNegative, psi: Regularizer
) -> optax.GradientTransformation:
  r"""A gradient step of the loss, then a subgradient step of psi.

  .. math::

    w' = w_k - \eta g_k, \qquad w_{k+1} = w' - \eta \, \partial \psi(w')

  Args:
    learning_rate: eta; non-negative.
    psi: a finite regularizer from `fedjax_opt.prox`; JAX's gradient of its
      value is the subgradient (0 where l1 has a kink).

  Returns:
    An optax transformation; `update` needs `params`.

  Raises:
    ValueError: if `learning_rate` is negative, or `psi` is no regularizer or a
      constraint, which such a step would ignore; by `update`, without
      `params`.
    TypeError: if `learning_rate` is no number.

  References:
    The program of Yuan et al., "Federated Composite Optimization", ICML 2021.
  """
  check_is_penalty(psi)

  def update_fn(grads, state, params=None):
    rules.check_needs("subgradient_step", params)
    stepped = optax.tree.add_scale(params, -learning_rate, grads)
    subgradient = jax.grad(psi.value)(stepped)
    point = optax.tree.add_scale(stepped, -learning_rate, subgradient)
    return optax.tree.sub(point, params), state

  return optax.GradientTransformation(optax.init_empty_state, update_fn)
