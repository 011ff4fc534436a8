"""Momentum fusion: a step along a momentum that is kept elsewhere.

References:
  Xu and Huang, "Coordinating Momenta for Cross-silo Federated Learning"
  (DOMO), AAAI 2022.
"""

import optax
from jax.typing import ArrayLike

from fedjax_opt.base import Params
from fedjax_opt.checks.fields import checked


@checked()
def momentum_fusion(
  momentum: Params, rate: ArrayLike
) -> optax.GradientTransformation:
  r"""Subtracts a multiple of a given momentum from every update.

  .. math::

    u \leftarrow u - \text{rate} \cdot m

  Behind another rule it moves each local step along the server's momentum too
  (the paper's intra-momentum, DOMO-S):

  >>> rule = optax.chain(
  ...   optax.sgd(eta, momentum=mu_l), momentum_fusion(m, eta * beta)
  ... )

  (Pre-momentum, DOMO, needs no rule: K local steps start from
  :math:`x - \eta \beta K m` instead of x.)

  Args:
    momentum: m, of the structure of the parameters.
    rate: the factor of m.

  Returns:
    An optax transformation, without a state.

  Raises:
    ValueError: if `rate` is not finite.
    TypeError: if it is no number.

  References:
    Xu and Huang, AAAI 2022, Algorithm 1, line 10.
  """

  def fuse(updates: Params, params: Params | None) -> Params:
    del params
    fused = optax.tree.add_scale(updates, -rate, momentum)
    return optax.tree.cast_like(fused, updates)

  return optax.stateless(fuse)
