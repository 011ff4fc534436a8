"""Writes a task's clients into a folder, as `fedjax_opt.Population` reads them.

  python -m experiments.convert --task=digits --population_dir=one
  python -m experiments.convert --task=mnist_cnn --data_dir=DIR \\
      --partition=dirichlet --alpha=0.5 --seed=1 --population_dir=two

It takes the command line of a run, and writes the clients that this run would
have: the flags of the task, the clients' data and seed count, no others.
"""

import sys
from collections.abc import Sequence
from typing import Any

import experiments.run_flags  # noqa: F401 (it defines the flags)
from experiments import command_line, config, population, tasks
from fedjax_opt import Population
from fedjax_opt.data.clients import ClientData


def main(argv: Sequence[str]) -> int:
  """Returns the exit status: 0, 1 for bad input, 130 for Ctrl-C."""
  try:
    written = convert(command_line.parse(argv, __doc__))
  except (OSError, ValueError, ImportError) as error:
    return command_line.refuse(error)
  except KeyboardInterrupt:
    print("interrupted")
    return 130
  num_bytes = sum(file.stat().st_size for file in written.folder.iterdir())
  print(
    f"wrote {written.num_clients:,} clients, {written.num_examples:,} "
    f"examples, {num_bytes:,} bytes: {written.folder}"
  )
  return 0


def convert(flag: dict[str, Any]) -> Population:
  """Checks the flags, what is quick to check first, and writes the folder.

  Raises:
    ValueError: naming the flag that cannot be. Nothing was written.
    ImportError: naming the package to install.
    OSError: if the folder cannot be written, such as on a full disk.
  """
  if not flag["population_dir"]:
    raise ValueError(
      "population_dir: must be given; a folder that is new or empty"
    )
  flag = flag | tasks.resolve(flag)
  entry = tasks.TASKS[flag["task"]]
  seeds = config.seeds(flag)
  if len(seeds) > 1:
    raise ValueError(
      f"seed={flag['seed']}: a population has one partition; give one number"
    )
  # Here it is what is written, and does not say who the clients are.
  own = flag | {"population_dir": None}
  parameters = population.resolve(own, entry.has_clients)
  folder = Population.check_new(flag["population_dir"])
  return Population.of_client_data(folder, _clients(flag, parameters, seeds[0]))


def _clients(
  flag: dict[str, Any], parameters: dict[str, Any], seed: int
) -> ClientData:
  """The training clients of a run with these flags."""
  task = tasks.load(flag)
  if task.clients is not None:
    return task.clients
  return population.populations(
    task.train, task.num_classes, parameters, [seed]
  )[seed]


if __name__ == "__main__":
  sys.exit(main(sys.argv))
