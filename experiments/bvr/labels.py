"""Figure 1 of the BVR-L-SGD paper: which client has which labels."""

from typing import Any

import fedjax_opt as fo
from experiments.artefacts import client_labels
from experiments.artefacts.artefact import Entries, Records
from experiments.artefacts.blocks import Block
from fedjax_opt.results.history import History


def counts(class_fraction: float) -> tuple[History, list[dict[str, Any]]]:
  """How many examples of each label of CIFAR-10 every client has.

  Args:
    class_fraction: q.

  Returns:
    `class_0` to `class_9` of each client, and the points: the clients.
  """
  labels = client_labels.CIFAR10
  rows = fo.partition.class_q(labels, 10, class_fraction=class_fraction)
  points = [{"client": client} for client in range(len(rows))]
  return client_labels.history_of(rows), points


def blocks(entries: Entries, records: Records) -> list[Block]:
  """A picture of the labels at each q."""
  del entries
  return [
    client_labels.picture(
      name.replace(" = ", "_"), client_labels.counts_of(record), name, name
    )
    for (name,), record in records.items()
  ]
