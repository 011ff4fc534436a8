"""The rounds that every framework is timed on: shapes, sizes and made-up data.

Only time is compared, so the data are random numbers of the right shape. Every
client takes part in every round, so that no framework pays for choosing the
cohort. There are `SHARDS` different clients; of more, every further one has the
same examples as one of these, so that a larger cohort needs no more data.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

SHARDS = 10
T = TypeVar("T")


class Workload(NamedTuple):
  """One kind of federated round."""

  name: str
  num_clients: int  # C, all of them in every round
  num_steps: int  # K, one epoch over a client's examples
  batch_size: int  # B
  example_shape: tuple[int, ...]
  num_classes: int | None  # None for a real-valued target
  learning_rate: float
  rounds_per_turn: int  # long enough for the clock, short enough to take turns

  @property
  def examples_per_client(self) -> int:
    return self.num_steps * self.batch_size

  @property
  def steps_per_round(self) -> int:
    return self.num_clients * self.num_steps

  @classmethod
  def from_json(cls, fields: dict[str, Any]) -> "Workload":
    """From what `json` made of `_asdict`."""
    return cls(**fields | {"example_shape": tuple(fields["example_shape"])})


WORKLOADS = {
  workload.name: workload
  for workload in (
    Workload("cnn", 10, 8, 64, (28, 28, 1), 10, 0.01, 5),
    Workload("mlp", 10, 64, 16, (32, 32, 3), 10, 0.01, 5),
    Workload("least_squares", 10, 13, 10, (1024,), None, 0.001, 100),
  )
}


def make_shards(workload: Workload) -> list[dict[str, np.ndarray]]:
  """Returns {'x', 'y'} of each different client, the same in every framework.

  Images are uint8 [n, H, W, 3 or 1] with int32 labels; the examples of a
  regression are float32 [n, d] with float32 targets.
  """
  rng = np.random.default_rng(0)
  n = workload.examples_per_client
  shape = (n, *workload.example_shape)
  shards = []
  for _ in range(min(workload.num_clients, SHARDS)):
    if workload.num_classes is None:
      x = rng.standard_normal(shape, np.float32)
      y = rng.standard_normal(n, np.float32)
    else:
      x = rng.integers(0, 256, shape, np.uint8)
      y = rng.integers(0, workload.num_classes, n, np.int32)
    shards.append({"x": x, "y": y})
  return shards


def make_float_shards(workload: Workload) -> list[dict[str, np.ndarray]]:
  """Returns `make_shards` with the pixels already scaled to [-1, 1].

  Handed to FedJAX and PyTorch, whose users keep float images in memory: the
  scaling then costs them nothing in a round.
  """
  shards = make_shards(workload)
  if workload.num_classes is None:
    return shards
  return [
    {"x": shard["x"].astype(np.float32) / 127.5 - 1.0, "y": shard["y"]}
    for shard in shards
  ]


def deal(shards: Sequence[T], workload: Workload) -> list[T]:
  """Returns the shard of each client, without a copy."""
  return [shards[i % len(shards)] for i in range(workload.num_clients)]
