"""Figure 1 of the BVR-L-SGD paper: which client has which labels."""

import functools
from typing import Any

import numpy as np

import fedjax_opt as fo
from experiments.artefacts.artefact import Entries, Records
from experiments.artefacts.blocks import Block, Picture
from fedjax_opt import plots
from fedjax_opt.results.history import History

_CLASSES = 10


def counts(class_fraction: float) -> tuple[History, list[dict[str, Any]]]:
  """How many examples of each label of CIFAR-10 every client has.

  They depend only on the number of examples of a label, 5,000, so the data are
  not read.

  Args:
    class_fraction: q.

  Returns:
    `class_0` to `class_9` of each client, and the points: the clients.
  """
  labels = np.repeat(np.arange(_CLASSES), 5000)
  rows = fo.partition.class_q(labels, _CLASSES, class_fraction=class_fraction)
  of_clients = np.array(
    [np.bincount(labels[r], minlength=_CLASSES) for r in rows]
  )
  metrics = {f"class_{c}": of_clients[:, [c]] for c in range(_CLASSES)}
  return History([0], metrics), [{"client": c} for c in range(_CLASSES)]


def blocks(entries: Entries, records: Records) -> list[Block]:
  """A picture of the labels at each q."""
  del entries
  pictures: list[Block] = []
  for (name,), record in records.items():
    of_clients = np.concatenate(list(record.history.metrics.values()), axis=1)
    draw = functools.partial(
      plots.label_histogram, of_clients.astype(int), None, title=name
    )
    pictures.append(
      Picture(name.replace(" = ", "_"), draw, f"Labels of each client, {name}")
    )
  return pictures
