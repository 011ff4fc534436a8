"""Times a round of BVR-L-SGD against plain steps of as many gradients.

  PYTHONPATH=. python benchmarks/bvr_round.py

The paper's setting on CIFAR-10 (3072-100-10 network, 10 workers of 5,000
examples, 16 local steps of 16), with random images. A round evaluates gradients
in three sizes: one worker's local steps (two gradients of 16), all workers'
differences (two of 256) and, once in a stage, all workers' large gradients (in
chunks of 512). The floor is the time that plain SGD steps of these sizes take,
compiled in a loop, for as many evaluations. Contenders take turns; the median
counts.
"""

import argparse
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from round_time import cpu_model

import fedjax_opt as fo
from experiments.tasks import images as image_tasks

WORKERS, EXAMPLES, K, B, CHUNK = 10, 5000, 16, 16, 512


def random_task(
  model_name: str = "mlp", clients: int = WORKERS, size: int = EXAMPLES
):
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


def time_rounds(task, data, rounds: int) -> tuple[float, float]:
  """Seconds a round, and gradient evaluations of all workers a round."""
  result = fo.simulate(
    fo.bvr_l_sgd(task.loss_fn, 0.01),
    task.init(jax.random.key(0)),
    data,
    rounds=rounds,
    batch_size=B,
    local_steps=K,
    replacement=True,
    weighting="uniform",
    eval_every=rounds,
  )
  seconds = result.run_seconds / rounds
  return seconds, WORKERS * result.cost["gradient_evaluations_per_round"]


def plain_steps(task, data, batch_size: int):
  """`() -> seconds of one SGD step of this size`, compiled."""
  examples = jax.device_put(data.examples)
  number = max(1, 8192 // batch_size)

  @jax.jit
  def run(params, key, examples):
    def step(k, params):
      rows = jax.random.randint(
        jax.random.fold_in(key, k), (batch_size,), 0, WORKERS * EXAMPLES
      )
      batch = {name: leaf[rows] for name, leaf in examples.items()}
      loss = lambda params: jnp.mean(task.loss_fn(params, batch, key))
      return optax.tree.add_scale(params, -0.01, jax.grad(loss)(params))

    return lax.fori_loop(0, number, step, params)

  params = task.init(jax.random.key(0))
  jax.block_until_ready(run(params, jax.random.key(1), examples))

  def turn() -> float:
    start = time.perf_counter()
    jax.block_until_ready(run(params, jax.random.key(1), examples))
    return (time.perf_counter() - start) / number

  return turn


def main() -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--turns", type=int, default=5)
  parser.add_argument("--stages", type=int, default=1, help="in a turn")
  args = parser.parse_args()
  task, data = random_task()
  stage_length = -(-(EXAMPLES + K * B) // (K * B))  # T
  rounds = args.stages * stage_length
  sizes = (B, K * B, CHUNK)
  plain = {size: plain_steps(task, data, size) for size in sizes}
  times = {size: [] for size in sizes}
  ours = []
  for _ in range(args.turns):
    seconds, evaluations = time_rounds(task, data, rounds)
    ours.append(seconds)
    for size in sizes:
      times[size].append(plain[size]())

  # Evaluations of a round by size, of all workers.
  taken = {B: 2 * K * B, K * B: 2 * K * B * WORKERS}
  taken[CHUNK] = evaluations - sum(taken.values())
  step = {size: statistics.median(times[size]) for size in sizes}
  floor = sum(taken[size] / size * step[size] for size in sizes)
  small = evaluations / B * step[B]
  seconds = statistics.median(ours)
  print(f"CPU: {cpu_model()}; jax {jax.__version__}")
  for size in sizes:
    print(
      f"plain step of {size:3}: {1e3 * step[size]:.2f} ms, "
      f"{1e6 * step[size] / size:.1f} us an example"
    )
  print(
    f"BVR round, {evaluations:.0f} evaluations: {1e3 * seconds:.1f} ms; plain "
    f"steps of the same sizes {1e3 * floor:.1f} ms: ratio {seconds / floor:.2f}"
    f"; all of size {B} {1e3 * small:.1f} ms: ratio {seconds / small:.2f}"
  )


if __name__ == "__main__":
  main()
