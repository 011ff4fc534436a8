"""The partition schemes: functions from labels to the rows of each client.

partition.py lists them, with their sizes and sources.
"""

import heapq
import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from fedjax_opt.checks import fields, memory
from fedjax_opt.checks.fields import (
  Count,
  NonNegativeFloat,
  PositiveFloat,
  Seed,
)
from fedjax_opt.checks.values import brief, check_at_least, check_plain_array

Rows = list[np.ndarray]  # M arrays of pool rows, one per client.
# So many clients draw one after the other, more of them all at once.
_ONE_BY_ONE = 2**16

# The class of each example.
Labels = Annotated[np.ndarray, fields.array("[N]", of_integers=True)]


def _are_ids(name: str, value: Any) -> None:
  """Raises ValueError if these are no ids, one for each example."""
  is_array, is_of_pandas = (
    isinstance(value, np.ndarray),
    hasattr(value, "to_numpy"),
  )
  may_be_text = is_of_pandas or (is_array and value.dtype.kind in "OSU")
  if not may_be_text or isinstance(value, np.ma.MaskedArray):
    check_plain_array(name, value)
  ids = _as_ids(value)
  if ids.ndim != 1 or ids.dtype.kind not in "iuUS" or not ids.size:
    raise ValueError(
      f"{name} must be integers or strings, one per example, shape [N] with "
      f"N >= 1, got {ids.dtype} of shape {ids.shape}"
    )


def _as_ids(value: Any) -> np.ndarray:
  """Ids as an array: of integers or strings if all are such, also of pandas."""
  value = value.to_numpy() if hasattr(value, "to_numpy") else value
  is_list_of_any = getattr(value, "dtype", np.dtype("O")).kind == "O"
  if not is_list_of_any or getattr(value, "ndim", 1) != 1:
    return np.asarray(value)
  if not np.iterable(value):
    return np.array(None)
  ids = list(value)
  if any(isinstance(client_id, str) for client_id in ids):
    # NumPy would make a text of a missing value.
    is_text = all(isinstance(client_id, str) for client_id in ids)
    return np.array(ids, str if is_text else object)
  try:
    return np.asarray(ids)
  except ValueError:  # Lists of different lengths.
    return np.array(None)


def size_range(name: str, value: Any) -> tuple[int, int]:
  """Checks a number of examples, or a range of it, and returns (low, high)."""
  check_plain_array(name, value)
  bounds = np.atleast_1d(np.asarray(value, object))
  try:
    for bound in bounds:
      check_at_least(name, bound, 1)
    if not (1 <= len(bounds) <= 2 and bounds[0] <= bounds[-1]):
      raise ValueError(bounds)
  except (ValueError, TypeError):
    raise ValueError(
      f"{name}={brief(value)}: must be a whole number, 1 or more, or "
      "(low, high) with 1 <= low <= high"
    ) from None
  return int(bounds[0]), int(bounds[-1])


def _pool_of(labels: np.ndarray, num_clients: int, least: int) -> np.ndarray:
  """The labels as an array, if there are so many at least."""
  labels = np.asarray(labels)
  if not labels.size:
    raise ValueError("labels: must be of at least one example, got N = 0")
  if least > len(labels):
    raise ValueError(
      f"num_clients={num_clients}: without replacement there must be an "
      f"example for each client, so at most {len(labels)}"
    )
  return labels


def _by_value(values: np.ndarray) -> Rows:
  """For each distinct value, ascending, its rows in their order."""
  order = np.argsort(values, kind="stable")
  _, starts = np.unique(values[order], return_index=True)
  return np.split(order, starts[1:])


