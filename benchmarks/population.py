"""Rounds on 100,000 clients that are on disk, against the same in memory.

  python benchmarks/population.py --folder=NEW_FOLDER

Makes a population of made-up images in a new folder (10 GB by default) and
keeps it: give the folder again to measure again. Processes take turns; each
runs FedAvg with a network of one hidden layer, 50 clients a round, and reports
rounds per second once compiled, and the largest memory that it had. In memory
the pool is copied once; that time is reported apart.

  python benchmarks/population.py --growth --folder=NEW_FOLDER

measures instead what a round costs with more clients: 10 of 1,000 and of
1,000,000 clients with four examples each (130 MB), on a linear model, with
each sampler, in memory and on disk. Segments of rounds take turns; compilation
is apart.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np

SHAPE, EXAMPLES = (32, 32, 3), 32  # 98 KB a client
COHORT, BATCH, HIDDEN = 50, 16, 100


def make(folder: pathlib.Path, num_clients: int) -> None:
  """Writes the clients, one after the other."""
  import fedjax_opt as fo

  rng = np.random.default_rng(0)
  # Random bytes are slow to draw; what they are does not matter here.
  noise = rng.integers(0, 256, (2 * EXAMPLES, *SHAPE), np.uint8)

  def clients():
    for _ in range(num_clients):
      start = rng.integers(EXAMPLES)
      x = noise[start : start + EXAMPLES]
      yield {"x": x, "y": rng.integers(0, 10, EXAMPLES, np.int32)}

  fo.Population.write(folder, clients())


def in_memory(population):
  """The clients as `ClientData`, its pool a map of the file until copied."""
  import jax
  import jax.numpy as jnp

  import fedjax_opt as fo

  rows = np.arange(population.num_examples, dtype=np.int32)
  rows = rows.reshape(population.num_clients, -1)
  data = fo.ClientData(population.examples, rows, population.sizes)
  start = time.perf_counter()
  # A copy: what is put on a CPU device as it is stays a map of the file.
  data = jax.block_until_ready(jax.tree.map(jnp.array, data))
  return data, time.perf_counter() - start


def measure(folder: str, where: str, rounds: int) -> dict[str, float]:
  """Rounds per second, megabytes and seconds of one process."""
  import jax
  import jax.numpy as jnp
  import memory
  import optax

  import fedjax_opt as fo

  data, load_seconds = fo.Population.open(folder), 0.0
  if where == "memory":
    data, load_seconds = in_memory(data)
  model = fo.models.MLP(hidden=(HIDDEN,), num_classes=10)
  params = model.init(jax.random.key(0), jnp.zeros((1, *SHAPE)))["params"]

  def loss_fn(params, batch, rng):
    logits = model.apply({"params": params}, batch["x"] / 255)
    cross_entropy = optax.softmax_cross_entropy_with_integer_labels
    return cross_entropy(logits, batch["y"])

  times = []
  result = fo.simulate(
    fo.fed_avg(loss_fn, optax.sgd(0.01)), params, data,
    rounds=rounds, cohort_size=COHORT, batch_size=BATCH,
    eval_every=rounds // 5,
    evaluate=lambda *_: {"none": jnp.float32(0)},
    on_evaluation=lambda report: times.append(report.run_seconds),
  )  # fmt: skip
  seconds = np.diff(times[1:])  # The first segment warms up.
  return {
    "rounds_per_second": rounds // 5 / statistics.median(seconds),
    "compile_seconds": result.compile_seconds,
    "load_seconds": load_seconds,
    "peak_megabytes": memory.peak(),
  }


# What a round costs with more clients.

FEATURES, FEW, GROWN = 6, 4, (1_000, 1_000_000)
SAMPLERS = {
  "uniform": lambda samplers, num_clients: samplers.uniform(),
  "cyclic": lambda samplers, num_clients: samplers.cyclic(4),
  "poisson": lambda samplers, num_clients: samplers.poisson(8.0),
  "fixed": lambda samplers, num_clients: samplers.fixed(),
  "weighted": lambda samplers, num_clients: samplers.weighted(),
  "weights": lambda samplers, num_clients: samplers.weighted(
    np.ones(num_clients)
  ),
}


def small_clients(folder: pathlib.Path, where: str, num_clients: int):
  """The same clients in memory or on disk."""
  import fedjax_opt as fo

  path = folder / str(num_clients)
  if where == "disk" and path.exists():
    return fo.Population.open(path)
  rng = np.random.default_rng(0)
  examples = {
    "x": rng.standard_normal((num_clients * FEW, FEATURES), np.float32),
    "y": rng.standard_normal(num_clients * FEW, np.float32),
  }
  rows = np.arange(num_clients * FEW, dtype=np.int32).reshape(-1, FEW)
  sizes = np.full(num_clients, FEW, np.int32)
  data = fo.ClientData(examples, rows, sizes)
  return data if where == "memory" else fo.Population.of_client_data(path, data)


def start(data, sampler, rounds: int):
  """A function that runs so many more rounds, and the seconds it compiled."""
  import jax
  import jax.numpy as jnp
  import optax

  import fedjax_opt as fo

  def loss_fn(params, batch, rng):
    return (batch["x"] @ params["w"] - batch["y"]) ** 2

  simulator = fo.Simulator(
    fo.fed_avg(loss_fn, optax.sgd(0.01)), data,
    cohort_size=10, batch_size=FEW, sampler=sampler, eval_every=rounds,
  )  # fmt: skip
  begun = time.perf_counter()
  state = simulator.init({"w": jnp.zeros(FEATURES)})
  state, _ = simulator.run(state, rounds)
  compiled = time.perf_counter() - begun

  def run():
    nonlocal state
    state, _ = simulator.run(state, rounds)
    jax.block_until_ready(state.server)

  return run, compiled


def growth(folder: pathlib.Path, rounds: int, turns: int) -> None:
  """Prints what a round costs with few and with many clients."""
  import fedjax_opt as fo

  folder.mkdir(parents=True, exist_ok=True)
  print("ms a round, of 1,000 and 1,000,000 clients; [s of the first rounds]")
  for where in ("memory", "disk"):
    clients = {n: small_clients(folder, where, n) for n in GROWN}
    for name, make_sampler in SAMPLERS.items():
      runs = [
        start(clients[n], make_sampler(fo.samplers, n), rounds) for n in GROWN
      ]
      seconds = [[], []]
      for _ in range(turns):
        for of_size, (run, _) in zip(seconds, runs, strict=True):
          begun = time.perf_counter()
          run()
          of_size.append((time.perf_counter() - begun) / rounds)
      few, many = map(statistics.median, seconds)
      first = ", ".join(f"{compiled:.1f}" for _, compiled in runs)
      print(
        f"{where:>6} {name:>8}: {1e3 * few:.3f} {1e3 * many:.3f} "
        f"ratio {many / few:.2f} [{first}]",
        flush=True,
      )


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--folder", required=True, help="of the population")
  parser.add_argument("--clients", type=int, default=100_000)
  parser.add_argument("--rounds", type=int, default=200)
  parser.add_argument("--turns", type=int, default=3)
  parser.add_argument(
    "--measure", choices=("disk", "memory"), help=argparse.SUPPRESS
  )
  parser.add_argument(
    "--growth", action="store_true", help="with few and with many clients"
  )
  options = parser.parse_args()
  if options.growth:
    growth(pathlib.Path(options.folder), options.rounds, options.turns)
    return
  if options.measure:
    found = measure(options.folder, options.measure, options.rounds)
    print(json.dumps(found))
    return

  folder = pathlib.Path(options.folder)
  if not folder.exists():
    start = time.perf_counter()
    make(folder, options.clients)
    print(f"written in {time.perf_counter() - start:.0f} s: {folder}")
  size = sum(path.stat().st_size for path in folder.iterdir())
  print(f"{size / 1e9:.1f} GB; {COHORT} clients a round, {options.turns} turns")
  found = {"memory": [], "disk": []}
  for _ in range(options.turns):
    for where, runs in found.items():
      done = subprocess.run(
        [
          sys.executable, __file__, f"--folder={folder}", f"--measure={where}",
          f"--rounds={options.rounds}",
        ],
        check=True, capture_output=True, text=True,
      )  # fmt: skip
      runs.append(json.loads(done.stdout.splitlines()[-1]))
  rates = {}
  for where, runs in found.items():
    median = lambda name, runs=runs: statistics.median(r[name] for r in runs)
    rates[where] = median("rounds_per_second")
    print(
      f"{where:>6}: {rates[where]:7.2f} rounds/s, compiled in "
      f"{median('compile_seconds'):.1f} s, copied in "
      f"{median('load_seconds'):.1f} s, peak {median('peak_megabytes'):,.0f} MB"
    )
  print(f"disk / memory: {rates['disk'] / rates['memory']:.2f}")


if __name__ == "__main__":
  main()
