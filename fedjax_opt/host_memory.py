"""What every client keeps between rounds, where a device is too small for it.

The rows of all clients then lie on the host. Before each round those of its
cohort go to the device, and after it they come back; the program sees no
others.
"""

import dataclasses
from collections.abc import Callable, Sequence

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
  """Lends a state to the devices for some rounds.

  A whole state has what clients keep on the host as NumPy arrays, [M, ...] or
  of a grid [settings, seeds, M, ...]; they are changed in place. A lent one is
  all on the devices, with C in place of M there. If nothing is kept on the host
  both are the same.
  """

  def __init__(
    self,
    program: Program,
    is_kept: State,
    num_clients: int,
    seeds: Sequence[int],
    has_points: bool,
  ):
    """Holds no array itself.

    Args:
      program: static settings.
      is_kept: tree of bool, which leaves of a state are kept on the host.
      num_clients: M.
      seeds: of the runs, each with its own cohorts.
      has_points: whether states are those of a grid.
    """
    self._is_kept, self._has_points = is_kept, has_points
    self._put = program.layout.put_own
    seeds = jnp.asarray(np.asarray(seeds, np.uint32))

    def draw(round):
      of_seed = lambda seed: members_of_round(program, seed, round, num_clients)
      return jax.vmap(of_seed)(seeds)  # [seeds, C]

    self._draw = jax.jit(draw)

  def lend(self, whole: State, round: int) -> State:
    """The lent state for a round, or from it on if nothing is on the host."""
    rows = self._rows(round)
    take = lambda leaf, is_kept: leaf[rows] if is_kept else leaf
    return self._put(jax.tree.map(take, whole, self._is_kept))

  def take_back(self, whole: State, lent: State, round: int) -> State:
    """The whole state after that."""
    rows = self._rows(round)

    def keep(leaf, own, is_kept):
      if not is_kept:
        return own
      leaf[rows] = sharding.fetch(own)
      return leaf

    return jax.tree.map(keep, whole, lent, self._is_kept)

  def _rows(self, round):
    """The index of the cohort's rows into the arrays on the host."""
    if not any(jax.tree.leaves(self._is_kept)):
      return None
    with jax.default_device(sharding.host()):
      cohorts = np.asarray(self._draw(np.int32(round)))
    if not self._has_points:
      return cohorts[0]
    return slice(None), np.arange(len(cohorts))[:, None], cohorts


def check_memory(program: Program, algorithm: Algorithm) -> None:
  """That there is something to keep where the program would have it.

  Raises:
    ValueError: if it is to be on the host and there is nothing.
  """
  if program.client_memory == "host" and algorithm.memory is None:
    raise ValueError(
      "client_memory='host': this algorithm has no memory of its clients "
      "(`Algorithm.memory`); leave client_memory out"
    )


def start(
  program: Program,
  algorithm: Algorithm,
  init: Callable[[], State],
  num_clients: int,
  seeds: Sequence[int],
  has_points: bool = False,
) -> tuple[Program, State, HostMemory]:
  """The state of round 0, and where what clients keep is to be.

  Args:
    program: static settings; its `client_memory` may be 'auto'.
    algorithm: of any setting.
    init: gives the state, of all points if there is a grid.
    num_clients: M.
    seeds: see `HostMemory`.
    has_points: see `HostMemory`.

  Returns:
    The program with the choice made, the whole state, and who lends it.

  Raises:
    ValueError: see `check_memory`.
  """
  check_memory(program, algorithm)
  on_host = program.client_memory == "host"
  if program.client_memory == "auto" and algorithm.memory is not None:
    need = tree_bytes(algorithm.memory(jax.eval_shape(init)))
    need //= program.layout.grid_devices
    have = sharding.memory_bytes()
    too_much = have is not None and need > _SHARE * have
    # The program is that of all processes.
    on_host = bool(sharding.of_any_process(int(too_much)))
  where = "host" if on_host else "device"
  program = dataclasses.replace(program, client_memory=where)
  with jax.default_device(sharding.host() if on_host else None):
    state = init()
  is_kept = _is_kept(algorithm if on_host else None, state)
  # Copied leaf by leaf: what is donated must have a buffer of its own, and what
  # stays on the host one that can be written.
  copy = lambda leaf, kept: np.array(leaf) if kept else jnp.array(leaf)
  state = jax.tree.map(copy, state, is_kept)
  memory = HostMemory(program, is_kept, num_clients, seeds, has_points)
  return program, state, memory


def _is_kept(algorithm, state):
  """Tree of bool: which leaves are what clients keep; None: no algorithm's."""
  leaves, structure = jax.tree.flatten(state)
  numbers = structure.unflatten(range(len(leaves)))
  kept = set()
  if algorithm is not None:
    kept = set(jax.tree.leaves(algorithm.memory(numbers)))
  return jax.tree.map(lambda number: number in kept, numbers)
