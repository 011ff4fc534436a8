"""The rounds that every framework is timed on: shapes, sizes and made-up data.

Only time is compared, so the data are random numbers of the right shape. Every
client takes part in every round, so that no framework pays for choosing the
cohort.
"""

from typing import NamedTuple

import numpy as np


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


WORKLOADS = {
  workload.name: workload
  for workload in (
    Workload("cnn", 10, 8, 64, (28, 28, 1), 10, 0.01, 5),
    Workload("mlp", 10, 64, 16, (32, 32, 3), 10, 0.01, 5),
    Workload("least_squares", 10, 13, 10, (1024,), None, 0.001, 100),
  )
}


def make_clients(workload: Workload) -> list[dict[str, np.ndarray]]:
  """Returns one {'x', 'y'} per client, the same for every framework.

  Images are uint8 [n, H, W, 3 or 1] with int32 labels; the examples of a
  regression are float32 [n, d] with float32 targets.
  """
  rng = np.random.default_rng(0)
  n = workload.examples_per_client
  shape = (n, *workload.example_shape)
  clients = []
  for _ in range(workload.num_clients):
    if workload.num_classes is None:
      x = rng.standard_normal(shape, np.float32)
      y = rng.standard_normal(n, np.float32)
    else:
      x = rng.integers(0, 256, shape, np.uint8)
      y = rng.integers(0, workload.num_classes, n, np.int32)
    clients.append({"x": x, "y": y})
  return clients


def make_float_clients(workload: Workload) -> list[dict[str, np.ndarray]]:
  """Returns `make_clients` with the pixels already scaled to [-1, 1].

  Handed to FedJAX and PyTorch, whose users keep float images in memory: the
  scaling then costs them nothing in a round.
  """
  clients = make_clients(workload)
  if workload.num_classes is None:
    return clients
  return [
    {"x": client["x"].astype(np.float32) / 127.5 - 1.0, "y": client["y"]}
    for client in clients
  ]
