"""FedAvg rounds in eager PyTorch, as research code writes them.

A Python loop over clients and batches. Batches are rows of a tensor in memory
picked by a shuffled index, which is faster than a `DataLoader`; the clients'
model is one module that loads the server's weights, which is faster than a
`deepcopy`.
"""

import torch
import worker
import workloads
from torch import nn

torch.set_num_threads(worker.num_cores())


def make_cnn() -> nn.Module:
  """The CNN of the Delta-SGD paper, with both of its dropouts."""
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


def make_mlp() -> nn.Module:
  return nn.Sequential(
    nn.Flatten(), nn.Linear(3072, 100), nn.Softplus(), nn.Linear(100, 10)
  )


def make_least_squares() -> nn.Module:
  return nn.Sequential(nn.Linear(1024, 1, bias=False), nn.Flatten(0))


def half_mean_squared_error(prediction, target):
  return 0.5 * nn.functional.mse_loss(prediction, target)


MODELS = {
  "cnn": (make_cnn, nn.functional.cross_entropy),
  "mlp": (make_mlp, nn.functional.cross_entropy),
  "least_squares": (make_least_squares, half_mean_squared_error),
}


def build_fed_avg(workload: workloads.Workload) -> worker.RunRounds:
  torch.manual_seed(0)
  clients = [
    make_tensors(client) for client in workloads.make_float_clients(workload)
  ]
  make_model, loss_fn = MODELS[workload.name]
  model = make_model().train()
  server = {k: v.clone() for k, v in model.state_dict().items()}

  def train_one_client(x, y):
    model.load_state_dict(server)
    optimizer = torch.optim.SGD(model.parameters(), workload.learning_rate)
    for rows in torch.randperm(len(x)).split(workload.batch_size):
      optimizer.zero_grad()
      loss_fn(model(x[rows]), y[rows]).backward()
      optimizer.step()

  def run_rounds(rounds):
    nonlocal server
    for _ in range(rounds):
      total = {k: torch.zeros_like(v) for k, v in server.items()}
      for x, y in clients:
        train_one_client(x, y)
        for k, v in model.state_dict().items():
          total[k] += v
      server = {k: v / len(clients) for k, v in total.items()}
    if not all(v.isfinite().all() for v in server.values()):
      raise FloatingPointError("the parameters are not finite")

  return run_rounds


def make_tensors(client):
  """Returns one client's x and y, images with channels first."""
  x, y = torch.from_numpy(client["x"]), torch.from_numpy(client["y"])
  if x.ndim == 4:
    x, y = x.permute(0, 3, 1, 2).contiguous(), y.long()
  return x, y


if __name__ == "__main__":
  worker.serve({"fed_avg": build_fed_avg}, ["torch"])
