"""FedSAM and MoFedSAM: sharpness-aware local steps.

References:
  Qu et al., "Generalized Federated Learning via Sharpness Aware Minimization",
  ICML 2022.

  Caldarola, Caputo and Ciccone, "Improving Generalization in Federated Learning
  by Seeking Flat Minima", ECCV 2022.
"""

import functools

import optax

from fedjax_opt import optimizers
from fedjax_opt.algorithms.fed_avg import fed_avg
from fedjax_opt.algorithms.fed_cm import wrapped_fed_cm
from fedjax_opt.base import Algorithm, ClientRule, LossFn, Rate
from fedjax_opt.checks.fields import Fraction, NonNegative, checked
from fedjax_opt.rules.sharpness import sharpness_aware


@checked()
def fed_sam(
  loss_fn: LossFn,
  client: ClientRule,
  server: optax.GradientTransformation | None = None,
  *,
  rho: NonNegative = 0.05,
) -> Algorithm:
  r"""FedAvg along gradients at a point moved uphill (Qu et al., 2022).

  Both gradients of a step are of the same batch:

  .. math::

    e = \rho \frac{g_i(x)}{\|g_i(x)\|}, \qquad
    x \leftarrow x - \eta g_i(x + e)

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    client: the rule of the local steps, which takes :math:`g_i(x + e)` as its
      gradient; the paper's is `optax.sgd`.
    server: the rule of the server; `optax.sgd(1.0)` if None.
    rho: how far uphill a gradient is taken; the length of e, non-negative. At 0
      this is `fed_avg`, at the cost of two gradients a step.

  Returns:
    The algorithm. It is `fed_avg` with the client rule `sharpness_aware`.

  Raises:
    ValueError: if `rho` is negative.
    TypeError: see `fed_avg`.

  References:
    Qu et al., ICML 2022, FedSAM; Caldarola et al., ECCV 2022.
  """

  def of_round(round):
    return sharpness_aware(optimizers.rule_at(client, round), rho)

  return fed_avg(loss_fn, of_round, server)


@checked()
def mo_fed_sam(
  loss_fn: LossFn,
  learning_rate: Rate,
  server_learning_rate: NonNegative = 1.0,
  *,
  rho: NonNegative = 0.05,
  beta: Fraction = 0.1,
) -> Algorithm:
  r"""`fed_cm` along gradients at a point moved uphill (Qu et al., 2022).

  Both gradients of a step are of the same batch:

  .. math::

    x_i \leftarrow x_i - \eta (\beta g_i(x_i + e) + (1 - \beta) \Delta_t)

  with e as in `fed_sam`, :math:`\Delta_t` and the server as in `fed_cm`.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    learning_rate: eta, or a function from the round to it; non-negative.
    server_learning_rate: eta_g; non-negative.
    rho: how far uphill a gradient is taken; the length of e, non-negative. At 0
      this is `fed_cm`.
    beta: weight of the client's own gradient; in [0, 1], at 1 this is
      `fed_sam`.

  Returns:
    The algorithm. Messages are those of `fed_cm`.

  Raises:
    ValueError: if `learning_rate` is an optimizer, or a number is out of range.
    TypeError: if an argument is of a wrong type.

  References:
    Qu et al., ICML 2022, MoFedSAM.
  """
  return wrapped_fed_cm(
    loss_fn,
    learning_rate,
    server_learning_rate,
    beta,
    wrap=functools.partial(sharpness_aware, rho=rho),
  )
