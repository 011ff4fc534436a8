"""SCAFFOLD's controls of 100,000 clients, on the device and on the host.

  PYTHONPATH=. python benchmarks/client_memory.py

Logistic regression on 28 x 28 images, 50 clients a round. The two take turns;
each prints its milliseconds per round, once compiled.
"""

import argparse
import statistics

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fedjax_opt as fo

FEATURES, CLASSES, EXAMPLES, COHORT = 784, 10, 1_000, 50


def loss_fn(params, batch, rng):
  logits = batch["x"] @ params["kernel"] + params["bias"]
  cross_entropy = optax.softmax_cross_entropy_with_integer_labels
  return cross_entropy(logits, batch["y"])


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--clients", type=int, default=100_000)
  parser.add_argument("--rounds", type=int, default=100)
  parser.add_argument("--turns", type=int, default=3)
  options = parser.parse_args()

  rng = np.random.default_rng(0)
  examples = {
    "x": rng.normal(size=(EXAMPLES, FEATURES)).astype(np.float32),
    "y": rng.integers(0, CLASSES, EXAMPLES, np.int32),
  }
  rows = rng.integers(0, EXAMPLES, (options.clients, 32), np.int32)
  sizes = np.full(options.clients, 32, np.int32)
  data = fo.ClientData(examples, rows, sizes)
  params = {
    "kernel": jnp.zeros((FEATURES, CLASSES)),
    "bias": jnp.zeros(CLASSES),
  }
  one_model = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
  of_clients = {"device": options.clients, "host": COHORT}
  found = {where: [] for where in of_clients}
  for _ in range(options.turns):
    for where, times in found.items():
      seconds = []
      fo.simulate(
        fo.scaffold(loss_fn, 0.01), params, data,
        rounds=options.rounds, cohort_size=COHORT, batch_size=16,
        client_memory=where, eval_every=options.rounds // 5,
        evaluate=lambda *_: {"none": jnp.float32(0)},
        on_evaluation=lambda report, s=seconds: s.append(report.run_seconds),
      )  # fmt: skip
      warm = np.diff(seconds[1:])  # The first segment warms up.
      times.append(statistics.median(warm) / (options.rounds // 5))
  for where, number in of_clients.items():
    print(
      f"{where:>6}: {1e3 * statistics.median(found[where]):6.2f} ms a round, "
      f"{one_model * number / 1e6:,.1f} MB of controls on the device"
    )


if __name__ == "__main__":
  main()
