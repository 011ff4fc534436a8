"""Whole grids of hyperparameters and seeds in one compiled program."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_opt import host_memory, sharding
from fedjax_opt.base import Algorithm, Batch, Params
from fedjax_opt.checkpoint import Checkpoints
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.population import Population
from fedjax_opt.ledger import Record
from fedjax_opt.metrics import History
from fedjax_opt.program import Program, is_faster_side_by_side
from fedjax_opt.registry import check_choice, check_seeds
from fedjax_opt.sharding import Layout
from fedjax_opt.simulator import Report, Result, drive, run_rounds
from fedjax_opt.streaming import reading


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
  data: ClientData | Population | Callable[[int], ClientData | Population],
  *,
  rounds: int,
  seeds: Sequence[int] = (0,),
  test: Batch | None = None,
  on_evaluation: Callable[[Report], None] | None = None,
  checkpoints: Checkpoints | None = None,
  grid_map: str = "auto",
  grid_chunk: int | None = None,
  grid_devices: int | None = None,
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
    grid_chunk: how many settings are side by side; the chunks follow one
      another. If None as many as the memory of a device holds, by what the
      compiled program says that it needs.
    grid_devices: over how many devices the settings are divided. If None over
      as many as divide them; the others are for the clients.
    **settings: those of `Program.create`, see `simulate`.

  Returns:
    The result, its arrays with a leading axis S, in the order of
    `grid_points(grid, seeds)`. Points that diverged may be stopped, see
    `Settings`; what they would have measured is NaN.

  Raises:
    ValueError: naming the argument that cannot be.
  """
  check_grid_map(grid_map, grid_chunk)
  check_seeds(seeds)
  if grid_chunk is not None:
    grid_map = "vmap"
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
    num_clients = np.shape(data.sizes)[-1]
    return make(**hyperparameters).init(params, num_clients)

  def evaluated(hyperparameters, state):
    return make(**hyperparameters).params(state)

  one_model = jax.tree.map(lambda leaf: leaf[0], params)
  program = Program.create(
    data,
    one_model,
    grid_devices=grid_devices,
    num_settings=len(settings_of_grid),
    **settings,
  )
  is_on_disk = isinstance(data, Population)
  init_grid = jax.jit(
    jax.vmap(
      jax.vmap(init, (None, 0)), (0, None), axis_size=len(settings_of_grid)
    )
  )
  of_first = {name: settings_of_grid[0][name] for name in grid}
  program, memory = host_memory.place(
    program,
    make(**of_first),
    lambda: init_grid(hyperparameters, params),
    np.shape(data.sizes)[-1],
    seeds,
    is_grid=True,
  )

  def advance_point(  # See `_ARGUMENTS`.
    state, hyperparameters, key, clients, examples, test, stretch, *numbers
  ):
    data = clients if is_on_disk else ClientData(examples, *clients)
    algorithm = make(**hyperparameters)
    return run_rounds(
      program, algorithm, state, key, data, test, *numbers, stretch=stretch
    )

  if grid_map == "auto":
    batch_size = program.plan.batch_size
    faster = is_faster_side_by_side(one_model, batch_size)
    grid_map = "vmap" if faster else "scan"
  side_by_side = grid_map == "vmap"
  grid_settings = Settings(
    len(settings_of_grid), len(seeds), side_by_side, grid_chunk, program.layout
  )
  # Settings outside, seeds inside. What only the seed decides, above all a
  # round's batches, is then computed once for all settings of a seed, and their
  # models meet a batch in one matrix product.
  of_seed = _axes(
    state=0,
    key=0,
    clients=0 if own_data else None,
    stretch=1 if is_on_disk else None,
  )
  count_axis = None if side_by_side else 0
  of_setting = _axes(state=0, hyperparameters=0, count=count_axis)
  # [settings, seeds, ...] -> [S, ...]
  flat = lambda leaf: leaf.reshape(-1, *leaf.shape[2:])

  def advance(state, own, shared, stretch, first, count, is_due):
    runs, hyperparameters = own
    if not side_by_side:  # A setting of its own number of rounds.
      count = jnp.where(runs, count, 0)
    over_seeds, over_settings = grid_settings.maps(len(runs))
    advance_grid = over_settings(over_seeds(advance_point, of_seed), of_setting)
    state, record = advance_grid(
      state, hyperparameters, *shared, stretch, first, count, is_due
    )
    return state, jax.tree.map(flat, record)

  runs = np.ones(len(settings_of_grid), bool)
  with reading(data, program, seeds, with_seeds=True) as (known, loader):
    clients, examples = known, None
    if not is_on_disk:
      clients, examples = (data.indices, data.sizes), data.examples
    result = drive(
      program,
      advance,
      memory,
      own=(runs, hyperparameters),
      shared=(keys, clients, examples, test),
      rounds=rounds,
      on_evaluation=on_evaluation,
      checkpoints=checkpoints,
      grid=grid_settings,
      loader=loader,
    )
  result.state = grid_settings.restore(result.state)
  evaluated_grid = jax.vmap(jax.vmap(evaluated, (None, 0)))
  models = evaluated_grid(hyperparameters, result.state)
  result.params = jax.tree.map(flat, models)
  result.state = jax.tree.map(flat, result.state)
  return result


