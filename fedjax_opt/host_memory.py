"""Where the state is: on the devices, or what clients keep on the host.

What every client keeps between rounds may be too large for a device. The rows
of all clients then lie on the host; before each round those of its cohort go to
the device, and after it they come back; the program sees no others.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_opt import sharding
from fedjax_opt.base import Algorithm, State, tree_bytes
from fedjax_opt.cohort import members_of_round
from fedjax_opt.program import Program

# The part of a device's memory that clients may fill before 'auto' takes the
# host's: the examples, and what is computed, need the rest.
_SHARE = 0.5


class HostMemory:
  """Makes the state, and lends it to the devices.

  A whole state has what clients keep on the host as NumPy arrays, [M, ...] or
  of a grid [settings, seeds, M, ...]; they are changed in place. A lent one is
  all on the devices, with C in place of M there. If nothing is kept on the host
  both are the same.
  """

  def __init__(
    self,
    program: Program,
    algorithm: Algorithm,
    init: Callable[[], State],
    num_clients: int,
    seeds: Sequence[int],
    is_grid: bool,
  ):
    """Holds no array itself.

    Args:
      program: static settings, of `place`.
      algorithm: of any setting.
      init: gives the state, of all points if there is a grid.
      num_clients: M.
      seeds: of the runs, each with its own cohorts.
      is_grid: whether states are those of a grid.
    """
    self._init, self._is_grid = init, is_grid
    self._put = program.layout.put_own
    self._shapes, self._structure = jax.tree.flatten(jax.eval_shape(init))
    # Numbers of the leaves that are on the host.
    self._kept = []
    if program.client_memory == "host":
      numbers = self._structure.unflatten(range(len(self._shapes)))
      self._kept = jax.tree.leaves(algorithm.memory(numbers))
    seeds = np.asarray(seeds, np.uint32)

    def draw(round):
      of_seed = lambda seed: members_of_round(program, seed, round, num_clients)
      return jax.vmap(of_seed)(seeds)  # [seeds, C]

    self._draw = jax.jit(draw)

  def start(self) -> State:
    """The whole state of round 0."""
    device = contextlib.nullcontext()
    if self._kept:
      device = jax.default_device(sharding.host())
    with device:
      leaves = jax.tree.leaves(self._init())
    # What is donated must have a buffer of its own, and what stays on the host
    # one that can be written; each original goes once there is a copy of it.
    for i, leaf in enumerate(leaves):
      leaves[i] = np.array(leaf) if i in self._kept else jnp.array(leaf)
    return self._structure.unflatten(leaves)

  def shapes(self) -> State:
    """What a whole state looks like, NumPy arrays where it has them."""
    leaves = list(self._shapes)
    for i in self._kept:
      leaves[i] = np.empty(leaves[i].shape, leaves[i].dtype)
    return self._structure.unflatten(leaves)

  def put(self, whole: State) -> State:
    """The same state, what is not kept on the host on the devices."""
    leaves = jax.tree.leaves(whole)
    for i, leaf in enumerate(leaves):
      leaves[i] = leaf if i in self._kept else self._put(leaf)
    return self._structure.unflatten(leaves)

  def lend(self, whole: State, round: int) -> State:
    """The lent state for this round; for any if nothing is on the host."""
    return self._lend(whole, self._rows(round))

  def _lend(self, whole, rows):
    leaves = jax.tree.leaves(whole)
    for i in self._kept:
      leaves[i] = self._put(leaves[i][rows])
    return self._structure.unflatten(leaves)

  def run(
    self, compiled: Callable, whole: State, round: int, *inputs: Any
  ) -> tuple[State, Any]:
    """Calls a program on the state.

    Args:
      compiled: `(state, *inputs) -> (state, record)`.
      whole: the state, put on the devices; donated.
      round: the first round that is computed, the only one if anything is kept
        on the host.
      inputs: passed on.

    Returns:
      The whole state after it, and the record.
    """
    rows = self._rows(round)
    lent, record = compiled(self._lend(whole, rows), *inputs)
    if not self._kept:
      return lent, record
    leaves = jax.tree.leaves(lent)
    fetched = sharding.fetch([leaves[i] for i in self._kept])
    all_rows = jax.tree.leaves(whole)
    for i, own in zip(self._kept, fetched, strict=True):
      all_rows[i][rows] = own
      leaves[i] = all_rows[i]
    return self._structure.unflatten(leaves), record

  def _rows(self, round):
    """The index of the cohort's rows into the arrays on the host."""
    if not self._kept:
      return None
    with jax.default_device(sharding.host()):
      cohorts = np.asarray(self._draw(np.int32(round)))
    if not self._is_grid:
      return cohorts[0]
    return slice(None), np.arange(len(cohorts))[:, None], cohorts


def check_memory(program: Program, algorithm: Algorithm) -> None:
  """That what is to be on the host can be.

  Raises:
    ValueError: if there is nothing, or no host.
  """
  if program.client_memory != "host":
    return
  if algorithm.memory is None:
    raise ValueError(
      "client_memory='host': this algorithm keeps nothing for its clients (it "
      "has no `Algorithm.memory`); leave client_memory out"
    )
  if sharding.host() is None:
    raise ValueError(
      "client_memory='host': JAX was started without the processor; give "
      "JAX_PLATFORMS=cuda,cpu"
    )


def place(
  program: Program,
  algorithm: Algorithm,
  init: Callable[[], State],
  num_clients: int,
  seeds: Sequence[int],
  is_grid: bool,
) -> tuple[Program, HostMemory]:
  """Decides where what clients keep is to be.

  Args:
    program: static settings, perhaps with 'auto' for `client_memory`.
    algorithm: of any setting.
    init: see `HostMemory`.
    num_clients: M.
    seeds: see `HostMemory`.
    is_grid: see `HostMemory`.

  Returns:
    The program with 'device' or 'host', and what makes and lends its state.

  Raises:
    ValueError: see `check_memory`.
  """
  check_memory(program, algorithm)
  where = program.client_memory
  if where == "auto":
    on_host = _is_too_much(program, algorithm, init, num_clients)
    where = "host" if on_host else "device"
  program = dataclasses.replace(program, client_memory=where)
  memory = HostMemory(program, algorithm, init, num_clients, seeds, is_grid)
  return program, memory


def _is_too_much(program, algorithm, init, num_clients):
  """Whether clients would fill a device, and the host could help."""
  if algorithm.memory is None or sharding.host() is None:
    return False
  # What is most of the population would come and go as a whole, and a
  # processor's memory is the host's.
  if 2 * program.cohort_size > num_clients or jax.default_backend() == "cpu":
    return False
  need = tree_bytes(algorithm.memory(jax.eval_shape(init)))
  need //= program.layout.grid_devices
  have = sharding.memory_bytes()
  too_much = have is not None and need > _SHARE * have
  # The program is that of all processes.
  return bool(sharding.of_any_process(int(too_much)))
