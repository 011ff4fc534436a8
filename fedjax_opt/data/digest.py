"""Digests of data, by which a run knows the data that it was begun on.

A name, a path or a seed does not say which numbers a run trained on: a file may
hold others today. So every set of a run has a digest of its bytes:

  train_examples  the pool, or the clients' files on disk
  partition       which examples each client has; a list if seeds differ
  validation      pooled examples, if there are any
  test            pooled examples, if there are any
"""

import concurrent.futures
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fedjax_opt.data import lists
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.population import Population

Array = np.ndarray | jax.Array
Digests = dict[str, str | list[str]]

# Under which name the digests stand in a configuration.
DATA_DIGESTS = "data_digests"
_BYTES_AT_ONCE = 1 << 23  # Bytes that a thread hashes at once.


def of_data(
  clients: Sequence[ClientData | Population],
  validation: Mapping[str, Array] | None = None,
  test: Mapping[str, Array] | None = None,
) -> Digests:
  """Digests of all that a run trains on and is measured on.

  Args:
    clients: those of each seed; one whose lists have an axis of seeds, [S, M,
      n_max], stands for several.
    validation: pooled validation examples, {name: [N, ...]}, or None.
    test: pooled test examples, or None.

  Returns:
    {set: digest}, as JSON has it.
  """
  # Seeds share the arrays of their pool, which is hashed once.
  pools = {tuple(map(id, data.examples.values())): data for data in clients}
  digests = {
    "train_examples": _one_or_all(map(_of_pool, pools.values())),
    "partition": _one_or_all(d for data in clients for d in _of_lists(data)),
    "validation": None if validation is None else of_arrays(validation),
    "test": None if test is None else of_arrays(test),
  }
  return {name: value for name, value in digests.items() if value is not None}


def of_arrays(arrays: Mapping[str, Array]) -> str:
  """The digest of arrays: their names, types, shapes and numbers."""
  hasher = hashlib.sha256()
  for name, array in sorted(arrays.items()):
    array = np.asarray(array)
    hasher.update(f"{name} {array.dtype} {array.shape};".encode())
    array = np.atleast_1d(array)
    for part in _of_parts(array):
      hasher.update(part)
  return hasher.hexdigest()[:32]


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
  """Which sets are not the same, such as 'other data (validation, test)'.

  Args:
    before: what `of_data` returned.
    now: the same, at another time.

  Returns:
    The words; '' if all are the same.
  """
  names = [n for n in {**before, **now} if before.get(n) != now.get(n)]
  words = ", ".join(name.replace("_", " ") for name in names)
  return f"other data ({words})" if names else ""


def _one_or_all(digests: Iterator[str]) -> str | list[str]:
  values = list(digests)
  return values[0] if len(set(values)) == 1 else values


def _of_pool(clients: ClientData | Population) -> str:
  """The digest of examples; on disk that of the files' own digests."""
  if not isinstance(clients, Population):
    return of_arrays(clients.examples)
  fields = {name: repr(field) for name, field in clients.fields.items()}
  header = {"": np.frombuffer(repr(fields).encode(), np.uint8)}
  return of_arrays(header | clients.digests)


def _of_lists(clients: ClientData | Population) -> Iterator[str]:
  """The digest of the lists of each seed."""
  sizes = np.asarray(clients.sizes, np.int64)
  if isinstance(clients, Population):  # Each has the next ones of the files.
    yield of_arrays({"sizes": sizes})
    return
  pairs = [(clients.indices, sizes)]
  if sizes.ndim > 1:
    pairs = zip(lists.unstacked(clients.indices), sizes, strict=True)
  for indices, seed_sizes in pairs:  # In whatever type and shape they are.
    rows = lists.owned(indices, seed_sizes).astype(np.int64)
    yield of_arrays({"sizes": seed_sizes, "rows": rows})


def _of_parts(array: np.ndarray) -> Iterator[bytes]:
  """The digests of parts of an array, by several threads if it is large."""
  rows = max(1, _BYTES_AT_ONCE * len(array) // max(1, array.nbytes))
  parts = [array[i : i + rows] for i in range(0, len(array), rows)]
  if len(parts) < 2:
    return map(_of_bytes, [array])
  with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    return iter(list(pool.map(_of_bytes, parts)))


def _of_bytes(array: np.ndarray) -> bytes:
  # As bytes: there are types that have no buffer, such as bfloat16.
  flat = np.ascontiguousarray(array).reshape(-1)
  return hashlib.sha256(flat.view(np.uint8)).digest()
