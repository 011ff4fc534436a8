"""The clients of a cohort, or the settings of a grid, over several devices.

A mesh of devices has two axes. Over `clients` every device computes its own
places of each cohort, and means are summed over devices; over `grid` every
device computes its own settings. The whole program runs on every device, under
`jax.shard_map`: what is not divided is computed alike on all of them. That the
devices may be those of several processes changes nothing here.

The first half is what the program calls while it is traced, and does nothing on
one device; the second half is for the host.
"""

import dataclasses
import math
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

CLIENTS, GRID = "clients", "grid"


def num_shards() -> int:
  """Over how many devices the cohort is divided, where this is traced."""
  try:
    return lax.axis_size(CLIENTS)
  except NameError:  # Not within a mesh.
    return 1


def own(tree: Any) -> Any:
  """Of leaves [D n, ...], the n rows that are this device's.

  Every D-th row, so that devices have equally much to do where the rows are
  sorted by size.
  """
  shards = num_shards()
  if shards == 1:
    return tree
  split = lambda leaf: leaf.reshape(-1, shards, *leaf.shape[1:])
  index = lax.axis_index(CLIENTS)
  return jax.tree.map(lambda leaf: split(leaf)[:, index], tree)


def gather(tree: Any) -> Any:
  """The inverse of `own`: rows [n, ...] of each device -> [D n, ...]."""
  if num_shards() == 1:
    return tree

  def join(leaf):
    leaf = jnp.swapaxes(lax.all_gather(leaf, CLIENTS), 0, 1)  # [n, D, ...]
    return leaf.reshape(-1, *leaf.shape[2:])

  return jax.tree.map(join, tree)


def from_shard(shard: jax.Array, tree: Any) -> Any:
  """What a tree is on one of the devices."""
  if num_shards() == 1:
    return tree
  pick = lambda leaf: lax.all_gather(leaf, CLIENTS)[shard]
  return jax.tree.map(pick, tree)


def total(tree: Any) -> Any:
  """The sums over devices."""
  return tree if num_shards() == 1 else lax.psum(tree, CLIENTS)


@dataclasses.dataclass(frozen=True)
class Layout:
  """Where the arrays of a program lie.

  Attributes:
    mesh: of `make_mesh`; None for one device.
    by_grid: whether the state and the settings have a leading axis that is
      divided over the mesh's grid axis.
  """

  mesh: Mesh | None = None
  by_grid: bool = False

  @property
  def client_devices(self) -> int:
    """D, the devices over which cohorts are divided."""
    return 1 if self.mesh is None else self.mesh.shape[CLIENTS]

  @property
  def grid_devices(self) -> int:
    """The devices over which the settings of a grid are divided."""
    return 1 if self.mesh is None else self.mesh.shape[GRID]

  @property
  def _of_setting(self):
    return PartitionSpec(GRID) if self.by_grid else PartitionSpec()

  def over_devices(self, advance: Callable[..., Any]) -> Callable[..., Any]:
    """`advance` as run on every device, with its part of the arrays.

    Args:
      advance: `(state, own, shared, stretch, *numbers) -> (state, record)`:
        `own` has the leading axis that the state has, `stretch` an axis [D] of
        the devices; all else is the same everywhere.
    """
    if self.mesh is None:
      return advance
    whole, own = PartitionSpec(), self._of_setting

    def run(state, own_inputs, shared, stretch, *numbers):
      specs = (own, own, whole, PartitionSpec(CLIENTS))
      mapped = jax.shard_map(
        advance,
        mesh=self.mesh,
        in_specs=(*specs, *(whole for _ in numbers)),
        out_specs=(own, own),
        # What is computed alike on all devices is not marked as such.
        check_vma=False,
      )
      return mapped(state, own_inputs, shared, stretch, *numbers)

    return run

  def put_own(self, tree: Any) -> Any:
    """Puts the state, or the settings, on the devices."""
    return self._put(tree, self._of_setting)

  def put_shared(self, tree: Any) -> Any:
    """Puts what is the same everywhere on the devices."""
    return self._put(tree, PartitionSpec())

  def put_shards(self, make: Callable[[int], Any]) -> Any:
    """Puts on each device what belongs to it alone.

    Args:
      make: `d -> tree`, NumPy arrays for the d-th device of the client axis,
        all of the same shapes; called for those of this process only.

    Returns:
      Leaves [D, ...].
    """
    if self.mesh is None:
      return jax.device_put(jax.tree.map(lambda leaf: leaf[None], make(0)))
    sharding = NamedSharding(self.mesh, PartitionSpec(CLIENTS))
    process = jax.process_index()
    is_own = lambda devices: any(d.process_index == process for d in devices)
    own = [d for d, row in enumerate(self.mesh.devices) if is_own(row)]

    def put(*leaves):
      of_device = dict(zip(own, leaves, strict=True))
      return jax.make_array_from_callback(
        (self.client_devices, *leaves[0].shape),
        sharding,
        lambda index: of_device[index[0].start or 0][None],
      )

    return jax.tree.map(put, *[make(d) for d in own])

  def _put(self, tree, spec):
    if self.mesh is None:
      return jax.device_put(tree)
    sharding = NamedSharding(self.mesh, spec)
    return jax.tree.map(lambda leaf: _put_leaf(leaf, sharding), tree)


