"""Holding out examples: of every client, or all those of some clients.

`ClientData.split` and `ClientData.split_clients` are the public face. Clients
may share rows of the pool, and have one several times; what is divided is
therefore the pool's rows, and each client's list follows. Lists are arrays of
all clients' rows, one client after the other, and the sizes of the clients.
"""

import numpy as np

# Beside the seed, so that these draws are not those of a partition.
_STREAM = 0x5011
_FREE, _KEPT, _HELD_OUT = range(3)

RowsAndSizes = tuple[np.ndarray, np.ndarray]  # rows [sum of sizes], sizes [M]


def divide(
  rows: np.ndarray, sizes: np.ndarray, fraction: float, seed: int
) -> tuple[RowsAndSizes, RowsAndSizes]:
  """The lists of what clients train on, and of what they hold out.

  Args:
    rows: [sum of sizes], of the pool.
    sizes: [M], how many of them are each client's.
    fraction: of each client's examples that is held out, in (0, 1).
    seed: of the draws.

  Returns:
    Two pairs of rows [sum of sizes] and sizes [M].

  Raises:
    ValueError: if no example of any client is held out.
  """
  rng = np.random.default_rng((_STREAM, seed))
  # How often each client has each of its rows, by client.
  clients = np.repeat(np.arange(len(sizes)), sizes)
  num_rows = int(rows.max(initial=0)) + 1
  pairs, times = np.unique(clients * num_rows + rows, return_counts=True)
  row_owner, distinct = np.divmod(pairs, num_rows)
  shuffled = np.lexsort((rng.random(len(pairs)), row_owner))
  distinct, times = distinct[shuffled], times[shuffled]
  starts = np.searchsorted(row_owner, np.arange(len(sizes) + 1))

  targets = np.minimum(np.round(fraction * sizes), sizes - 1).astype(int)
  part = np.full(num_rows, _FREE, np.int8)
  for client in rng.permutation(len(sizes)):
    span = slice(starts[client], starts[client + 1])
    _divide_client(part, distinct[span], times[span], targets[client])
  is_held_out = part[rows] == _HELD_OUT
  if not is_held_out.any():
    most = sizes.max(initial=0)
    remedy = "must be larger" if most > 1 else "a client needs two or more"
    raise ValueError(
      f"fraction={fraction:g}: holds out no example of any client, the largest "
      f"has {most}; {remedy}"
    )
  num_held_out = np.bincount(clients[is_held_out], minlength=len(sizes))
  num_held_out = num_held_out.astype(np.int32)  # Of each client.
  return (
    (rows[~is_held_out], sizes - num_held_out),
    (rows[is_held_out], num_held_out),
  )


def _divide_client(part, rows, times, target):
  """Divides the rows that nobody before this client has divided.

  Args:
    part: [N], of each row; written.
    rows: of the client, distinct, in random order.
    times: how often the client has each.
    target: how many examples it should hold out.
  """
  state = part[rows]
  num_missing = target - times[state == _HELD_OUT].sum()
  is_free = state == _FREE
  free_rows, times = rows[is_free], times[is_free]
  part[free_rows] = _KEPT
  while num_missing > 0:
    is_fit = times <= num_missing  # A row is held out whole.
    free_rows, times = free_rows[is_fit], times[is_fit]
    if not len(free_rows):
      return
    num_rows = np.searchsorted(np.cumsum(times), num_missing, side="right")
    part[free_rows[:num_rows]] = _HELD_OUT
    num_missing -= times[:num_rows].sum()
    free_rows, times = free_rows[num_rows:], times[num_rows:]


def divide_clients(
  rows: np.ndarray, sizes: np.ndarray, fraction: float, seed: int
) -> tuple[RowsAndSizes, RowsAndSizes]:
  """The lists of the clients that train, and of those held out.

  Args:
    rows: [sum of sizes], of the pool.
    sizes: [M], how many of them are each client's.
    fraction: of the clients that have examples, in (0, 1).
    seed: of the draws.

  Returns:
    As `divide`, of fewer clients each.

  Raises:
    ValueError: if no client is held out or none is left, or one that is held
      out has no rows of its own.
  """
  rng = np.random.default_rng((_STREAM, seed))
  order = rng.permutation(np.flatnonzero(sizes))
  number = round(fraction * len(order))
  if not 0 < number < len(order):
    words = "none" if number == 0 else "all"
    raise ValueError(
      f"fraction={fraction:g}: holds {words} of the {len(order)} clients out; "
      f"must be {'larger' if number == 0 else 'smaller'}"
    )
  is_held_out = np.zeros(len(sizes), bool)
  is_held_out[order[:number]] = True
  clients = np.repeat(np.arange(len(sizes)), sizes)
  is_trained_on = np.zeros(int(rows.max()) + 1, bool)
  is_trained_on[rows[~is_held_out[clients]]] = True
  is_left = ~is_trained_on[rows]
  num_left = np.bincount(clients[is_left], minlength=len(sizes))
  is_empty = is_held_out & (num_left == 0)
  if is_empty.any():
    raise ValueError(
      f"split_clients: all examples of client {np.argmax(is_empty)}, which is "
      "held out, are also those of clients that train "
      f"({is_empty.sum()} of {number} such clients); divide the pool without "
      "repetition, such as by partition.dirichlet_disjoint, or use "
      "data.split(fraction)"
    )
  # Held-out clients have no row that trains, so what is left is theirs alone.
  train = rows[~is_held_out[clients]], sizes[~is_held_out]
  return train, (rows[is_left], num_left[is_held_out].astype(np.int32))
