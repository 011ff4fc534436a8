"""Sharpness-aware steps: gradients taken where the loss is higher.

References:
  Foret, Kleiner, Mobahi and Neyshabur, "Sharpness-Aware Minimization for
  Efficiently Improving Generalization", ICLR 2021.
"""

from typing import Any

import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from fedjax_opt.arrays import norms, running_statistics
from fedjax_opt.base import Params
from fedjax_opt.checks import rules
from fedjax_opt.checks.fields import Fraction, NonNegative, checked


@checked()
def sharpness_aware(
  rule: optax.GradientTransformation,
  rho: NonNegative = 0.05,
  mix: Fraction | None = None,
  *,
  normalized: bool = True,
) -> optax.GradientTransformationExtraArgs:
  r"""Steps of any rule along gradients at a point ahead, uphill.

  .. math::

    e = \rho \frac{g(x)}{\|g(x)\|}, \qquad u = g(x + e), \qquad
    x \leftarrow \text{rule}(x, u)

  Both gradients are those of the same batch. The norm is that of all parameters
  together, without running statistics. If it is 0, e is 0.

  With plain steps this is `optax.contrib.sam` in its opaque mode. Here the rule
  also gets the extra arguments of `update`, with u at any point as its
  `grad_fn`, and the two gradients can be mixed.

  >>> rule = fo.sharpness_aware(optax.sgd(0.1, momentum=0.9), rho=0.05)
  >>> algorithm = fo.fed_avg(loss_fn, client=rule)

  Args:
    rule: it takes u as its gradient.
    rho: the length of e; non-negative.
    mix: if given, u is (1 - mix) g(x) + mix g(x + e); in [0, 1].
    normalized: whether e has the length rho; otherwise it is rho g(x).

  Returns:
    An optax transformation. `update` needs `params` and `grad_fn`, the gradient
    of the current batch at any point.

  Raises:
    ValueError: if `rho` or `mix` is out of range.
    TypeError: if an argument is of a wrong type.

  References:
    Foret et al., ICLR 2021, eq. 2 and Algorithm 1.
  """
  rule = optax.with_extra_args_support(rule)

  def update_fn(grads: Params, state: Any, params: Params = None, **extra: Any):
    rules.check_needs("sharpness_aware", params, extra)
    grad_fn = extra["grad_fn"]

    def ahead_of(point, first, **how):
      e = perturbation(first, rho) if normalized else _multiple(first, rho)
      uphill = optax.tree.cast_like(optax.tree.add(point, e), point)
      second = grad_fn(uphill, **how)
      if mix is None:
        return second
      mixed = optax.tree.add_scale(
        optax.tree.scale(1 - mix, first), mix, second
      )
      return optax.tree.cast_like(mixed, first)

    def ahead_fn(point, step=None, **how):
      del step
      return ahead_of(point, grad_fn(point, **how), **how)

    ahead = ahead_of(params, grads)
    extra = extra | {"grad": ahead, "grad_fn": ahead_fn}
    return rule.update(ahead, state, params, **extra)

  return optax.GradientTransformationExtraArgs(rule.init, update_fn)


def perturbation(direction: Params, rho: ArrayLike) -> Params:
  """The direction at the length rho; 0 if it is 0.

  Running statistics have no part in its length, and are 0 in it.
  """
  norm = norms.norm(running_statistics.weights(direction))
  return _multiple(direction, rho / jnp.where(norm > 0, norm, 1))


def _multiple(direction, scale):
  """A multiple of the direction, 0 at running statistics."""
  return optax.tree.scale(scale, running_statistics.zeroed(direction))
