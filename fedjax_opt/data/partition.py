"""Ways to divide a pool of labelled examples among clients.

Every scheme returns one array of pool rows per client and leaves the examples
where they are: `ClientData.from_partition(examples, rows)` is the next step.
Every scheme is a function of its arguments and an integer seed alone, and gives
every client at least one example.

  scheme               sizes             each example used     source
  -------------------  ----------------  --------------------  -----------------
  iid                  equal (+-1)       once
  dirichlet            as asked          any number of times   Delta-SGD, LDA
  dirichlet_disjoint   vary              once                  Yurochkin et al.
  similarity           equal (+-1)       once                  DOMO
  class_q              equal             at most once          BVR-L-SGD
  shards               nearly equal      once                  McMahan et al.
  size_skew            log-normal        once                  FedProx, appendix
  natural              as given          once
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_opt.registry import (
  Hyperparameter,
  PartitionChoice,
  check_belongs,
  check_choice,
  owners,
)

Rows = list[np.ndarray]  # M arrays of pool rows, one per client.

_NUM_CLIENTS = Hyperparameter("num_clients", 100, "clients", "[1, inf)")
_ALPHA = Hyperparameter(
  "alpha", 0.1, "Dirichlet concentration; small is skewed", "(0, inf)"
)
_EXAMPLES_PER_CLIENT = Hyperparameter(
  "examples_per_client",
  500,
  "examples of each client, or the range from which each client's number is "
  "drawn",
  "[1, inf)",
  takes_range=True,
)
_TAIL_CUT = Hyperparameter(
  "tail_cut", 0.0, "fraction dropped, highest labels first", "[0, 1)"
)
_SIMILARITY = Hyperparameter(
  "similarity", 0.1, "fraction of the data spread evenly", "[0, 1]"
)
_CLASS_FRACTION = Hyperparameter(
  "class_fraction", 0.1, "fraction of a class at its own client", "(0, 1]"
)
_SHARDS_PER_CLIENT = Hyperparameter(
  "shards_per_client", 2, "blocks per client", "[1, inf)"
)
_SIZE_SIGMA = Hyperparameter(
  "size_sigma", 1.0, "spread of the log of the sizes", "[0, inf)"
)


def iid(labels: np.ndarray, num_clients: int, seed: int = 0) -> Rows:
  """Deals all examples at random; sizes differ by at most one.

  Args:
    labels: [N] integers; only their number matters here.
    num_clients: M, at most N.
    seed: of the shuffle.

  Returns:
    M arrays of rows; every example is in exactly one.

  Raises:
    ValueError: if there are fewer examples than clients.
  """
  labels = _check(labels, num_clients)
  order = np.random.default_rng(seed).permutation(len(labels))
  return np.array_split(order, num_clients)


def dirichlet(
  labels: np.ndarray,
  num_clients: int,
  alpha: float,
  examples_per_client: int | tuple[int, int] = 500,
  seed: int = 0,
  tail_cut: float = 0.0,
) -> Rows:
  """Label skew by LDA: each client draws its own mixture of the classes.

  Client m draws `q ~ Dirichlet(alpha * 1)` over the classes that occur in
  `labels`, takes `round(n_m q_c)` examples of each class c and what is left of
  n_m from the last class, all WITH replacement. Where rounding up has already
  exceeded n_m (the authors' code then hands out a few examples too many), the
  excess is taken off the classes that were rounded up the most, so a client
  has n_m examples exactly.

  Args:
    labels: [N] non-negative integers.
    num_clients: M; may exceed N.
    alpha: concentration, > 0. Small: few classes per client. Large: all alike.
    examples_per_client: n_m; or (low, high) to draw each n_m uniformly from
      the integers low..high, both included.
    seed: of all draws.
    tail_cut: fraction of each client's examples to drop, highest labels first,
      in [0, 1). The authors train on the first 90 % of a list that is in class
      order, which `tail_cut=0.1` reproduces.

  Returns:
    M arrays of rows in class order. Rows repeat within and across clients.

  Raises:
    ValueError: if an argument is outside the range given above.

  Source: Kim et al., "Adaptive Federated Learning with Auto-Tuned Clients",
  2023, and its code; the scheme is Hsu et al., arXiv:1909.06335.
  """
  labels = _check(labels, num_clients, with_replacement=True)
  _ALPHA.check(alpha)
  low, high = _size_range(examples_per_client)
  _TAIL_CUT.check(tail_cut)
  rng = np.random.default_rng(seed)
  rows_of_class = _rows_by_value(labels)
  rows = []
  for _ in range(num_clients):
    size = int(rng.integers(low, high, endpoint=True))
    mixture = rng.dirichlet(np.full(len(rows_of_class), alpha))
    counts = _class_counts(mixture, size)
    drawn = [
      of_class[rng.integers(len(of_class), size=count)]
      for of_class, count in zip(rows_of_class, counts, strict=True)
    ]
    # The small term keeps (1 - 0.9) * 10 from being floored to 0.
    kept = max(1, math.floor((1 - tail_cut) * size + 1e-9))
    rows.append(np.concatenate(drawn)[:kept])
  return rows


def dirichlet_disjoint(
  labels: np.ndarray, num_clients: int, alpha: float, seed: int = 0
) -> Rows:
  """Label and size skew without replacement: each class is cut into M parts.

  The parts of class c have proportions `p_c ~ Dirichlet(alpha * 1)` over the
  clients. A client left with nothing (certain at small alpha) is given one
  example of the client that holds most.

  Args:
    labels: [N] non-negative integers.
    num_clients: M, at most N.
    alpha: concentration, > 0. Small: few clients share a class.
    seed: of all draws.

  Returns:
    M arrays of rows; every example is in exactly one.

  Raises:
    ValueError: if an argument is outside the range given above.

  Source: Yurochkin et al., "Bayesian Nonparametric Federated Learning of Neural
  Networks", ICML 2019, section 4.
  """
  labels = _check(labels, num_clients)
  _ALPHA.check(alpha)
  rng = np.random.default_rng(seed)
  parts = [
    _cut(rng.permutation(rows), rng.dirichlet(np.full(num_clients, alpha)))
    for rows in _rows_by_value(labels)
  ]
  rows = [np.concatenate(of_client) for of_client in zip(*parts, strict=True)]
  for client in range(num_clients):
    if not rows[client].size:
      donor = max(range(num_clients), key=lambda m: rows[m].size)
      rows[client], rows[donor] = rows[donor][-1:], rows[donor][:-1]
  return rows


def similarity(
  labels: np.ndarray, num_clients: int, similarity: float, seed: int = 0
) -> Rows:
  """Shares a random fraction of the data evenly, deals the rest by label.

  The fraction s is spread iid over the clients; the other 1 - s is sorted by
  label and dealt in contiguous blocks. Sizes differ by at most one.

  Args:
    labels: [N] non-negative integers.
    num_clients: M, at most N.
    similarity: s in [0, 1]; 1 is iid, 0 is sorted.
    seed: of the shuffle.

  Returns:
    M arrays of rows; every example is in exactly one.

  Raises:
    ValueError: if an argument is outside the range given above.

  Source: Xu et al., "Coordinating Momenta for Cross-silo Federated Learning"
  (DOMO), AAAI 2022, experiments; Karimireddy et al. (SCAFFOLD), ICML 2020.
  """
  labels = _check(labels, num_clients)
  _SIMILARITY.check(similarity)
  order = np.random.default_rng(seed).permutation(len(labels))
  shared, rest = np.split(order, [round(similarity * len(labels))])
  # Both parts hand their remainder to the first clients; reversing one of
  # them keeps the sizes within one of each other.
  shared = np.array_split(shared, num_clients)[::-1]
  blocks = np.array_split(_sort_by_label(rest, labels), num_clients)
  return [np.concatenate(parts) for parts in zip(shared, blocks, strict=True)]


def class_q(
  labels: np.ndarray, num_clients: int, class_fraction: float, seed: int = 0
) -> Rows:
  """One client per class: it holds fraction q of its class.

  The other 1 - q of a class is split equally among the other P - 1 clients.
  Classes are first cut to the size of the smallest, and what does not divide
  by P - 1 is dropped: for P = 10 classes of 5,000 and q = 0.1, 0.35, 0.6, 0.85
  a client has 5000, 4999, 4998, 4997 examples.

  Args:
    labels: [N] non-negative integers with P >= 2 distinct values.
    num_clients: must be P.
    class_fraction: q in [1/P, 1]; 1/P is homogeneous, 1 is one class each.
    seed: of the shuffle.

  Returns:
    P arrays of rows of equal size; no example is in two.

  Raises:
    ValueError: if an argument is outside the range given above.

  Source: Murata and Suzuki, "Bias-Variance Reduced Local SGD", ICML 2021,
  experiments.
  """
  labels = _check(labels, num_clients)
  rng = np.random.default_rng(seed)
  classes = [rng.permutation(rows) for rows in _rows_by_value(labels)]
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
  own = max(1, round(class_fraction * class_size))
  other = (class_size - own) // (num_classes - 1)
  rows = [[] for _ in classes]
  for owner, of_class in enumerate(classes):
    start = own
    for client in range(num_classes):
      if client == owner:
        rows[client].append(of_class[:own])
      else:
        rows[client].append(of_class[start : start + other])
        start += other
  return [np.concatenate(parts) for parts in rows]


def shards(
  labels: np.ndarray,
  num_clients: int,
  shards_per_client: int = 2,
  seed: int = 0,
) -> Rows:
  """The "pathological" split: a few blocks of the label-sorted data each.

  Args:
    labels: [N] non-negative integers.
    num_clients: M, at most N / shards_per_client.
    shards_per_client: blocks per client, >= 1; about as many labels each.
    seed: of the shuffles (within a label, and of the blocks).

  Returns:
    M arrays of rows; every example is in exactly one.

  Raises:
    ValueError: if there are more blocks than examples.

  Source: McMahan et al., "Communication-Efficient Learning of Deep Networks
  from Decentralized Data", AISTATS 2017, section 3.
  """
  labels = _check(labels, num_clients)
  most = len(labels) // num_clients
  if not 1 <= shards_per_client <= most or shards_per_client % 1:
    raise ValueError(
      f"shards_per_client={shards_per_client}: must be a whole number in "
      f"[1, {most}] for {len(labels)} examples and {num_clients} clients"
    )
  shards_per_client = int(shards_per_client)
  rng = np.random.default_rng(seed)
  by_label = _sort_by_label(rng.permutation(len(labels)), labels)
  blocks = np.array_split(by_label, num_clients * shards_per_client)
  dealt = rng.permutation(len(blocks)).reshape(num_clients, shards_per_client)
  return [np.concatenate([blocks[b] for b in hand]) for hand in dealt]


def size_skew(
  labels: np.ndarray, num_clients: int, size_sigma: float = 1.0, seed: int = 0
) -> Rows:
  """Same label distribution, log-normal sizes.

  Every client gets one example; the others are dealt at random in proportions
  `exp(size_sigma * z_m)` with z_m standard normal.

  Args:
    labels: [N] integers; only their number matters here.
    num_clients: M, at most N.
    size_sigma: spread of the log of the sizes, >= 0; 0 gives equal sizes.
    seed: of all draws.

  Returns:
    M arrays of rows; every example is in exactly one.

  Raises:
    ValueError: if an argument is outside the range given above.

  Source: the log-normal client sizes of the synthetic data in Li et al.,
  "Federated Optimization in Heterogeneous Networks" (FedProx), MLSys 2020.
  """
  labels = _check(labels, num_clients)
  _SIZE_SIGMA.check(size_sigma)
  rng = np.random.default_rng(seed)
  order = rng.permutation(len(labels))
  logs = size_sigma * rng.standard_normal(num_clients)
  weights = np.exp(logs - logs.max())  # The maximum off: no overflow.
  first, others = np.split(order, [num_clients])
  parts = _cut(others, weights / weights.sum())
  return [np.append(row, part) for row, part in zip(first, parts, strict=True)]


def natural(client_ids: np.ndarray | Sequence[Any]) -> Rows:
  """Groups examples by a given client id, such as a writer or a speaker.

  Args:
    client_ids: [N] integers or strings, one id per example.

  Returns:
    One array of rows per distinct id, in sorted order of the ids; rows keep
    their order.

  Raises:
    ValueError: if `client_ids` is empty, not one-dimensional, or floats.
  """
  client_ids = np.asarray(client_ids)
  if client_ids.ndim != 1 or not client_ids.size:
    raise ValueError(
      "client_ids must be one id per example, shape [N] with N >= 1, got "
      f"shape {client_ids.shape}"
    )
  if client_ids.dtype.kind not in "iuUS":
    raise ValueError(
      f"client_ids must be integers or strings, got {client_ids.dtype}"
    )
  return _rows_by_value(client_ids)


SCHEMES: dict[str, PartitionChoice] = {
  "iid": PartitionChoice(iid, "all examples dealt at random, equal sizes"),
  "dirichlet": PartitionChoice(
    dirichlet,
    "label mixture Dirichlet(alpha) per client, drawn with replacement",
    (_ALPHA, _EXAMPLES_PER_CLIENT, _TAIL_CUT),
  ),
  "dirichlet_disjoint": PartitionChoice(
    dirichlet_disjoint,
    "each class cut by Dirichlet(alpha) over clients, no example repeated",
    (_ALPHA,),
  ),
  "similarity": PartitionChoice(
    similarity,
    "a fraction iid, the rest in blocks of the label-sorted data",
    (_SIMILARITY,),
  ),
  "class_q": PartitionChoice(
    class_q,
    "one client per class, holding a fraction of that class",
    (_CLASS_FRACTION,),
  ),
  "shards": PartitionChoice(
    shards,
    "a few random blocks of the label-sorted data each",
    (_SHARDS_PER_CLIENT,),
  ),
  "size_skew": PartitionChoice(
    size_skew, "iid labels, log-normal sizes", (_SIZE_SIGMA,)
  ),
  "natural": PartitionChoice(
    natural, "the client ids that come with the data", takes_ids=True
  ),
}


def split(
  name: str,
  labels: np.ndarray,
  num_clients: int | None,
  seed: int = 0,
  client_ids: np.ndarray | None = None,
  **parameters: Any,
) -> Rows:
  """Divides a pool by the scheme of that name.

  Args:
    name: a key of `SCHEMES`.
    labels: [N] non-negative integers.
    num_clients: M. For 'natural': the number of distinct ids, or None.
    seed: of all draws; 'natural' has none.
    client_ids: [N], for 'natural'.
    **parameters: the scheme's own, such as alpha; the others take the defaults
      of `SCHEMES`.

  Returns:
    M arrays of rows.

  Raises:
    ValueError: if the name is unknown, a parameter belongs to another scheme,
      or a value is out of range.
  """
  check_parameters(name, parameters)
  scheme = SCHEMES[name]
  if not scheme.takes_ids:
    defaults = {p.name: p.default for p in scheme.hyperparameters}
    return scheme.factory(
      labels, num_clients, seed=seed, **(defaults | parameters)
    )
  if client_ids is None:
    raise ValueError(
      f"partition={name!r}: the data comes without client ids; must be one of "
      f"{', '.join(n for n, other in SCHEMES.items() if not other.takes_ids)}"
    )
  rows = scheme.factory(client_ids)
  if num_clients not in (None, len(rows)):
    raise ValueError(
      f"num_clients={num_clients}: the data has {len(rows)} natural clients; "
      "leave num_clients out"
    )
  return rows


def check_parameters(name: str, parameters: Mapping[str, Any]) -> None:
  """Checks what can be checked before any data is loaded.

  Args:
    name: should be a key of `SCHEMES`.
    parameters: the parameters that the user has given, by name.

  Raises:
    ValueError: if the name is unknown, a parameter belongs to another scheme,
      or a value is out of range.
  """
  check_choice("partition", name, SCHEMES)
  accepted = {p.name: p for p in SCHEMES[name].hyperparameters}
  for given, value in parameters.items():
    check_belongs(given, value, "partition", name, owners(SCHEMES, given))
    if accepted[given].takes_range:
      _size_range(value)
    else:
      accepted[given].check(value)


def _check(
  labels: np.ndarray, num_clients: int, with_replacement: bool = False
) -> np.ndarray:
  labels = np.asarray(labels)
  if labels.ndim != 1 or labels.dtype.kind not in "iu" or not labels.size:
    raise ValueError(
      "labels must be integers of shape [N] with N >= 1, got "
      f"{labels.dtype} of shape {labels.shape}"
    )
  _NUM_CLIENTS.check(num_clients)
  if not with_replacement and num_clients > len(labels):
    raise ValueError(
      f"num_clients={num_clients}: without replacement there must be an "
      f"example for each client, so at most {len(labels)}"
    )
  return labels


def _size_range(examples_per_client: int | tuple[int, int]) -> tuple[int, int]:
  bounds = np.atleast_1d(examples_per_client)
  low, high = bounds[0], bounds[-1]
  if len(bounds) > 2 or not 1 <= low <= high or low % 1 or high % 1:
    raise ValueError(
      f"examples_per_client={examples_per_client}: must be a whole number in "
      "[1, inf), or (low, high) with 1 <= low <= high"
    )
  return int(low), int(high)


def _class_counts(mixture: np.ndarray, size: int) -> np.ndarray:
  """Rounds `size * mixture` to counts that sum to `size`; see `dirichlet`."""
  exact = size * mixture
  counts = np.round(exact).astype(int)
  counts[-1] = size - counts[:-1].sum()
  if counts[-1] < 0:
    # Each class rounded up by at most 1/2, so there are enough of them, and
    # each has a count of at least 1.
    rounded_up_most = np.argsort((exact - counts)[:-1], kind="stable")
    counts[rounded_up_most[: -counts[-1]]] -= 1
    counts[-1] = 0
  return counts


def _rows_by_value(values: np.ndarray) -> Rows:
  """Rows of each distinct value, values ascending, rows ascending."""
  order = np.argsort(values, kind="stable")
  _, starts = np.unique(values[order], return_index=True)
  return np.split(order, starts[1:])


def _sort_by_label(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
  return rows[np.argsort(labels[rows], kind="stable")]


def _cut(rows: np.ndarray, proportions: np.ndarray) -> Rows:
  """Cuts an array in contiguous parts of these proportions, losing nothing."""
  ends = np.cumsum(proportions)[:-1] * len(rows)
  return np.split(rows, np.floor(ends + 1e-9).astype(int))
