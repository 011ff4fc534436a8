"""Times what a user waits for: from the command to its first result.

  PYTHONPATH=. python benchmarks/first_result.py

Each wait is measured in new processes:

- the default command, `python -m experiments.run`, with an empty folder of
  compiled programs (cold) and once more with what the first one left (warm);
- `simulate` twice in one process, the second time with the same algorithm made
  anew: its time as a part of the first one's.

Of the command the wall time, and the seconds that JAX says it spent on
tracing, lowering and compiling. Programs that are compiled at the same time
count each, so these may be more than the wall time.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence

import shared

# What JAX calls the steps of a compilation.
EVENTS = {
  "/jax/core/compile/jaxpr_trace_duration": "tracing",
  "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowering",
  "/jax/core/compile/backend_compile_duration": "compiling",
}


# In the process that is measured.


def run_command(arguments: Sequence[str], started: float) -> dict[str, float]:
  """Runs one command here; {what: seconds}."""
  import jax

  from experiments import run

  seconds = dict.fromkeys(EVENTS.values(), 0.0)

  def listen(name, duration, **_):
    if name in EVENTS:
      seconds[EVENTS[name]] += duration

  jax.monitoring.register_event_duration_secs_listener(listen)
  imported = time.time() - started
  with contextlib.redirect_stdout(sys.stderr):
    status = run.main(["run", *arguments])
  if status:
    raise SystemExit(status)
  return {"all": time.time() - started, "imports": imported, **seconds}


def run_twice(rounds: int) -> dict[str, float]:
  """Seconds of two identical calls of `simulate`."""
  import fedjax_opt_worker as ours
  import optax

  import fedjax_opt as fo

  workload = shared.WORKLOADS["mlp"]
  loss_fn, params = ours.make_loss(workload)
  data = ours.client_data(workload)

  def simulate() -> float:
    start = time.perf_counter()
    measure = lambda params, batch: {"loss": loss_fn(params, batch, None)}
    fo.simulate(
      fo.fed_avg(loss_fn, fo.delta_sgd(), optax.sgd(1.0)), params, data,
      rounds=rounds, batch_size=16, evaluate=fo.evaluation.federated(measure),
    )  # fmt: skip
    return time.perf_counter() - start

  return {"first": simulate(), "second": simulate()}


# In the process that measures.


def in_new_process(arguments: Sequence[str]) -> dict[str, float]:
  """Runs this file, without a folder of compiled programs of the user's."""
  kept = {n: v for n, v in os.environ.items() if "COMPILATION_CACHE" not in n}
  paths = [str(shared.HERE.parent), kept.get("PYTHONPATH", "")]
  kept["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
  started = f"--started={time.time()!r}"
  return shared.in_new_process(__file__, [started, *arguments], kept)


def measure_command(turns: int) -> dict[str, list[dict[str, float]]]:
  """{'cold' or 'warm': results of all turns}."""
  found = {"cold": [], "warm": []}
  for _ in range(turns):
    with tempfile.TemporaryDirectory() as folder:
      for which, results in found.items():
        arguments = [
          "--command", f"--compilation_cache={folder}/programs",
          f"--output_dir={folder}/{which}",
        ]  # fmt: skip
        results.append(in_new_process(arguments))
  return found


def main() -> None:
  parser = shared.parser(__doc__)
  parser.allow_abbrev = False
  parser.add_argument("--turns", type=int, default=3, help="median of so many")
  parser.add_argument("--started", type=float, help=argparse.SUPPRESS)
  parser.add_argument("--command", action="store_true", help=argparse.SUPPRESS)
  parser.add_argument("--twice", type=int, help=argparse.SUPPRESS)
  options, flags = parser.parse_known_args()
  if options.command:
    print(json.dumps(run_command(flags, options.started)))
    return
  if options.twice is not None:
    print(json.dumps(run_twice(options.twice)))
    return
  if flags:
    parser.error(f"unknown arguments: {' '.join(flags)}")
  median = lambda results, name: statistics.median(r[name] for r in results)
  found = measure_command(options.turns)
  stages = ("all", "imports", *EVENTS.values())
  rows = [
    [name, *(f"{median(results, stage):.2f}" for stage in stages)]
    for name, results in found.items()
  ]
  print(f"{shared.machine()}; seconds, median of {options.turns}")
  print(shared.table(("command", *stages), rows))
  # Few, as it is the time around them that is looked at.
  twice = [in_new_process(["--twice=5"]) for _ in range(options.turns)]
  first, second = median(twice, "first"), median(twice, "second")
  print(
    f"simulate: {first:.2f} s, the same again {second:.2f} s: "
    f"{second / first:.3f} of it"
  )


if __name__ == "__main__":
  main()
