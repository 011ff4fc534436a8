"""Protocols that other programs publish, in theirs and in this package.

  python benchmarks/protocols.py --data_dir=D --torch_python=P \\
      --flower_python=Q --fedjax_python=R

P has PyTorch and pfl (`pip install torch torchvision pfl`), Q has Flower (`pip
install "flwr[simulation]" torch`), and R has FedJAX (`pip install fedjax
dm-haiku`); each is by default the one that runs this file. D has the data sets
as TFDS writes them. Each row prints as soon as it is there. Both sides have the
same examples and clients, and draw cohorts and batches of their own. Start is
all before the rounds that are timed: imports, data, compilation and, of peers,
one round that does not count. Close other programs first: the numbers are
wall-clock times.
"""

import pathlib
import statistics
import tempfile
import time
from typing import Any, NamedTuple

import fl_simulator
import flax.linen as nn
import jax
import numpy as np
import optax
import pandas
import protocol_peers
import shared
from fedjax_opt_worker import IMAGES
from protocol_peers import Measure, load

import fedjax_opt as fo
from experiments.tasks import images
from fedjax_opt.models import convolution, layers


class Protocol(NamedTuple):
  """What both sides run.

  Attributes:
    name: of its row.
    peer: the other program, a function of protocol_peers.py.
    data: of TFDS.
    num_clients: in the population.
    examples: of a client.
    partition: of `fo.partition`.
    cohort_size: clients in a round.
    batch_size: examples in a step.
    rate: of the clients' SGD.
    rounds: that are timed.
    adam_rate: of the server's Adam; None for plain averaging.
    method: of FL-Simulator.
    epochs: of a client in a round.
    seeds: how many.
    scheme: arguments of the partition.
  """

  name: str
  peer: str
  data: str
  num_clients: int
  examples: int
  partition: str
  cohort_size: int
  batch_size: int
  rate: float
  rounds: int
  adam_rate: float | None = None
  method: str = "FedAvg"
  epochs: int = 1
  seeds: int = 3
  scheme: dict | None = None


PROTOCOLS = (
  # microsoft/msrflute, experiments/cv_lr_mnist, but for LEAF's partition.
  Protocol(
    "FLUTE's logistic regression", "flower", "mnist", 1000, 60, "shards",
    10, 10, 0.03, 100,
  ),
  # google/fedjax, examples/emnist_fed_avg.py, on MNIST; 10 of 1,500 rounds.
  Protocol(
    "FedJAX's EMNIST example", "fedjax", "mnist", 500, 100, "shards",
    10, 20, 10**-1.5, 10, 10**-2.5,
  ),
  # apple/pfl-research, benchmarks: CIFAR-10, IID, no privacy; 50 of 1,500.
  Protocol(
    "pfl-research's CIFAR-10", "pfl", "cifar10", 1000, 50, "iid", 50,
    10, 0.1, 50, seeds=1,
  ),
  # woodenchild95/FL-Simulator, README.md; 1 of 1,000 rounds.
  *(
    Protocol(
      f"FL-Simulator's {method}", "fl_simulator", "cifar10", 100, 500,
      "dirichlet", 10, 50, 0.1, 1, None, method, 5, 2, {"alpha": 0.6},
    )
    for method in ("FedAvg", "SCAFFOLD", "FedSpeed")
  ),
)  # fmt: skip


def haiku_normal(fan_in, fan_out):
  """Haiku's default: truncated normal of variance 1 / fan_in, bias zero."""
  del fan_out
  return nn.initializers.truncated_normal(fan_in**-0.5), 0.0


class ConvDropout(nn.Module):
  """The CNN of pfl-research's and FedJAX's examples.

  Attributes:
    initialization: distribution of the initial parameters, see `layers`.
  """

  initialization: layers.Initialization = layers.glorot_uniform

  @nn.compact
  def __call__(self, x, *, train=False):
    drawn = {"initialization": self.initialization}
    for width in (32, 64):
      x = nn.relu(layers.Conv(width, (3, 3), **drawn)(x))
    x = convolution.max_pool(x)
    x = nn.Dropout(0.25, deterministic=not train)(x)
    x = nn.relu(layers.Dense(128, **drawn)(x.reshape(len(x), -1)))
    x = nn.Dropout(0.5, deterministic=not train)(x)
    return layers.Logits(10, **drawn)(x)


