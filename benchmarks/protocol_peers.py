"""One protocol in the program that published it; see protocols.py.

  python benchmarks/protocol_peers.py PROTOCOL DATA SEEDS BEGUN

prints JSON: seconds before the rounds, seconds of the rounds and test accuracy
of each seed. BEGUN is when the process was started, in seconds since 1970. Each
peer is a function that imports what it needs.
"""

import functools
import json
import os
import sys
import time
from typing import NamedTuple

import numpy as np


class Data(NamedTuple):
  """Pixels in [-1, 1], with channels where the peer wants them."""

  x: np.ndarray
  y: np.ndarray
  rows: np.ndarray
  x_test: np.ndarray
  y_test: np.ndarray

  def of(self, client: int) -> tuple[np.ndarray, np.ndarray]:
    rows = self.rows[client]
    return self.x[rows], self.y[rows]


@functools.cache
def read(path: str, channels_first: bool) -> Data:
  """What `protocols.write_data` wrote, read once in a process."""
  with np.load(path) as file:
    found = dict(file)
  for name in ("x", "x_test"):
    pixels = found[name].astype(np.float32) / 127.5 - 1.0
    found[name] = pixels.transpose(0, 3, 1, 2) if channels_first else pixels
  for name in ("y", "y_test"):
    found[name] = found[name].astype(np.int64)
  return Data(**found)


def torch_accuracy(data: Data, model) -> float:
  """Of the test examples, the part that a model of PyTorch has right."""
  import torch

  model.eval()
  right = []
  with torch.no_grad():
    for i in range(0, len(data.y_test), 500):
      logits = model(torch.from_numpy(data.x_test[i : i + 500]))
      right.append(logits.argmax(1).numpy() == data.y_test[i : i + 500])
  model.train()
  return float(np.concatenate(right).mean())


def conv_dropout():
  """The CNN of pfl-research's benchmarks."""
  import torch
  from torch import nn

  model = nn.Sequential(
    nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(),
    nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(), nn.Linear(64 * 14**2, 128),
    nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10),
  )  # fmt: skip
  for module in model:
    if hasattr(module, "weight"):
      torch.nn.init.xavier_uniform_(module.weight)
  return model


def flower(protocol: dict, path: str, seeds: int) -> dict:
  """Flower's own simulation of FedAvg, its clients in PyTorch."""
  os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
  os.environ.setdefault("RAY_worker_niceness", "0")
  # By its name, so that each of Ray's processes reads the data once.
  import protocol_peers
  import shared
  import torch
  from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
  from flwr.clientapp import ClientApp
  from flwr.serverapp import ServerApp
  from flwr.serverapp.strategy import FedAvg
  from flwr.simulation import run_simulation
  from torch import nn

  make_model = lambda: nn.Sequential(
    nn.Flatten(), nn.Linear(784, 10), nn.Sigmoid()
  )
  clients, server, found = ClientApp(), ServerApp(), {}

  @clients.train()
  def train(message, context):
    data = protocol_peers.read(path, channels_first=True)
    examples = data.of(context.node_config["partition-id"])
    x, y = map(torch.from_numpy, examples)
    model = make_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), protocol["rate"])
    for rows in torch.randperm(len(x)).split(protocol["batch_size"]):
      optimizer.zero_grad()
      nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
      optimizer.step()
    reply = {
      "arrays": ArrayRecord(model.state_dict()),
      "metrics": MetricRecord({"num-examples": len(x)}),
    }
    return Message(content=RecordDict(reply), reply_to=message)

  @server.main()
  def serve(grid, context):
    strategy = FedAvg(
      fraction_train=protocol["cohort_size"] / protocol["num_clients"],
      fraction_evaluate=0.0,
      min_available_nodes=protocol["num_clients"],
    )

    def run(seed, rounds):
      torch.manual_seed(seed)
      model = make_model()
      arrays = ArrayRecord(model.state_dict())
      ended = strategy.start(grid, arrays, rounds)
      model.load_state_dict(ended.arrays.to_torch_state_dict())
      return model

    run(0, 1)
    data = protocol_peers.read(path, channels_first=True)
    accuracy = functools.partial(torch_accuracy, data)
    found.update(timed(lambda s: run(s, protocol["rounds"]), seeds, accuracy))

  run_simulation(
    server,
    clients,
    num_supernodes=protocol["num_clients"],
    backend_config={
      "init_args": {"num_cpus": shared.num_cores()},
      "client_resources": {"num_cpus": 1, "num_gpus": 0},
    },
  )
  return found


