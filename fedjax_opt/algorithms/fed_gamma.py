"""FedGamma: SCAFFOLD along gradients taken uphill.

References:
  Dai, Yang, Sun, Zhu and Tao, "FedGAMMA: Federated Learning with Global
  Sharpness-Aware Minimization", IEEE TNNLS, 2023.
"""

import functools

from fedjax_opt.algorithms.scaffold import wrapped_scaffold
from fedjax_opt.base import Algorithm, LossFn, Rate
from fedjax_opt.checks.fields import NonNegative, checked
from fedjax_opt.rules.sharpness import sharpness_aware


@checked()
def fed_gamma(
  loss_fn: LossFn,
  learning_rate: Rate,
  server_learning_rate: NonNegative = 1.0,
  *,
  rho: NonNegative = 0.01,
) -> Algorithm:
  r"""`scaffold` along gradients at a point moved uphill (Dai et al., 2023).

  Both gradients of a step are of the same batch. The perturbation e uses the
  uncorrected gradient:

  .. math::

    y &\leftarrow y - \eta_l (g_i(y + e) - c_i + c) \quad
      \text{K times, from } x, \qquad e = \rho \frac{g_i(y)}{\|g_i(y)\|} \\
    c_i^+ &= c_i - c + \frac{x - y}{K \eta_l}

  The server is that of `scaffold`: c stays the mean of all :math:`c_i`.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    learning_rate: eta_l, or a function from the round to it; non-negative.
    server_learning_rate: eta_g; non-negative.
    rho: how far uphill a gradient is taken; the length of e, non-negative. At 0
      this is `scaffold` with option II, at the cost of two gradients a step.

  Returns:
    The algorithm. Messages and states are those of `scaffold`.

  Raises:
    ValueError: if `learning_rate` is an optimizer, or a number is out of range.
    TypeError: if an argument is of a wrong type.

  References:
    Dai et al., IEEE TNNLS 2023, FedGAMMA.
  """
  return wrapped_scaffold(
    loss_fn,
    learning_rate,
    server_learning_rate,
    wrap=functools.partial(sharpness_aware, rho=rho),
  )
