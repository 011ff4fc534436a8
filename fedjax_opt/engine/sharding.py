"""Which devices compute which clients of a cohort and which points of a grid.

A mesh of devices has two axes. Along `CLIENTS` each device computes a part of
the clients of each cohort, and means are summed over devices. Along `GRID` each
device computes a part of the settings of a grid. The devices may belong to
several processes.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import (
  Mesh,
  NamedSharding,
  PartitionSpec,
  SingleDeviceSharding,
)

from fedjax_opt import target
from fedjax_opt.engine.shards import CLIENTS, GRID


@dataclasses.dataclass(frozen=True)
class Layout:
  """Where the arrays of a program lie.

  Attributes:
    mesh: of `make_mesh`; None for one device.
    has_points: whether arrays of grid points have a leading axis of settings,
      which is divided over the axis `GRID` of the mesh.
  """

  mesh: Mesh | None = None
  has_points: bool = False

  @property
  def client_devices(self) -> int:
    """D, the devices over which cohorts are divided."""
    return 1 if self.mesh is None else self.mesh.shape[CLIENTS]

  @property
  def grid_devices(self) -> int:
    """The devices over which the settings of a grid are divided."""
    return 1 if self.mesh is None else self.mesh.shape[GRID]

  @property
  def _point_spec(self):
    return PartitionSpec(GRID) if self.has_points else PartitionSpec()

  def over_devices(
    self, program: Callable[..., Any], outputs: int
  ) -> Callable[..., Any]:
    """A program as run on every device, with its part of the arrays.

    Args:
      program: `(per_point, segment, shared) -> outputs`: `per_point` has the
        leading axis of settings, if there is a grid; `segment` an axis [D] of
        the devices; `shared` is the same everywhere.
      outputs: how many there are; all are per point.
    """
    if self.mesh is None:
      return program
    point = self._point_spec
    return jax.shard_map(
      self._told_of_vmap(program),
      mesh=self.mesh,
      in_specs=(point, PartitionSpec(CLIENTS), PartitionSpec()),
      out_specs=(point,) * outputs if outputs > 1 else point,
      # Results that are equal on all devices are not marked as such.
      check_vma=False,
    )

  def _told_of_vmap(self, program):
    """The program, with words where JAX has none: see `sharded_convolution`."""

    @functools.wraps(program)
    def told(*args):
      try:
        return program(*args)
      except NotImplementedError as error:
        if str(error) or self.grid_devices == 1:
          raise
        raise ValueError(
          f"grid_devices={self.grid_devices}: JAX cannot vmap an operation of "
          "this model there, such as a convolution of flax; give "
          "grid_devices=1, grid_map='scan' or client_map='scan'"
        ) from error

    return told

  def put_per_point(self, tree: Any) -> Any:
    """Puts arrays of grid points on the devices, divided over `GRID`."""
    return self._put(tree, self._point_spec)

  def like_per_point(self, shapes: Any) -> Any:
    """The shapes of what `put_per_point` gives."""
    return self._like(shapes, self._point_spec)

  def like_shards(self, shapes: Any) -> Any:
    """The shapes of what `put_shards` gives, for those of one device."""
    of_all = lambda leaf: jax.ShapeDtypeStruct(
      (self.client_devices, *leaf.shape), leaf.dtype
    )
    return self._like(jax.tree.map(of_all, shapes), PartitionSpec(CLIENTS))

  def put_shared(self, tree: Any) -> Any:
    """Puts the same arrays on all devices."""
    return self._put(tree, PartitionSpec())

  def put_shards(self, make: Callable[[int], Any]) -> Any:
    """Puts different arrays on the devices along `CLIENTS`.

    Args:
      make: `d -> tree`, NumPy arrays for the d-th device of the client axis,
        all of the same shapes; called for the devices of this process only.

    Returns:
      Leaves [D, ...].
    """
    if self.mesh is None:
      return jax.device_put(jax.tree.map(lambda leaf: leaf[None], make(0)))
    sharding = NamedSharding(self.mesh, PartitionSpec(CLIENTS))
    process = jax.process_index()
    is_local = lambda devices: any(d.process_index == process for d in devices)
    local = [d for d, row in enumerate(self.mesh.devices) if is_local(row)]

    def put(*leaves):
      of_device = dict(zip(local, leaves, strict=True))
      return jax.make_array_from_callback(
        (self.client_devices, *leaves[0].shape),
        sharding,
        lambda index: of_device[index[0].start or 0][None],
      )

    return jax.tree.map(put, *[make(d) for d in local])

  def _like(self, shapes, spec):
    if self.mesh is not None:
      sharding = NamedSharding(self.mesh, spec)
    elif target.is_elsewhere():
      sharding = SingleDeviceSharding(target.devices()[0])
    else:
      return shapes
    return jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
      shapes,
    )

  def _put(self, tree, spec):
    if target.is_elsewhere():
      return self._like(jax.tree.map(jax.typeof, tree), spec)
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
    The mesh, or None if only one device is used. An argument that is None is
    chosen: as many devices for the grid as divide it, the others for clients.

  Raises:
    ValueError: if the devices cannot be divided so, or the grid cannot be
      divided over its devices.
  """
  devices = target.devices()
  available = len(devices)
  if grid_devices is None:
    rest = available // max(client_devices or 1, 1)
    grid_devices = math.gcd(num_settings, rest)
  if client_devices is None:
    rest = available // max(grid_devices, 1)
    # More devices than clients would be idle; but all processes must take part.
    at_most = rest if target.num_processes() > 1 else min(rest, cohort_size)
    divides = lambda number: rest % number == 0
    client_devices = max(filter(divides, range(1, at_most + 1)), default=1)
  _check_devices(client_devices, grid_devices, available, num_settings)
  used = client_devices * grid_devices
  if used == 1:
    return None
  shape = (client_devices, grid_devices)
  return Mesh(np.array(devices[:used]).reshape(shape), (CLIENTS, GRID))


def _check_devices(client_devices, grid_devices, available, num_settings):
  """Raises the errors of `make_mesh`."""
  for name, number in (
    ("client_devices", client_devices),
    ("grid_devices", grid_devices),
  ):
    if available % number:
      raise ValueError(
        f"{name}={number}: must divide the number of devices, {available}"
      )
  used = client_devices * grid_devices
  mesh = f"client_devices={client_devices} x grid_devices={grid_devices}"
  if available % used:
    raise ValueError(f"{mesh}: must divide the number of devices, {available}")
  if target.num_processes() > 1 and used != available:
    raise ValueError(
      f"{mesh}: must be all {available} devices, as there are "
      f"{target.num_processes()} processes"
    )
  if num_settings % grid_devices:
    raise ValueError(
      f"grid_devices={grid_devices}: must divide the number of settings, "
      f"{num_settings}"
    )
