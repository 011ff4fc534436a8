"""Running statistics of batch normalization, as parameters of a model.

A model with batch normalization keeps, beside its weights, running means and
variances, which are averaged over clients as the weights are but follow no
gradient. Here they are leaves of the parameters, and what they get for a
gradient is such that a plain step of size 1 makes the update that is due. So
nothing else has to know about them, but for rules: `follow` wraps one.
"""

from collections.abc import Callable
from typing import Any

import jax
import optax

from fedjax_opt.base import Params

# What the leaves are called; no other parameter is.
_NAMES = ("running_mean", "running_var")


@jax.custom_vjp
def attach(x: jax.Array, running: jax.Array, new: jax.Array) -> jax.Array:
  """Is x, and makes `running - new` the gradient of `running`.

  Args:
    x: an activation on the way to the loss, of any shape.
    running: a running statistic, a parameter.
    new: what it should become by this batch, of its shape.

  Returns:
    x.
  """
  del running, new
  return x


def _attach_fwd(x, running, new):
  return x, (running, new)


def _attach_bwd(residuals, cotangent):
  running, new = residuals
  return cotangent, running - new, jax.numpy.zeros_like(new)


attach.defvjp(_attach_fwd, _attach_bwd)


def follow(
  rule: optax.GradientTransformation,
) -> optax.GradientTransformationExtraArgs:
  """The rule for the weights alone; running statistics take their own step.

  Args:
    rule: of a client or the server. It sees a tree without the statistics, so
      that norms and momenta are those of the weights.

  Returns:
    An optax transformation of whole models.
  """
  rules = {"weights": rule, "statistics": optax.sgd(1.0)}
  return optax.with_extra_args_support(optax.partition(rules, _labels))


def weights(params: Params) -> Params:
  """The parameters with None in place of running statistics."""
  keep = lambda label, leaf: leaf if label == "weights" else None
  return jax.tree.map(keep, _labels(params), params)


def map_weights(
  function: Callable[[jax.Array], jax.Array], params: Params
) -> Params:
  """The parameters with a function of each leaf but of running statistics."""
  change = lambda label, leaf: function(leaf) if label == "weights" else leaf
  return jax.tree.map(change, _labels(params), params)


def _labels(params: Params) -> Any:
  def label(path, _):
    name = getattr(path[-1], "key", None) if path else None
    return "statistics" if name in _NAMES else "weights"

  return jax.tree_util.tree_map_with_path(label, params)