def _sorted_by_label(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
  """The rows in the order of their labels; rows of one label keep theirs."""
  return rows[np.argsort(labels[rows], kind="stable")]


def _sizes(proportions: np.ndarray, length: int) -> np.ndarray:
  """Lengths of contiguous parts of an array; the proportions sum to 1."""
  # The small term prevents that rounding errors floor a whole number.
  ends = np.cumsum(proportions)[:-1] * length
  ends = np.floor(ends + 1e-9).astype(int)
  return np.diff(ends, prepend=0, append=length)


def _gathered(rows: Sequence[np.ndarray], sizes: Sequence[np.ndarray]) -> Rows:
  """What each client has of several arrays, one after the other.

  Args:
    rows: arrays, each cut into M contiguous parts.
    sizes: of each array's parts, [M].
  """
  num_clients = len(sizes[0])
  owners = [np.repeat(np.arange(num_clients), lengths) for lengths in sizes]
  order = np.argsort(np.concatenate(owners), kind="stable")
  return _split(np.concatenate(rows)[order], sum(sizes))


def _split(rows: np.ndarray, sizes: np.ndarray) -> Rows:
  """The rows of clients that stand one after the other."""
  return np.split(rows, np.cumsum(sizes)[:-1])


@fields.checked()
def iid(labels: Labels, num_clients: Count, seed: Seed = 0) -> Rows:
  """Deals all examples at random; sizes differ by at most one.

  Args:
    labels: [N] integers; only their number matters here.
    num_clients: M, at most N.
    seed: of the shuffle.

  Returns:
    M arrays of rows; every example is in exactly one.

  Raises:
    ValueError: if there are fewer examples than clients.
    TypeError: if one of the numbers is no whole number.
  """
  labels = _pool_of(labels, num_clients, num_clients)
  order = np.random.default_rng(seed).permutation(len(labels))
  return np.array_split(order, num_clients)


@fields.checked(
  examples_per_client=fields.Field(size_range, interval="[1, inf)"),
  tail_cut="[0, 1)",
)
def dirichlet(
  labels: Labels,
  num_clients: Count,
  alpha: PositiveFloat = 0.1,
  examples_per_client: int | tuple[int, int] = 500,
  seed: Seed = 0,
  tail_cut: float = 0.0,
) -> Rows:
  """Label skew: each client draws from a Dirichlet mixture, with replacement.

  Client m draws `q ~ Dirichlet(alpha * 1)` over the classes that occur in
  `labels`. It takes `round(n_m q_c)` examples of each class c but the last, and
  the rest of its n_m examples from the last class, all WITH replacement. If the
  rounded counts sum to more than n_m, the excess is subtracted from the classes
  that were rounded up the most, so that a client has exactly n_m examples. (The
  authors' code gives such a client a few examples more.) Up to 65,536 clients
  draw one after the other, more of them all at once.

  Args:
    labels: [N] non-negative integers.
    num_clients: M; may exceed N.
    alpha: Dirichlet concentration, the smaller the more skewed; > 0. Large: the
      same mixture at all clients.
    examples_per_client: examples of each client, or the range from which each
      client's number is drawn; n_m, or (low, high), both included.
    seed: of all draws.
    tail_cut: fraction of each client's examples that is dropped, highest labels
      first; in [0, 1). `tail_cut=0.1` reproduces the authors' code, which
      trains on the first 90 % of a list in class order.

  Returns:
    M arrays of rows in class order. Rows repeat within and across clients.

  Raises:
    ValueError: if an argument is outside the range given above.
    TypeError: if one is no number, or no whole one where it must be.

  Source: Kim et al., "Adaptive Federated Learning with Auto-Tuned Clients",
  ICLR 2024, and its code; the scheme is Hsu et al., arXiv:1909.06335.
  """
  labels = _pool_of(labels, num_clients, 1)
  low, high = size_range("examples_per_client", examples_per_client)
  memory.check_memory(
    f"num_clients={num_clients} of examples_per_client={high} take",
    8 * num_clients * high,
  )
  rng = np.random.default_rng(seed)
  rows_of_class = _by_value(labels)
  lengths = np.array([len(class_rows) for class_rows in rows_of_class])
  by_class = np.concatenate(rows_of_class)
  starts = np.cumsum(lengths) - lengths
  at_once = 1 if num_clients <= _ONE_BY_ONE else num_clients
  rows = []
  for _ in range(0, num_clients, at_once):
    sizes = rng.integers(low, high, size=at_once, endpoint=True)
    mixtures = rng.dirichlet(np.full(len(lengths), alpha), size=at_once)
    counts = _class_counts(mixtures, sizes)
    draws = rng.integers(np.repeat(np.tile(lengths, at_once), counts.ravel()))
    draws += np.repeat(np.tile(starts, at_once), counts.ravel())
    rows += _split(by_class[draws], sizes)
  # Without the small term, (1 - 0.9) * 10 would be floored to 0.
  num_kept = lambda size: max(1, math.floor((1 - tail_cut) * size + 1e-9))
  return [client_rows[: num_kept(len(client_rows))] for client_rows in rows]


@fields.checked()
def dirichlet_disjoint(
  labels: Labels, num_clients: Count, alpha: PositiveFloat = 0.1, seed: Seed = 0
) -> Rows:
  """Label and size skew without replacement: each class is cut into M parts.

  The parts of class c have proportions `p_c ~ Dirichlet(alpha * 1)` over the
  clients. A client without an example (certain at small alpha) takes one from
  the client that holds most.

  Args:
    labels: [N] non-negative integers.
    num_clients: M, at most N.
    alpha: Dirichlet concentration, the smaller the more skewed; > 0. Small: few
      clients share a class.
    seed: of all draws.

  Returns:
    M arrays of rows; every example is in exactly one.

  Raises:
    ValueError: if an argument is outside the range given above.
    TypeError: if one is no number, or no whole one where it must be.

  Source: Yurochkin et al., "Bayesian Nonparametric Federated Learning of Neural
  Networks", ICML 2019, section 4.
  """
  labels = _pool_of(labels, num_clients, num_clients)
  rng = np.random.default_rng(seed)
  classes, sizes = [], []
  for class_rows in _by_value(labels):
    classes.append(rng.permutation(class_rows))
    proportions = rng.dirichlet(np.full(num_clients, alpha))
    sizes.append(_sizes(proportions, len(class_rows)))
  return _without_empty(_gathered(classes, sizes), sum(sizes))


def _without_empty(rows: Rows, sizes: np.ndarray) -> Rows:
  """Each client without a row takes the last of the one that has most.

  Of those with as many, the first gives.
  """
  donors = [(-size, client) for client, size in enumerate(sizes.tolist())]
  heapq.heapify(donors)
  for client in np.flatnonzero(sizes == 0):
    size, donor = donors[0]
    rows[client], rows[donor] = rows[donor][-1:], rows[donor][:-1]
    heapq.heapreplace(donors, (size + 1, donor))
  return rows


@fields.checked(similarity="[0, 1]")
def similarity(
  labels: Labels, num_clients: Count, similarity: float = 0.1, seed: Seed = 0
) -> Rows:
  """Deals a random fraction of the data iid, and the rest by label.

  The fraction s is dealt iid to the clients; the other 1 - s is sorted by label
  and dealt in contiguous blocks. Sizes differ by at most one.

  Args:
    labels: [N] non-negative integers.
    num_clients: M, at most N.
    similarity: fraction of the data spread evenly; s, 1 is iid, 0 is sorted.
    seed: of the shuffle.

  Returns:
    M arrays of rows; every example is in exactly one.

  Raises:
    ValueError: if an argument is outside the range given above.
    TypeError: if one is no number, or no whole one where it must be.

  Source: Xu and Huang, "Coordinating Momenta for Cross-silo Federated
  Learning" (DOMO), AAAI 2022, experiments; Karimireddy et al. (SCAFFOLD), ICML
  2020.
  """
  labels = _pool_of(labels, num_clients, num_clients)
  order = np.random.default_rng(seed).permutation(len(labels))
  shared, skewed_rows = np.split(order, [round(similarity * len(labels))])
  # `array_split` gives the remainder to the first parts. One of the lists is
  # reversed, so that as few clients as possible receive both remainders.
  shared = np.array_split(shared, num_clients)[::-1]
  blocks = np.array_split(_sorted_by_label(skewed_rows, labels), num_clients)
  return [np.concatenate(parts) for parts in zip(shared, blocks, strict=True)]


@fields.checked(class_fraction="(0, 1]")
def class_q(
  labels: Labels,
  num_clients: Count,
  class_fraction: float = 0.1,
  seed: Seed = 0,
) -> Rows:
  """One client per class, which holds `class_fraction` of it.

  The other 1 - q of a class is split equally among the other P - 1 clients.
  Every class is first cut to the size of the smallest. The remainder of the
  division by P - 1 is dropped: for P = 10 classes of 5,000 examples, a client
  has 5000, 4999, 4998 and 4997 examples at q = 0.1, 0.35, 0.6 and 0.85.

  Args:
    labels: [N] non-negative integers with P >= 2 distinct values.
    num_clients: must be P.
    class_fraction: fraction of a class at its own client; q in [1/P, 1], 1/P is
      homogeneous, 1 is one class each.
    seed: of the shuffle.

  Returns:
    P arrays of rows of equal size; no example is in two.

  Raises:
    ValueError: if an argument is outside the range given above.
    TypeError: if one is no number, or no whole one where it must be.

  Source: Murata and Suzuki, "Bias-Variance Reduced Local SGD", ICML 2021,
  experiments.
  """
  labels = _pool_of(labels, num_clients, num_clients)
  rng = np.random.default_rng(seed)
  classes = [rng.permutation(rows) for rows in _by_value(labels)]
  num_classes = len(classes)
  if num_clients != num_classes or num_classes < 2:
    raise ValueError(
      f"num_clients={num_clients}: must be {num_classes}, one client per class "
      "(of at least 2), for partition class_q"
    )
  if not 1 / num_classes - 1e-9 <= class_fraction <= 1:
    raise ValueError(
      f"class_fraction={class_fraction:g}: must be in [1/{num_classes}, 1]"
    )
  class_size = min(map(len, classes))
  num_main = max(1, round(class_fraction * class_size))
  num_other = (class_size - num_main) // (num_classes - 1)
  by_class = []
  for main_client, class_rows in enumerate(classes):
    ends = num_main + num_other * np.arange(num_classes)
    main_part, *client_parts, _ = np.split(class_rows, ends)
    client_parts.insert(main_client, main_part)
    by_class.append(client_parts)
  return [np.concatenate(parts) for parts in zip(*by_class, strict=True)]


@fields.checked()
def shards(
  labels: Labels,
  num_clients: Count,
  shards_per_client: Count = 2,
  seed: Seed = 0,
) -> Rows:
  """The "pathological" split: each client has a few blocks of sorted data.

  The examples are sorted by label and cut into equal blocks, which are dealt at
  random.

  Args:
    labels: [N] non-negative integers.
    num_clients: M, at most N / shards_per_client.
    shards_per_client: blocks per client; a client has about as many labels.
    seed: of the shuffles (within a label, and of the blocks).

  Returns:
    M arrays of rows; every example is in exactly one.

  Raises:
    ValueError: if there are more blocks than examples.
    TypeError: if one of the numbers is no whole number.

  Source: McMahan et al., "Communication-Efficient Learning of Deep Networks
  from Decentralized Data", AISTATS 2017, section 3.
  """
  labels = _pool_of(labels, num_clients, num_clients)
  limit = len(labels) // num_clients
  if shards_per_client > limit:
    raise ValueError(
      f"shards_per_client={shards_per_client}: must be a whole number in "
      f"[1, {limit}] for {len(labels)} examples and {num_clients} clients"
    )
  rng = np.random.default_rng(seed)
  by_label = _sorted_by_label(rng.permutation(len(labels)), labels)
  num_blocks = num_clients * shards_per_client
  length, longer = divmod(len(labels), num_blocks)
  sizes = length + (np.arange(num_blocks) < longer)
  deal_order = rng.permutation(num_blocks)
  place = np.argsort(deal_order)  # Where in the order of dealing each block is.
  order = np.argsort(np.repeat(place, sizes), kind="stable")
  hand_sizes = sizes[deal_order].reshape(num_clients, shards_per_client).sum(1)
  return _split(by_label[order], hand_sizes)


@fields.checked()
def size_skew(
  labels: Labels,
  num_clients: Count,
  size_sigma: NonNegativeFloat = 1.0,
  seed: Seed = 0,
) -> Rows:
  """Same label distribution, log-normal sizes.

  Every client gets one example; the others are dealt at random in proportions
  `exp(size_sigma * z_m)` with z_m standard normal.

  Args:
    labels: [N] integers; only their number matters here.
    num_clients: M, at most N.
    size_sigma: spread of the log of the sizes; >= 0, 0 gives equal sizes.
    seed: of all draws.

  Returns:
    M arrays of rows; every example is in exactly one.

  Raises:
    ValueError: if an argument is outside the range given above.
    TypeError: if one is no number, or no whole one where it must be.

  Source: the log-normal client sizes of the synthetic data in Li et al.,
  "Federated Optimization in Heterogeneous Networks" (FedProx), MLSys 2020.
  """
  labels = _pool_of(labels, num_clients, num_clients)
  rng = np.random.default_rng(seed)
  order = rng.permutation(len(labels))
  logs = size_sigma * rng.standard_normal(num_clients)
  weights = np.exp(logs - logs.max())  # The difference prevents an overflow.
  first, remaining = np.split(order, [num_clients])
  sizes = _sizes(weights / weights.sum(), len(remaining))
  return _gathered([first, remaining], [np.ones_like(sizes), sizes])


@fields.checked(client_ids=fields.Field(_are_ids))
def natural(client_ids: np.ndarray | Sequence[Any]) -> Rows:
  """Groups examples by a given client id, such as a writer or a speaker.

  Args:
    client_ids: [N] integers or strings, one id per example; also a column of
      pandas.

  Returns:
    One array of rows per distinct id, in sorted order of the ids; the rows of a
    client are ascending.

  Raises:
    ValueError: if `client_ids` is empty, not one-dimensional, or floats.
  """
  return _by_value(_as_ids(client_ids))


def _class_counts(mixtures: np.ndarray, sizes: np.ndarray) -> np.ndarray:
  """Rounds `sizes * mixtures` [m, P] to counts that sum to `sizes` [m].

  See `dirichlet`.
  """
  exact = sizes[:, None] * mixtures
  counts = np.round(exact).astype(int)
  counts[:, -1] = sizes - counts[:, :-1].sum(1)
  for client in np.flatnonzero(counts[:, -1] < 0):
    client_counts = counts[client]
    # Rounding adds at most 1/2 to a class, so at least as many classes were
    # rounded up as there are examples too many; each of them has at least 1.
    rounded = (exact[client] - client_counts)[:-1]
    rounded_up_most = np.argsort(rounded, kind="stable")
    client_counts[rounded_up_most[: -client_counts[-1]]] -= 1
    client_counts[-1] = 0
  return counts
