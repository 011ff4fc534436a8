"""Mirror maps: the distance-generating function h of a composite method.

A composite algorithm depends on h, a strongly convex function. Its state is the
dual point `z = grad h(w)`, to which gradients are added. The primal point is

  w = grad (h + step * psi)^*(z) = argmin_w -<z, w> + step * psi(w) + h(w).

References:
  Yuan et al., "Federated Composite Optimization", ICML 2021, section 2.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from fedjax_opt import prox
from fedjax_opt.base import Params
from fedjax_opt.checks import fields
from fedjax_opt.prox.regularizer import path_names


@fields.checked()
class MirrorMap(NamedTuple):
  """The two functions of h that an algorithm uses.

  Attributes:
    grad_h: `w -> z`, the dual point of a primal point.
    grad_h_plus_psi_conjugate: `(z, step, psi) -> w`, the primal point of a dual
      point; ValueError if there is no closed form for h and psi together.

  Example: h = 1/2 sum_i d_i w_i^2, which scales the coordinates, with the l1
  norm.

    >>> def scaled(d, strength):
    ...   def grad_h(w):
    ...     return jax.tree.map(jnp.multiply, d, w)
    ...   def primal(z, step, psi):
    ...     if psi.kind == "zero":
    ...       return jax.tree.map(jnp.divide, z, d)
    ...     if psi.kind != "l1":
    ...       raise ValueError(f"scaled: psi={psi.kind}: must be l1 or zero")
    ...     return jax.tree.map(jnp.divide, psi.prox(z, step), d)
    ...   return MirrorMap(grad_h, primal)
  """

  grad_h: Callable[[Params], Params]
  grad_h_plus_psi_conjugate: Callable[
    [Params, ArrayLike, prox.Regularizer], Params
  ]


fields.KINDS[MirrorMap] = fields.instance_of(
  MirrorMap, "one of fedjax_opt.mirror, such as mirror.entropy(), or None"
)


def euclidean() -> MirrorMap:
  r"""The default, :math:`h(w) = \frac{1}{2} \|w\|^2`.

  Dual and primal points are the same, and the map to the primal point is the
  proximal operator. Every regularizer is accepted.
  """
  return MirrorMap(
    grad_h=lambda w: w,
    grad_h_plus_psi_conjugate=lambda z, step, psi: psi.prox(z, step),
  )


# Regularizers that are constant on the simplex, so that they change no argmin.
_CONSTANT_ON_SIMPLEX = {"zero", "simplex", "l1", "non_negative"}


def entropy() -> MirrorMap:
  r"""The negative entropy on the probability simplex, each leaf by itself.

  .. math::

    h(w) = \sum_i w_i \log w_i \text{ if } w \ge 0, \sum_i w_i = 1,
    \text{ else } \infty; \quad
    \nabla h(w) = 1 + \log w, \quad \nabla h^*(z) = \text{softmax}(z)

  It is 1-strongly convex in the l1 norm. Steps are multiplicative: mirror
  descent with it is the exponentiated gradient.

  The accepted regularizers are constant on the simplex, so that the primal
  point is the softmax: `zero`, `simplex()`, `l1`, `non_negative`, their sums,
  and `each_leaf` of one. In a tree of several leaves the simplex must be
  `each_leaf(simplex())`, because `simplex()` constrains the sum over all
  leaves.

  Returns:
    The mirror map. `grad_h` raises ValueError if the point is not traced and
    not positive with sum 1 in each leaf (an entry of 0 would stay 0 forever);
    `grad_h_plus_psi_conjugate`, if the regularizer is not accepted.

  References:
    Beck and Teboulle, "Mirror Descent and Nonlinear Projected Subgradient
    Methods for Convex Optimization", 2003, section 5.
  """

  def grad_h(w):
    jax.tree_util.tree_map_with_path(_check_on_simplex, w)
    return jax.tree.map(lambda leaf: 1 + jnp.log(leaf), w)

  def primal(z, step, psi):
    del step
    _check_constant(psi, num_leaves=len(jax.tree.leaves(z)))
    softmax = lambda leaf: jax.nn.softmax(leaf, axis=None)
    return jax.tree.map(softmax, z)

  return MirrorMap(grad_h, primal)


def _check_on_simplex(path: tuple, leaf: jax.Array) -> None:
  """Checks a leaf that is not traced: positive entries that sum to 1."""
  if isinstance(leaf, jax.core.Tracer):
    return
  leaf = np.asarray(leaf)
  total, smallest = np.sum(leaf, dtype=float), np.min(leaf)
  if not (smallest > 0 and abs(total - 1) <= prox.TOLERANCE):
    name = "/".join(path_names(path)) or "the point"
    raise ValueError(
      f"entropy: {name} has smallest entry {smallest:g} and sum {total:g}: "
      "must be on the simplex, with positive entries that sum to 1"
    )


def _check_constant(psi: prox.Regularizer, num_leaves: int) -> None:
  """Checks that psi is constant on the simplex of each leaf."""
  for term in psi.terms or (psi,):
    kind = term.kind.removeprefix("each_leaf(").removesuffix(")")
    joint = kind == "simplex" == term.kind and num_leaves > 1
    if kind not in _CONSTANT_ON_SIMPLEX or joint:
      hint = "; in a tree of several leaves, each_leaf(simplex())" * joint
      raise ValueError(
        f"entropy: psi={term.kind}: must be constant on the simplex: zero, "
        f"simplex, l1, non_negative or each_leaf of one{hint}"
      )
  # Evaluated at once, also while a program is traced: 1 is the only point of
  # the simplex with one entry, and infinite psi there means another scale.
  with jax.ensure_compile_time_eval():
    is_outside = jnp.isinf(psi.value(jnp.ones(1)))
  if not isinstance(is_outside, jax.core.Tracer) and is_outside:
    raise ValueError(
      "entropy: psi=simplex with another scale: must be 1, the scale of the "
      "simplex of h"
    )
