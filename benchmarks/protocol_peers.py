"""One protocol in one program; see protocols.py.

Each program is a function that imports what it needs.
"""

import functools
import time
from collections.abc import Callable

import numpy as np
import shared

Measure = Callable[..., None]
# FL-Simulator's mean and deviation of each channel of CIFAR-10, of 1.
CHANNELS = (0.491, 0.482, 0.447), (0.247, 0.243, 0.262)


def run(
  program: str | Callable, protocol: dict, path: str, begun: float
) -> dict[str, float | list[float]]:
  """Seconds before the rounds, and of each seed's rounds, and test accuracies.

  Args:
    program: what runs; a text is the name of a function of this file.
    protocol: fields of `protocols.Protocol`.
    path: of what `protocols.write_data` wrote.
    begun: when the process was started, in seconds since 1970.
  """
  result = {}

  def measure(run, accuracy, warm=None):
    """Given `(seed, rounds) -> model`, and what a model has right."""
    (warm or run)(0, 1)
    result.update(start=time.time() - begun, rounds=[], accuracy=[])
    for seed in range(protocol["seeds"]):
      start = time.perf_counter()
      model = run(seed, protocol["rounds"])
      result["rounds"].append(time.perf_counter() - start)
      result["accuracy"].append(accuracy(model))

  globals().get(program, program)(protocol, path, measure)
  return result


Examples = dict[str, np.ndarray]  # {"x": [N, ...], "y": [N]}


def load(path: str) -> tuple[Examples, Examples, np.ndarray]:
  """What `protocols.write_data` wrote: the pool, the test, and rows [M, n]."""
  with np.load(path) as file:
    pool, test = ({n: file[n + end] for n in "xy"} for end in ("", "_test"))
    return pool, test, file["rows"]


def read(
  path: str, channels_first: bool = True
) -> tuple[list[Examples], Examples]:
  """Each client's examples and the test's, with pixels in [-1, 1]."""
  pool, test, rows = load(path)
  for part in (pool, test):
    part["x"] = shared.pixels(part["x"], channels_first)
    part["y"] = part["y"].astype(np.int64)
  return [{n: leaf[r] for n, leaf in pool.items()} for r in rows], test


def torch_accuracy(test: dict[str, np.ndarray], model) -> float:
  """Of the test examples, the part that a model of PyTorch has right."""
  import torch

  model.eval()
  with torch.no_grad():
    parts = torch.from_numpy(test["x"]).split(500)
    chosen = torch.cat([model(part).argmax(1) for part in parts])
  model.train()
  return float(np.mean(chosen.numpy() == test["y"]))


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


@functools.cache
def flute(path: str, rate: float, batch_size: int):
  """FLUTE's logistic regression, with the sigmoid of its logits."""
  import torch
  import torch_worker
  from torch import nn

  model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.Sigmoid())
  clients, _ = read(path)
  examples = [tuple(map(torch.from_numpy, c.values())) for c in clients]
  loss = nn.functional.cross_entropy
  return torch_worker.Problem(model, loss, examples, rate, batch_size)


def flower(protocol: dict, path: str, measure: Measure) -> None:
  """Flower's own simulation of FedAvg, its clients in PyTorch."""
  import flower_worker
  import torch

  arguments = path, protocol["rate"], protocol["batch_size"]
  problem, (_, test) = functools.partial(flute, *arguments), read(path)

  def serve(train):
    def run(seed, rounds):
      torch.manual_seed(seed)
      model = flute.__wrapped__(*arguments).model
      model.load_state_dict(train(model.state_dict(), rounds))
      return model

    measure(run, functools.partial(torch_accuracy, test))

  clients = protocol["num_clients"]
  share = protocol["cohort_size"] / clients
  flower_worker.simulate(problem, clients, share, serve)


def pfl(protocol: dict, path: str, measure: Measure) -> None:
  """FedAvg as pfl-research's image benchmark runs it."""
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
  from torch.nn.functional import cross_entropy

  clients, test = read(path)
  shuffled = np.random.default_rng(0)

  def user(client):  # pfl does not shuffle a client's examples itself.
    x, y = map(torch.from_numpy, clients[client].values())
    order = shuffled.permutation(len(y))
    return Dataset([x[order], y[order]])

  def run(seed, rounds):
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - pfl draws cohorts from it.
    model = conv_dropout()
    model.loss = lambda x, y, eval=False: cross_entropy(model(x), y)
    # Only the last model is evaluated.
    model.metrics = lambda *_, **__: {"loss": Weighted(0.0, 1)}
    sampler = get_user_sampler("random", list(range(len(clients))))
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
        local_num_epochs=1,
        local_batch_size=protocol["batch_size"],
      ),
      model_eval_params=NNEvalHyperParams(local_batch_size=500),
      callbacks=[],
    )
    return model

  measure(run, functools.partial(torch_accuracy, test))


def fl_simulator(protocol: dict, path: str, measure: Measure) -> None:
  """FL-Simulator's loop; one epoch of one client does not count."""
  import fl_simulator_worker

  clients, test = read(path)
  mean, std = np.float32(CHANNELS)[:, :, None, None]
  for part in (*clients, test):
    part["x"] = ((part["x"] + 1) / 2 - mean) / std

  def run(seed, rounds, cohort_size=protocol["cohort_size"], epochs=None):
    server = fl_simulator_worker.Server(protocol, clients, seed)
    return server.run(rounds, cohort_size, epochs or protocol["epochs"])

  warm = functools.partial(run, cohort_size=1, epochs=1)
  measure(run, functools.partial(torch_accuracy, test), warm)


def fedjax(protocol: dict, path: str, measure: Measure) -> None:
  """FedJAX's own CNN, algorithm and clients, as in its EMNIST example."""
  from fedjax_worker import fedjax, simulation

  clients, test = read(path, channels_first=False)
  model = fedjax.models.emnist.create_conv_model(only_digits=True)
  start = simulation(
    model,
    clients,
    protocol["cohort_size"],
    protocol["rate"],
    fedjax.optimizers.adam(protocol["adam_rate"], eps=1e-4),
    batch_size=protocol["batch_size"],
    num_epochs=1,
  )

  def accuracy(params):
    batches = fedjax.ClientDataset(test).padded_batch(batch_size=500)
    return float(fedjax.evaluate_model(model, params, batches)["accuracy"])

  measure(lambda seed, rounds: start(seed)(rounds), accuracy)
