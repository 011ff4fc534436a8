"""The state before the first round: how it is made."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_opt import contract, processes
from fedjax_opt.base import Algorithm, Params
from fedjax_opt.engine.inputs import is_function_of_key
from fedjax_opt.engine.programs import copies, run_once


class Start(NamedTuple):
  """What a run begins with.

  Attributes:
    make: `(**hyperparameters) -> Algorithm`.
    params: the initial model, or a function from a random key to one; checked.
    seeds: [seeds] uint32; [] of a single run.
    hyperparameters: {name: [settings]}; {name: []} of a single run.
    num_settings: of the grid.
    num_clients: M.
  """

  make: Callable[..., Algorithm]
  params: Any
  seeds: np.ndarray
  hyperparameters: Mapping[str, np.ndarray]
  num_settings: int
  num_clients: int

  def shapes(self) -> tuple[Any, Any]:
    """Those of the state of all points: the server's, and what clients keep."""
    return jax.eval_shape(self._states, *self._inputs())

  def lowered(self) -> jax.stages.Lowered:
    """The program that makes the state, given the initial models."""
    return jax.jit(self._states).lower(*self._inputs())

  def state(self, on_host: bool) -> tuple[Any, Any]:
    """The state of all points, in buffers of its own.

    Args:
      on_host: whether it is made on the processor.
    """
    models, states = self._models, self._states
    if is_function_of_key(self.params):
      models = run_once(models)
    if self.seeds.ndim:
      # A single run is not compiled: an algorithm may look at its model.
      states = run_once(states)
    device = contextlib.nullcontext()
    if on_host:
      device = jax.default_device(processes.host())
    with device:
      return copies(states(models(self.seeds), self.hyperparameters))

  def _inputs(self):
    return jax.eval_shape(self._models, self.seeds), self.hyperparameters

  def _models(self, seeds):
    """The initial models, leaves [seeds, ...]; of a single run without axis."""
    if not seeds.ndim:
      return model_of(self.params, seeds)
    if is_function_of_key(self.params):
      # One seed after the other: on CPU, jaxlib 0.10 can wait forever in
      # batches of QR decompositions, by which orthogonal matrices are drawn.
      return lax.map(lambda seed: model_of(self.params, seed), seeds)
    repeat = lambda leaf: jnp.repeat(leaf[None], len(seeds), 0)
    return jax.tree.map(repeat, self.params)

  def _states(self, models, hyperparameters):
    """The states of all points, leaves [settings, seeds, ...]."""

    def of_point(params, hyperparameters):
      algorithm = self.make(**hyperparameters)
      return contract.start(algorithm, params, self.num_clients)

    if not self.seeds.ndim:
      return of_point(models, hyperparameters)
    over_seeds = jax.vmap(of_point, (0, None), axis_size=len(self.seeds))
    over_all = jax.vmap(over_seeds, (None, 0), axis_size=self.num_settings)
    return over_all(models, hyperparameters)


def model_of(params: Any, seed: jax.typing.ArrayLike) -> Params:
  """The initial model of a seed, given it or a function from a random key."""
  if is_function_of_key(params):
    return params(jax.random.key(seed))
  return params
