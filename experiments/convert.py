"""Writes a task's clients into a folder, as `fedjax_opt.Population` reads them.

  python -m experiments.convert --task=digits --population_dir=one
  python -m experiments.convert --task=mnist_cnn --data_dir=DIR \\
      --partition=dirichlet --alpha=0.5 --seed=1 --population_dir=two
  python -m experiments.convert --verify --population_dir=two

It takes the command line of a run, and writes the clients that this run would
have. Only the flags of the task, of the clients' data and the seed matter. With
--verify it writes nothing: it reads the folder, and says whether all of it is
what was written.
"""

from collections.abc import Sequence
from typing import Any

from experiments import command, tasks, validation
from experiments.flags import clients, command_line, methods, selection
from experiments.flags import tasks as task_flags
from fedjax_opt import Population
from fedjax_opt.data.clients import ClientData


def main(argv: Sequence[str]) -> int:
  """Returns the exit status: 0, 1 for bad input, 128 + n for signal n."""
  others = [word for word in argv if word not in ("--verify", "-verify")]
  try:
    flags = command_line.parse(others, __doc__)
    if len(others) < len(argv):
      return _verify(flags)
    written = convert(flags)
  except (OSError, ValueError, ImportError, MemoryError) as error:
    return command_line.refuse(error)
  except KeyboardInterrupt as error:
    print("interrupted")
    return getattr(error, "status", 130)
  num_bytes = sum(file.stat().st_size for file in written.folder.iterdir())
  print(
    f"wrote {written.num_clients:,} clients, {written.num_examples:,} "
    f"examples, {num_bytes:,} bytes: {written.folder}"
  )
  return 0


def _verify(flags: dict[str, Any]) -> int:
  """Checks all of a folder that is there; returns the exit status."""
  population = clients.on_disk(flags)
  if population is None:
    raise ValueError("population_dir: must be given; the folder to verify")
  validation.check_mark(population)
  population.verify()
  print(
    f"undamaged: {population.num_clients:,} clients, "
    f"{population.num_examples:,} examples: {population.folder}"
  )
  return 0


def convert(flags: dict[str, Any]) -> Population:
  """Checks the flags, what is quick to check first, and writes the folder.

  Raises:
    ValueError: naming the flag that cannot be. Nothing was written.
    ImportError: naming the package to install.
    OSError: if the folder cannot be written, such as on a full disk.
  """
  if not flags["population_dir"]:
    raise ValueError(
      "population_dir: must be given; a folder that is new or empty"
    )
  flags = flags | task_flags.resolve(flags)
  task = tasks.TASKS[flags["task"]]
  seeds = methods.seeds(flags)
  if len(seeds) > 1:
    raise ValueError(
      f"seed={flags['seed']}: a population has one partition; give one number"
    )
  for name in ("client_test_fraction", "heldout_clients", "personalize_steps"):
    if flags[name]:
      raise ValueError(
        f"{name}={flags[name]:g}: clients on disk have no test examples of "
        f"their own; leave {name} out"
      )
  # Here the folder is what is written, not where the clients come from.
  others = flags | {"population_dir": None}
  partition = clients.resolve(others, task.brings_clients(flags))
  flags = flags | selection.resolve(flags, task)
  folder = Population.check_new(flags["population_dir"])
  written = Population.of_client_data(
    folder, _clients(flags, partition, seeds[0])
  )
  validation.mark(written.folder, flags)
  return written


def _clients(
  flags: dict[str, Any], partition: dict[str, Any], seed: int
) -> ClientData:
  """The training clients of a run with these flags."""
  task = validation.held_out(tasks.load(flags), flags)
  if task.clients is not None:
    return task.clients
  return clients.populations(task.train, task.num_classes, partition, [seed])[
    seed
  ]


if __name__ == "__main__":
  command.run(main)