# Of the function that computes one point; those of `run_rounds` and its grid.
_ARGUMENTS = (
  "state", "hyperparameters", "key", "clients", "examples", "test", "stretch",
  "first", "count", "is_due",
)  # fmt: skip


def _axes(**axes):
  """`in_axes` of `jax.vmap` over those arguments; the others are shared."""
  return tuple(axes.get(name) for name in _ARGUMENTS)


def check_grid_map(grid_map: str, grid_chunk: int | None) -> None:
  """That these arguments of `sweep` can be.

  Raises:
    ValueError: naming the one that cannot.
  """
  check_choice("grid_map", grid_map, ("auto", "vmap", "scan"))
  if grid_chunk is not None and grid_chunk < 1:
    raise ValueError(f"grid_chunk={grid_chunk}: must be at least 1")
  if grid_chunk is not None and grid_map == "scan":
    raise ValueError(
      f"grid_chunk={grid_chunk} with grid_map='scan': scan takes one point "
      "after the other; use 'vmap' or 'auto'"
    )


class Settings:
  """The settings of a grid that still run, and how many are side by side.

  One that has diverged, with all its seeds, has no more to show. Where
  settings follow one another it takes no further rounds. Side by side it would
  only be masked; so where at least half of many have diverged they are dropped,
  and the others go on in a smaller program, which is compiled anew.

  Attributes:
    live: [live] numbers of those that run.
    held: [held] numbers of those that the program has in its arrays.
  """

  _MANY = 16

  def __init__(
    self,
    num_settings: int,
    num_seeds: int,
    side_by_side: bool,
    chunk: int | None = None,
    layout: Layout | None = None,
  ):
    """All run.

    Args:
      num_settings: of the grid.
      num_seeds: of each setting.
      side_by_side: whether settings are computed side by side.
      chunk: how many of them at most; None to see what fits.
      layout: of the devices.
    """
    self.live = self.held = np.arange(num_settings)
    self._num_settings, self._num_seeds = num_settings, num_seeds
    self._side_by_side = side_by_side
    self._chunk, self._is_free = chunk, chunk is None
    self._devices = 1 if layout is None else layout.grid_devices
    self._left: list[tuple[np.ndarray, Any]] = []

  def maps(self, num_settings: int) -> tuple[Callable, Callable]:
    """How to map over seeds and over so many settings; both as `jax.vmap`."""
    if not self._side_by_side:
      return _in_chunks(None), _in_chunks(None)
    if self._chunk is None or self._chunk >= num_settings:
      return jax.vmap, jax.vmap
    return jax.vmap, _in_chunks(self._chunk)

  def shrink(self, compiled: Any) -> bool:
    """Whether the program is too large, and fewer settings are to be a chunk.

    Args:
      compiled: the program, as `jax.jit(...).lower(...).compile()` gives it.
    """
    whole = len(self.held) // self._devices
    chunk = min(self._chunk or whole, whole)
    if not (self._is_free and self._side_by_side and chunk > 1):
      return False
    need, have = needed_bytes(compiled), sharding.memory_bytes()
    at_most = chunk
    if need is not None and have is not None and need > have:
      at_most = max(1, min(int(chunk * have / need), chunk - 1))
    # The program is that of all processes.
    at_most = -sharding.of_any_process(-at_most)
    if at_most == chunk:
      return False
    # Divided evenly if possible, else the last chunk is a program of its own.
    even = [n for n in range(1, at_most + 1) if whole % n == 0]
    self._chunk = even[-1] if 2 * even[-1] >= at_most else at_most
    return True

  def drop(
    self, history: History, state: Any, own: tuple
  ) -> tuple[Any, tuple] | None:
    """State and settings without the diverged ones; None if all stay.

    Args:
      history: what was measured so far.
      state: leaves [held, seeds, ...].
      own: which settings run, and their hyperparameters.
    """
    if not history.rounds:
      return None
    diverged = history.diverged()[:, -1].reshape(-1, self._num_seeds)
    is_kept = ~diverged.all(axis=1)[self.live]
    if not is_kept.any():  # Something has to be computed.
      is_kept[0] = True
    _, hyperparameters = own
    if not self._side_by_side:
      if is_kept.all():
        return None
      self.live = self.live[is_kept]
      return state, (np.isin(self.held, self.live), hyperparameters)
    # Over devices they are divided evenly, and are to stay so.
    if self._devices > 1 or jax.process_count() > 1:
      return None
    if len(is_kept) < self._MANY or 2 * np.sum(is_kept) > len(is_kept):
      return None
    self._left.append((self.live[~is_kept], _take(state, ~is_kept)))
    self.live = self.held = self.live[is_kept]
    runs = np.ones(len(self.live), bool)
    hyperparameters = _take(hyperparameters, is_kept)
    return _take(state, is_kept), (runs, hyperparameters)

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
    self, record: Mapping[str, np.ndarray], state: Any, own: tuple
  ) -> tuple[Any, tuple]:
    """Goes on from a checkpoint: those settings that were held then.

    Args:
      record: has what `numbers` gave.
      state: of all settings, as `restore` gave it.
      own: as of `drop`, of all settings.
    """
    if self._devices > 1:  # None is dropped here, see `drop`.
      return state, own
    self.live, self.held = record["grid/live"], record["grid/held"]
    gone = np.setdiff1d(np.arange(self._num_settings), self.held)
    if gone.size:
      self._left.append((gone, _take(state, gone)))
    _, hyperparameters = own
    runs = np.isin(self.held, self.live)
    own = (runs, _take(hyperparameters, self.held))
    return _take(state, self.held), own

  def restore(self, state: Any) -> Any:
    """The state of all settings, of those dropped as they were then."""
    if not self._left:
      return state
    numbers = np.concatenate([*[rows for rows, _ in self._left], self.held])
    order = np.argsort(numbers)

    def join(*leaves):
      # What is on the host stays there.
      on_host = isinstance(leaves[-1], np.ndarray)
      return (np if on_host else jnp).concatenate(leaves)[order]

    return jax.tree.map(join, *[state for _, state in self._left], state)


