"""Measures what large models and populations cost.

  PYTHONPATH=. python benchmarks/sizes.py chunks [--model=vgg16]
  PYTHONPATH=. python benchmarks/sizes.py disk --folder=NEW_FOLDER
  PYTHONPATH=. python benchmarks/sizes.py populations --folder=NEW_FOLDER

chunks: memory of a round of VGG-16, by how many clients are vectorized. 16
clients take one local step of DOMO on 32 images of CIFAR-10's shape each. For
every chunk size a process of its own compiles the round, asks XLA how much
memory it plans for it, runs it, and reads the largest memory that the process
had, above what it had before the round.

disk: rounds on 100,000 clients that are on disk, against the same in memory. A
population of made-up images is made in a new folder (10 GB) and stays: give the
folder again to measure again. Each process runs FedAvg with a network of one
hidden layer, 50 clients a round. In memory the pool is copied once; that time
is reported apart.

populations: a round of 10 or 100 clients of least squares, by how many clients
there are to draw from, in memory and on disk; and how long such data take to
make. The round is the fastest of many segments, as other work on a machine only
adds to it. Each client has two examples of 8 numbers.
"""

import argparse
import json
import pathlib
import statistics
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import shared

import fedjax_opt as fo
from experiments.tasks import images as image_tasks

SHAPE, EXAMPLES = (32, 32, 3), 32  # 98 KB a client
Table = tuple[Sequence[str], list[list[str]]]


def mlp() -> tuple[Any, Any]:
  """The loss of a network with one hidden layer, and its initial parameters."""
  model = fo.models.MLP(hidden=(100,), num_classes=10)

  def loss_fn(params, batch, rng):  # [B]
    logits = model.apply({"params": params}, batch["x"] / 255)
    return fo.objectives.cross_entropy(logits, batch["y"])

  params = model.init(jax.random.key(0), jnp.zeros((1, *SHAPE)))["params"]
  return loss_fn, params


def round_seconds(
  algorithm, params, data, rounds: int, segments: int, **settings
) -> np.ndarray:
  """Seconds a round in each segment but the first, which is not warm."""
  times, each = [], rounds // segments
  fo.simulate(
    algorithm, params, data, rounds=rounds, eval_every=each,
    evaluate=lambda *_: {"none": jnp.float32(0)},
    on_evaluation=lambda report: times.append(report.run_seconds), **settings,
  )  # fmt: skip
  return np.diff(times[1:]) / each


def again(options: argparse.Namespace, only: str) -> dict[str, float]:
  """What this program finds in a process of its own."""
  given = {**vars(options), "only": only}
  part = given.pop("part")
  flags = [f"--{name}={value}" for name, value in given.items() if value]
  return shared.in_new_process(__file__, [part, *flags])


# Clients vectorized at a time.


def random_task(model_name: str, clients: int, size: int):
  """A task of CIFAR-10's shape, and random images to run it on."""
  rng = np.random.default_rng(0)
  number = clients * size
  examples = {
    "x": rng.integers(0, 256, (number, 32, 32, 3), np.uint8),
    "y": rng.integers(0, 10, number, np.int32),
  }
  images = image_tasks.DATASETS["cifar10"]
  model = image_tasks.model_of(model_name, images)
  task = image_tasks.classification(model, images, examples, examples)
  rows = np.arange(number).reshape(clients, size)
  return task, fo.ClientData.from_partition(examples, rows)


def chunk(options: argparse.Namespace) -> dict[str, float]:
  """Megabytes and seconds of one round."""
  task, data = random_task(options.model, 16, 32)
  before = []  # Read after compilation, before the round.
  result = fo.simulate(
    fo.domo(task.loss_fn, 0.01), task.init(jax.random.key(0)), data,
    rounds=1, batch_size=32, client_map="vmap",
    client_chunk=int(options.only),
    on_evaluation=lambda report: before.append(shared.resident()),
  )  # fmt: skip
  return {
    "planned": result.needed_bytes / 1e6,
    "resident": shared.peak() - before[0],
    "seconds": result.run_seconds,
  }


def chunks(options: argparse.Namespace) -> Table:
  """A row for each number of clients at a time."""
  rows, whole = [], None
  for size in ("16", "8", "4", "1"):
    found = again(options, size)
    whole = whole or found["planned"]
    numbers = (found["planned"], found["resident"])
    share = f"{found['planned'] / whole:.2f}"
    rows.append(
      [size, *(f"{n:.0f}" for n in numbers), share, f"{found['seconds']:.1f}"]
    )
  return ("at a time", "planned MB", "resident MB", "of all", "run s"), rows


# Clients on disk.


