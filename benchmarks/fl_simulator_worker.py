"""FL-Simulator's published loop, rewritten: it is no package to install.

github.com/woodenchild95/FL-Simulator, as its README runs FedAvg, SCAFFOLD and
FedSpeed. Each part follows a file of it, in its order of operations:

  its model   models.py: torchvision's network for ImageNet, with two groups of
              channels in place of batch normalization
  `Images`    dataset.py, the class `Dataset`
  `Server`    server/server.py, server/FedAvg.py, server/SCAFFOLD.py and
              server/FedSpeed.py; utils.py for vectors
  its steps   client/client.py (FedAvg), client/scaffold.py, client/fedspeed.py
              and optimizer/ESAM.py

Different are: one model serves all clients in turn, which is faster than a new
one for each; a cohort has exactly so many clients, not in the mean; the server
keeps the models of the cohort alone; the rate does not decay by 0.2 % a round;
and rounds are not followed by evaluations on all examples.
"""

import functools

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils import data
from torchvision import models

# As train.py sets them.
MAX_NORM, DECAY, LAMBDA, RHO = 10, 0.001, 0.1, 0.1


class Images(data.Dataset):
  """A client's examples: half of them mirrored, and half of them cropped."""

  def __init__(self, x: np.ndarray, y: np.ndarray, rng: np.random.Generator):
    self.x, self.y, self.rng = x, y, rng

  def __len__(self):
    return len(self.y)

  def __getitem__(self, row):
    image = self.x[row]
    if self.rng.random() > 0.5:
      image = np.flip(image, axis=2)
    if self.rng.random() > 0.5:
      padded = np.zeros((3, 40, 40), np.float32)
      padded[:, 4:-4, 4:-4] = image
      top, left = self.rng.integers(9, size=2)
      image = padded[:, top : top + 32, left : left + 32]
    return torch.from_numpy(np.ascontiguousarray(image)), self.y[row]


class Server:
  """Rounds of a method, from a new model.

  Args:
    protocol: fields of `protocols.Protocol`.
    clients: the examples of each.
    seed: of the model, the cohorts and the batches.
  """

  def __init__(self, protocol: dict, clients: list[dict], seed: int):
    torch.manual_seed(seed)
    self.method, self.rate = protocol["method"], protocol["rate"]
    self.batch_size, self.clients = protocol["batch_size"], clients
    self.rng = np.random.default_rng(seed)
    norm = functools.partial(nn.GroupNorm, 2)
    self.model = models.resnet18(num_classes=10, norm_layer=norm)
    self.leaves = list(self.model.parameters())
    self.loss_fn, self.params = nn.CrossEntropyLoss(), self.vector()
    self.control = torch.zeros_like(self.params)  # SCAFFOLD's c.
    # Of each client, SCAFFOLD's c_i or the sum of its updates (FedSpeed).
    self.client_states = torch.zeros(len(clients), len(self.params))

  def vector(self) -> torch.Tensor:
    return parameters_to_vector(self.leaves).detach()

  def load(self) -> None:
    vector_to_parameters(self.params.clone(), self.leaves)

  def run(self, rounds: int, cohort_size: int, epochs: int) -> nn.Module:
    """The model after these rounds."""
    for _ in range(rounds):
      cohort = self.rng.choice(len(self.clients), cohort_size, replace=False)
      change, updates, models = torch.zeros_like(self.params), [], []
      for i in np.sort(cohort):
        self.load()
        steps = self.train(i, epochs)
        models.append(self.vector())
        updates.append(models[-1] - self.params)
        if self.method == "FedSpeed":
          self.client_states[i] += updates[-1]
        if self.method == "SCAFFOLD":
          moved = updates[-1] / steps / self.rate
          new_control = self.client_states[i] - self.control - moved
          change += new_control - self.client_states[i]
          self.client_states[i] = new_control
      update, mean = (torch.stack(v).mean(0) for v in (updates, models))
      self.control += change / len(self.clients)
      if self.method == "FedSpeed":
        self.params = mean + self.client_states.mean(0)
      else:
        self.params = self.params + update
    self.load()
    return self.model

  def train(self, i: int, epochs: int) -> int:
    """Takes the local steps of a client; returns how many."""
    correction, decay = None, DECAY
    if self.method == "SCAFFOLD":
      correction = self.control - self.client_states[i]
    elif self.method == "FedSpeed":
      correction, decay = self.client_states[i] - self.params, DECAY + LAMBDA
    examples = Images(**self.clients[i], rng=self.rng)
    batches = data.DataLoader(examples, self.batch_size, shuffle=True)
    optimizer = torch.optim.SGD(self.leaves, self.rate, weight_decay=decay)
    for _ in range(epochs):
      for x, y in batches:
        self.backward(optimizer, x, y, correction)
        nn.utils.clip_grad_norm_(self.leaves, MAX_NORM)
        optimizer.step()
    return epochs * len(batches)

  def backward(self, optimizer, x, y, correction) -> None:
    """Leaves the gradient of a step."""
    loss = self.loss_fn(self.model(x), y)
    if self.method == "SCAFFOLD":
      loss = loss + self.inner_product(correction)
    optimizer.zero_grad()
    loss.backward()
    if self.method == "FedSpeed":
      ahead = self.uphill()
      loss = self.loss_fn(self.model(x), y)
      optimizer.zero_grad()
      loss.backward()
      with torch.no_grad():
        for leaf, step in zip(self.leaves, ahead, strict=True):
          leaf.sub_(step)
      (LAMBDA * self.inner_product(correction)).backward()

  def inner_product(self, correction: torch.Tensor) -> torch.Tensor:
    """With the parameters."""
    return torch.sum(parameters_to_vector(self.leaves) * correction)

  @torch.no_grad()
  def uphill(self) -> list[torch.Tensor]:
    """Moves the parameters along their gradient, and returns the steps."""
    norm = torch.norm(torch.stack([leaf.grad.norm() for leaf in self.leaves]))
    scale = RHO / (norm + 1e-7)
    steps = [leaf.grad * scale for leaf in self.leaves]
    for leaf, step in zip(self.leaves, steps, strict=True):
      leaf.add_(step)
    return steps
