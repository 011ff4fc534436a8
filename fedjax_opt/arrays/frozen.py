"""Leaves of the initial model that no round changes, in a server's state.

The points of a grid differ in their states, but not in these leaves. So the
engine takes them out of the state, has one copy for all points, and puts them
back where an algorithm is given its state.
"""

import functools
from typing import Any, NamedTuple

import jax

from fedjax_opt.arrays import trees
from fedjax_opt.checks.fields import Params, State


class Frozen(NamedTuple):
  """A part of a server's state that no round changes.

  Attributes:
    params: the initial model, None at all leaves that rounds change. The model
      that is evaluated has the same leaves; what a round returns is not used.
  """

  params: Params


def emptied(state: State) -> State:
  """A state whose frozen parts are empty."""
  empty = lambda part: Frozen(None) if _is_frozen(part) else part
  return jax.tree.map(empty, state, is_leaf=_is_frozen)


def leaves_of(state: State, params: Params) -> Any:
  """The leaves of a model that are frozen in a state.

  Args:
    state: of any arrays, or their shapes.
    params: the model, perhaps with None at some leaves.

  Returns:
    The leaves by their places in the state, None at all others.
  """

  def of_part(part):
    if not _is_frozen(part):
      return None
    take = lambda is_there, leaf: None if is_there is None else leaf
    return jax.tree.map(take, part.params, params, is_leaf=_is_none)

  return jax.tree.map(of_part, state, is_leaf=_is_frozen)


def join(state: State, leaves: Any) -> State:
  """The whole state, of what `emptied` and `leaves_of` give.

  Args:
    state: with empty frozen parts.
    leaves: theirs; None if there are no such parts.
  """
  if leaves is None:
    return state
  fill = lambda part, params: Frozen(params) if _is_frozen(part) else part
  return jax.tree.map(fill, state, leaves, is_leaf=_is_frozen)


def model_leaves(state: State) -> Params | None:
  """The frozen leaves of a whole state by their places in the model."""
  parts = jax.tree.leaves(state, is_leaf=_is_frozen)
  frozen_params = [part.params for part in parts if _is_frozen(part)]
  return functools.reduce(trees.merge, frozen_params, None)


def _is_frozen(part):
  return isinstance(part, Frozen)


def _is_none(leaf):
  return leaf is None
