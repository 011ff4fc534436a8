"""Memory and speed of what goes on for long; prints a table.

  python -m tests.tools.soak settings --number=200 --seed=0

`settings` calls `simulate` so often, each time with other sizes of the local
work; it must grow by less than 50 MB in the last half. `study` compares methods
with --jobs=2 for so many conditions, and shows the memory of this process. The
minutes of one long run are measured by benchmarks/soak.py.
"""

import argparse
import gc
import pathlib
import random
import sys
import tempfile
import time

import jax.numpy as jnp
import numpy as np
import optax

import fedjax_opt as fo
from experiments import compare

_ROWS = 10
_MOST = 50.0  # MB of growth in the last half.


def resident():
  """MB of memory that this process has; garbage apart."""
  gc.collect()
  pages = pathlib.Path("/proc/self/statm").read_text().split()[1]
  return int(pages) * 4096 / 1e6


def settings(number, seed):
  """Calls `simulate`; yields after each call."""
  rng, draw = np.random.default_rng(seed), random.Random(seed)
  x = rng.normal(size=(600, 8)).astype(np.float32)
  pool = {"x": x, "y": x.sum(axis=1)}
  data = fo.ClientData.from_partition(pool, np.arange(600).reshape(20, 30))
  loss = lambda params, batch, rng: (batch["x"] @ params["w"] - batch["y"]) ** 2
  sizes = [(c, b, k) for c in range(2, 10) for b in range(2, 9)
           for k in range(1, 9)]  # fmt: skip
  for cohort, batch, steps in draw.sample(sizes, number):
    fo.simulate(
      fo.fed_avg(loss, optax.sgd(0.01)), {"w": jnp.zeros(8)}, data, rounds=2,
      cohort_size=cohort, batch_size=batch, local_steps=steps,
    )  # fmt: skip
    yield


def study(number, seed):
  """Compares methods under so many conditions; yields once."""
  alphas = ",".join(f"{0.1 * (i + 1):g}" for i in range(number))
  with tempfile.TemporaryDirectory() as folder:
    status = compare.main([
      "compare", "--task=digits_logistic", "--num_clients=10", "--rounds=20",
      "--cohort_size=4", "--method=fed_avg client=sgd", "--method=scaffold",
      f"--seed={seed}", f"--alpha={alphas}", "--jobs=2",
      f"--output_dir={folder}/f",
    ])  # fmt: skip
    assert status == 0
  yield


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("kind", choices=["settings", "study"])
  parser.add_argument("--number", type=int, default=200)
  parser.add_argument("--seed", type=int, default=0)
  given = parser.parse_args()
  found, start = [], time.monotonic()
  for i, _ in enumerate(globals()[given.kind](given.number, given.seed), 1):
    if i % max(1, given.number // _ROWS) == 0 or given.kind == "study":
      found.append(resident())
      rate = i / (time.monotonic() - start)
      print(f"{i:6} {found[-1]:8.1f} MB {rate:6.2f} a second", flush=True)
  growth = found[-1] - found[len(found) // 2 - 1] if len(found) > 1 else 0.0
  print(f"last half: {growth:+.1f} MB")
  return int(growth > _MOST)


if __name__ == "__main__":
  sys.exit(main())