def _take(tree: Any, rows: np.ndarray) -> Any:
  """These rows of every leaf."""
  return jax.tree.map(lambda leaf: leaf[rows], tree)


def needed_bytes(compiled: Any) -> int | None:
  """The memory that a compiled program needs on each of its devices.

  None where the backend does not tell.
  """
  analysis = compiled.memory_analysis()
  if analysis is None:
    return None
  return (
    analysis.argument_size_in_bytes
    + analysis.output_size_in_bytes
    - analysis.alias_size_in_bytes
    + analysis.temp_size_in_bytes
  )


def _in_chunks(chunk: int | None):
  """As `jax.vmap`, but for so many at a time; None: one, without an axis."""

  def over(fn, in_axes):
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
      mapped_args = [
        jax.tree.map(lambda leaf, axis=axis: jnp.moveaxis(leaf, axis, 0), arg)
        for arg, axis in pairs
        if axis is not None
      ]
      return lax.map(one_point, mapped_args, batch_size=chunk)

    return mapped

  return over


def _data_of_seeds(data, seeds):
  """The clients' data, and whether each seed has its own [seeds, M, ...]."""
  if isinstance(data, Population) or not callable(data):
    return data, False
  each = [data(seed) for seed in seeds]
  first = each[0]
  if all(other is first for other in each):
    return first, False
  if any(isinstance(one, Population) for one in each):
    raise ValueError("data: a population on disk must be that of all seeds")
  if any(other.examples is not first.examples for other in each):
    raise ValueError("data: the clients of all seeds must share the examples")
  width = max(other.indices.shape[-1] for other in each)
  pad = lambda rows: np.pad(rows, ((0, 0), (0, width - rows.shape[-1])))
  return ClientData(
    first.examples,
    indices=np.stack([pad(one.indices) for one in each]),
    sizes=np.stack([one.sizes for one in each]),
  ), True
