"""FedAvg rounds in eager PyTorch, as research code writes them.

A Python loop over clients and batches. Batches are rows of a tensor in memory
picked by a shuffled index, which is faster than a `DataLoader`; the clients'
model is one module that loads the server's weights, which is faster than a
`deepcopy`.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import shared
import torch
from torch import nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


# The CNN of the Δ-SGD paper, with both of its dropouts.
CNN = lambda: nn.Sequential(
  nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU(),
  nn.Conv2d(10, 20, 5), nn.Dropout2d(0.5), nn.MaxPool2d(2), nn.ReLU(),
  nn.Flatten(), nn.Linear(320, 50), nn.ReLU(), nn.Dropout(0.5),
  nn.Linear(50, 10),
)  # fmt: skip
MLP = lambda: nn.Sequential(
  nn.Flatten(), nn.Linear(3072, 100), nn.Softplus(), nn.Linear(100, 10)
)
LINEAR = lambda: nn.Sequential(nn.Linear(1024, 1, bias=False), nn.Flatten(0))
half_mean_squared_error = lambda *args: 0.5 * nn.functional.mse_loss(*args)
MODELS = {
  "cnn": (CNN, nn.functional.cross_entropy),
  "mlp": (MLP, nn.functional.cross_entropy),
  "least_squares": (LINEAR, half_mean_squared_error),
}


class Problem(NamedTuple):
  """One model, which every client uses in turn, and the clients' examples."""

  model: nn.Module
  loss_fn: Callable
  clients: list[tuple[torch.Tensor, torch.Tensor]]
  rate: float
  batch_size: int

  def train_one_client(self, client: int, server: dict) -> dict:
    """What the client makes of the server's weights."""
    x, y = self.clients[client]
    self.model.load_state_dict(server)
    optimizer = torch.optim.SGD(self.model.parameters(), self.rate)
    for rows in torch.randperm(len(x)).split(self.batch_size):
      optimizer.zero_grad()
      self.loss_fn(self.model(x[rows]), y[rows]).backward()
      optimizer.step()
    return self.model.state_dict()


@functools.cache
def make_problem(workload: shared.Workload) -> Problem:
  """Made once in a process, also where something calls this for each client."""
  torch.manual_seed(0)
  clients = shared.make_clients(workload, len(workload.example_shape) == 3)
  make_model, loss_fn = MODELS[workload.name]
  return Problem(
    make_model().to(DEVICE).train(),
    loss_fn,
    [tuple(tensors(client).values()) for client in clients],
    workload.learning_rate,
    workload.batch_size,
  )


def tensors(client: dict) -> dict:
  """Labels are whole numbers of 64 bits, as PyTorch wants them."""
  x, y = (torch.from_numpy(client[name]) for name in "xy")
  y = y if y.is_floating_point() else y.long()
  return {"x": x.to(DEVICE), "y": y.to(DEVICE)}


def check_finite(weights: dict) -> None:
  shared.check_finite([leaf.cpu() for leaf in weights.values()])


@shared.program
def fed_avg(workload: shared.Workload) -> shared.RunRounds:
  """Clients one after the other."""
  torch.set_num_threads(shared.num_cores())
  problem = make_problem(workload)
  server = {k: v.clone() for k, v in problem.model.state_dict().items()}

  def run_rounds(rounds):
    nonlocal server
    for _ in range(rounds):
      total = {k: torch.zeros_like(v) for k, v in server.items()}
      for client in range(workload.num_clients):
        for k, v in problem.train_one_client(client, server).items():
          total[k] += v
      server = {k: v / workload.num_clients for k, v in total.items()}
    check_finite(server)

  return run_rounds
