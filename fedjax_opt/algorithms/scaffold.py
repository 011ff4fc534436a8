"""SCAFFOLD: local steps corrected by control variates.

References:
  Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated
  Learning", ICML 2020.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax
from jax.typing import ArrayLike

from fedjax_opt.arrays import running_statistics
from fedjax_opt.base import Algorithm, ClientOutput, LossFn, Params, Rate
from fedjax_opt.checks.fields import NonNegative, checked
from fedjax_opt.optimizers import mean_direction, rate_at


class ScaffoldState(NamedTuple):
  """The server between rounds; each client keeps its control variate c_i."""

  params: Params  # x
  control: Params  # c, the mean of the clients' c_i


@checked()
def scaffold(
  loss_fn: LossFn,
  learning_rate: Rate,
  server_learning_rate: NonNegative = 1.0,
  *,
  exact_control: bool = False,
) -> Algorithm:
  r"""Local steps with control variates (Karimireddy et al., 2020).

  .. math::

    y &\leftarrow y - \eta_l (g_i(y) - c_i + c) \quad \text{K times, from } x \\
    c_i^+ &= g_i(x) \text{ (option I)} \quad \text{or} \quad
             c_i - c + \frac{x - y}{K \eta_l} \text{ (option II)} \\
    x &\leftarrow x + \eta_g \sum_{i \in S} w_i (y_i - x), \qquad
    c \leftarrow c + \frac{|S|}{M} \sum_{i \in S} w_i (c_i^+ - c_i)

  All control variates start at 0. With `weighting='examples'`, :math:`|S|` and
  M are numbers of examples instead of clients, so c stays the weighted mean of
  all :math:`c_i`.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    learning_rate: eta_l, or a function from the round to it; non-negative.
      Local steps are plain SGD, the only rule that control variates correct.
    server_learning_rate: eta_g; non-negative.
    exact_control: whether control variates are exact gradients (option I); of
      the client's objective at x. Otherwise they are the means of the client's
      local gradients (option II).

  Returns:
    The algorithm.

  Raises:
    ValueError: if `learning_rate` is an optimizer, or a rate is out of range.
    TypeError: if an argument is of a wrong type.

  References:
    Karimireddy et al., ICML 2020, Algorithm 1.
  """
  return wrapped_scaffold(
    loss_fn, learning_rate, server_learning_rate, exact_control
  )


def wrapped_scaffold(
  loss_fn: LossFn,
  learning_rate: Rate,
  server_learning_rate: ArrayLike,
  exact_control: bool = False,
  wrap: Callable[
    [optax.GradientTransformation], optax.GradientTransformation
  ] = lambda rule: rule,
) -> Algorithm:
  """SCAFFOLD, with `wrap` around the clients' rule."""

  def init(params):
    return ScaffoldState(params, control=optax.tree.zeros_like(params))

  def round(state, cohort):
    rate = rate_at(learning_rate, cohort.round)

    def one_client(worker, broadcast):
      (params, control), old_control = broadcast, worker.state
      correction = optax.tree.sub(control, old_control)
      rule = wrap(corrected_sgd(rate, correction))
      local_params = worker.descend(loss_fn, rule, params)
      delta = optax.tree.sub(local_params, params)
      if exact_control:
        new_control = worker.gradient(loss_fn, params)
      else:
        new_control = mean_gradient(
          worker, rate, delta, correction, old_control
        )
      new_control = optax.tree.cast_like(new_control, old_control)
      change = optax.tree.sub(new_control, old_control)
      return ClientOutput((delta, change), state=new_control)

    reply = cohort.mean(one_client, broadcast=(state.params, state.control))
    delta, change = reply.value
    params = running_statistics.moved(state.params, server_learning_rate, delta)
    control = optax.tree.add_scale(state.control, reply.cohort_share, change)
    return ScaffoldState(params, control), reply

  return Algorithm(
    init,
    round,
    init_client=optax.tree.zeros_like,  # c_i
    sends=lambda params: [params, params],
    averages_statistics=True,
    may_be_clipped=False,
  )


def corrected_sgd(
  rate: jax.Array, correction: Params
) -> optax.GradientTransformation:
  """Plain steps along the gradient plus the correction."""
  correct = lambda grads, _: optax.tree.add(grads, correction)
  return optax.chain(optax.stateless(correct), optax.sgd(rate))


def mean_gradient(
  worker: Any,
  rate: jax.Array,
  delta: Params,
  correction: Params,
  control: Params,
) -> Params:
  """The mean local gradient without its correction (option II).

  Args:
    worker: the client.
    rate: eta_l.
    delta: y - x, of steps `-rate * (gradient + correction)`.
    correction: added to each gradient.
    control: what a client without a step has instead, c_i.
  """
  direction = mean_direction(delta, rate, worker.num_steps)
  mean = optax.tree.sub(direction, correction)
  return optax.tree.where(rate * worker.num_steps > 0, mean, control)
