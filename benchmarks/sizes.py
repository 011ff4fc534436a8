"""Measures what large models and populations cost.

  python benchmarks/sizes.py chunks
  python benchmarks/sizes.py disk --folder=NEW_FOLDER
  python benchmarks/sizes.py populations --folder=NEW_FOLDER

chunks: memory of a round of VGG-16, by how many clients are vectorized. 16
clients take one local step of DOMO on 32 images of CIFAR-10's shape each. For
every chunk size a process of its own compiles the round, asks XLA how much
memory it plans for it, runs it, and reads the largest memory that the process
had, above what it had before the round.

disk: rounds on 100,000 clients that are on disk, against the same in memory. A
population of made-up images is made in a new folder (10 GB) and stays: give the
folder again to measure again. A process of its own runs FedAvg with a network
of one hidden layer, 50 clients a round. In memory the pool is copied once,
before the rounds.

populations: a round of 10 or 100 clients of least squares, by how many clients
there are to draw from, in memory and on disk; and how long such data take to
make. The round is the fastest of 19 segments, as other work on a machine only
adds to it. Each client has two examples of 8 numbers.
"""

import pathlib
import resource
import statistics
import sys
import time
from typing import Any

import fedjax_opt_worker as ours
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas
import shared

import fedjax_opt as fo

EXAMPLES = 32  # 98 KB a client


def round_seconds(
  algorithm, params, data, rounds: int, segments: int, **settings
) -> np.ndarray:
  """Seconds a round in each segment but the first, which is not warm."""
  times, per_segment = [], rounds // segments
  fo.simulate(
    algorithm, params, data, rounds=rounds, eval_every=per_segment,
    evaluate=lambda *_: {"none": jnp.float32(0)},
    on_evaluation=lambda report: times.append(report.run_seconds), **settings,
  )  # fmt: skip
  return np.diff(times[1:]) / per_segment


# Clients vectorized at a time.


def chunk(size: int) -> dict[str, float]:
  """Megabytes of one round: as planned, and what the process grows by."""
  workload = shared.Workload("vgg16", 16, 1, 32, (32, 32, 3), 10, 0.01)
  loss_fn, init = ours.make_loss(workload)
  before = []  # Read after compilation, before the round.

  def resident(report):
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    before.append(pages * resource.getpagesize() / 1e6)

  result = fo.simulate(
    fo.domo(loss_fn, workload.learning_rate), init(jax.random.key(0)),
    ours.client_data(workload), rounds=1, batch_size=32, client_map="vmap",
    client_chunk=size, on_evaluation=resident,
  )  # fmt: skip
  grown = shared.peak() - before[0]
  return {"planned MB": result.needed_bytes / 1e6, "resident MB": grown}


def chunks(options) -> shared.Rows:
  """A row for each number of clients at a time."""
  return [
    {"at a time": size, **shared.in_process("sizes", "chunk", {"size": size})}
    for size in (16, 4, 1)
  ]


# Clients on disk.


def make_population(folder: pathlib.Path) -> None:
  """Writes clients of made-up images, one after the other."""
  rng = np.random.default_rng(0)
  # Random bytes are slow to draw; what they are does not matter here.
  noise = rng.integers(0, 17, (2 * EXAMPLES, 32, 32, 3), np.uint8)

  def clients():
    for _ in range(100_000):
      start = rng.integers(EXAMPLES)
      x = noise[start : start + EXAMPLES]
      yield {"x": x, "y": rng.integers(0, 10, EXAMPLES, np.int32)}

  fo.Population.write(folder, clients())


def from_disk_or_memory(folder: str, where: str) -> dict[str, float]:
  """Rounds a second and megabytes of one process."""
  data = fo.Population.open(folder)
  if where == "memory":  # Copied, as to any other device.
    data = jax.block_until_ready(jax.tree.map(jnp.array, data.load()))
  loss_fn, init = ours.make_loss(shared.WORKLOADS["mlp"])
  seconds = statistics.median(
    round_seconds(
      fo.fed_avg(loss_fn, optax.sgd(0.01)), init(jax.random.key(0)), data, 100,
      5, cohort_size=50, batch_size=16,
    )
  )  # fmt: skip
  return {"rounds / s": 1 / seconds, "peak MB": shared.peak()}


def disk(options) -> shared.Rows:
  """Medians of three processes of both kinds, in turns."""
  if not options.folder.exists():
    make_population(options.folder)
  rows = []
  for where in ("memory", "disk") * 3:
    arguments = {"folder": str(options.folder), "where": where}
    run = shared.in_process("sizes", "from_disk_or_memory", arguments)
    rows.append({"clients": where, **run})
  medians = pandas.DataFrame(rows).groupby("clients", sort=False).median()
  return medians.reset_index().to_dict("records")


# Clients to draw from.


def make_data(folder: pathlib.Path, clients: int) -> tuple[float, list[Any]]:
  """Seconds to make clients in memory; these, and those on disk."""
  rng = np.random.default_rng(0)
  x = rng.normal(size=(clients, 2, 8)).astype(np.float32)
  if not folder.exists():
    fo.Population.write(folder, ({"x": examples} for examples in x))
  rows = np.arange(2 * clients).reshape(clients, 2)
  start = time.time()
  data = fo.ClientData.from_partition({"x": x.reshape(-1, 8)}, list(rows))
  return time.time() - start, [data, fo.Population.open(folder)]


def fastest_round(data: Any, cohort_size: int) -> float:
  """Milliseconds."""
  square = lambda params, batch, rng: (batch["x"] @ params - 1) ** 2  # [B]
  seconds = round_seconds(
    fo.fed_avg(square, optax.sgd(0.01)), jnp.zeros(8), data, 2000, 20,
    cohort_size=cohort_size, batch_size=1,
  )  # fmt: skip
  return 1e3 * min(seconds)


def populations(options) -> shared.Rows:
  """A row for each number of clients."""
  rows = []
  for clients in (1_000, 10_000, 100_000, 1_000_000):
    seconds, sources = make_data(options.folder / str(clients), clients)
    of_rounds = {
      f"{where} {cohort_size}, ms": fastest_round(data, cohort_size)
      for where, data in zip(("memory", "disk"), sources, strict=True)
      for cohort_size in (10, 100)
    }
    rows.append({"clients": f"{clients:,}", "made s": seconds, **of_rounds})
  return rows


PARTS = {"chunks": chunks, "disk": disk, "populations": populations}


def main() -> None:
  parser = shared.parser(__doc__)
  parser.add_argument(
    "--folder", type=shared.folder, required="chunks" not in sys.argv,
    help="of the clients on disk; not of chunks",
  )  # fmt: skip
  shared.print_part(parser, PARTS)


if __name__ == "__main__":
  main()
