"""Which devices compute which clients of a cohort and which points of a grid.

A mesh of devices has two axes. Along `CLIENTS` each device computes a part of
the clients of each cohort, and means are summed over devices. Along `GRID` each
device computes a part of the settings of a grid. A third axis, `MODEL`, is
there where each model is divided over several devices. The devices may belong
to several processes.

The program runs on every device, under `jax.shard_map`. There `local_rows`
takes the clients of this device; `gather_rows`, `from_shard` and
`sum_of_devices` bring together what all devices have. On one device these
functions do nothing. Along `MODEL` the program is written for the whole model,
and XLA divides it: the state of the run comes and goes in parts, see
`Layout.put_state`.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import (
  Mesh,
  NamedSharding,
  PartitionSpec,
  SingleDeviceSharding,
)

from fedjax_opt.arrays import target, trees
from fedjax_opt.checks.values import brief

CLIENTS, GRID, MODEL = "clients", "grid", "model"
# Leaves with fewer numbers are on all devices of a model.
_SMALLEST_DIVIDED = 4096
# Leaves of a client up to this size are moved together.
_FEW_WORDS = 64


@dataclasses.dataclass(frozen=True)
class Layout:
  """Where the arrays of a program lie.

  What puts arrays on the devices takes their shapes too, and then returns
  shapes that say where the arrays would lie. It returns shapes anyway where the
  devices are elsewhere, see `fedjax_opt.target`.

  Attributes:
    mesh: of `make_mesh`; None for one device.
    has_axes: whether arrays of grid points have a leading axis of settings,
      which is divided over the axis `GRID` of the mesh.
    model_sharding: `(path, shape) -> PartitionSpec | None` over `MODEL`, of a
      leaf of the state; None, also if it returns None, for `by_size`.
  """

  mesh: Mesh | None = None
  has_axes: bool = False
  model_sharding: Callable[..., PartitionSpec | None] | None = None

  @property
  def client_devices(self) -> int:
    """D, the devices over which cohorts are divided."""
    return 1 if self.mesh is None else self.mesh.shape[CLIENTS]

  @property
  def grid_devices(self) -> int:
    """The devices over which the settings of a grid are divided."""
    return 1 if self.mesh is None else self.mesh.shape[GRID]

  @property
  def model_devices(self) -> int:
    """The devices over which each model is divided."""
    return 1 if self.mesh is None else self.mesh.shape.get(MODEL, 1)

  @property
  def state_devices(self) -> int:
    """The devices over which the states of all points are divided."""
    return self.grid_devices * self.model_devices

  @property
  def _point_spec(self):
    return PartitionSpec(GRID) if self.has_axes else PartitionSpec()

  def over_devices(
    self, program: Callable[..., Any], outputs: int
  ) -> Callable[..., Any]:
    """A program as run on every device, with its part of the arrays.

    Args:
      program: `(state, points, segment, inputs) -> outputs`: `state` and
        `points` have the leading axis of settings, if there is a grid;
        `segment` has an axis [D] of the devices; `inputs` are the same
        everywhere.
      outputs: how many there are; all are per point.
    """
    if self.client_devices * self.grid_devices == 1:
      return program

    @functools.wraps(program)
    def told(*args):
      try:
        return program(*args)
      except NotImplementedError as error:
        # JAX raises it without a message where a model uses `lax.conv` instead
        # of `models.convolution`.
        if str(error):
          raise
        raise ValueError(
          "grid_map='vmap': on several devices JAX cannot vmap an operation of "
          "this model over settings and seeds, such as a convolution of flax; "
          "give grid_map='scan'"
        ) from error

    point = self._point_spec
    return jax.shard_map(
      told,
      mesh=self.mesh,
      in_specs=(point, point, PartitionSpec(CLIENTS), PartitionSpec()),
      out_specs=(point,) * outputs if outputs > 1 else point,
      axis_names={CLIENTS, GRID},
      # Results that are equal on all devices are not marked as such.
      check_vma=False,
    )

  def put_per_point(self, tree: Any) -> Any:
    """Puts arrays of grid points on the devices, divided over `GRID`."""
    return self._put(tree, self._point_spec)

  def put_state(self, tree: Any, axes: int = 0) -> Any:
    """As `put_per_point`, each leaf divided over `MODEL` too.

    Args:
      tree: the server's state, or what clients keep.
      axes: before those of one model, and after those of points: 1 for rows of
        clients.
    """
    return self._put(tree, functools.partial(self._state_spec, axes))

  def put_frozen(self, frozen_leaves: tuple[Any, Any]) -> tuple[Any, Any]:
    """Puts frozen leaves on the devices, each divided over `MODEL` alone.

    Args:
      frozen_leaves: those with a leading axis of seeds, and the others.
    """
    by_seed, shared = frozen_leaves
    by_seed = self._put(by_seed, functools.partial(self._model_spec, (None,)))
    return by_seed, self._put(shared, functools.partial(self._model_spec, ()))

  def _state_spec(self, axes, path, leaf):
    """How a leaf of the state is divided."""
    if self.model_devices == 1:
      return self._point_spec
    leading = ((GRID, None) if self.has_axes else ()) + (None,) * axes
    return self._model_spec(leading, path, leaf)

  def _model_spec(self, leading, path, leaf):
    """How a leaf of a model is divided, given how the axes before are."""
    if self.model_devices == 1:
      return PartitionSpec()
    shape, spec = leaf.shape[len(leading) :], None
    if self.model_sharding is not None:
      name = trees.name_of(path)
      spec = self.model_sharding(name, shape)
      _check_spec(spec, name, shape, self.model_devices)
    if spec is None:
      spec = by_size(shape, self.model_devices)
    return PartitionSpec(*leading, *spec)

  def shapes_of_shards(self, shapes: Any) -> Any:
    """The shapes of what `put_shards` gives, for those of one device."""
    stack = lambda leaf: jax.ShapeDtypeStruct(
      (self.client_devices, *leaf.shape), leaf.dtype
    )
    return self._put(jax.tree.map(stack, shapes), PartitionSpec(CLIENTS))

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
    is_local = lambda row: any(d.process_index == process for d in row.flat)
    local = [d for d, row in enumerate(self.mesh.devices) if is_local(row)]

    def put(*leaves):
      shards = dict(zip(local, leaves, strict=True))
      return jax.make_array_from_callback(
        (self.client_devices, *leaves[0].shape),
        sharding,
        lambda index: shards[index[0].start or 0][None],
      )

    return jax.tree.map(put, *[make(d) for d in local])

  def _put(self, tree, spec):
    """Puts leaves where a `PartitionSpec`, or a function to it, says."""
    is_shape = lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct)
    are_shapes = any(map(is_shape, jax.tree.leaves(tree)))
    is_elsewhere = target.is_elsewhere()
    if self.mesh is None and not is_elsewhere:
      return tree if are_shapes else jax.device_put(tree)

    def put(path, leaf):
      sharding = self._sharding(spec, path, leaf)
      if not are_shapes and not is_elsewhere:
        return _put_leaf(leaf, sharding)
      leaf = leaf if are_shapes else jax.typeof(leaf)
      return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return jax.tree.map_with_path(put, tree)

  def _sharding(self, spec, path, leaf):
    """The sharding of a leaf, given its spec or a function to it."""
    if self.mesh is None:
      return SingleDeviceSharding(target.devices()[0])
    spec = spec if isinstance(spec, PartitionSpec) else spec(path, leaf)
    return NamedSharding(self.mesh, spec)


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


def by_size(shape: tuple[int, ...], devices: int) -> PartitionSpec:
  """The last of the largest axes that the devices divide, of a large leaf."""
  sizes = [size if size % devices == 0 else 0 for size in shape]
  if math.prod(shape) < _SMALLEST_DIVIDED or not any(sizes):
    return PartitionSpec()
  axis = max(range(len(sizes)), key=lambda i: (sizes[i], i))
  return PartitionSpec(*[None] * axis, MODEL)


def _check_spec(spec, name, shape, devices):
  """Raises the errors of a rule for leaves."""
  if spec is None:
    return
  if not isinstance(spec, PartitionSpec):
    raise TypeError(
      f"model_sharding: returned {brief(spec)} for {name!r}; must "
      "return a jax.sharding.PartitionSpec or None"
    )
  axes = [axis for axis in spec if axis is not None]
  is_fit = len(spec) <= len(shape) and all(
    axis is None or size % devices == 0
    for axis, size in zip(spec, shape, strict=False)
  )
  if not is_fit or axes not in ([], [MODEL]):
    raise ValueError(
      f"model_sharding: returned {spec} for {name!r} of shape {list(shape)}; "
      f"must name {MODEL!r} at most once, at an axis that {devices} devices "
      "divide"
    )


def make_mesh(
  client_devices: int | None,
  grid_devices: int | None,
  num_settings: int = 1,
  cohort_size: int = 1,
  model_devices: int | None = None,
) -> Mesh | None:
  """The devices of all processes as a mesh [clients, grid].

  Args:
    client_devices: D, over how many the clients of a cohort are divided.
    grid_devices: over how many the settings of a grid are.
    num_settings: of the grid.
    cohort_size: C.
    model_devices: over how many each model is; one if None. If there are
      several the mesh is [clients, grid, model].

  Returns:
    The mesh, or None if only one device is used. An argument that is None is
    chosen: as many devices for the grid as divide it, the others for clients.

  Raises:
    ValueError: if the devices cannot be divided so, or the grid cannot be
      divided over its devices.
  """
  devices, model_devices = target.devices(), model_devices or 1
  available = len(devices)
  if grid_devices is None:
    quota = available // max((client_devices or 1) * model_devices, 1)
    grid_devices = math.gcd(num_settings, quota) or 1
  if client_devices is None:
    quota = available // max(grid_devices * model_devices, 1)
    # More devices than clients would be idle; but all processes must take part.
    at_most = quota if target.num_processes() > 1 else min(quota, cohort_size)
    divides = lambda number: quota % number == 0
    client_devices = max(filter(divides, range(1, at_most + 1)), default=1)
  sizes = {"client_devices": client_devices, "grid_devices": grid_devices}
  names = [CLIENTS, GRID]
  if model_devices > 1:
    sizes["model_devices"] = model_devices
    names.append(MODEL)
  _check_devices(sizes, available, num_settings)
  num_used = math.prod(sizes.values())
  if num_used == 1:
    return None
  shape = tuple(sizes.values())
  return Mesh(np.array(devices[:num_used]).reshape(shape), tuple(names))


def _check_devices(sizes, available, num_settings):
  """Raises the errors of `make_mesh`."""
  for name, number in sizes.items():
    if available % number:
      raise ValueError(
        f"{name}={number}: must divide the number of devices, {available}"
      )
  num_used, grid_devices = math.prod(sizes.values()), sizes["grid_devices"]
  mesh = " x ".join(f"{name}={number}" for name, number in sizes.items())
  if available % num_used:
    raise ValueError(f"{mesh}: must divide the number of devices, {available}")
  if target.num_processes() > 1 and num_used != available:
    raise ValueError(
      f"{mesh}: must be all {available} devices, as there are "
      f"{target.num_processes()} processes"
    )
  if num_settings % grid_devices:
    raise ValueError(
      f"grid_devices={grid_devices}: must divide the number of settings, "
      f"{num_settings}"
    )


# Inside of the program.


def num_shards() -> int:
  """Over how many devices the cohort is divided, where this is traced."""
  try:
    return lax.axis_size(CLIENTS)
  except NameError:  # Not within a mesh.
    return 1


def local_rows(tree: Any) -> Any:
  """The n rows of leaves [D n, ...] that this device computes.

  They are every D-th row, so that all devices have about equally much to do
  where the rows are sorted by size.
  """
  shards = num_shards()
  if shards == 1:
    return tree
  split = lambda leaf: leaf.reshape(-1, shards, *leaf.shape[1:])
  index = lax.axis_index(CLIENTS)
  return jax.tree.map(lambda leaf: split(leaf)[:, index], tree)


def gather_rows(tree: Any) -> Any:
  """The inverse of `local_rows`: rows [n, ...] of each device -> [D n, ...]."""
  if num_shards() == 1:
    return tree

  def join(leaf):
    leaf = jnp.swapaxes(lax.all_gather(leaf, CLIENTS), 0, 1)  # [n, D, ...]
    return leaf.reshape(-1, *leaf.shape[2:])

  return _move_leaves(join, tree)


def from_shard(shard: jax.Array, tree: Any) -> Any:
  """The tree that one of the devices has."""
  if num_shards() == 1:
    return tree
  add_axis = lambda leaf: jnp.asarray(leaf)[None]
  pick = lambda leaf: lax.all_gather(leaf, CLIENTS)[shard]
  picked_tree = _move_leaves(pick, jax.tree.map(add_axis, tree))
  return jax.tree.map(lambda leaf: leaf[0], picked_tree)


def _move_leaves(move: Callable[[jax.Array], jax.Array], tree: Any) -> Any:
  """Moves leaves [n, ...] between devices, the small ones all at once.

  Each move has a fixed cost, whatever its size. What is recorded of clients is
  some words in several arrays; these are moved as one array of 32-bit words.

  Args:
    move: [n, ...] -> [m, ...], of any type.
    tree: leaves [n, ...].
  """
  leaves, structure = jax.tree.flatten(tree)
  is_small = [
    (leaf.dtype == bool or leaf.dtype.itemsize == 4)
    and not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    and math.prod(leaf.shape[1:]) <= _FEW_WORDS
    for leaf in leaves
  ]
  if sum(is_small) < 2:
    return jax.tree.map(move, tree)
  small = [leaf for leaf, flag in zip(leaves, is_small, strict=True) if flag]
  words = move(jnp.concatenate([_words(leaf) for leaf in small], axis=1))
  ends = np.cumsum([math.prod(leaf.shape[1:]) for leaf in small])
  parts = iter(jnp.split(words, ends[:-1], axis=1))
  new_leaves = [
    _of_words(next(parts), leaf) if flag else move(leaf)
    for leaf, flag in zip(leaves, is_small, strict=True)
  ]
  return jax.tree.unflatten(structure, new_leaves)


def _words(leaf):
  """[n, ...] of 32 bits or bool -> [n, words] uint32."""
  if leaf.dtype == bool:
    leaf = leaf.astype(jnp.uint32)
  return lax.bitcast_convert_type(leaf, jnp.uint32).reshape(len(leaf), -1)


def _of_words(words, leaf):
  """The inverse of `_words`, for as many rows as there are."""
  words = words.reshape(-1, *leaf.shape[1:])
  if leaf.dtype == bool:
    return words.astype(bool)
  return lax.bitcast_convert_type(words, leaf.dtype)


def sum_of_devices(tree: Any) -> Any:
  """The sums over devices."""
  return tree if num_shards() == 1 else lax.psum(tree, CLIENTS)