def _put_leaf(leaf, sharding):
  """One array on the devices; every process has the same one."""
  if isinstance(leaf, jax.Array) and leaf.sharding == sharding:
    return leaf
  if jax.process_count() == 1:
    return jax.device_put(leaf, sharding)
  if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
    data = _put_leaf(jax.random.key_data(leaf), sharding)
    return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
  host = np.asarray(leaf)
  return jax.make_array_from_callback(
    host.shape, sharding, lambda index: host[index]
  )


def fetch(tree: Any) -> Any:
  """The arrays of a program on the host, in every process whole."""
  if jax.process_count() == 1:
    return jax.device_get(tree)
  from jax.experimental import multihost_utils

  def whole(leaf):
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
      return leaf
    if leaf.is_fully_replicated:
      return leaf.addressable_data(0)
    return multihost_utils.process_allgather(leaf, tiled=True)

  return jax.device_get(jax.tree.map(whole, tree))


def fetch_global(tree: Any) -> Any:
  """As `fetch` if there are several processes; else as it is."""
  return tree if jax.process_count() == 1 else fetch(tree)


def of_any_process(number: int) -> int:
  """The largest of the numbers that the processes have; all must call it."""
  if jax.process_count() == 1:
    return number
  from jax.experimental import multihost_utils

  return int(np.max(multihost_utils.process_allgather(np.int32(number))))


def check_alike(what: str, number: int) -> None:
  """That all processes have the same number; all must call it.

  Raises:
    ValueError: in all of them, if they do not.
  """
  most, least = of_any_process(number), -of_any_process(-number)
  if most != least:
    raise ValueError(
      f"{what}: {least} in one process and {most} in another; must be the same "
      "in all, as from a folder that all can read"
    )


def is_first_process() -> bool:
  """Whether this is the process that writes what the others know too."""
  return jax.process_index() == 0


def host() -> jax.Device | None:
  """The processor, or None where JAX was told to do without it."""
  try:
    return jax.local_devices(backend="cpu")[0]
  except RuntimeError:  # As with JAX_PLATFORMS=cuda.
    return None


def memory_bytes() -> int | None:
  """The memory that a program may take of a device; None if unknown."""
  device = jax.local_devices()[0]
  if device.platform != "cpu":
    return (device.memory_stats() or {}).get("bytes_limit")
  try:
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
  except (AttributeError, ValueError, OSError):  # Not everywhere.
    return None
  # Of all devices on this host, and others need some of it too.
  return pages * page // (2 * jax.local_device_count())


def make_mesh(
  client_devices: int | None,
  grid_devices: int | None,
  num_settings: int = 1,
  cohort_size: int = 1,
) -> Mesh | None:
  """The devices of all processes as a mesh [clients, grid].

  Args:
    client_devices: D, over how many the clients of a cohort are divided.
    grid_devices: over how many the settings of a grid are.
    num_settings: of the grid.
    cohort_size: C.

  Returns:
    The mesh, or None where one device is all there is to use. What is None is
    chosen: as many devices for the grid as divide it, the others for clients.

  Raises:
    ValueError: if the devices cannot be divided so, or the grid cannot be
      divided over its devices.
  """
  devices = jax.devices()
  available = len(devices)
  if grid_devices is None:
    rest = available // max(client_devices or 1, 1)
    grid_devices = math.gcd(num_settings, rest)
  if client_devices is None:
    rest = available // max(grid_devices, 1)
    # More devices than clients are of use to nobody, but all processes have to
    # take part.
    at_most = rest if jax.process_count() > 1 else min(rest, cohort_size)
    divides = lambda number: rest % number == 0
    client_devices = max(filter(divides, range(1, at_most + 1)), default=1)
  for name, number in (
    ("client_devices", client_devices),
    ("grid_devices", grid_devices),
  ):
    if number < 1:
      raise ValueError(f"{name}={number}: must be at least 1")
    if available % number:
      raise ValueError(
        f"{name}={number}: must divide the number of devices, {available}"
      )
  used = client_devices * grid_devices
  mesh = f"client_devices={client_devices} x grid_devices={grid_devices}"
  if available % used:
    raise ValueError(f"{mesh}: must divide the number of devices, {available}")
  if jax.process_count() > 1 and used != available:
    raise ValueError(
      f"{mesh}: must be all {available} devices, as there are "
      f"{jax.process_count()} processes"
    )
  if num_settings % grid_devices:
    raise ValueError(
      f"grid_devices={grid_devices}: must divide the number of settings, "
      f"{num_settings}"
    )
  if used == 1:
    return None
  shape = (client_devices, grid_devices)
  return Mesh(np.array(devices[:used]).reshape(shape), (CLIENTS, GRID))
