"""What a local step offers a client rule besides the gradient.

As optax does for line searches, SAM and others: keyword arguments of `update`.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import optax

from fedjax_opt.base import Params, grad_fn_of


def extras_of(
  rule: optax.GradientTransformationExtraArgs,
  mean_loss: Callable[..., jax.Array],
  params: Params,
  value: jax.Array,
  grads: Params,
) -> tuple[dict[str, Any], list[None]]:
  """The keyword arguments that `rule.update` is given in a local step.

  Args:
    rule: of the client.
    mean_loss: `(params, draw=0) -> scalar`, the loss of this step's batch; of
      another draw the loss draws other dropout masks.
    params: the current point.
    value: `mean_loss(params)`.
    grads: the gradient there.

  Returns:
    `value`, `grad`, and as functions of any point `value_fn`, `obj_fn` and
    `grad_fn`, all on this batch; those that the rule takes. All draw as the
    gradient did; `grad_fn(point, draw=1)` does not. And a list that grows by
    one each time that a call of `grad_fn` is traced.
  """
  calls = []

  # The names that optax's line searches and `contrib.sam` pass on.
  def value_fn(point, *, grad_fn=None, obj_fn=None):
    del grad_fn, obj_fn
    return mean_loss(point)

  def grad_fn(point, step=None, *, draw=0):
    del step
    calls.append(None)
    of_draw = functools.partial(mean_loss, draw=draw) if draw else mean_loss
    return grad_fn_of(of_draw, params)(point)

  extras = {
    "value": value,
    "grad": grads,
    "value_fn": value_fn,
    "obj_fn": mean_loss,
    "grad_fn": grad_fn,
  }
  return _accepted(rule, extras), calls


def _accepted(rule, extras):
  """Those that an `update` without `**extra_args` names; else all."""
  parameters = inspect.signature(rule.update).parameters
  if any(p.kind == p.VAR_KEYWORD for p in parameters.values()):
    return extras
  return {name: extras[name] for name in extras if name in parameters}
