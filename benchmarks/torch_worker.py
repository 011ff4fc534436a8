"""FedAvg rounds in eager PyTorch, as research code writes them.

A Python loop over clients and batches. Batches are rows of a tensor in memory
picked by a shuffled index, which is faster than a `DataLoader`; the clients'
model is one module that loads the server's weights, which is faster than a
`deepcopy`.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import worker
import workloads
from torch import nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def make_cnn(workload: workloads.Workload) -> nn.Module:
  """The CNN of the Delta-SGD paper, with both of its dropouts."""
  del workload
  return nn.Sequential(
    nn.Conv2d(1, 10, 5),
    nn.MaxPool2d(2),
    nn.ReLU(),
    nn.Conv2d(10, 20, 5),
    nn.Dropout2d(0.5),
    nn.MaxPool2d(2),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(320, 50),
    nn.ReLU(),
    nn.Dropout(0.5),
    nn.Linear(50, 10),
  )


def make_mlp(workload: workloads.Workload) -> nn.Module:
  pixels = math.prod(workload.example_shape)
  return nn.Sequential(
    nn.Flatten(), nn.Linear(pixels, 100), nn.Softplus(), nn.Linear(100, 10)
  )


def make_least_squares(workload: workloads.Workload) -> nn.Module:
  return nn.Sequential(
    nn.Linear(*workload.example_shape, 1, bias=False), nn.Flatten(0)
  )


def half_mean_squared_error(prediction, target):
  return 0.5 * nn.functional.mse_loss(prediction, target)


MODELS = {
  "cnn": (make_cnn, nn.functional.cross_entropy),
  "mlp": (make_mlp, nn.functional.cross_entropy),
  "least_squares": (make_least_squares, half_mean_squared_error),
}


class Problem(NamedTuple):
  """One model, which every client uses in turn, and the clients' examples."""

  workload: workloads.Workload
  model: nn.Module
  loss_fn: Callable
  clients: list[tuple[torch.Tensor, torch.Tensor]]

  def train_one_client(self, client: int, server: dict) -> None:
    """Leaves in the model what the client makes of the server's weights."""
    x, y = self.clients[client]
    self.model.load_state_dict(server)
    optimizer = torch.optim.SGD(
      self.model.parameters(), self.workload.learning_rate
    )
    for rows in torch.randperm(len(x)).split(self.workload.batch_size):
      optimizer.zero_grad()
      self.loss_fn(self.model(x[rows]), y[rows]).backward()
      optimizer.step()


@functools.cache
def make_problem(workload: workloads.Workload) -> Problem:
  """Made once in a process, also where something calls this for each client."""
  torch.manual_seed(0)
  shards = workloads.make_float_shards(workload)
  make_model, loss_fn = MODELS[workload.name]
  clients = workloads.deal([make_tensors(s) for s in shards], workload)
  model = make_model(workload).to(DEVICE).train()
  return Problem(workload, model, loss_fn, clients)


def make_tensors(shard):
  """Returns one client's x and y, images with channels first."""
  x, y = torch.from_numpy(shard["x"]), torch.from_numpy(shard["y"])
  if x.ndim == 4:
    x, y = x.permute(0, 3, 1, 2).contiguous(), y.long()
  return x.to(DEVICE), y.to(DEVICE)


def check_finite(weights: dict) -> None:
  if not all(v.isfinite().all() for v in weights.values()):
    raise FloatingPointError("the parameters are not finite")


def build_fed_avg(workload: workloads.Workload) -> worker.RunRounds:
  torch.set_num_threads(worker.num_cores())
  problem = make_problem(workload)
  model = problem.model
  server = {k: v.clone() for k, v in model.state_dict().items()}

  def run_rounds(rounds):
    nonlocal server
    for _ in range(rounds):
      total = {k: torch.zeros_like(v) for k, v in server.items()}
      for client in range(workload.num_clients):
        problem.train_one_client(client, server)
        for k, v in model.state_dict().items():
          total[k] += v
      server = {k: v / workload.num_clients for k, v in total.items()}
    check_finite(server)

  return run_rounds


if __name__ == "__main__":
  worker.serve({"fed_avg": build_fed_avg}, ["torch"])
