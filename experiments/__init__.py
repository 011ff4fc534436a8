"""Experiments of the papers, from the command line: see run.py.

The way of a flag, such as `--client_lr=0.1,1` with `--client=sgd`:

1. `RULES["sgd"]` has a hyperparameter `learning_rate`; `specification.kinds`
   names its flag `client_lr`, `command_line.flags` defines it, and
   `command_line.parser` reads its value.
2. `specification.resolve` makes a `Spec` of all values, once: `Spec.client` is
   the choice `sgd`, whose grid is `{"client_lr": [0.1, 1.0]}`, and `Spec.grid`
   joins the grids of all choices.
3. `job.prepare` loads the data (`data.load`, by the task), and makes of both a
   `fedjax_opt.Simulator`, which checks that they go together.
4. `run.simulate` lets it go over the points of the grid. At each it calls
   `make(client_lr=0.1)` of `job.algorithm_of`, where the numbers are traced:
   the clients' rule is `optax.sgd(learning_rate=0.1)`, and the algorithm gets
   it as `client`.
5. `results.Results` writes what each evaluation measured, and the end.
"""

import sys
import time

# Before anything that takes long to import.
_process_started: float | None = time.monotonic()

if sys.argv[:1] == ["-m"]:  # While Python looks for the program to run.
  from experiments import command

  command.begin()


def start_of_run() -> float:
  """When a run began, in seconds of `time.monotonic`.

  The first run of a process began with the process, imports included; any other
  begins now.
  """
  global _process_started
  started, _process_started = _process_started, None
  return time.monotonic() if started is None else started
