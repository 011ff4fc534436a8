"""Running statistics of batch normalization, as parameters of a model.

A model with batch normalization has, beside its weights, running means and
variances. They are averaged over clients like the weights, but they are not
trained by the gradient of the loss. Here they are leaves of the parameters.
`attach` sets their gradient to the difference of the old and the new value, so
that a step of size 1 against the gradient makes the update.

`optimizers.step` makes that step, whatever the rule: `sparing_statistics` shows
a rule zeros in their place. Messages are split into weights and statistics,
which are sent as they are (`transforms.messages`). An algorithm whose own
arithmetic averages them and does nothing else with them says so, in
`Algorithm.averages_statistics`; any other refuses a model that has them.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_opt.arrays import trees
from fedjax_opt.checks.fields import Params, checked

# Names of the leaves; no other parameter has one of them.
_LEAF_NAMES = ("running_mean", "running_var")
# The part of a model's variables in which flax has such leaves.
_COLLECTION = "batch_stats"


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
  return cotangent, running - new, jnp.zeros_like(new)


attach.defvjp(_attach_fwd, _attach_bwd)


@checked()
def with_statistics(
  losses: jax.Array, running: Params, new: Params
) -> jax.Array:
  """Returns the losses, and lets the next step set statistics to new values.

  For models of one's own whose parameters have a part `batch_stats`, as the
  variables of flax's modules have.

  Args:
    losses: [B], which depend on the statistics.
    running: the part `batch_stats` of the parameters.
    new: its values after this batch, a tree of the same structure.

  Returns:
    The losses, [B].

  Raises:
    ValueError: if the trees have other leaves.
  """
  shapes = lambda tree: [np.shape(leaf) for leaf in jax.tree.leaves(tree)]
  if shapes(running) != shapes(new):
    raise ValueError(
      f"new: has leaves of shapes {shapes(new)}; must be {shapes(running)}, as "
      "in running"
    )
  pairs = zip(jax.tree.leaves(running), jax.tree.leaves(new), strict=True)
  for before, after in pairs:
    before = jnp.asarray(before)
    losses = attach(losses, before, jnp.asarray(after, before.dtype))
  return losses


def sparing_statistics(
  rule: optax.GradientTransformation,
) -> optax.GradientTransformationExtraArgs:
  """Applies a rule to the weights, and a step of size 1 to the statistics.

  The rule is given zeros in place of the statistics, in the gradient and in the
  parameters, so that its norms and momenta are those of the weights. The
  functions that it is given put the present statistics back.

  Args:
    rule: of a client or the server.

  Returns:
    An optax transformation of all parameters, with the state of the rule.
  """
  rule = optax.with_extra_args_support(rule)

  def init(params):
    return rule.init(zeroed(params))

  def update(grads, state, params=None, **extra):
    if not _statistics(grads):
      return rule.update(grads, state, params, **extra)
    extra = _extra_of_weights(extra, params)
    updates, state = rule.update(zeroed(grads), state, zeroed(params), **extra)
    return replaced(updates, jax.tree.map(jnp.negative, grads)), state

  return optax.GradientTransformationExtraArgs(init, update)


def _extra_of_weights(extra, params):
  """What a rule is given besides the gradient, see `sparing_statistics`."""

  def at(function):
    return lambda x, *args, **kwargs: function(
      replaced(x, params), *args, **kwargs
    )

  names = {"value_fn", "obj_fn", "grad_fn"} & set(extra)
  extra = extra | {name: at(extra[name]) for name in names}
  if "grad_fn" in extra:
    grad_fn = extra["grad_fn"]
    extra["grad_fn"] = lambda *args, **kwargs: zeroed(grad_fn(*args, **kwargs))
  if "grad" in extra:
    extra["grad"] = zeroed(extra["grad"])
  return extra


def weights(params: Params) -> Params:
  """The parameters with None in place of running statistics."""
  keep = lambda path, leaf: None if _is_statistic(path) else leaf
  return jax.tree_util.tree_map_with_path(keep, params)


def zeroed(tree: Params) -> Params:
  """The tree with zeros in place of running statistics."""

  def hide(path, leaf):
    return jnp.zeros_like(leaf) if _is_statistic(path) else leaf

  return jax.tree_util.tree_map_with_path(hide, tree)


def replaced(tree: Params, source: Params) -> Params:
  """The tree with the running statistics of another one."""
  statistics = _statistics(source)
  take = lambda path, leaf: statistics.get(path, leaf)
  return jax.tree_util.tree_map_with_path(take, tree)


def moved(params: Params, rate: jax.typing.ArrayLike, delta: Params) -> Params:
  """Parameters plus a multiple of a difference; of statistics, all of it."""
  weights_moved = optax.tree.add_scale(params, rate, delta)
  return replaced(weights_moved, optax.tree.add(params, delta))


def map_weights(
  function: Callable[[jax.Array], jax.Array], params: Params
) -> Params:
  """Applies a function to each leaf that is no running statistic."""
  change = lambda path, leaf: leaf if _is_statistic(path) else function(leaf)
  return jax.tree_util.tree_map_with_path(change, params)


def part_paths(params: Params) -> list[str]:
  """The paths of the parts of a model that have running statistics.

  Such as 'block_1/norm'; names from the outermost on, joined by '/'. [] if
  there are none.
  """
  names = [trees.name_of(path[:-1]) for path in _statistics(params)]
  return list(dict.fromkeys(names))


def _statistics(tree: Params) -> dict[Any, Any]:
  """{path: running statistic}."""
  leaves = jax.tree_util.tree_leaves_with_path(tree)
  return {path: leaf for path, leaf in leaves if _is_statistic(path)}


def _is_statistic(path):
  names = [getattr(key, "key", None) for key in path]
  return bool(names) and (names[-1] in _LEAF_NAMES or _COLLECTION in names)
