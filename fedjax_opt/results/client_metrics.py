"""Metrics of every client, and statistics of them."""

import os
import pathlib
from typing import NamedTuple

import numpy as np

from fedjax_opt.checks.values import check_choice
from fedjax_opt.files import csv_files, json_files
from fedjax_opt.results.metric_names import check_has_direction, direction


class ClientMetrics(NamedTuple):
  """Metrics of every client, on its own held-out examples.

  Attributes:
    values: {kind: {name: [M] float64}}: means over a client's held-out
      examples, NaN for a client without any. The kinds are 'global' and, if
      they were asked for, 'personalized' and 'personal'.
    num_test: [M] int, held-out examples of each client.
    num_train: [M] int, its training examples; None if they were not given.
  """

  values: dict[str, dict[str, np.ndarray]]
  num_test: np.ndarray
  num_train: np.ndarray | None = None

  def mean(self, kind: str = "global", name: str = "accuracy") -> float:
    """The mean over all held-out examples of all clients."""
    weights = self.num_test[self.num_test > 0]
    return float(np.average(self._of(kind, name), weights=weights))

  def deciles(self, kind: str = "global", name: str = "accuracy") -> np.ndarray:
    """[9], the deciles over clients that have held-out examples."""
    return np.quantile(self._of(kind, name), np.arange(1, 10) / 10)

  def worst_decile(self, kind: str = "global", name: str = "accuracy") -> float:
    """The mean of the worst 10 % of the clients that have held-out examples.

    The worst of n clients are the `ceil(n / 10)` with the lowest accuracy, or
    the highest loss.

    Raises:
      ValueError: if the direction in which the metric improves is not known.
    """
    check_has_direction(name)
    values = np.sort(self._of(kind, name))
    return worst_mean(values, worst_is_low=direction(name) == "max")

  def summary(self) -> dict[str, dict[str, float]]:
    """{kind: {name: number}}, as reports have them.

    For each metric `client_test_<name>`, the mean over all held-out examples;
    for the accuracy also `client_test_worst_decile_accuracy`, and
    `client_test_accuracy_decile_1` to `client_test_accuracy_decile_9`, over
    clients.
    """
    by_kind = {}
    for kind, names in self.values.items():
      metrics = {f"client_test_{n}": self.mean(kind, n) for n in names}
      if "accuracy" in names:
        metrics["client_test_worst_decile_accuracy"] = self.worst_decile(kind)
        for i, decile in enumerate(self.deciles(kind), 1):
          metrics[f"client_test_accuracy_decile_{i}"] = float(decile)
      by_kind[kind] = metrics
    return by_kind

  def to_csv(self, path: str | os.PathLike) -> None:
    """Writes a table with one row for each client.

    The columns are `client`, `num_train`, `num_test`, and `<kind>_<name>` for
    each kind and metric; a cell is empty where there is no number.

    Args:
      path: the file; an existing one is replaced.

    Raises:
      ValueError: if it cannot be written.
    """
    columns = {
      f"{kind}_{name}": values
      for kind, metrics in self.values.items()
      for name, values in metrics.items()
    }
    rows = [["client", "num_train", "num_test", *columns]]
    for client, num_test in enumerate(self.num_test):
      num_train = None if self.num_train is None else self.num_train[client]
      cells = [
        csv_files.number_cell(values[client]) for values in columns.values()
      ]
      rows.append([client, num_train, num_test, *cells])
    try:
      json_files.write_text(pathlib.Path(path), csv_files.text_of(rows))
    except OSError as error:
      raise ValueError(f"{path} cannot be written: {error.strerror}") from error

  def _of(self, kind, name):
    """A metric of the clients that have held-out examples."""
    check_choice("kind", kind, self.values)
    check_choice("name", name, self.values[kind])
    return self.values[kind][name][self.num_test > 0]


def worst_mean(ascending: np.ndarray, worst_is_low: bool) -> float:
  """The mean of the worst tenth, `ceil(n / 10)` of n values.

  Args:
    ascending: [n].
    worst_is_low: whether the first ones are the worst.
  """
  count = -(-len(ascending) // 10)
  tenth = ascending[:count] if worst_is_low else ascending[-count:]
  return float(tenth.mean())
