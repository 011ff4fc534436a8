"""The data of a population of clients, in memory."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import jax
import numpy as np

from fedjax_opt.checks.fields import ANYTHING, Seed, checked, integer
from fedjax_opt.checks.values import (
  brief,
  check_count,
  check_iterable,
  checked_array,
  checked_length,
)
from fedjax_opt.data import client_split, lists, npz_files, partition, pools
from fedjax_opt.data.pools import Array

# Counts of each class at each client have to be in memory.
_NumClasses = Annotated[int, integer(1, most=1_000_000)]


@dataclasses.dataclass(frozen=True, eq=False)
class ClientData:
  """Pooled examples, stored once, and the rows of the pool of each client.

  Without copies, clients may share examples, have one several times (sampling
  with replacement) and differ in size. `ClientData` is a pytree, so `jit` and
  `device_put` take it directly. NumPy arrays stay on the host. This constructor
  checks that the lists are rows of the pool. The `from_...` constructors also
  refuse numbers that are not finite. This one accepts them: a client with such
  examples sends messages that are not finite, which are left out and counted.

  A client may have no example (size 0): it takes no steps, and its weight by
  examples is 0. No scheme of `partition` makes such a client.

  Attributes:
    examples: name -> [N, ...], usually 'x' and 'y'.
    indices: [M, n_max] int32, rows of the pool. The first `sizes[m]` entries of
      row m are the examples of client m; the others are 0 and not used. If
      sizes are so unequal that the array would be large and mostly empty, this
      is an object that is indexed like the array and converts to it in NumPy.
    sizes: [M] int32, the number of examples of each client.
  """

  examples: dict[str, Array]
  indices: Array | lists.Lists
  sizes: Array

  def __post_init__(self):
    """Raises ValueError or TypeError, naming the invalid attribute."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(self)):
      return
    pools.checked_pool_size("examples", self.examples)
    _check_lists(self.indices, self.sizes, self.num_examples)

  def __repr__(self) -> str:
    try:
      shapes = ", ".join(
        f"{name} {list(values.shape[1:])} {values.dtype}"
        for name, values in self.examples.items()
      )
      return (
        f"ClientData({self.sizes.shape[-1]:,} clients, a pool of "
        f"{self.num_examples:,} examples: {shapes})"
      )
    except (AttributeError, IndexError, TypeError):  # A tree of other leaves.
      return object.__repr__(self)

  @property
  def num_clients(self) -> int:
    """M."""
    return self.indices.shape[-2]

  @property
  def num_examples(self) -> int:
    """N, the examples in the pool; a shared example counts once."""
    return len(next(iter(self.examples.values())))

  @property
  def max_size(self) -> int:
    """n_max, the examples of the largest client."""
    return self.indices.shape[-1]

  @checked()
  def label_counts(self, num_classes: _NumClasses) -> np.ndarray:
    """The number of examples of each class at each client.

    Args:
      num_classes: number of classes; labels 'y' are in [0, num_classes).

    Returns:
      [M, num_classes] int64, on the host.

    Raises:
      ValueError: if 'y' is missing, not integers, or outside the range.
    """
    pools.check_labels(self.examples, num_classes)
    labels = np.asarray(self.examples["y"])[self.owned_rows()]
    clients = np.repeat(np.arange(self.num_clients), np.asarray(self.sizes))
    cells = clients * num_classes + labels
    counts = np.bincount(cells, minlength=self.num_clients * num_classes)
    return counts.reshape(self.num_clients, num_classes)

  def owned_rows(self) -> np.ndarray:
    """The rows of the pool of all clients, one client after the other.

    Returns:
      [sum of sizes] int32, on the host.
    """
    return lists.owned(self.indices, self.sizes)

  def pooled(self) -> dict[str, Array]:
    """The examples that some client has, each once, in the order of the pool.

    `examples` may have more: in a part of `split` it is the whole pool.

    Returns:
      name -> [n, ...], of n rows of the pool.

    Raises:
      TypeError: inside a traced function, where the rows are not known.
    """
    if isinstance(self.sizes, jax.core.Tracer):
      raise TypeError(
        "pooled: needs to know which examples the clients have, and that is "
        "traced here; call it outside of jax.jit and jax.vmap"
      )
    rows = np.unique(self.owned_rows())
    if len(rows) == self.num_examples:
      return dict(self.examples)
    return {name: values[rows] for name, values in self.examples.items()}

  @checked(fraction="(0, 1)")
  def split(
    self, fraction: float, seed: Seed = 0
  ) -> tuple["ClientData", "ClientData"]:
    """Holds out a part of each client's examples, for example for its own test.

    Each row of the pool is either for training or held out, at all clients that
    have it. So no held-out row is ever trained on. If no row occurs twice, a
    client with n examples holds out exactly `round(fraction * n)`, but never
    all of them. If rows occur several times, the clients are visited in a
    random order. Each client holds out undecided rows until it has about that
    number. Rows that other clients have held out before count too, and may be
    more. So a client may have no examples in one of the parts; its size there
    is 0.

    Args:
      fraction: of each client's examples that is held out, in (0, 1).
      seed: of the draws, which depend on it and on the lists alone.

    Returns:
      The training and the held-out examples, with the same arrays of examples;
      client m of one is client m of the other.

    Raises:
      ValueError: if the fraction or the seed is out of range, or so small that
        no example of any client is held out.
      TypeError: if one is no number.
    """
    return self._parts(client_split.divide, fraction, seed)

  @checked(fraction="(0, 1)")
  def split_clients(
    self, fraction: float, seed: Seed = 0
  ) -> tuple["ClientData", "ClientData"]:
    """Holds out whole clients, to measure a model on new clients.

    Rows that a training client has are removed from the held-out clients.
    Clients without examples stay among the training clients.

    Args:
      fraction: of the clients that have examples, in (0, 1).
      seed: of the draws, which depend on it and on the lists alone.

    Returns:
      The training and the held-out clients, each in the order that they had,
      with the same arrays of examples.

    Raises:
      ValueError: if the fraction or the seed is out of range, no client is held
        out or none is left, or a held-out one shares all its rows.
      TypeError: if one is no number.
    """
    return self._parts(client_split.divide_clients, fraction, seed)

  def _parts(self, divide, fraction, seed):
    """Two sets of clients of the same pool."""
    sizes = np.asarray(self.sizes)
    parts = divide(self.owned_rows(), sizes, fraction, seed)
    train, test = (
      unchecked(self.examples, lists.of_clients(*part), part[1])
      for part in parts
    )
    return train, test

  @classmethod
  @checked(rows=ANYTHING)
  def from_partition(
    cls,
    examples: Mapping[str, np.ndarray],
    rows: Sequence[np.ndarray],
    num_classes: _NumClasses | None = None,
    *,
    keep_pool: bool = False,
  ) -> "ClientData":
    """From pooled examples and the rows of each client.

    Examples of no client are removed from the pool: they take no memory, and an
    evaluation over the pool does not compute them.

    Args:
      examples: name -> [N, ...].
      rows: M arrays of pool rows, such as a scheme of `partition` returns.
      num_classes: if given, labels 'y' must be integers in [0, num_classes).
      keep_pool: whether examples of no client stay in the pool; needed if
        several seeds divide one pool in one `sweep`.

    Returns:
      The clients, in the order of `rows`.

    Raises:
      ValueError: if leading axes differ, a number is not finite, a label or a
        row is out of range, or no client has an example.
      TypeError: if the examples are no dictionary, or the rows no list.
    """
    examples = pools.checked_examples(examples)
    if num_classes is not None:
      pools.check_labels(examples, num_classes)
    num_examples = len(next(iter(examples.values())))
    owned_rows, sizes = _checked_rows(rows, num_examples)
    if not keep_pool:
      is_used = np.zeros(num_examples, bool)
      is_used[owned_rows] = True
      if not is_used.all():
        owned_rows = (np.cumsum(is_used) - 1)[owned_rows]
        examples = {name: values[is_used] for name, values in examples.items()}
    return cls(examples, lists.of_clients(owned_rows, sizes), sizes)

  @classmethod
  @checked()
  def from_client_ids(
    cls,
    examples: Mapping[str, np.ndarray],
    client_ids: np.ndarray | Sequence[Any],
    num_classes: _NumClasses | None = None,
  ) -> "ClientData":
    """From pooled examples, each with the id of its client.

    Args:
      examples: name -> [N, ...].
      client_ids: [N] integers or strings, such as writers' names; also a column
        of pandas.
      num_classes: if given, labels 'y' must be integers in [0, num_classes).

    Returns:
      The clients, in sorted order of their ids.

    Raises:
      ValueError: as `from_partition`, or if there is not one id per example.
    """
    rows = partition.natural(client_ids)
    num_examples = checked_length("examples", examples)
    check_count("client_ids", client_ids, num_examples, "examples")
    return cls.from_partition(examples, rows, num_classes)

  @classmethod
  @checked()
  def from_npz(
    cls, path: str | os.PathLike, num_classes: _NumClasses | None = None
  ) -> "ClientData":
    """From a NumPy .npz file.

    Args:
      path: a file with the arrays x [N, ...] and y [N, ...], and either
        client_ids [N], or indices and sizes [M] as `to_npz` writes them: [M,
        n_max], or the rows of one client after the other. All other arrays,
        with leading axis N, are examples too.
      num_classes: if given, labels y must be integers in [0, num_classes).

    Returns:
      The clients.

    Raises:
      ValueError: if the file cannot be read, lacks an array, or as
        `from_partition`.
    """
    arrays = npz_files.read(path)
    ownership = {k: arrays.pop(k) for k in pools.OWNERSHIP if k in arrays}
    is_owned = set(ownership) in ({"client_ids"}, {"indices", "sizes"})
    if not is_owned or not {"x", "y"} <= set(arrays):
      raise ValueError(
        f"{path} must hold the arrays x, y and either client_ids, or indices "
        "and sizes; it holds "
        f"{', '.join(sorted({*arrays, *ownership})) or 'none'}"
      )
    return owned_by(arrays, ownership, num_classes)

  @checked()
  def to_npz(self, path: str | os.PathLike) -> None:
    """Writes a file that `from_npz` reads.

    Args:
      path: the file; an existing one is replaced.

    Raises:
      ValueError: if it cannot be written, or an array is of a type that NumPy
        lacks, such as bfloat16.
    """
    arrays = {k: np.asarray(v) for k, v in self.examples.items()}
    is_array = not isinstance(self.indices, lists.Lists)
    arrays |= {
      "indices": np.asarray(self.indices) if is_array else self.owned_rows(),
      "sizes": np.asarray(self.sizes),
    }
    try:
      npz_files.write(pathlib.Path(path), arrays)
    except OSError as error:
      raise ValueError(f"{path} cannot be written: {error.strerror}") from error