def make_population(folder: pathlib.Path, clients: int) -> None:
  """Writes clients of made-up images, one after the other."""
  rng = np.random.default_rng(0)
  # Random bytes are slow to draw; what they are does not matter here.
  noise = rng.integers(0, 17, (2 * EXAMPLES, *SHAPE), np.uint8)

  def some():
    for _ in range(clients):
      start = rng.integers(EXAMPLES)
      x = noise[start : start + EXAMPLES]
      yield {"x": x, "y": rng.integers(0, 10, EXAMPLES, np.int32)}

  fo.Population.write(folder, some())


def from_disk_or_memory(options: argparse.Namespace) -> dict[str, float]:
  """Rounds a second, seconds and megabytes of one process."""
  data, copied = fo.Population.open(options.folder), 0.0
  if options.only == "memory":
    rows = np.arange(data.num_examples, dtype=np.int32)
    rows = rows.reshape(data.num_clients, -1)
    data, start = fo.ClientData(data.examples, rows, data.sizes), time.time()
    # A copy: what is put on a CPU device as it is stays a map of the file.
    data = jax.block_until_ready(jax.tree.map(jnp.array, data))
    copied = time.time() - start
  loss_fn, params = mlp()
  seconds = statistics.median(
    round_seconds(
      fo.fed_avg(loss_fn, optax.sgd(0.01)), params, data, options.rounds, 5,
      cohort_size=50, batch_size=16,
    )
  )  # fmt: skip
  return {"rate": 1 / seconds, "copied": copied, "peak": shared.peak()}


def disk(options: argparse.Namespace) -> Table:
  """Processes of both kinds, in turns."""
  if not pathlib.Path(options.folder).exists():
    make_population(pathlib.Path(options.folder), options.clients)
  found = {"memory": [], "disk": []}
  for _ in range(options.turns):
    for where, runs in found.items():
      runs.append(again(options, where))
  rows = []
  for where, runs in found.items():
    median = lambda name, runs=runs: statistics.median(r[name] for r in runs)
    numbers = (median("rate"), median("copied"), median("peak"))
    rows.append([where, *(f"{number:.4g}" for number in numbers)])
  return ("clients", "rounds / s", "copied s", "peak MB"), rows


# Clients to draw from.


def made(folder: pathlib.Path, clients: int) -> dict[str, Any]:
  """{name: clients in memory, on disk}; those on disk are made once."""
  rng = np.random.default_rng(0)
  x = rng.normal(size=(clients, 2, 8)).astype(np.float32)
  if not folder.exists():
    fo.Population.write(folder, ({"x": each} for each in x))
  rows = np.arange(2 * clients).reshape(clients, 2)
  start = time.time()
  data = fo.ClientData.from_partition({"x": x.reshape(-1, 8)}, list(rows))
  seconds = time.time() - start
  return {
    "seconds": seconds,
    "memory": data,
    "disk": fo.Population.open(folder),
  }


def fastest_round(data: Any, cohort_size: int, rounds: int) -> float:
  """Milliseconds."""
  square = lambda params, batch, rng: (batch["x"] @ params - 1) ** 2  # [B]
  seconds = round_seconds(
    fo.fed_avg(square, optax.sgd(0.01)), jnp.zeros(8), data, rounds, 20,
    cohort_size=cohort_size, batch_size=1,
  )  # fmt: skip
  return 1e3 * min(seconds)


def populations(options: argparse.Namespace) -> Table:
  """A row for each number of clients."""
  rows = []
  for clients in (1_000, 10_000, 100_000, 1_000_000):
    data = made(pathlib.Path(options.folder, str(clients)), clients)
    found = [
      fastest_round(data[where], cohort_size, 20 * options.rounds)
      for where in ("memory", "disk")
      for cohort_size in (10, 100)
    ]
    numbers = (data["seconds"], *found)
    rows.append([f"{clients:,}", *(f"{number:.3g}" for number in numbers)])
  head = ("clients", "made s", "memory 10", "100", "disk 10", "100")
  return head, rows


PARTS = {"chunks": chunks, "disk": disk, "populations": populations}


def main() -> None:
  parser = shared.parser(__doc__)
  parser.add_argument("part", choices=PARTS)
  parser.add_argument("--folder", help="of the clients on disk")
  parser.add_argument("--model", default="vgg16", help="a model of cifar10_...")
  parser.add_argument("--clients", type=int, default=100_000)
  parser.add_argument("--rounds", type=int, default=100)
  parser.add_argument("--turns", type=int, default=3)
  parser.add_argument("--only", help=argparse.SUPPRESS)
  options = parser.parse_args()
  if options.part != "chunks" and not options.folder:
    parser.error(f"--folder must be given for {options.part}")
  if options.only:
    measure = {"chunks": chunk, "disk": from_disk_or_memory}[options.part]
    print(json.dumps(measure(options)))
    return
  print(f"{shared.machine()}; jax {jax.__version__}", flush=True)
  print(shared.table(*PARTS[options.part](options)))


if __name__ == "__main__":
  main()
