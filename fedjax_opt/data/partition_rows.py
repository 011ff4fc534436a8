"""Checks, sorting and cutting of rows, for the partition schemes."""

import numpy as np

from fedjax_opt.checks import values as checks
from fedjax_opt.registry import Hyperparameter

Rows = list[np.ndarray]  # M arrays of pool rows, one per client.

_NUM_CLIENTS = Hyperparameter("num_clients", 100, "clients", "[1, inf)")


def check_labels(
  labels: np.ndarray,
  num_clients: int,
  seed: int,
  with_replacement: bool = False,
) -> np.ndarray:
  """Checks the arguments that most schemes have.

  Args:
    labels: [N] integers.
    num_clients: M.
    seed: of the draws.
    with_replacement: whether M may exceed N.

  Returns:
    The labels, an array.

  Raises:
    ValueError: if the labels are no vector of integers, M is less than 1 or
      more than there are examples, or the seed is negative.
    TypeError: if M or the seed is no whole number.
  """
  labels = np.asarray(labels)
  if labels.ndim != 1 or labels.dtype.kind not in "iu" or not labels.size:
    raise ValueError(
      "labels must be integers of shape [N] with N >= 1, got "
      f"{labels.dtype} of shape {labels.shape}"
    )
  _NUM_CLIENTS.check(num_clients)
  checks.seed(seed)
  if not with_replacement and num_clients > len(labels):
    raise ValueError(
      f"num_clients={num_clients}: without replacement there must be an "
      f"example for each client, so at most {len(labels)}"
    )
  return labels


def rows_by_value(values: np.ndarray) -> Rows:
  """For each distinct value, ascending, its rows in their order."""
  order = np.argsort(values, kind="stable")
  _, starts = np.unique(values[order], return_index=True)
  return np.split(order, starts[1:])


def sort_by_label(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
  """The rows in the order of their labels; rows of one label keep theirs."""
  return rows[np.argsort(labels[rows], kind="stable")]


def cut(rows: np.ndarray, proportions: np.ndarray) -> Rows:
  """Cuts an array into contiguous parts, whose sizes sum to its length.

  Args:
    rows: [n].
    proportions: of the parts; they sum to 1.
  """
  # The small term prevents that rounding errors floor a whole number.
  ends = np.cumsum(proportions)[:-1] * len(rows)
  return np.split(rows, np.floor(ends + 1e-9).astype(int))