def unchecked(examples: dict[str, Any], indices: Any, sizes: Any) -> ClientData:
  """`ClientData` of what was checked before, and may have an axis of seeds."""
  data = object.__new__(ClientData)
  vars(data).update(examples=examples, indices=indices, sizes=sizes)
  return data


jax.tree_util.register_pytree_with_keys(
  ClientData,
  lambda data: (
    [(jax.tree_util.GetAttrKey(name), x) for name, x in vars(data).items()],
    None,
  ),
  lambda _, leaves: unchecked(*leaves),
)


def _check_lists(indices: Any, sizes: Any, num_examples: int) -> None:
  """Checks the lists of the clients' examples, and their lengths."""
  rows = {"of_integers": True, "interval": f"[0, {num_examples - 1}]"}
  if isinstance(indices, lists.Lists):
    checked_array("indices", indices.rows, "[T]", **rows)
  else:
    indices = checked_array("indices", indices, "[M, n_max]", **rows)
  number, width = indices.shape
  checked_array(
    "sizes", sizes, f"[{number}]", of_integers=True, interval=f"[0, {width}]"
  )
  if not np.any(sizes):
    raise ValueError("sizes: no client has an example; at least one must")


def joined(
  clients: Sequence[Mapping[str, np.ndarray]], num_classes: int | None = None
) -> ClientData:
  """Clients of whom each has its examples apart, name -> [n, ...].

  Args:
    clients: the clients, all with the same names.
    num_classes: see `ClientData.from_partition`.
  """
  examples = {n: np.concatenate([c[n] for c in clients]) for n in clients[0]}
  ends = np.cumsum([len(next(iter(part.values()))) for part in clients])
  rows = np.split(np.arange(ends[-1]), ends[:-1])
  return ClientData.from_partition(examples, rows, num_classes)