def timed(run, seeds: int, accuracy) -> dict:
  """What `run` takes with each seed, and the accuracy of what it returns."""
  start, rounds, reached = time.time() - BEGUN, [], []
  for seed in range(seeds):
    begun = time.perf_counter()
    model = run(seed)
    rounds.append(time.perf_counter() - begun)
    reached.append(accuracy(model))
  return {"start": start, "rounds": rounds, "accuracy": reached}


def pfl(protocol: dict, path: str, seeds: int) -> dict:
  """FedAvg as pfl-research's image benchmark runs it."""
  import types

  import torch
  from pfl.aggregate.simulate import SimulatedBackend
  from pfl.aggregate.weighting import WeightByDatapoints
  from pfl.algorithm.base import NNAlgorithmParams
  from pfl.algorithm.federated_averaging import FederatedAveraging
  from pfl.data.dataset import Dataset
  from pfl.data.federated_dataset import FederatedDataset
  from pfl.data.sampling import get_user_sampler
  from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
  from pfl.metrics import Weighted
  from pfl.model.pytorch import PyTorchModel

  data = read(path, channels_first=True)
  shuffled = np.random.default_rng(0)

  def user(client):  # pfl does not shuffle a client's examples itself.
    x, y = data.of(client)
    order = shuffled.permutation(len(y))
    return Dataset([torch.from_numpy(x[order]), torch.from_numpy(y[order])])

  def loss(self, inputs, targets, eval=False):
    return torch.nn.functional.cross_entropy(self(inputs), targets)

  def metrics(self, inputs, targets, eval=True):
    return {"loss": Weighted(0.0, 1)}  # Only the last model is evaluated.

  def run(seed, rounds):
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - pfl draws cohorts from it.
    model = conv_dropout()
    model.loss = types.MethodType(loss, model)
    model.metrics = types.MethodType(metrics, model)
    sampler = get_user_sampler("random", list(range(protocol["num_clients"])))
    FederatedAveraging().run(
      algorithm_params=NNAlgorithmParams(
        central_num_iterations=rounds,
        evaluation_frequency=rounds + 1,
        train_cohort_size=protocol["cohort_size"],
        val_cohort_size=None,
      ),
      backend=SimulatedBackend(
        training_data=FederatedDataset(user, sampler),
        val_data=None,
        postprocessors=[WeightByDatapoints()],
      ),
      model=PyTorchModel(
        model=model,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(model.parameters(), 1.0),
      ),
      model_train_params=NNTrainHyperParams(
        local_learning_rate=protocol["rate"],
        local_num_epochs=protocol["epochs"],
        local_batch_size=protocol["batch_size"],
      ),
      model_eval_params=NNEvalHyperParams(local_batch_size=500),
      callbacks=[],
    )
    return model

  run(0, 1)
  accuracy = functools.partial(torch_accuracy, data)
  return timed(lambda seed: run(seed, protocol["rounds"]), seeds, accuracy)


def fedjax(protocol: dict, path: str, seeds: int) -> dict:
  """FedJAX's own CNN, algorithm and clients, as in its EMNIST example."""
  import jax

  if not hasattr(jax, "tree_map"):  # Which newer versions of JAX removed.
    jax.tree_map = jax.tree.map
  import fedjax

  data = read(path, channels_first=False)
  model = fedjax.models.emnist.create_conv_model(only_digits=True)
  algorithm = fedjax.algorithms.fed_avg.federated_averaging(
    fedjax.model_grad(model),
    fedjax.optimizers.sgd(protocol["rate"]),
    fedjax.optimizers.adam(protocol["adam_rate"], eps=1e-4),
    fedjax.ShuffleRepeatBatchHParams(
      protocol["batch_size"], num_epochs=protocol["epochs"]
    ),
  )
  clients = {
    b"%d" % i: dict(zip("xy", data.of(i), strict=True))
    for i in range(protocol["num_clients"])
  }
  population = fedjax.InMemoryFederatedData(clients)

  def run(seed, rounds):
    sampler = fedjax.client_samplers.UniformGetClientSampler(
      population, protocol["cohort_size"], seed=seed
    )
    state = algorithm.init(model.init(jax.random.PRNGKey(seed)))
    for _ in range(rounds):
      state, _ = algorithm.apply(state, sampler.sample())
    return jax.block_until_ready(state.params)

  def accuracy(params):
    test = fedjax.ClientDataset({"x": data.x_test, "y": data.y_test})
    batches = test.padded_batch(batch_size=500)
    return float(fedjax.evaluate_model(model, params, batches)["accuracy"])

  run(0, 1)
  return timed(lambda seed: run(seed, protocol["rounds"]), seeds, accuracy)


if __name__ == "__main__":
  asked, path, seeds, begun = sys.argv[1:]
  protocol, BEGUN = json.loads(asked), float(begun)
  peer = globals()[protocol["peer"]]
  print(json.dumps(peer(protocol, path, int(seeds))))
