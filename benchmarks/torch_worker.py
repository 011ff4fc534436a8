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


# The CNN of the Delta-SGD paper, with both of its dropouts.
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
half_mean_squared_error = lambda *given: 0.5 * nn.functional.mse_loss(*given)
MODELS = {
  "cnn": (CNN, nn.functional.cross_entropy),
  "mlp": (MLP, nn.functional.cross_entropy),
  "least_squares": (LINEAR, half_mean_squared_error),
}


class Problem(NamedTuple):
  """One model, which every client uses in turn, and the clients' examples."""

  workload: shared.Workload
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
def make_problem(workload: shared.Workload) -> Problem:
  """Made once in a process, also where something calls this for each client."""
  torch.manual_seed(0)
  shards = shared.make_float_shards(workload)
  make_model, loss_fn = MODELS[workload.name]
  clients = shared.deal([make_tensors(s) for s in shards], workload)
  model = make_model().to(DEVICE).train()
  return Problem(workload, model, loss_fn, clients)


def make_tensors(shard):
  """Returns one client's x and y, images with channels first."""
  x, y = torch.from_numpy(shard["x"]), torch.from_numpy(shard["y"])
  if x.ndim == 4:
    x, y = x.permute(0, 3, 1, 2).contiguous(), y.long()
  return x.to(DEVICE), y.to(DEVICE)


def check_finite(weights: dict) -> None:
  shared.check_finite([leaf.cpu() for leaf in weights.values()])


def build_fed_avg(workload: shared.Workload) -> shared.RunRounds:
  torch.set_num_threads(shared.num_cores())
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
  shared.serve({"fed_avg": build_fed_avg}, ["torch"])