def _checked_rows(
  rows: Sequence[np.ndarray], num_examples: int
) -> tuple[np.ndarray, np.ndarray]:
  """The rows of all clients, one after the other, and the clients' sizes."""
  check_iterable("rows", rows)
  if isinstance(rows, Mapping):
    raise TypeError(f"rows={brief(rows)}: must be a list of arrays of rows")
  row_lists = list(rows)
  for client, own_rows in enumerate(row_lists):
    # Most are what the schemes give, of up to millions of clients.
    is_plain = type(own_rows) is np.ndarray and own_rows.dtype == np.int64
    if not is_plain or own_rows.ndim != 1:
      row_lists[client] = checked_array(
        f"rows[{client}]", own_rows, "[n]", of_integers=True
      )
  sizes = np.array([len(own_rows) for own_rows in row_lists], np.int32)
  if not sizes.any():
    raise ValueError(f"rows: none of {len(row_lists)} clients has an example")
  owned = np.concatenate([own_rows for own_rows in row_lists if own_rows.size])
  interval = f"[0, {num_examples - 1}]"
  checked_array("rows", owned, "[n]", of_integers=True, interval=interval)
  return owned.astype(np.int64), sizes


def owned_by(
  examples: Mapping[str, np.ndarray],
  ownership: Mapping[str, np.ndarray],
  num_classes: int | None,
) -> ClientData:
  """Clients of a pool, by the arrays of a file that say which has what.

  Args:
    examples: name -> [N, ...].
    ownership: client_ids [N]; or sizes [M], and indices [M, n_max], or [sum of
      sizes] for one client after the other.
    num_classes: see `ClientData.from_partition`.

  Raises:
    ValueError: if shapes differ, a size is out of range, or as
      `from_client_ids`.
    TypeError: if sizes are no whole numbers.
  """
  if "client_ids" in ownership:
    ids = ownership["client_ids"]
    return ClientData.from_client_ids(examples, ids, num_classes)
  # So many that their sum has no overflow.
  indices, interval = ownership["indices"], f"[0, {np.iinfo(np.int32).max}]"
  if indices.ndim == 2:
    interval = f"[0, {indices.shape[1]}]"
  sizes = checked_array(
    "sizes", ownership["sizes"], "[M]", of_integers=True, interval=interval
  ).astype(np.int64)
  if indices.ndim == 2 and len(indices) == len(sizes):
    indices = indices[np.arange(indices.shape[1]) < sizes[:, None]]
  if indices.shape != (sizes.sum(),):
    raise ValueError(
      f"indices must have shape [M, n_max] or [sum of sizes], got "
      f"{list(indices.shape)} of {len(sizes)} sizes with sum {sizes.sum()}"
    )
  rows = np.split(indices, np.cumsum(sizes))[:-1]
  return ClientData.from_partition(examples, rows, num_classes)
