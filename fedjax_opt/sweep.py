"""Whole grids of hyperparameters and seeds in one compiled program."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_opt.base import Algorithm, Batch, Params
from fedjax_opt.checkpoint import Checkpoints
from fedjax_opt.data.clients import ClientData
from fedjax_opt.hyperparameters import check_choice
from fedjax_opt.metrics import History
from fedjax_opt.program import Program, is_faster_side_by_side
from fedjax_opt.simulator import Record, Report, Result, drive, run_rounds


def grid_points(
  grid: Mapping[str, Sequence[float]], seeds: Sequence[int] = (0,)
) -> list[dict[str, float]]:
  """All combinations of hyperparameters and seeds; the last name runs fastest.

  Args:
    grid: {name: values}.
    seeds: of the runs.

  Returns:
    S points: {name: value, ..., 'seed': seed}.
  """
  axes = {**grid, "seed": seeds}
  for name, values in axes.items():
    if len(values) == 0:
      raise ValueError(f"{name}: give at least one value")
  return [
    dict(zip(axes, values, strict=True))
    for values in itertools.product(*axes.values())
  ]


def sweep(
  make: Callable[..., Algorithm],
  grid: Mapping[str, Sequence[float]],
  params: Params | Callable[[jax.Array], Params],
  data: ClientData | Callable[[int], ClientData],
  *,
  rounds: int,
  seeds: Sequence[int] = (0,),
  test: Batch | None = None,
  on_evaluation: Callable[[Report], None] | None = None,
  checkpoints: Checkpoints | None = None,
  grid_map: str = "auto",
  **settings: Any,
) -> Result:
  """Simulates an algorithm at every point of a grid, in one program.

  Args:
    make: `(**hyperparameters) -> Algorithm`; called with traced scalars, for
      all settings at once.
    grid: {name: values}, the hyperparameters to combine; {} for one setting.
    params: the initial model, or a function from a random key to one.
    data: the clients' examples, or a function from a seed to them; what it
      gives must share the pooled examples.
    rounds: R, communication rounds.
    seeds: each makes one run of each setting.
    test: see `simulate`.
    on_evaluation: see `simulate`.
    checkpoints: see `simulate`.
    grid_map: 'vmap' computes the points side by side, 'scan' one after the
      other (diverged ones then take no more time), 'auto' chooses.
    **settings: those of `Program.create`, see `simulate`.

  Returns:
    The result, its arrays with a leading axis S, in the order of
    `grid_points(grid, seeds)`. Points that diverged may be stopped, see
    `Settings`; what they would have measured is NaN.

  Raises:
    ValueError: naming the argument that cannot be.
  """
  check_choice("grid_map", grid_map, ("auto", "vmap", "scan"))
  settings_of_grid = grid_points(grid, seeds[:1])
  hyperparameters = {
    name: jnp.asarray([point[name] for point in settings_of_grid])
    for name in grid
  }  # [settings]
  keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))  # [seeds]
  data, own_data = _data_of_seeds(data, seeds)
  if callable(params):
    params = jax.jit(jax.vmap(params))(keys)
  else:
    repeat = lambda leaf: jnp.repeat(jnp.asarray(leaf)[None], len(seeds), 0)
    params = jax.tree.map(repeat, params)

  def init(hyperparameters, params):
    return make(**hyperparameters).init(params, data.sizes.shape[-1])

  def evaluated(hyperparameters, state):
    return make(**hyperparameters).params(state)

  def advance_point(
    state, hyperparameters, key, clients, examples, test, *stretch
  ):
    data = ClientData(examples, *clients)
    algorithm = make(**hyperparameters)
    return run_rounds(program, algorithm, state, key, data, test, *stretch)

  one_model = jax.tree.map(lambda leaf: leaf[0], params)
  program = Program.create(data, one_model, **settings)
  if grid_map == "auto":
    batch_size = program.plan.batch_size
    faster = is_faster_side_by_side(one_model, batch_size)
    grid_map = "vmap" if faster else "scan"
  side_by_side = grid_map == "vmap"
  over = jax.vmap if side_by_side else _one_after_another
  # Settings outside, seeds inside. What only the seed decides, above all a
  # round's batches, is then computed once for all settings of a seed, and their
  # models meet a batch in one matrix product.
  none = (None,) * 3
  of_seed = (0, None, 0, 0 if own_data else None, *none, None, None)
  of_setting = (0, 0, *none, None, None, None if side_by_side else 0, None)
  advance_grid = over(over(advance_point, of_seed), of_setting)
  # [settings, seeds, ...] -> [S, ...]
  flat = lambda leaf: leaf.reshape(-1, *leaf.shape[2:])

  def advance(state, inputs, first, count, is_due):
    runs, *inputs = inputs
    if not side_by_side:  # A setting of its own number of rounds.
      count = jnp.where(runs, count, 0)
    state, record = advance_grid(state, *inputs, first, count, is_due)
    return state, jax.tree.map(flat, record)

  # Copied leaf by leaf: what is donated must have a buffer of its own.
  init_grid = jax.vmap(
    jax.vmap(init, (None, 0)), (0, None), axis_size=len(settings_of_grid)
  )
  state = jax.jit(init_grid)(hyperparameters, params)
  state = jax.tree.map(jnp.array, state)
  clients = (data.indices, data.sizes)
  runs = np.ones(len(settings_of_grid), bool)
  inputs = (runs, hyperparameters, keys, clients, data.examples, test)
  grid_settings = Settings(len(settings_of_grid), len(seeds), side_by_side)
  result = drive(
    program,
    advance,
    state,
    inputs,
    rounds,
    on_evaluation,
    checkpoints,
    grid_settings,
  )
  result.state = grid_settings.restore(result.state)
  evaluated_grid = jax.vmap(jax.vmap(evaluated, (None, 0)))
  models = evaluated_grid(hyperparameters, result.state)
  result.params = jax.tree.map(flat, models)
  result.state = jax.tree.map(flat, result.state)
  return result


class Settings:
  """The settings of a grid that still run.

  One that has diverged, with all its seeds, has no more to show. Where
  settings follow one another it takes no further rounds. Side by side it would
  only be masked; so where at least half of many have diverged they are dropped,
  and the others go on in a smaller program, which is compiled anew.

  Attributes:
    live: [live] numbers of those that run.
    held: [held] numbers of those that the program has in its arrays.
  """

  _MANY = 16

  def __init__(self, num_settings: int, num_seeds: int, side_by_side: bool):
    self.live = self.held = np.arange(num_settings)
    self._num_settings, self._num_seeds = num_settings, num_seeds
    self._side_by_side = side_by_side
    self._left: list[tuple[np.ndarray, Any]] = []

  def drop(
    self, history: History, state: Any, inputs: tuple
  ) -> tuple[Any, tuple] | None:
    """State and inputs without the diverged settings; None if all stay.

    Args:
      history: what was measured so far.
      state: leaves [held, seeds, ...].
      inputs: of the program: which settings run, their hyperparameters, and
        what all of them share.
    """
    if not history.rounds:
      return None
    diverged = history.diverged()[:, -1].reshape(-1, self._num_seeds)
    is_kept = ~diverged.all(axis=1)[self.live]
    if not is_kept.any():  # Something has to be computed.
      is_kept[0] = True
    _, hyperparameters, *shared = inputs
    if not self._side_by_side:
      if is_kept.all():
        return None
      self.live = self.live[is_kept]
      return state, (np.isin(self.held, self.live), hyperparameters, *shared)
    if len(is_kept) < self._MANY or 2 * np.sum(is_kept) > len(is_kept):
      return None
    self._left.append((self.live[~is_kept], _take(state, ~is_kept)))
    self.live = self.held = self.live[is_kept]
    runs = np.ones(len(self.live), bool)
    hyperparameters = _take(hyperparameters, is_kept)
    return _take(state, is_kept), (runs, hyperparameters, *shared)

  def widen(self, record: Record) -> Record:
    """[held x seeds, ...] -> [S, ...]; what does not run is NaN."""
    if len(self.live) == self._num_settings:
      return record
    rows = np.isin(self.held, self.live)

    def spread(leaf, fill):
      leaf = leaf.reshape(-1, self._num_seeds, *leaf.shape[1:])[rows]
      wide = np.full((self._num_settings, *leaf.shape[1:]), fill(leaf))
      wide[self.live] = leaf
      return wide.reshape(-1, *leaf.shape[2:])

    metrics, totals, traces = record
    # A rank is whole and has no NaN.
    nan = lambda leaf: np.promote_types(leaf.dtype, np.float32).type(np.nan)
    return Record(
      jax.tree.map(lambda leaf: spread(leaf, nan), metrics),
      # What it would have cost: no point costs less than another.
      jax.tree.map(lambda leaf: spread(leaf, lambda leaf: leaf[:1]), totals),
      jax.tree.map(lambda leaf: spread(leaf, nan), traces),
    )

  def numbers(self) -> dict[str, np.ndarray]:
    """Which settings run and are held, for a checkpoint."""
    return {"grid/live": self.live, "grid/held": self.held}

  def take_up(
    self, record: Mapping[str, np.ndarray], state: Any, inputs: tuple
  ) -> tuple[Any, tuple]:
    """Goes on from a checkpoint: state and inputs of the settings held then.

    Args:
      record: has what `numbers` gave.
      state: of all settings, as `restore` gave it.
      inputs: of all settings.
    """
    self.live, self.held = record["grid/live"], record["grid/held"]
    gone = np.setdiff1d(np.arange(self._num_settings), self.held)
    if gone.size:
      self._left.append((gone, _take(state, gone)))
    _, hyperparameters, *shared = inputs
    runs = np.isin(self.held, self.live)
    inputs = (runs, _take(hyperparameters, self.held), *shared)
    return _take(state, self.held), inputs

  def restore(self, state: Any) -> Any:
    """The state of all settings, of those dropped as they were then."""
    numbers = np.concatenate([*[rows for rows, _ in self._left], self.held])
    order = np.argsort(numbers)
    join = lambda *leaves: jnp.concatenate(leaves)[order]
    return jax.tree.map(join, *[state for _, state in self._left], state)


def _take(tree: Any, rows: np.ndarray) -> Any:
  """These rows of every leaf."""
  return jax.tree.map(lambda leaf: leaf[rows], tree)


def _one_after_another(fn, in_axes):
  """As `jax.vmap(fn, in_axes)`, but points follow one another."""

  def mapped(*args):
    def one_point(own):
      own = iter(own)
      return fn(
        *[
          arg if axis is None else next(own)
          for arg, axis in zip(args, in_axes, strict=True)
        ]
      )

    pairs = zip(args, in_axes, strict=True)
    return lax.map(one_point, [arg for arg, axis in pairs if axis == 0])

  return mapped


def _data_of_seeds(data, seeds):
  """The clients' data, and whether each seed has its own [seeds, M, ...]."""
  if not callable(data):
    return data, False
  each = [data(seed) for seed in seeds]
  first = each[0]
  if all(other is first for other in each):
    return first, False
  if any(other.examples is not first.examples for other in each):
    raise ValueError("data: the clients of all seeds must share the examples")
  width = max(other.indices.shape[-1] for other in each)
  pad = lambda rows: np.pad(rows, ((0, 0), (0, width - rows.shape[-1])))
  return ClientData(
    first.examples,
    indices=np.stack([pad(one.indices) for one in each]),
    sizes=np.stack([one.sizes for one in each]),
  ), True
