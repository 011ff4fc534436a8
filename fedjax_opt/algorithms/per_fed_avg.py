"""Per-FedAvg: a model that is good after one step on a client's examples.

References:
  Fallah, Mokhtari and Ozdaglar, "Personalized Federated Learning with
  Theoretical Guarantees: A Model-Agnostic Meta-Learning Approach", NeurIPS
  2020.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_opt.algorithms.fed_avg import fed_avg_of
from fedjax_opt.arrays import running_statistics
from fedjax_opt.base import Algorithm, LossFn, Params, Rate
from fedjax_opt.checks.fields import NonNegative, Positive, checked
from fedjax_opt.optimizers import rate_at


@checked()
def per_fed_avg(
  loss_fn: LossFn,
  learning_rate: Rate,
  server: optax.GradientTransformation | None = None,
  *,
  inner_learning_rate: NonNegative = 0.01,
  hessian_difference: Positive | None = None,
  own_batches: bool = True,
) -> Algorithm:
  r"""FedAvg of the losses after one gradient step (Fallah et al., 2020).

  A client minimizes :math:`F_i(x) = f_i(x - \alpha \nabla f_i(x))`, by steps

  .. math::

    d = g_i(x - \alpha g_i(x; B); B'), \qquad
    x \leftarrow x - \eta (d - \alpha H d)

  The first-order form has H d = 0. The Hessian-free form has

  .. math::

    H d = \frac{g_i(x + \delta d; B'') - g_i(x - \delta d; B'')}{2 \delta}

  With :math:`\alpha = 0` and one batch a step this is `fed_avg`.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    learning_rate: eta, or a function from the round to it; non-negative.
    server: the rule of the server; `optax.sgd(1.0)` if None.
    inner_learning_rate: rate of the step by which a client personalizes; alpha,
      non-negative.
    hessian_difference: step of the difference of gradients in the Hessian-free
      form, which is the first-order form without it; delta, positive.
    own_batches: whether the batches of a step are separate, as in the paper; B,
      B' and B''. A step then takes two local steps, or three in the
      Hessian-free form. Local steps that are left over change nothing, but
      their gradients are computed, and counted. Otherwise all are the batch of
      one local step.

  Returns:
    The algorithm. A client's own model is the server's model after one step at
    the rate alpha along the exact gradient of the client's training examples.
    Clients keep nothing. With separate batches a local step takes one gradient,
    or two in the Hessian-free form; otherwise two, or four.

  Raises:
    ValueError: if `learning_rate` is an optimizer, or a number is out of range;
      in a run whose clients have too few local steps for one step.
    TypeError: if an argument is of a wrong type.

  References:
    Fallah et al., NeurIPS 2020, Algorithm 1; section 5 for its two forms.
  """
  alpha, delta = inner_learning_rate, hessian_difference
  phases = 1
  if own_batches:
    phases = 2 if delta is None else 3

  def one_client(worker, params):
    rate = rate_at(learning_rate, worker.round)
    if not own_batches:
      rule = _on_one_batch(rate, alpha, delta)
      local_params = worker.descend(loss_fn, rule, params)
      return optax.tree.sub(local_params, params)
    rule = _in_phases(rate, alpha, delta, phases)
    local_params, phase_state = worker.descend_from(
      loss_fn, rule, params, rule.init(running_statistics.zeroed(params))
    )
    start = running_statistics.replaced(phase_state.start, local_params)
    is_whole = worker.num_steps % phases == 0
    local_params = optax.tree.where(is_whole, local_params, start)
    return optax.tree.sub(local_params, params)

  def personalize(worker, params):
    grads = worker.gradient(loss_fn, params)
    return optax.tree.cast_like(
      optax.tree.add_scale(params, -alpha, grads), params
    )

  algorithm = fed_avg_of(one_client, server, personalize=personalize)

  def round(state, cohort):
    max_steps = cohort.config.plan.max_steps
    if max_steps < phases:
      raise ValueError(
        f"own_batches=True: a step of per_fed_avg takes {phases} local steps, "
        f"and no client has more than {max_steps}; give more of them, or "
        "own_batches=False"
      )
    return algorithm.round(state, cohort)

  return algorithm._replace(round=round)


def _on_one_batch(
  rate: Any, alpha: Any, delta: Any | None
) -> optax.GradientTransformationExtraArgs:
  """Steps whose gradients are all of the batch of one local step."""

  def update(grads, state, params, **extra):
    grad_fn = extra["grad_fn"]
    direction = grad_fn(_moved(params, -alpha, grads))
    if delta is not None:
      above = grad_fn(_moved(params, delta, direction))
      below = grad_fn(_moved(params, -delta, direction))
      direction = _corrected(direction, above, below, alpha, delta)
    updates = optax.tree.scale(-rate, direction)
    return optax.tree.cast_like(updates, params), state

  return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


class _PhaseState(NamedTuple):
  count: jax.Array  # [] int32, local steps
  start: Params  # x, from which a step goes
  direction: Params  # d, of the Hessian-free form; None in the other


def _in_phases(
  rate: Any, alpha: Any, delta: Any | None, phases: int
) -> optax.GradientTransformationExtraArgs:
  """Steps whose gradients are those of successive local steps.

  The parameters are, in turn, x, the point after the inner step, and in the
  Hessian-free form the point above x.
  """

  def init(params):
    direction = None if delta is None else optax.tree.zeros_like(params)
    return _PhaseState(jnp.int32(0), params, direction)

  def update(grads, state, params, **extra):
    phase = state.count % phases
    start = optax.tree.where(phase == 0, params, state.start)
    inner = _moved(start, -alpha, grads)
    if delta is None:
      direction, end_point = None, _moved(start, -rate, grads)
      point = optax.tree.where(phase == 0, inner, end_point)
    else:
      direction = optax.tree.where(phase == 1, grads, state.direction)
      below = extra["grad_fn"](_moved(start, -delta, direction))
      end_point = _moved(
        start, -rate, _corrected(direction, grads, below, alpha, delta)
      )
      above = _moved(start, delta, direction)
      point = optax.tree.where(phase == 1, above, end_point)
      point = optax.tree.where(phase == 0, inner, point)
    fields = (optax.tree.cast_like(start, state.start), direction)
    return optax.tree.sub(point, params), _PhaseState(state.count + 1, *fields)

  return optax.GradientTransformationExtraArgs(init, update)


def _moved(params: Params, scale: Any, direction: Params) -> Params:
  """A point along a direction, in the types of the parameters."""
  point = optax.tree.add_scale(params, scale, direction)
  return optax.tree.cast_like(point, params)


def _corrected(direction, above, below, alpha, delta):
  """d - alpha H d, of the gradients at x + delta d and x - delta d."""
  difference = optax.tree.sub(above, below)
  corrected = optax.tree.add_scale(direction, -alpha / (2 * delta), difference)
  return optax.tree.cast_like(corrected, direction)
