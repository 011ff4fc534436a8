"""pFedMe: clients train near the server's model, by Moreau envelopes.

References:
  T Dinh, Tran and Nguyen, "Personalized Federated Learning with Moreau
  Envelopes", NeurIPS 2020.
"""

from typing import Any, NamedTuple

import optax

from fedjax_opt.algorithms.fed_avg import fed_avg_of
from fedjax_opt.arrays import running_statistics
from fedjax_opt.base import Algorithm, ClientOutput, LossFn, Params, Rate
from fedjax_opt.checks.fields import Count, NonNegative, Positive, checked
from fedjax_opt.optimizers import rate_at


@checked()
def p_fed_me(
  loss_fn: LossFn,
  learning_rate: Rate,
  server: optax.GradientTransformation | None = None,
  *,
  lam: Positive = 15.0,
  inner_learning_rate: NonNegative = 0.05,
  inner_steps: Count = 5,
) -> Algorithm:
  r"""Local steps on Moreau envelopes of the losses (T Dinh et al., 2020).

  A local step finds the client's own model :math:`\theta_i`, by some gradient
  steps on its batch B from :math:`x_i`. Then :math:`x_i` moves towards it:

  .. math::

    \theta_i &\approx \arg\min_\theta F_i(\theta; B)
      + \frac{\lambda}{2} \|\theta - x_i\|^2 \\
    x_i &\leftarrow x_i - \eta \lambda (x_i - \theta_i)
      \quad \text{from } x_t, \qquad
    x_{t+1} = (1 - \beta) x_t + \beta \sum_i w_i x_i

  With one inner step this is `fed_avg` at the rate :math:`\eta \lambda` times
  that of the inner step.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    learning_rate: eta, or a function from the round to it; non-negative. With
      eta lam = 1 a step ends at :math:`\theta_i`.
    server: the rule of the server; `optax.sgd(1.0)` if None. The paper's beta
      is the rate of `optax.sgd(beta)`, here 1 as in the paper; with 0 the
      server never moves.
    lam: pull of the client's copy of the server's model on its own;
      :math:`\lambda`, positive.
    inner_learning_rate: rate of the gradient steps for theta; non-negative.
    inner_steps: gradient steps for theta in each local step; K of the paper, 1
      at least.

  Returns:
    The algorithm. Each client keeps one model, the last :math:`\theta_i`;
    before its first step it is the initial model. Messages are those of
    `fed_avg`; a local step takes `inner_steps` gradients.

  Raises:
    ValueError: if `learning_rate` is an optimizer, or a number is out of range.
    TypeError: if an argument is of a wrong type.

  References:
    T Dinh et al., NeurIPS 2020, Algorithm 1.
  """

  def one_client(worker, params):
    rate = rate_at(learning_rate, worker.round)
    rule = _envelope(rate, lam, inner_learning_rate, inner_steps)
    first = _EnvelopeState(running_statistics.zeroed(params))
    local_params, (theta,) = worker.descend_from(loss_fn, rule, params, first)
    theta = running_statistics.replaced(theta, local_params)
    theta = optax.tree.where(worker.num_steps > 0, theta, worker.state)
    return ClientOutput(optax.tree.sub(local_params, params), state=theta)

  return fed_avg_of(
    one_client,
    server,
    init_client=lambda params: params,
    client_params=lambda state, client_state: client_state,
  )


class _EnvelopeState(NamedTuple):
  theta: Params  # of the last step


def _envelope(
  rate: Any, lam: Any, inner_rate: Any, inner_steps: int
) -> optax.GradientTransformationExtraArgs:
  """Steps along lam (x - theta), the gradient of the Moreau envelope."""

  def update(grads, state, params, **extra):
    theta = params
    for k in range(inner_steps):
      if k:
        grads = extra["grad_fn"](theta)
      offset = optax.tree.sub(theta, params)
      step = optax.tree.add_scale(grads, lam, offset)
      theta = optax.tree.add_scale(theta, -inner_rate, step)
      theta = optax.tree.cast_like(theta, params)
    updates = optax.tree.scale(rate * lam, optax.tree.sub(theta, params))
    updates = optax.tree.cast_like(updates, params)
    return updates, _EnvelopeState(optax.tree.cast_like(theta, state.theta))

  return optax.GradientTransformationExtraArgs(_EnvelopeState, update)
