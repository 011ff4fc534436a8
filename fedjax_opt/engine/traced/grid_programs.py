"""The programs of all points of a grid; a single run is a point without axes.

Inputs of a program are grouped by their leading axes: `per_point` [settings,
seeds, ...], `per_setting` [settings, ...], `per_seed` [seeds, ...] and
`shared`. Settings are the outer axis and seeds the inner one. What depends on
the seed alone, such as the batches of a round, is therefore computed once for
all settings, whose models then share one matrix product.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_opt import contract
from fedjax_opt.arrays import frozen, trees
from fedjax_opt.base import Algorithm, Batch, run_key
from fedjax_opt.checks import functions
from fedjax_opt.data.clients import ClientData, unchecked
from fedjax_opt.engine.config import Config
from fedjax_opt.engine.traced import rounds
from fedjax_opt.engine.traced.mapping import Segment


class PointInputs(NamedTuple):
  """What points and settings have, besides their state.

  Attributes:
    secret_words: [settings, seeds, n] uint32, the words of random keys, see
      `Cohort.secret_key`; None if nothing draws from them.
    hyperparameters: {name: [settings]}.
    is_active: [settings] bool, which settings run; None in the evaluation.
  """

  secret_words: jax.Array | None
  hyperparameters: Mapping[str, Any]
  is_active: Any


class SeedInputs(NamedTuple):
  """What each seed has; without a grid there is no axis [seeds].

  Attributes:
    lists: `indices` and `sizes` of the clients, if seeds have their own; or {}.
    frozen: frozen leaves that depend on the seed, see `RunState`.
    seed: [seeds] uint32.
    segment: of the rounds, see `rounds.run_rounds`; set in the program.
  """

  lists: dict[str, Any]
  frozen: Any = None
  seed: Any = None
  segment: Segment | None = None


class SharedInputs(NamedTuple):
  """What all points share.

  Attributes:
    examples: {name: [N, ...]}, the pool.
    lists: `indices` and `sizes` of the clients, if seeds share them; or {}.
    frozen: frozen leaves that do not depend on the seed.
    first_round: [] int32; only of the rounds, as `num_rounds`.
    num_rounds: [] int32.
    test: pooled test examples, or None; only of the evaluation.
    validation: pooled validation examples, likewise.
  """

  examples: dict[str, Any]
  lists: dict[str, Any]
  frozen: Any = None
  first_round: Any = None
  num_rounds: Any = None
  test: Batch | None = None
  validation: Batch | None = None


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
    return _vmap(call, args) if config.vmaps_points else lax.map(call, args)

  def of_grid(per_point, per_setting, per_seed, shared):
    call = lambda args: of_setting(*args, per_seed, shared)
    args = (per_point, per_setting)
    if not config.vmaps_points:
      return lax.map(call, args)
    num_settings = len(jax.tree.leaves(args)[0])
    if config.grid_chunk is None or config.grid_chunk >= num_settings:
      return _vmap(call, args)
    return lax.map(call, args, batch_size=config.grid_chunk)

  return of_grid


def _vmap(function, args):
  """`jax.vmap`, which does not trace an axis of length 1.

  To trace that of one setting of several seeds, or of several settings with one
  seed, would take a third of the time.
  """
  if len(jax.tree.leaves(args)[0]) > 1:
    return jax.vmap(function)(args)
  outputs = function(jax.tree.map(lambda leaf: leaf[0], args))
  return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], outputs)


def rounds_program(
  config: Config, make: Callable[..., Algorithm]
) -> Callable[..., Any]:
  """The program that runs a segment of rounds of all points.

  Args:
    config: static options.
    make: `(**hyperparameters) -> Algorithm`.

  Returns:
    `(state, points, segment, inputs) -> (state, counts, traces)`, see
    `rounds.run_rounds`, for `Layout.over_devices`: the `PointInputs`; the
    segment, leaves [D, ...], of a grid [D, seeds, ...]; and a pair of
    `SeedInputs` and `SharedInputs`.
  """

  def one_point(per_point, setting, of_seed, shared):
    state, secret_words = per_point
    key, secret_key = run_key(of_seed.seed), None
    if secret_words is not None:
      kind = jax.random.key_impl(key)
      secret_key = jax.random.wrap_key_data(secret_words, impl=kind)
    num_rounds = shared.num_rounds
    if not config.vmaps_points:  # A setting that has diverged runs no rounds.
      num_rounds = jnp.where(setting.is_active, num_rounds, 0)
    return rounds.run_rounds(
      config,
      make(**setting.hyperparameters),
      state,
      key,
      _clients_of(of_seed, shared),
      of_seed.segment,
      shared.first_round,
      num_rounds,
      secret_key,
      trees.merge(of_seed.frozen, shared.frozen),
    )

  def program(state, points, segment, inputs):
    per_seed, shared = inputs
    return over_points(config, one_point)(
      (state, points.secret_words),
      points._replace(secret_words=None),
      per_seed._replace(segment=trees.take(segment, 0)),
      shared,
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
    `(server, points, segment, inputs) -> {name: scalars}`, with the inputs of
    `rounds_program`; the segment is empty.
  """

  def one_point(server, hyperparameters, of_seed, shared):
    metrics = rounds.evaluate(
      config,
      make(**hyperparameters),
      frozen.join(server, trees.merge(of_seed.frozen, shared.frozen)),
      _clients_of(of_seed, shared),
      shared.test,
      shared.validation,
    )
    functions.check_columns("evaluate", metrics, hyperparameters)
    return metrics

  def program(server, points, segment, inputs):
    del segment
    return over_points(config, one_point)(
      server, points.hyperparameters, *inputs
    )

  return program


def params_program(
  config: Config, make: Callable[..., Algorithm]
) -> Callable[..., Any]:
  """`(server, hyperparameters, *frozen_leaves) -> params`, of all points.

  The frozen leaves are those by seed and the others, see `RunState`. The models
  have None at their places.
  """

  def one_point(server, hyperparameters, by_seed, shared):
    server = frozen.join(server, trees.merge(by_seed, shared))
    params = contract.evaluated_params(make(**hyperparameters), server)
    return trees.without(params, frozen.model_leaves(server))

  return over_points(config, one_point)


def _clients_of(of_seed: SeedInputs, shared: SharedInputs) -> ClientData:
  """The clients of a seed."""
  return unchecked(shared.examples, **(shared.lists | of_seed.lists))
