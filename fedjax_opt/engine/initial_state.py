"""The state before the first round: how it is made."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable

import jax
import numpy as np
from jax import lax
from jax.extend.core import Literal

from fedjax_opt import contract
from fedjax_opt.arrays import frozen, target, trees
from fedjax_opt.base import Params, run_key
from fedjax_opt.engine.compilation import copies, quickly_compiled
from fedjax_opt.engine.run_state import GridPoints, RunState


@dataclasses.dataclass(frozen=True)
class InitialState:
  """The state that a run begins with, to be made.

  Attributes:
    points: the points of the run.
    draw: a function from a random key to the initial model, checked; None if
      the model is given as arrays.
    model: the shapes of the initial model.
    num_clients: M.
  """

  points: GridPoints
  draw: Callable[[jax.Array], Params] | None
  model: Params
  num_clients: int

  @functools.cached_property
  def shapes(self) -> RunState:
    """The shapes of what `make_state` returns."""
    models, hyperparameters = self._inputs()
    server, client_state = jax.eval_shape(self._states, models, hyperparameters)
    return RunState(server, client_state, self._frozen(models))

  def lowered(self) -> jax.stages.Lowered:
    """The program that makes the state, given the initial models."""
    return jax.jit(self._states).lower(*self._inputs())

  def make_state(self, params: Params | None, on_host: bool) -> RunState:
    """The state of all points, in buffers of its own.

    Args:
      params: the initial model; None if it is drawn.
      on_host: whether it is made on the processor.
    """
    states = self._states
    if self.points.has_axes:
      # A single run is not compiled: an algorithm may look at its model.
      states = quickly_compiled(states)
    device = contextlib.nullcontext()
    if on_host:
      device = jax.default_device(target.host())
    with device:
      models = params
      if self.draw is not None:
        models = quickly_compiled(self._drawn)(self.points.seed_numbers)
      server, client_state = copies(states(models, self.points.hyperparameters))
      frozen_leaves = self._frozen(models)
      if self.draw is None:  # They are in the caller's buffers.
        frozen_leaves = copies(frozen_leaves)
      return RunState(server, client_state, frozen_leaves)

  def _inputs(self):
    models = self.model
    if self.draw is not None:
      models = jax.eval_shape(self._drawn, self.points.seed_numbers)
    return models, self.points.hyperparameters

  def _drawn(self, seeds):
    """The initial models; of a grid, leaves by seed are [seeds, ...]."""
    model_of = lambda seed: self.draw(run_key(seed))
    if not self.points.has_axes:
      return model_of(seeds)
    draw = lambda seed: self._part(model_of(seed), True)
    # One seed after the other: on CPU, jaxlib 0.10 can wait forever in batches
    # of QR decompositions, by which orthogonal matrices are drawn.
    models = lax.map(draw, seeds)
    if all(jax.tree.leaves(self._is_by_seed)):
      return models
    return trees.merge(models, self._part(model_of(seeds[0]), False))

  def _frozen(self, models):
    """Frozen leaves of the initial models: those by seed, and the others."""
    part = lambda by_seed: frozen.leaves_of(
      self._server_shapes, self._part(models, by_seed)
    )
    return part(True), part(False)

  def _states(self, models, hyperparameters):
    """The states of all points, leaves [settings, seeds, ...]."""
    if not self.points.has_axes:
      return self._of_point(models, hyperparameters)
    axes = jax.tree.map(
      lambda by_seed: 0 if by_seed else None, self._is_by_seed
    )
    over_seeds = jax.vmap(
      self._of_point, (axes, None), axis_size=len(self.points.seeds)
    )
    over_all = jax.vmap(
      over_seeds, (None, 0), axis_size=self.points.num_settings
    )
    return over_all(models, hyperparameters)

  def _of_point(self, params, hyperparameters):
    """The state of one point without its frozen leaves."""
    algorithm = self.points.make(**hyperparameters)
    server, client_state = contract.initial_states(
      algorithm, params, self.num_clients
    )
    return frozen.emptied(server), client_state

  @functools.cached_property
  def _server_shapes(self):
    """The shapes of the server's state at the first point."""
    first = self.points.hyperparameters
    if self.points.has_axes:
      first = trees.take(first, 0)
    start = lambda params, point: contract.initial_states(
      self.points.make(**point), params, self.num_clients
    )
    server, _ = jax.eval_shape(start, self.model, first)
    return server

  @functools.cached_property
  def _is_by_seed(self):
    """For each leaf of the model whether it depends on the seed of a grid.

    All do, as far as that is known, if none is frozen.
    """
    is_grid_of_keys = self.points.has_axes and self.draw is not None
    if not is_grid_of_keys or frozen.model_leaves(self._server_shapes) is None:
      return jax.tree.map(lambda leaf: is_grid_of_keys, self.model)
    model_of = lambda seed: self.draw(run_key(seed))
    structure = jax.tree.structure(self.model)
    return structure.unflatten(_which_depend(model_of, np.uint32(0)))

  def _part(self, models, by_seed):
    """The leaves that depend on the seed, or the others; None elsewhere."""
    take = lambda is_by_seed, leaf: leaf if is_by_seed is by_seed else None
    return jax.tree.map(take, self._is_by_seed, models)


def _which_depend(function, argument):
  """[leaves] bool, which leaves that a function returns depend on its argument.

  As far as it shows from outside of compiled functions: all that one of them
  returns depends on all that it is given.
  """
  program = jax.make_jaxpr(function)(argument).jaxpr
  deps = set(program.invars)
  for step in program.eqns:
    inputs = [atom for atom in step.invars if not isinstance(atom, Literal)]
    if not deps.isdisjoint(inputs):
      deps.update(step.outvars)
  return [
    not isinstance(leaf, Literal) and leaf in deps for leaf in program.outvars
  ]
