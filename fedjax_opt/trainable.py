"""Training only some leaves of a model, such as the head of a pretrained one.

A tree of trainable leaves has the structure of the whole model, with None where
a leaf is frozen, as `running_statistics.weights` has it. JAX regards None as no
leaf, so messages, states and norms of such a tree count what is trained.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_opt import contract
from fedjax_opt.arrays import running_statistics, trees
from fedjax_opt.arrays.frozen import Frozen
from fedjax_opt.arrays.trees import merge as merge
from fedjax_opt.base import Algorithm, ClientRule, FeaturesFn, LossFn, Params
from fedjax_opt.checks import errors, fields
from fedjax_opt.checks.values import brief
from fedjax_opt.objectives import RegularizedLoss

__all__ = [
  "TrainableState",
  "mask",
  "train_only",
]


class TrainableState(NamedTuple):
  """The server between rounds.

  Attributes:
    trained: the state of the algorithm, which knows the trainable leaves only.
    frozen: the other leaves of the initial model, None at trainable ones.
  """

  trained: Any
  frozen: Frozen


@fields.checked(paths=fields.ANYTHING)
def train_only(
  make: Callable[..., Algorithm],
  paths: Sequence[str],
  loss_fn: LossFn,
  features_fn: FeaturesFn | None = None,
) -> Algorithm:
  """An algorithm that trains some leaves of a model, and leaves the others.

  >>> algorithm = fo.train_only(
  ...   lambda loss_fn: fo.fed_avg(loss_fn, optax.sgd(0.1)),
  ...   ["output"], loss_fn)

  The model that is given, evaluated and saved has all leaves. The algorithm
  that `make` returns sees only the trainable leaves. So messages, their bytes,
  and the states of clients have only these; the frozen leaves are constants of
  the loss. The points of a grid and the clients of a round share one copy of
  them; of leaves that a seed draws each seed has its own.

  A term from `objectives.l2` has only the trainable leaves; any other
  `RegularizedLoss.term` gets a tree with None at frozen leaves. Frozen running
  statistics of batch normalization do not change, but in training the layers
  still normalize by the batch.

  Args:
    make: `(loss_fn) -> Algorithm`, or `(loss_fn, features_fn) -> Algorithm` if
      features are given.
    paths: of what is trained, see `mask`.
    loss_fn: `(params, batch, rng) -> [B]`, of all leaves.
    features_fn: `(params, batch, rng) -> [B, d]`, of all leaves, for MOON.

  Returns:
    The algorithm, whose state is a `TrainableState`.

  Raises:
    ValueError: if a path matches no leaf of the model.
    TypeError: if an argument is of a wrong type.
  """
  paths = checked_paths("trainable", paths)
  fns = (loss_fn,) if features_fn is None else (loss_fn, features_fn)
  takes = "(loss_fn) -> Algorithm"
  if features_fn is not None:
    takes = "(loss_fn, features_fn) -> Algorithm"
  outer = errors.call_user("make", takes, make, *fns)  # Computes no loss.
  contract.check_algorithm("make(...)", outer)
  split = functools.partial(split_at, paths=paths)

  def init(params):
    trainable, frozen = split(params)
    contract.check_statistics(outer, trainable)
    return TrainableState(outer.init(trainable), Frozen(frozen))

  def round(state, cohort):
    dtype, frozen = dtype_of(outer.params(state.trained)), state.frozen.params
    closed_fns = (closed_over(function, frozen, dtype) for function in fns)
    trained, replies = make(*closed_fns).round(state.trained, cohort)
    return TrainableState(trained, state.frozen), replies

  def client_params(state, client_state):
    params = outer.client_params(state.trained, client_state)
    return merge(params, state.frozen.params)

  def personalize(worker, params):
    trainable, frozen = split(params)
    closed_fns = (
      closed_over(function, frozen, dtype_of(trainable)) for function in fns
    )
    personal = make(*closed_fns).personalize(worker, trainable)
    return merge(personal, frozen)

  def broadcast(state):  # Clients have the frozen leaves.
    return outer.broadcast(state.trained)

  def of_trainable(function):
    return function and (lambda params: function(split(params)[0]))

  return outer._replace(
    init=init,
    round=round,
    params=lambda state: merge(
      outer.params(state.trained), state.frozen.params
    ),
    penalty=of_trainable(outer.penalty),
    init_client=of_trainable(outer.init_client),
    client_params=outer.client_params and client_params,
    personalize=outer.personalize and personalize,
    sends=of_trainable(outer.sends),
    broadcast=outer.broadcast and broadcast,
    averages_statistics=True,  # As `init` has checked; frozen ones stay.
  )


@fields.checked(paths=fields.ANYTHING)
def mask(params: Any, paths: Sequence[str], name: str = "trainable") -> Any:
  """Which leaves of a model are at some paths, such as those that are trained.

  Args:
    params: the model, or its shapes.
    paths: such as 'output', 'output/kernel' or 'encoder/layer_5', the names
      from the outermost on, joined by '/'. A path stands for all leaves below.
    name: what messages call the paths.

  Returns:
    The tree with True at the leaves of a path and False at the others.

  Raises:
    ValueError: naming a path that matches no leaf, and what there is.
    TypeError: if the paths are no list of strings.
  """
  paths = checked_paths(name, paths)
  leaves, structure = jax.tree_util.tree_flatten_with_path(params)
  leaf_keys = [trees.name_of(key_path) for key_path, _ in leaves]
  for path in paths:
    if not any(_is_below(key, path) for key in leaf_keys):
      raise ValueError(f"{name}={path!r}: {_no_leaf(path, leaf_keys)}")
  is_chosen = [any(_is_below(key, p) for p in paths) for key in leaf_keys]
  return jax.tree.unflatten(structure, is_chosen)


def only(
  rule: ClientRule, paths: Sequence[str], others: bool = False
) -> ClientRule:
  """A client rule that moves some leaves of a whole model.

  Args:
    rule: sees no other leaves.
    paths: of what is trained, see `mask`.
    others: whether the leaves at the paths are held instead.
  """
  if callable(rule):
    return lambda round: only(rule(round), paths, others)
  rules = {not others: rule, others: optax.set_to_zero()}
  labels = functools.partial(mask, paths=paths)
  return optax.with_extra_args_support(optax.partition(rules, labels))


def differentiated(loss_fn: LossFn, paths: Sequence[str]) -> LossFn:
  """A loss whose gradient is 0 at the frozen leaves of a whole model."""

  def loss(params, batch, rng):
    stop = lambda keep, leaf: leaf if keep else jax.lax.stop_gradient(leaf)
    return loss_fn(jax.tree.map(stop, mask(params, paths), params), batch, rng)

  return loss


def checked_paths(name: str, paths: Any) -> tuple[str, ...]:
  """The paths as a tuple of strings.

  Raises:
    ValueError: if there is none, or one is empty.
    TypeError: if they are no list of strings.
  """
  is_list = isinstance(paths, list | tuple)
  if not is_list or not all(isinstance(path, str) for path in paths):
    raise TypeError(
      f"{name}={brief(paths)}: must be a list of paths, such as ['output']"
    )
  if not paths or not all(paths):
    raise ValueError(
      f"{name}={brief(paths)}: must be at least one path, none of "
      "them empty, such as ['output']"
    )
  return tuple(paths)


def _is_below(name, path):
  """Whether a leaf is at a path or below it."""
  return name == path or name.startswith(f"{path}/")


def _no_leaf(path, keys):
  """Says that no leaf matches, and what is beside the first wrong part."""
  prefix, parts = "", path.split("/")
  while any(key.startswith(f"{prefix}{parts[0]}/") for key in keys):
    prefix += f"{parts.pop(0)}/"
  tails = (key.removeprefix(prefix) for key in keys if key.startswith(prefix))
  names = dict.fromkeys(prefix + tail.partition("/")[0] for tail in tails)
  return f"matches no leaf of the model; must be among {', '.join(names)}"


def split_at(
  params: Params, paths: Sequence[str], name: str = "trainable"
) -> tuple[Params, Params]:
  """The leaves at some paths, and the others, None elsewhere; see `mask`."""
  is_chosen = mask(params, paths, name)
  take = lambda wanted_flag: jax.tree.map(
    lambda flag, leaf: leaf if flag is wanted_flag else None, is_chosen, params
  )
  return take(True), take(False)


def closed_over(function, frozen, dtype):
  """A loss or features as a function of the trainable leaves.

  Args:
    function: of all leaves.
    frozen: the other leaves.
    dtype: of the trainable leaves at the server. Where a client computes in
      another one, so do the frozen leaves.
  """
  if isinstance(function, RegularizedLoss):
    inner = closed_over(function.loss_fn, frozen, dtype)
    return function._replace(loss_fn=inner)

  def of_trainable(params, batch, rng):
    leaves, local = frozen, dtype_of(params)
    if local != dtype:
      leaves = running_statistics.map_weights(
        lambda leaf: leaf.astype(local), frozen
      )
    return function(merge(params, leaves), batch, rng)

  return of_trainable


def dtype_of(params):
  """In which type a model's weights are."""
  return jnp.result_type(
    *jax.tree.leaves(running_statistics.weights(params)), 0.0
  )
