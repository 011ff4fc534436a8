"""Which settings of a grid still run.

A setting that has diverged at all its seeds needs no more rounds. Where
settings are computed one after the other, it is skipped. Where they are
vectorized, it is computed all the same; if at least half of many settings have
diverged, these are dropped, and the others continue in a smaller program, which
is compiled anew.
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from fedjax_opt import multi_process
from fedjax_opt.arrays import target, trees
from fedjax_opt.engine.compilation import map_arrays
from fedjax_opt.engine.config import Config
from fedjax_opt.engine.run_state import GridPoints, RunState
from fedjax_opt.results.history import History

# From how many vectorized settings on diverged ones are dropped.
_MANY_SETTINGS = 16


class ActiveSettings:
  """The settings of a run that have not diverged; a single run has one.

  Attributes:
    points: the points of the run.
    active: [active] numbers of the settings that run.
    present: [present] numbers of the settings in the arrays of the program; the
      active ones, and those that have diverged but were not dropped.
  """

  def __init__(self, config: Config, points: GridPoints):
    """All settings run.

    Args:
      config: static options.
      points: the points of the run.
    """
    self.points, self._config = points, config
    self.active = self.present = np.arange(points.num_settings)
    self._devices = config.layout.grid_devices
    # What rounds change, for all settings, at the time of the last drop.
    self._state_before_drop: dict[str, Any] | None = None

  @property
  def is_active(self) -> np.ndarray:
    """[present] bool, which of the settings that are present run."""
    return np.isin(self.present, self.active)

  @property
  def has_all(self) -> bool:
    """Whether all settings still run."""
    return len(self.active) == self.points.num_settings

  def drop(self, history: History, state: RunState) -> RunState | None:
    """The state without the settings that have diverged; None if all stay.

    Args:
      history: what was measured so far.
      state: leaves [present, seeds, ...].
    """
    if not (history.rounds and self.points.has_axes):
      return None
    if self._config.costs_differ:  # What it would spend is not known.
      return None
    diverged = history.diverged()[:, -1].reshape(-1, len(self.points.seeds))
    is_kept = ~diverged.all(axis=1)[self.active]
    if not is_kept.any():  # A program needs at least one setting.
      is_kept[0] = True
    if not self._config.vmaps_points:
      self.active = self.active[is_kept]
      return None
    # Several devices need the same number of settings each.
    if self._devices > 1 or jax.process_count() > 1:
      return None
    if len(is_kept) < _MANY_SETTINGS or 2 * np.sum(is_kept) > len(is_kept):
      return None
    self._state_before_drop = _on_host(_changing(self.state_of_all(state)))
    self.active = self.present = self.active[is_kept]
    return _of_settings(state, is_kept)

  def expand(self, recorded: Any, fill: str = "nan") -> Any:
    """What a program recorded, [present, seeds, ...] -> [S, ...].

    Args:
      recorded: metrics, counts or traces.
      fill: what settings get that do not run: 'nan', 'zero', or 'first', the
        values of the first one that runs.
    """

    def expanded(leaf):
      leaf = np.asarray(leaf)
      if not self.points.has_axes:
        return leaf[None]
      if not self.has_all:
        leaf = leaf[self.is_active]
        # Whole numbers, such as a rank, have no NaN.
        nan = np.promote_types(leaf.dtype, np.float32).type(np.nan)
        shape = (self.points.num_settings, *leaf.shape[1:])
        values = {"nan": nan, "zero": leaf.dtype.type(0), "first": leaf[:1]}
        rows = np.full(shape, values[fill])
        rows[self.active] = leaf
        leaf = rows
      return leaf.reshape(-1, *leaf.shape[2:])

    return jax.tree.map(expanded, recorded)

  def flat(self, tree: Any) -> Any:
    """The axes of a result, [settings, seeds, ...] -> [S, ...].

    A grid of one point gets an axis; a single run has none.
    """
    if not self.points.is_grid:
      return tree
    num_axes = 2 if self.points.has_axes else 0
    return map_arrays(_with_one_axis, tree, self.points.num_points, num_axes)

  def flat_frozen(self, frozen_leaves: tuple[Any, Any]) -> Any:
    """The frozen leaves in the shape of a result; repeated ones are views.

    Args:
      frozen_leaves: see `RunState`.
    """
    by_seed, shared = frozen_leaves
    if not self.points.is_grid:
      return shared
    by_seed, shared = multi_process.fetch((by_seed, shared))
    axes = self.points.num_settings, len(self.points.seeds)

    def repeated(leaf):
      shape = leaf.shape[1:]
      return np.broadcast_to(leaf, (*axes, *shape)).reshape(-1, *shape)

    shared = jax.tree.map(lambda leaf: leaf[None], shared)
    return jax.tree.map(repeated, trees.merge(by_seed, shared))

  def to_arrays(self) -> dict[str, np.ndarray]:
    """Which settings run and are present, for a checkpoint."""
    return {"grid/active": self.active, "grid/present": self.present}

  def restore(
    self, arrays: Mapping[str, np.ndarray], state: RunState
  ) -> RunState:
    """Continues from a checkpoint, with the settings that were present in it.

    Args:
      arrays: has what `to_arrays` gave.
      state: the state of all settings, which `state_of_all` returned.

    Returns:
      The state of the settings that are present.
    """
    if not self.points.has_axes:
      return state
    vmaps_points = self._config.vmaps_points
    if self._devices > 1:  # All settings are present, see `drop`.
      if not vmaps_points:
        self.active = arrays["grid/active"]
      return state
    self.active, self.present = arrays["grid/active"], arrays["grid/present"]
    # Diverged settings may have stayed present in the run that saved this.
    if vmaps_points:
      self.present = self.active
    if len(self.present) < self.points.num_settings:
      self._state_before_drop = _on_host(_changing(state))
    return _of_settings(state, self.present)

  def state_of_all(self, state: RunState) -> RunState:
    """The state of all settings; dropped ones have their last state."""
    if self._state_before_drop is None:
      return state

    def put_back(leaf, saved):
      if isinstance(saved, np.ndarray):
        saved = saved.copy()
        saved[self.present] = leaf
        return saved
      present_rows = jax.device_put(leaf, saved.sharding)
      rows = saved.at[self.present].set(present_rows)
      return jax.device_put(rows, leaf.sharding)

    fields = jax.tree.map(put_back, _changing(state), self._state_before_drop)
    return state._replace(**fields)


def _changing(state):
  """What rounds change, by name: all but the frozen leaves."""
  return {"server": state.server, "client_state": state.client_state}


def _of_settings(state, settings):
  """The state of some settings, with the frozen leaves of all settings."""
  return state._replace(**trees.take(_changing(state), settings))


def _on_host(tree):
  """The arrays on the CPU, if JAX has it."""
  cpu = target.host()
  put = lambda x: x if isinstance(x, np.ndarray) else jax.device_put(x, cpu)
  return jax.tree.map(put, tree)


def _with_one_axis(leaf, num_points, num_axes):
  return leaf.reshape(num_points, *leaf.shape[num_axes:])
