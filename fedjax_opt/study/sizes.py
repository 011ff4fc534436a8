"""What a study ran on: the sizes of its model, clients and sets of examples."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_opt.base import Batch, Params, run_key
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.population import Population
from fedjax_opt.engine import inputs
from fedjax_opt.engine.run_options import DEFAULTS
from fedjax_opt.results.names import format_number
from fedjax_opt.study.words import span

# Labels are not counted if there are more labels, or more counts, than this.
_MAX_LABELS, _MAX_COUNTS = 100, 10_000_000
# Options that say what a round computes.
WORK = ("cohort_size", "batch_size", "local_epochs", "local_steps")


class ClientSummary(NamedTuple):
  """The examples of M clients.

  Attributes:
    counts: examples of each client by label, [M, labels]; or the number of its
      examples, [M, 1], if there are no labels or examples are on disk.
    num_different: number of different examples of all clients together.
    names: the names of the clients; () if they have none.
    labels: the names of the labels; () if they have none.
  """

  counts: np.ndarray
  num_different: int
  names: tuple[str, ...] = ()
  labels: tuple[str, ...] = ()


def client_summary_of(clients: ClientData | Population) -> ClientSummary:
  """What a report says of clients.

  Labels are whole numbers 'y', one for each example.
  """
  sizes = np.asarray(clients.sizes)[:, None]
  if isinstance(clients, Population):
    return ClientSummary(sizes, int(sizes.sum()))
  num_different = len(np.unique(clients.owned_rows()))
  y = np.asarray(clients.examples.get("y", ()))
  if y.ndim == 1 and y.dtype.kind in "iu" and y.size and y.min() >= 0:
    num_labels = int(y.max()) + 1
    if num_labels <= _MAX_LABELS and num_labels * len(sizes) <= _MAX_COUNTS:
      return ClientSummary(clients.label_counts(num_labels), num_different)
  return ClientSummary(sizes, num_different)


class ExampleSet(NamedTuple):
  """What is known of the examples on which a metric is measured.

  Attributes:
    size: how many they are.
    largest_class: the share of the most frequent label; NaN if they have none.
  """

  size: int
  largest_class: float = np.nan

  @classmethod
  def of(cls, examples: Mapping[str, Any]) -> "ExampleSet":
    """The record of pooled examples, {name: [N, ...]}, with labels "y"."""
    size = len(next(iter(examples.values())))
    labels = np.asarray(examples.get("y", 0.0))
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not size:
      return cls(size)
    counts = np.unique(labels, return_counts=True)[1]
    return cls(size, float(counts.max() / size))


def example_sets(
  validation: Batch | ClientData | None, test: Batch | ClientData | None
) -> dict[str, ExampleSet]:
  """What is known of the examples held out, for each set that there is."""
  pools = {"validation": validation, "test": test}
  return {
    name: ExampleSet.of(pool.pooled() if isinstance(pool, ClientData) else pool)
    for name, pool in pools.items()
    if pool is not None
  }


def of_task(
  params: Params | Callable[[jax.Array], Params],
  validation: Batch | ClientData | None,
  test: Batch | ClientData | None,
) -> dict[str, str]:
  """The sizes of a model and of the examples that no client trains on.

  Args:
    params: the initial model, or a function from a random key to it.
    validation: examples on which settings are chosen.
    test: examples of the report.

  Returns:
    name -> size, for the report; sets that do not exist are left out.
  """
  if inputs.is_function_of_key(params):
    params = jax.eval_shape(params, run_key(0))
  weights = sum(np.size(leaf) for leaf in jax.tree.leaves(params))
  size_texts = {"parameters of the model": f"{weights:,}"}
  for part, known in example_sets(validation, test).items():
    size_texts[f"{part} examples"] = f"{known.size:,}"
  return size_texts


def client_sizes(clients: Sequence[ClientSummary]) -> dict[str, str]:
  """The sizes of the clients of all conditions, name -> size."""
  if not clients:
    return {}
  counts = [summary.counts.sum(axis=1) for summary in clients]
  totals, pooled = [part.sum() for part in counts], np.concatenate(counts)
  different = [summary.num_different for summary in clients]
  suffix = f" ({span(different)} different)" * (different != totals)
  mean = f", {format_number(pooled.mean())} on average" * bool(np.ptp(pooled))
  return {
    "number of clients": span(map(len, counts)),
    "training examples": f"{span(totals)}{suffix}",
    "training examples of a client": f"{span(pooled)}{mean}",
  }


def reported_options(
  options: Mapping[str, Any], clients: Sequence[ClientSummary]
) -> dict[str, Any]:
  """The options given, and defaults that a report tells where none is.

  Args:
    options: those of a method under a condition.
    clients: the clients of all conditions, which may limit the default batch.
  """
  given_options = {name: v for name, v in options.items() if v is not None}
  largest = [summary.counts.sum(axis=1).max() for summary in clients]
  batch_size = DEFAULTS["batch_size"]
  if min(largest) < batch_size:
    is_same = max(largest) < batch_size
    whole = "all examples of the largest client"
    batch_size = whole if is_same else f"{batch_size}, or {whole} if fewer"
  defaults = {"cohort_size": "all", "batch_size": batch_size}
  if "schedule" in given_options:  # It says who takes part.
    del defaults["cohort_size"]
  if not given_options.keys() & {"local_epochs", "local_steps"}:
    defaults["local_epochs"] = 1
  return defaults | given_options
