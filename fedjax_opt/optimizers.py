"""Optimizers in use: their first state, and their steps.

What an optimizer raises becomes one line that names it. Running statistics of
normalization are no weights: no optimizer sees or moves them, see
`running_statistics`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_opt.arrays import running_statistics, trees
from fedjax_opt.checks import errors, functions, rules
from fedjax_opt.checks.values import brief, check_in_interval


def rule_at(rule: Any, round: jax.Array) -> optax.GradientTransformation:
  """The client rule of a round.

  Raises:
    TypeError: if there is none.
  """
  if isinstance(rule, optax.GradientTransformation):
    return rule
  rules.check_client_rule("client", rule)
  optimizer = errors.call_user("client", "(round) -> optimizer", rule, round)
  if not isinstance(optimizer, optax.GradientTransformation):
    raise TypeError(
      f"client: its function of the round returned {brief(optimizer)}; must "
      f"return {rules.EXAMPLE}"
    )
  return optimizer


def rate_at(rate: Any, round: jax.Array) -> Any:
  """The rate in a round, given a rate or a function from the round to one.

  Raises:
    ValueError: for an optimizer, where steps are plain ones, and for a negative
      rate; of a traced one that is not known.
    TypeError: for a function that gives no number.
  """
  rules.check_rate("learning_rate", rate)
  if not callable(rate):
    return rate
  number = errors.call_user("learning_rate", "(round) -> number", rate, round)
  is_number = isinstance(number, int | float) or hasattr(number, "dtype")
  if not is_number or np.shape(number):
    raise TypeError(
      "learning_rate: its function of the round returned "
      f"{brief(number)}; must return a number"
    )
  check_in_interval("learning_rate", number, "[0, inf)")
  return number


def momentum_sgd(
  rate: Any, momentum: Any, params: Any
) -> optax.GradientTransformation:
  """SGD with momentum in the type of its buffer; without if it is None."""
  if momentum is not None:
    momentum = jnp.asarray(momentum, optax.tree.dtype(params, "lowest"))
  return optax.sgd(rate, momentum=momentum)


def mean_direction(moved: Any, rate: Any, num_steps: Any) -> Any:
  """The mean direction of local steps at a rate.

  Args:
    moved: a client's difference from the model that it began with, or the mean
      of clients' differences.
    rate: eta.
    num_steps: K of the client, or the mean of clients.

  Returns:
    The difference over -eta K, or 0 without a step. Running statistics have no
    step.
  """
  reach = rate * num_steps
  scale = -1 / jnp.where(reach > 0, reach, 1)
  return optax.tree.scale(scale, running_statistics.zeroed(moved))


def init(
  name: str, rule: optax.GradientTransformation, params: Any
) -> optax.OptState:
  """The first state of a rule."""
  weights = running_statistics.zeroed(params)
  return errors.call_user(f"{name}: its init", "(params)", rule.init, weights)


def step(
  name: str,
  rule: optax.GradientTransformation,
  grads: Any,
  state: optax.OptState,
  params: Any,
  **extra: Any,
) -> tuple[Any, optax.OptState]:
  """A step of a rule: the new parameters, and its new state.

  Running statistics take a step of size 1 against their gradient.

  Raises:
    ValueError: if it fails, or an update is of another shape than its leaf.
    TypeError: if it fails with one.
  """
  with errors.in_one_line(f"{name}: its update failed"):
    update = running_statistics.sparing_statistics(rule).update
    updates, state = update(grads, state, params, **extra)
    moved = optax.apply_updates(params, updates)
    # Another shape would be broadcast.
    updates = trees.cast_like(updates, params)
    functions.check_like(f"{name}: its update", updates, params, "the model")
    return moved, state


def traced_field(rule_state: optax.OptState, name: str) -> Any:
  """A field of the state of a rule, however deep in a chain.

  Raises:
    ValueError: if there is none, or not one number of that name.
  """
  try:
    value = optax.tree.get(rule_state, name)
  except KeyError:
    raise ValueError(
      f"trace={name!r}: the client rule's state has several such fields; must "
      "be the name of one"
    ) from None
  if value is None:
    raise ValueError(
      f"trace={name!r}: the client rule's state has no such field; "
      f"{_numbers_in(rule_state)}"
    )
  if len(jax.tree.leaves(value)) != 1 or np.shape(jax.tree.leaves(value)[0]):
    raise ValueError(
      f"trace={name!r}: is a tree of arrays; {_numbers_in(rule_state)}"
    )
  return jax.tree.leaves(value)[0]


def _numbers_in(rule_state: optax.OptState) -> str:
  """The fields of a rule's state that have one number, for messages."""
  leaves = jax.tree_util.tree_leaves_with_path(rule_state)
  keys = [path[-1] for path, leaf in leaves if path and not np.shape(leaf)]
  names = {key.name for key in keys if hasattr(key, "name")}
  if not names:
    return "no field of it has one number"
  return f"must be one of {', '.join(sorted(names))}"
