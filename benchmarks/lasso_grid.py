"""Times whole LASSO grids of four algorithms against FedJAX, one point each.

  PYTHONPATH=. python benchmarks/lasso_grid.py \\
      --fedjax_python=PATH_TO_PYTHON_WITH_FEDJAX

LASSO I of the composite optimization paper: 64 clients of 128 examples in 1,024
dimensions, 10 in a round, batches of 10, 9 x 7 rates, 500 rounds. FedJAX has no
composite algorithm and no grids: its time is that of one plain FedAvg round of
the same size (10 clients x 13 steps x 10), times rounds, points and algorithms.
"""

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence

import jax
import numpy as np
import workloads
from round_time import Worker, cpu_model

import fedjax_opt as fo
from experiments.tasks import composite

ALGORITHMS = {
  "fed_mid": (fo.fed_mid, False),
  "fed_mid_osp": (fo.fed_mid, True),
  "fed_dual_avg": (fo.fed_dual_avg, False),
  "fed_dual_avg_osp": (fo.fed_dual_avg, True),
}
CLIENT_RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)
SERVER_RATES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
GRID = {"client_lr": CLIENT_RATES, "server_lr": SERVER_RATES}
ROUNDS = 500
# Grids of 7 rates, then 7 of the server's, then 7 strengths: points -> grid.
_THREE = {
  "client_lr": CLIENT_RATES[:7],
  "server_lr": SERVER_RATES,
  "strength": np.geomspace(0.01, 1.0, 7).tolist(),
}
GRIDS = {
  7**k: {n: v if i < k else v[:1] for i, (n, v) in enumerate(_THREE.items())}
  for k in range(4)
}


def run_grid(
  name: str,
  grid: Mapping[str, Sequence[float]],
  rounds: int,
  eval_every: int | None = None,
) -> fo.Result:
  """Runs one algorithm's whole grid.

  With evaluations, points that diverged are dropped, as in any run; without,
  all points take all rounds.
  """
  task = composite.lasso(
    {"variant": "I", "zero_threshold": 1e-2, "eval_every": 10}
  )
  factory, only_server_prox = ALGORITHMS[name]

  def make(client_lr, server_lr, strength=0.1):
    return factory(
      task.loss_fn,
      fo.prox.kernels(fo.prox.l1(strength)),
      client_lr,
      server_lr,
      only_server_prox=only_server_prox,
    )

  return fo.sweep(
    make,
    grid,
    task.init,
    task.clients,
    rounds=rounds,
    cohort_size=10,
    batch_size=10,
    evaluate=task.evaluate if eval_every else None,
    eval_every=eval_every or rounds,
  )


def main() -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--fedjax_python", default=sys.executable)
  fedjax = Worker("fedjax", parser.parse_args().fedjax_python)
  fedjax.wait()
  workload = workloads.WORKLOADS["least_squares"]
  print(f"CPU: {cpu_model()}; jax {jax.__version__}, {fedjax.versions}")

  def turn() -> float:
    answer = fedjax.run("fed_avg", workload)
    return answer["seconds"] / workload.rounds_per_turn

  turn()  # Compiles.
  rounds, totals = [], {False: 0.0, True: 0.0}
  for name in ALGORITHMS:
    for with_evaluations in totals:
      eval_every = 10 if with_evaluations else None
      result = run_grid(name, GRID, ROUNDS, eval_every)
      totals[with_evaluations] += result.run_seconds
      rounds.append(turn())
      note = "with evaluations" if with_evaluations else "all rounds"
      print(
        f"{name:17} {note:16} {result.run_seconds:6.1f} s for the grid, "
        f"after {result.compile_seconds:.1f} s of compilation",
        flush=True,
      )
  points = len(CLIENT_RATES) * len(SERVER_RATES)
  one_round = statistics.median(rounds)
  theirs = one_round * ROUNDS * points * len(ALGORITHMS)
  print(f"FedJAX: {1e3 * one_round:.2f} ms a round and point")
  total, evaluated = totals.values()
  print(
    f"{len(ALGORITHMS)} algorithms x {points} points x {ROUNDS} rounds: "
    f"{theirs:.0f} s in FedJAX; {total:.1f} s here, {theirs / total:.0f} times "
    f"faster; with evaluations {evaluated:.1f} s, {theirs / evaluated:.0f} "
    "times faster"
  )
  fedjax.close()


if __name__ == "__main__":
  main()
