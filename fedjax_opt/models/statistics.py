"""Running statistics of batch normalization, as parameters of a model.

A model with batch normalization has, beside its weights, running means and
variances. They are averaged over clients like the weights, but they are not
trained by the gradient of the loss. Here they are leaves of the parameters.
`attach` sets their gradient to the difference of the old and the new value, so
that a step of size 1 against the gradient makes the update.

Rules must apply that step to them: `follow` wraps a rule. Code that computes
norms or penalties of the weights leaves them out by `weights` or `map_weights`.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import optax

from fedjax_opt.base import Params

# Names of the leaves; no other parameter has one of them.
_NAMES = ("running_mean", "running_var")


@jax.custom_vjp
def attach(x: jax.Array, running: jax.Array, new: jax.Array) -> jax.Array:
  """Returns x, and sets the gradient of `running` to `running - new`.

  Args:
    x: an activation on which the loss depends, of any shape.
    running: a running statistic, a parameter.
    new: its value after this batch, of the same shape.

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
  """Applies a rule to the weights, and a step of size 1 to the statistics.

  Args:
    rule: of a client or the server. Its tree has no statistics, so that its
      norms and momenta are those of the weights.

  Returns:
    An optax transformation of all parameters.
  """
  rules = {"weights": rule, "statistics": optax.sgd(1.0)}
  return optax.with_extra_args_support(optax.partition(rules, _labels))


def weights(params: Params) -> Params:
  """The parameters with None in place of running statistics."""
  keep = lambda label, leaf: leaf if label == "weights" else None
  return jax.tree.map(keep, _labels(params), params)


def without(tree: Params) -> Params:
  """The tree with zeros in place of running statistics."""
  keep = lambda label, leaf: (
    leaf if label == "weights" else jax.numpy.zeros_like(leaf)
  )
  return jax.tree.map(keep, _labels(tree), tree)


def map_weights(
  function: Callable[[jax.Array], jax.Array], params: Params
) -> Params:
  """Applies a function to each leaf that is no running statistic."""
  change = lambda label, leaf: function(leaf) if label == "weights" else leaf
  return jax.tree.map(change, _labels(params), params)


def parents(params: Params) -> list[str]:
  """The paths of the parts of a model that have running statistics.

  Such as 'block_1/norm'; names from the outermost on, joined by '/'. [] if
  there are none.
  """
  joined = functools.partial(jax.tree_util.keystr, simple=True, separator="/")
  leaves = jax.tree_util.tree_leaves_with_path(_labels(params))
  found = (path[:-1] for path, label in leaves if label == "statistics")
  return list(dict.fromkeys(joined(path) for path in found))


def _labels(params: Params) -> Any:
  """The tree of params with 'weights' or 'statistics' at each leaf."""

  def label(path, _):
    name = getattr(path[-1], "key", None) if path else None
    return "statistics" if name in _NAMES else "weights"

  return jax.tree_util.tree_map_with_path(label, params)
