"""The programs of all points of a grid; a single run is a point without axes.

Inputs of a program are grouped by their leading axes: `per_point` [settings,
seeds, ...], `per_setting` [settings, ...], `per_seed` [seeds, ...] and
`shared`. Settings are the outer axis and seeds the inner one. What depends on
the seed alone, such as the batches of a round, is therefore computed once for
all settings, whose models then share one matrix product.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_opt import contract
from fedjax_opt.arrays import frozen, trees
from fedjax_opt.base import Algorithm, run_key
from fedjax_opt.checks import functions
from fedjax_opt.data.clients import unchecked
from fedjax_opt.engine import rounds
from fedjax_opt.engine.config import Config


def over_points(
  config: Config, one_point: Callable[..., Any]
) -> Callable[..., Any]:
  """The computation for one point, mapped over all points.

  Args:
    config: static options; they decide how points are mapped.
    one_point: `(per_point, per_setting, per_seed, shared) -> outputs`.
  """
  if not config.has_axes:
    return one_point

  def of_setting(per_point, per_setting, per_seed, shared):
    call = lambda args: one_point(args[0], per_setting, args[1], shared)
    args = (per_point, per_seed)
    return jax.vmap(call)(args) if config.vmaps_points else lax.map(call, args)

  def of_grid(per_point, per_setting, per_seed, shared):
    call = lambda args: of_setting(*args, per_seed, shared)
    args = (per_point, per_setting)
    if not config.vmaps_points:
      return lax.map(call, args)
    num_settings = len(jax.tree.leaves(args)[0])
    if config.grid_chunk is None or config.grid_chunk >= num_settings:
      return jax.vmap(call)(args)
    return lax.map(call, args, batch_size=config.grid_chunk)

  return of_grid


def rounds_program(
  config: Config, make: Callable[..., Algorithm]
) -> Callable[..., Any]:
  """The program that runs a segment of rounds of all points.

  Args:
    config: static options.
    make: `(**hyperparameters) -> Algorithm`.

  Returns:
    `(state, per_point, segment, shared) -> (state, counts, traces)`, see
    `rounds.run_rounds`, for `Layout.over_devices`. `per_point` is `(secret,
    hyperparameters, is_active)`; `secret` has the words of a random key, see
    `Cohort.secret_key`, or is None. `segment` has leaves [D, ...], of a grid
    [D, seeds, ...]; `shared` is `(per_seed, data, frozen_leaves,
    first_round, num_rounds)`.
  """

  def one_point(per_point, per_setting, per_seed, shared):
    state, secret = per_point
    hyperparameters, is_active = per_setting
    data, frozen_leaves, first_round, num_rounds = shared
    key = run_key(per_seed["seed"])
    if not config.vmaps_points:  # A setting that has diverged runs no rounds.
      num_rounds = jnp.where(is_active, num_rounds, 0)
    return rounds.run_rounds(
      config,
      make(**hyperparameters),
      state,
      key,
      _clients_of_seed(data, per_seed),
      per_seed["segment"],
      first_round,
      num_rounds,
      None
      if secret is None
      else jax.random.wrap_key_data(secret, impl=jax.random.key_impl(key)),
      trees.merge(per_seed["frozen"], frozen_leaves),
    )

  def program(state, per_point, segment, shared):
    secret, *per_setting = per_point
    per_seed, *shared = shared
    per_seed = per_seed | {"segment": trees.take(segment, 0)}
    return over_points(config, one_point)(
      (state, secret), per_setting, per_seed, shared
    )

  return program


def evaluation_program(
  config: Config, make: Callable[..., Algorithm]
) -> Callable[..., Any]:
  """The program that evaluates the models of all points.

  Args:
    config: static options.
    make: `(**hyperparameters) -> Algorithm`.

  Returns:
    `(server, per_point, segment, shared) -> {name: scalars}`: `per_point` is
    `(hyperparameters,)`, `segment` is {}, `shared` is `(per_seed, data,
    frozen_leaves, test, validation)`.
  """

  def one_point(server, hyperparameters, per_seed, shared):
    data, frozen_leaves, test, validation = shared
    clients = _clients_of_seed(data, per_seed)
    server = frozen.join(server, trees.merge(per_seed["frozen"], frozen_leaves))
    metrics = rounds.evaluate(
      config, make(**hyperparameters), server, clients, test, validation
    )
    functions.check_columns("evaluate", metrics, hyperparameters)
    return metrics

  def program(server, per_point, segment, shared):
    del segment
    per_seed, *shared = shared
    return over_points(config, one_point)(server, *per_point, per_seed, shared)

  return program


def params_program(
  config: Config, make: Callable[..., Algorithm]
) -> Callable[..., Any]:
  """`(server, hyperparameters, per_seed, frozen_leaves) -> params`, all points.

  The models have None at their frozen leaves.
  """

  def one_point(server, hyperparameters, per_seed, frozen_leaves):
    server = frozen.join(server, trees.merge(per_seed["frozen"], frozen_leaves))
    params = contract.evaluated_params(make(**hyperparameters), server)
    return trees.without(params, frozen.model_leaves(server))

  return over_points(config, one_point)


def _clients_of_seed(data, per_seed):
  """The clients of a seed; `indices` and `sizes` may differ between seeds."""
  examples, shared_lists = data
  return unchecked(examples, **(shared_lists | per_seed["data"]))
