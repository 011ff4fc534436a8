"""Times what a user waits for: from the command to its first result.

  python benchmarks/first_result.py

The default command, `python -m experiments.run`, in a new process with an empty
folder of compiled programs (cold) and once more with what the first one left
(warm). The wall time, and the seconds that JAX says it spent on tracing,
lowering and compiling; medians of three. Programs that are compiled at the same
time count each, so these may be more than the wall time.
"""

import os
import tempfile
import time
from collections.abc import Sequence

import pandas
import shared

# What JAX calls the steps of a compilation.
EVENTS = {
  "/jax/core/compile/jaxpr_trace_duration": "tracing",
  "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowering",
  "/jax/core/compile/backend_compile_duration": "compiling",
}
TURNS = 3


def run_command(flags: Sequence[str], started: float) -> dict[str, float]:
  """Runs one command here; {what: seconds}."""
  import jax

  from experiments import run

  seconds = dict.fromkeys(EVENTS.values(), 0.0)

  def listen(name, duration, **_):
    if name in EVENTS:
      seconds[EVENTS[name]] += duration

  jax.monitoring.register_event_duration_secs_listener(listen)
  if run.main(["run", *flags]):
    raise RuntimeError("the command failed")
  return {"all": time.time() - started, **seconds}


def main() -> None:
  shared.parser(__doc__).parse_args()
  # No programs that the user has compiled before.
  for name in [name for name in os.environ if "COMPILATION_CACHE" in name]:
    del os.environ[name]
  times = {"cold": [], "warm": []}
  for _ in range(TURNS):
    with tempfile.TemporaryDirectory() as folder:
      for kind, results in times.items():
        flags = [
          f"--compilation_cache={folder}/programs",
          f"--output_dir={folder}/{kind}",
        ]
        kwargs = {"flags": flags, "started": time.time()}
        results.append(shared.in_process("first_result", "run_command", kwargs))
  medians = {n: pandas.DataFrame(rows).median() for n, rows in times.items()}
  frame = pandas.DataFrame(medians).T.reset_index(names="command")
  print(f"{shared.machine()}; seconds, median of {TURNS}")
  print(shared.table_of(frame))


if __name__ == "__main__":
  main()
