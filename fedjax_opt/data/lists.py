"""The lists of the clients' examples where their lengths are very unequal.

An array [M, n_max] gives every client a row as long as the longest list: 40 GB
for 10,000 clients of which one has a million examples. `Lists` holds the same
rows one client after the other, and stands wherever such an array does.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Array = np.ndarray | jax.Array

# Every list begins at a multiple of this, so that sums over examples can be
# taken over blocks first: exactly enough, and fast.
_BLOCK_ROWS = 128
# Up to this size an array is kept, however empty it is.
_SMALL_BYTES = 1 << 24


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Lists:
  """The rows of the pool of each client, one client after the other.

  NumPy takes it for the array [M, n_max] that it stands for, as does indexing.
  With an axis of seeds before all others, as `stacked` makes it, a program
  takes it, and NumPy does not.

  Attributes:
    rows: [T] int32, with padding 0 after each list, and n_max times at the end.
    starts: [M] int32, where each list begins.
    width: n_max; static.
  """

  rows: Array
  starts: Array
  width: int = dataclasses.field(metadata={"static": True})

  @property
  def shape(self) -> tuple[int, ...]:
    """The shape of the array that it stands for."""
    return (*self.starts.shape, self.width)

  @property
  def ndim(self) -> int:
    """2, or 3 with an axis of seeds."""
    return len(self.shape)

  @property
  def dtype(self) -> np.dtype:
    """int32."""
    return self.rows.dtype

  def __len__(self) -> int:
    return len(self.starts)

  def __getitem__(self, which: Any) -> np.ndarray:
    """One client's row for an integer, on the host.

    Any other index makes the whole array first.

    Raises:
      TypeError: if there is an axis of seeds.
    """
    if isinstance(which, int | np.integer):
      return self._dense([which])[0]
    return np.asarray(self)[which]

  def __array__(self, dtype=None, copy=None) -> np.ndarray:
    del copy
    return self._dense(np.arange(len(self))).astype(dtype or np.int32)

  def _dense(self, clients):
    """[C, n_max], the rows of some clients."""
    if self.ndim > 2:
      raise TypeError(
        f"indices: the lists of {len(self)} seeds cannot be one array; take "
        "those of one seed"
      )
    rows, starts = np.asarray(self.rows), np.asarray(self.starts)
    ends = np.append(starts[1:], len(rows))
    places = starts[clients, None] + np.arange(self.width)
    return np.where(places < ends[clients, None], rows[places], 0)


def of_clients(
  rows: np.ndarray, sizes: np.ndarray, width: int | None = None
) -> np.ndarray | Lists:
  """An array [M, n_max], or `Lists` where that would be large and mostly empty.

  Args:
    rows: [sum of sizes], of the pool, one client after the other.
    sizes: [M], examples of each client.
    width: n_max; None for the largest size.
  """
  width = int(sizes.max(initial=0)) if width is None else width
  if _is_wasteful(sizes, width):
    return as_lists(rows, sizes, width)
  starts = width * np.arange(len(sizes))
  return _placed(rows, sizes, starts, width * len(sizes)).reshape(
    len(sizes), width
  )


def _is_wasteful(sizes, width):
  """Whether an array is large, and `Lists` at most half as large."""
  array = 4 * len(sizes) * width
  return array > _SMALL_BYTES and array > 2 * 4 * _length(sizes, width)


def _length(sizes, width):
  """T, of clients of these sizes."""
  in_blocks = -(-sizes.astype(np.int64) // _BLOCK_ROWS)
  return int(in_blocks.sum() + -(-width // _BLOCK_ROWS)) * _BLOCK_ROWS


def as_lists(rows, sizes, width):
  """`Lists`, of the arguments of `of_clients`."""
  lengths = -(-sizes.astype(np.int64) // _BLOCK_ROWS) * _BLOCK_ROWS
  starts = np.cumsum(lengths) - lengths
  padded = _placed(rows, sizes, starts, _length(sizes, width))
  return Lists(padded, starts.astype(np.int32), width)


def _placed(rows, sizes, starts, length):
  """[length], the rows of each client from its start on, and zeros between."""
  first = np.cumsum(sizes, dtype=np.int64) - sizes
  placed = np.zeros(length, np.int32)
  placed[np.arange(len(rows)) + np.repeat(starts - first, sizes)] = rows
  return placed


def owned(indices: Array | Lists, sizes: Array) -> np.ndarray:
  """[sum of sizes], the rows of all clients, one after the other; on the host.

  Args:
    indices: [M, n_max], or [seeds, M, n_max] as `stacked` gives them.
    sizes: [M], or [seeds, M].
  """
  sizes = np.asarray(sizes)
  if sizes.ndim > 1:
    pairs = zip(unstacked(indices), sizes, strict=True)
    return np.concatenate([owned(*pair) for pair in pairs])
  if not isinstance(indices, Lists):
    indices = np.asarray(indices)
    return indices[np.arange(indices.shape[1]) < sizes[:, None]]
  first = np.cumsum(sizes, dtype=np.int64) - sizes
  places = np.repeat(np.asarray(indices.starts) - first, sizes)
  return np.asarray(indices.rows)[places + np.arange(len(places))]


def rows_of(
  indices: Array | Lists, sizes: jax.Array, clients: jax.Array
) -> jax.Array:
  """[C, n_max] int32, the rows of some clients, then padding 0; traced.

  Args:
    indices: [M, n_max].
    sizes: [M].
    clients: [C] int32; of a larger number than there are, the last client's.
  """
  if not isinstance(indices, Lists):
    return indices.at[clients].get(mode="clip")
  starts = indices.starts.at[clients].get(mode="clip")
  of_client = lambda start: lax.dynamic_slice(
    indices.rows, (start,), (indices.width,)
  )
  rows = jax.vmap(of_client)(starts)
  lengths = sizes.at[clients].get(mode="clip")
  return jnp.where(jnp.arange(indices.width) < lengths[:, None], rows, 0)


def fill_padding(rows: jax.Array, is_owned: jax.Array) -> jax.Array:
  """[n], rows whose padding is replaced by the others, over and over; traced.

  So a model that normalizes by its batch sees no example of another client.

  Args:
    rows: [n].
    is_owned: [n] bool, False at padding.
  """
  (own_places,) = jnp.nonzero(is_owned, size=len(rows), fill_value=0)
  place = jnp.cumsum(~is_owned) - 1
  filler = own_places[place % jnp.maximum(jnp.sum(is_owned), 1)]
  return jnp.where(is_owned, rows, rows[filler])


def sums_of_clients(
  indices: Array | Lists, sizes: jax.Array, values: jax.Array
) -> jax.Array:
  """[M], the sum over each client's examples of values [N] of the pool."""
  rows, is_owned, owner = _blocks(indices, sizes)
  sums = jnp.where(is_owned, values[rows], 0).sum(axis=1)
  if owner is None:
    return sums
  return jax.ops.segment_sum(sums, owner, len(sizes), indices_are_sorted=True)