class Sigmoids(nn.Module):
  """FLUTE's and FedML's logistic regression, with the sigmoid of its logits."""

  @nn.compact
  def __call__(self, x, *, train=False):
    del train
    return nn.sigmoid(layers.Logits(10)(x.reshape(len(x), -1)))


MODELS = {
  "flower": Sigmoids(),
  "pfl": ConvDropout(),
  "fedjax": ConvDropout(haiku_normal),
}


def write_data(protocol: Protocol, data_dir: str, path: pathlib.Path) -> None:
  """Writes the pool, its test examples and each client's rows, [M, n]."""
  train, test = (
    fo.datasets.tfds.load(protocol.data, split, data_dir)
    for split in ("train", "test")
  )
  size = protocol.num_clients * protocol.examples
  order = np.random.default_rng(0).permutation(len(train["y"]))[:size]
  split = getattr(fo.partition, protocol.partition)
  rows = split(train["y"][order], protocol.num_clients, **protocol.scheme or {})
  np.savez(
    path, x=train["x"][order], y=train["y"][order], rows=np.stack(rows),
    x_test=test["x"], y_test=test["y"],
  )  # fmt: skip


def task_and_algorithm(protocol: Protocol, pool, test):
  """The task, and the algorithm."""
  if protocol.peer == "fl_simulator":
    return fl_simulator.make(protocol.method, protocol.rate, pool, test)
  model, rate = MODELS[protocol.peer], protocol.adam_rate
  server = None if rate is None else optax.adam(rate, eps=1e-4)
  task = images.classification(model, IMAGES, pool, test, measures_train=False)
  return task, fo.fed_avg(task.loss_fn, optax.sgd(protocol.rate), server)


def run(program: str, **given: Any) -> dict[str, float | list[float]]:
  """As `protocol_peers.run`, but of this package."""
  return protocol_peers.run(ours, **given)


def ours(protocol: dict, path: str, measure: Measure) -> None:
  """This package's rounds; all models are made before them."""
  protocol, (pool, test, rows) = Protocol(**protocol), load(path)
  task, algorithm = task_and_algorithm(protocol, pool, test)
  simulator = fo.Simulator(
    algorithm,
    fo.ClientData.from_partition(pool, list(rows)),
    cohort_size=protocol.cohort_size,
    batch_size=protocol.batch_size,
    local_epochs=protocol.epochs,
  )
  start = lambda seed: simulator.init(task.init(jax.random.key(seed)), seed)
  states = jax.block_until_ready([*map(start, range(protocol.seeds))])
  evaluate = jax.jit(lambda params: task.evaluate(params, None, test))

  def run(seed, rounds):
    state, _ = simulator.run(states[seed], rounds)
    return jax.block_until_ready(simulator.params(state))

  measure(
    run,
    lambda params: float(evaluate(params)["test_accuracy"]),
    warm=lambda *_: simulator.run(start(0), 0),  # Compiles.
  )


def cells(found: dict) -> dict[str, float | str]:
  """Start, rounds of one seed, and accuracies."""
  of = 100 * np.array(found["accuracy"])
  return {
    "start, s": found["start"],
    "rounds, s": statistics.median(found["rounds"]),
    "test accuracy, %": f"{of.mean():.1f} ({of.min():.1f} to {of.max():.1f})",
  }


def run_protocol(protocol: Protocol, pythons: dict, data_dir: str) -> None:
  """Runs and prints a protocol, on both sides."""
  rows = []
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, "data.npz")
    write_data(protocol, data_dir, path)
    sides = {protocol.peer: "protocol_peers", "fedjax_opt": "protocols"}
    for program, module in sides.items():
      options = {"python": pythons.get(program, pythons["torch"])}
      arguments = {"program": program, "protocol": protocol._asdict()}
      arguments |= {"path": str(path), "begun": time.time()}
      options["variables"] = shared.ON_CPU
      result = shared.in_process(module, "run", arguments, **options)
      rows.append({"program": program, **cells(result)})
  table = shared.table_of(pandas.DataFrame(rows))
  print(f"{protocol.name}\n\n{table}\n", flush=True)


def main() -> None:
  parser = shared.parser(__doc__, shared.FRAMEWORKS)
  parser.add_argument("--data_dir", required=True)
  options = parser.parse_args()
  pythons = shared.pythons(options)
  print(shared.machine())
  for protocol in PROTOCOLS:
    run_protocol(protocol, pythons, options.data_dir)


if __name__ == "__main__":
  main()
