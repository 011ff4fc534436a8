"""The command line, and the experiments of the papers.

How a flag such as `--client_lr=0.1,1` takes effect, with `--client=sgd`:

1. `RULES["sgd"]` has a hyperparameter `learning_rate`. Its flag gets the name
   `client_lr` in `specification.choice_flags`, `command_line.flags` defines it,
   and `command_line.parser` reads its value.
2. `specification.resolve` makes a `Spec` of all values, once: `Spec.client` is
   the choice `sgd`, whose grid is `{"client_lr": [0.1, 1.0]}`, and `Spec.grid`
   joins the grids of all choices.
3. `single_run.job.prepare` loads the data (`loading.load`, by the task). From
   `Spec` and data it makes a `fedjax_opt.Simulator`, which checks that they fit
   together.
4. `Job.simulate` lets the simulator compute all points of the grid. At each it
   calls `make(client_lr=0.1)` of `building.algorithm_of`, where the numbers are
   traced: the clients' rule is `optax.sgd(learning_rate=0.1)`, and the
   algorithm gets it as `client`.
5. `run_output.RunOutput` writes the metrics of each evaluation, and the final
   files.
"""

import sys
import time

# It is set before any import that takes long.
_process_started: float | None = time.monotonic()

if sys.argv[:1] == ["-m"]:  # While Python looks for the program to run.
  from experiments.processes import command

  command.begin()


def start_of_run() -> float:
  """When a run began, in seconds of `time.monotonic`.

  The first run of a process began when the process did, so it includes the
  imports. Any other run begins now.
  """
  global _process_started
  started, _process_started = _process_started, None
  return time.monotonic() if started is None else started
