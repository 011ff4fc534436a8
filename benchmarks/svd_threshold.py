"""Times soft thresholding of singular values: matrix products against LAPACK.

  python benchmarks/svd_threshold.py

A step of FedDualAvg with the nuclear norm thresholds the singular values of one
small matrix per client and grid point. The contenders do it inside a compiled
loop, as the algorithm does, and take turns, so that the noise of the machine is
shared; the least time of all turns counts. The error is the largest difference
to NumPy's decomposition in float64, over thresholds from 1e-4 to 0.9 of the
largest singular value, in units of that value.
"""

import argparse
import os
import platform
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_opt import prox

Threshold = Callable[[jax.Array, jax.Array], jax.Array]


def products(matrix, threshold):
  """What `prox.nuclear` does."""
  return prox.soft_threshold_singular_values(matrix, threshold)


def svd(matrix, threshold):
  """The definition."""
  u, s, vt = jnp.linalg.svd(matrix, full_matrices=False)
  return (u * jax.nn.relu(s - threshold)) @ vt


def gram(matrix, threshold):
  """Eigenvectors of Z^T Z; squares the condition number."""
  s2, v = jnp.linalg.eigh(matrix.T @ matrix)
  kept = s2 > threshold**2
  scale = jnp.where(kept, 1 - threshold / jnp.sqrt(jnp.where(kept, s2, 1)), 0)
  return (matrix @ v * scale) @ v.T


def jacobi(matrix, threshold, sweeps=8):
  """One-sided Jacobi: turns all disjoint pairs of columns at once.

  The pairs change as in a round-robin tournament: the first column stays, the
  others move on by one. An even number of columns is needed.
  """
  half = matrix.shape[1] // 2

  def turn(pairs, _):
    a, b = pairs
    aa, bb, ab = jnp.sum(a * a, 0), jnp.sum(b * b, 0), jnp.sum(a * b, 0)
    d = bb - aa
    root = jnp.abs(d) + jnp.sqrt(d**2 + 4 * ab**2)
    tangent = jnp.where(d < 0, -2, 2) * ab / jnp.where(root > 0, root, 1)
    cosine = lax.rsqrt(1 + tangent**2)
    a, b = cosine * (a - tangent * b), cosine * (tangent * a + b)
    up = jnp.concatenate([a[:, :1], b[:, :1], a[:, 1 : half - 1]], 1)
    down = jnp.concatenate([b[:, 1:], a[:, half - 1 :]], 1)
    return (up, down), None

  pairs = matrix[:, :half], matrix[:, half:]
  length = sweeps * (matrix.shape[1] - 1)
  us = jnp.concatenate(lax.scan(turn, pairs, length=length)[0], 1)  # U diag(s)
  s = jnp.linalg.norm(us, axis=0)
  kept = s > threshold
  scale = jnp.where(kept, (1 - threshold / s) / s**2, 0)
  return (us * scale) @ (us.T @ matrix)


CONTENDERS: dict[str, Threshold] = {
  "jnp.linalg.svd": svd,
  "eigh of Z^T Z": gram,
  "Jacobi": jacobi,
  "fedjax_opt.prox": products,
}


def matrices(batch: int, size: int) -> np.ndarray:
  """Half of them noise, half of them of low rank with a tenth of noise."""
  rng = np.random.default_rng(0)
  noise = rng.normal(size=(batch, size, size))
  low_rank = np.diag(np.arange(size) < size // 2)
  halves = np.arange(batch) % 2
  return np.where(halves[:, None, None], low_rank + 0.1 * noise, noise)


def error(contender: Threshold, size: int) -> float:
  """The largest error over matrices and thresholds, relative to the norm."""
  x = matrices(100, size)
  largest = np.linalg.norm(x, 2, axis=(1, 2))
  u, s, vt = np.linalg.svd(x)
  mapped = jax.jit(jax.vmap(contender))
  worst = 0.0
  for relative in (1e-4, 1e-3, 1e-2, 0.1, 0.3, 0.9):
    t = relative * largest
    exact = (u * np.maximum(s - t[:, None], 0)[:, None, :]) @ vt
    found = np.asarray(mapped(jnp.asarray(x), jnp.asarray(t)), float)
    worst = max(worst, np.max(np.abs(found - exact).max((1, 2)) / largest))
  return worst


def compiled_loop(
  contender: Threshold, batch: int, size: int, length: int
) -> Callable[[], None]:
  """Thresholds the batch `length` times; each input needs the last output."""
  x = jnp.asarray(matrices(batch, size))
  t = jnp.full(batch, 0.1 * size**0.5, x.dtype)

  @jax.jit
  def run(x):
    step = lambda out, _: (jax.vmap(contender)(x + 1e-6 * out, t), None)
    return lax.scan(step, x, length=length)[0]

  run(x).block_until_ready()
  return lambda: run(x).block_until_ready()


def seconds(run: Callable[[], None]) -> float:
  start = time.perf_counter()
  run()
  return time.perf_counter() - start


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--size", type=int, default=32, help="rows and columns")
  parser.add_argument(
    "--batches", default="1,10,63,630", help="matrices at once, a comma list"
  )
  parser.add_argument(
    "--turns", type=int, default=100, help="of each contender"
  )
  parser.add_argument(
    "--per_turn", type=int, default=63, help="matrices in a turn, at least"
  )
  parser.add_argument("--x64", action="store_true", help="in float64")
  args = parser.parse_args()
  jax.config.update("jax_enable_x64", args.x64)
  batches = [int(batch) for batch in args.batches.split(",")]

  times = {}
  for batch in batches:
    length = -(-args.per_turn // batch)
    runs = {
      name: compiled_loop(contender, batch, args.size, length)
      for name, contender in CONTENDERS.items()
    }
    for _ in range(args.turns):
      for name, run in runs.items():
        taken = seconds(run) / (length * batch)
        times[name, batch] = min(taken, times.get((name, batch), np.inf))

  print(
    f"us per {args.size} x {args.size} matrix, float{64 if args.x64 else 32}, "
    f"{jax.devices()[0].device_kind}, {platform.processor()}, "
    f"{os.cpu_count()} cores, jax {jax.__version__}\n"
  )
  heads = [f"batch {batch}" for batch in batches]
  print("| | " + " | ".join(heads) + " | times faster | largest error |")
  print("|---" * (len(batches) + 3) + "|")
  for name, contender in CONTENDERS.items():
    cells = [f"{1e6 * times[name, batch]:.0f}" for batch in batches]
    ratios = [
      times["jnp.linalg.svd", batch] / times[name, batch] for batch in batches
    ]
    cells.append(" ".join(f"{ratio:.1f}" for ratio in ratios))
    cells.append(f"{error(contender, args.size):.1e}")
    print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
  main()