def times_owned(
  indices: Array | Lists, sizes: jax.Array, num_examples: int
) -> jax.Array:
  """[N] float, how often each example of the pool is some client's."""
  rows, is_owned, _ = _blocks(indices, sizes)
  return jnp.zeros(num_examples).at[rows].add(is_owned * 1.0)


def _blocks(indices, sizes):
  """Rows [n, b], which are owned, and the client [n] of each block.

  The client is None if each client is one block.
  """
  if not isinstance(indices, Lists):
    return indices, jnp.arange(indices.shape[1]) < sizes[:, None], None
  rows = indices.rows.reshape(-1, _BLOCK_ROWS)
  first = jnp.arange(len(rows)) * _BLOCK_ROWS
  # Of clients that begin at the same place all but the last one are empty.
  owner = jnp.searchsorted(indices.starts, first, side="right") - 1
  position = (first - indices.starts[owner])[:, None] + jnp.arange(_BLOCK_ROWS)
  return rows, position < sizes[owner][:, None], owner


def stacked(pairs: list[tuple[Array | Lists, np.ndarray]]) -> Array | Lists:
  """[S, M, n_max], the indices of several seeds, given `(indices, sizes)`."""
  width = max(indices.shape[-1] for indices, _ in pairs)
  if not any(isinstance(indices, Lists) for indices, _ in pairs):
    pad = lambda rows: np.pad(rows, ((0, 0), (0, width - rows.shape[-1])))
    return np.stack([pad(indices) for indices, _ in pairs])
  lists = [
    as_lists(owned(indices, sizes), np.asarray(sizes), width)
    for indices, sizes in pairs
  ]
  total = max(len(seed_lists.rows) for seed_lists in lists)
  pad = lambda rows: np.pad(rows, (0, total - len(rows)))
  return Lists(
    np.stack([pad(seed_lists.rows) for seed_lists in lists]),
    np.stack([seed_lists.starts for seed_lists in lists]),
    width,
  )


def unstacked(indices: Array | Lists) -> list[Array | Lists]:
  """The indices [M, n_max] of each seed, from those of all, [S, M, n_max]."""
  if not isinstance(indices, Lists):
    return list(indices)
  pairs = zip(indices.rows, indices.starts, strict=True)
  return [Lists(rows, starts, indices.width) for rows, starts in pairs]
