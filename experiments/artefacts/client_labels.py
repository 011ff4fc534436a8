"""Who has which labels: what is recorded of it, and its picture."""

import functools
from collections.abc import Sequence

import numpy as np

from experiments.artefacts.blocks import Picture
from experiments.stored.records import Record
from fedjax_opt import ClientData, plots
from fedjax_opt.results.history import History

# Labels of CIFAR-10's training examples. A split depends only on how many there
# are of each, so the data are not read.
CIFAR10 = np.repeat(np.arange(10), 5000)


def history_of(rows: Sequence[np.ndarray]) -> History:
  """How many examples of each label every client has: `class_0` to `class_9`.

  Args:
    rows: for each client, which examples of `CIFAR10` it has.
  """
  clients = ClientData.from_partition({"y": CIFAR10}, rows)
  counts = np.asarray(clients.label_counts(10))
  return History([0], {f"class_{c}": counts[:, [c]] for c in range(10)})


def counts_of(record: Record) -> np.ndarray:
  """[clients, classes] int, of what `history_of` recorded."""
  columns = list(record.history.metrics.values())
  return np.concatenate(columns, axis=1).astype(int)


def picture(name: str, counts: np.ndarray, title: str, where: str) -> Picture:
  """A bar of labels for each client; `where` tells pictures apart in words."""
  draw = functools.partial(plots.label_histogram, counts, None, title=title)
  return Picture(name, draw, f"Labels of each client, {where}")
