"""Writes a task's clients into a folder, as `fedjax_opt.Population` reads them.

  python -m experiments.convert --task=digits --population_dir=one

Flags to begin with:
  --population_dir=FOLDER  The folder: new, or with --verify the one to check.
  --task=NAME              Data set and model. Default: digits.
  --partition=NAME         How examples come to clients. Default: dirichlet.
  --num_clients=N          Clients. Default: 100.
  --seed=N                 Seed of the partition. Default: 0.
  --verify                 Write nothing: read the folder, and say whether it
                           is undamaged.

More examples:

  python -m experiments.convert --task=mnist_cnn --data_dir=DIR \\
      --partition=dirichlet --alpha=0.5 --seed=1 --population_dir=two
  python -m experiments.convert --verify --population_dir=two

This program takes the command line of a run, checks it as a run does, and
writes the clients that this run would have. They depend on the seed, and on the
flags of task, clients' data and validation part. No other flag changes them.
"""

import functools
from collections.abc import Sequence
from typing import Any

from experiments import tasks
from experiments.command_line import exits, flag_words, parser
from experiments.processes import command
from experiments.single_run import loading
from experiments.specification.choice_flags import check_absent
from experiments.specification.resolve import resolve
from experiments.specification.spec import not_default
from experiments.tasks import clients_on_disk
from fedjax_opt import Population
from fedjax_opt.files.folders import user_path


def main(argv: Sequence[str]) -> int:
  """Returns the exit status: 0, 1 for bad input, 128 + n for signal n."""
  line = lambda: "interrupted: the same command writes the clients again"
  return exits.run_program(argv, functools.partial(_main, argv), line)


def _main(argv: Sequence[str]) -> int:
  kinds = flag_words.kinds() | {"verify": bool}
  given = dict(parser.given(argv, __doc__, kinds))
  verifies = given.pop("verify", False)
  flag_values = flag_words.completed(given)
  if verifies:
    return _verify(flag_values)
  population = convert(flag_values)
  num_bytes = sum(file.stat().st_size for file in population.folder.iterdir())
  print(
    f"wrote {population.num_clients:,} clients, {population.num_examples:,} "
    f"examples, {num_bytes:,} bytes: {population.folder}"
  )
  return 0


def _verify(flag_values: dict[str, Any]) -> int:
  """Checks all files of an existing folder; returns the exit status."""
  folder = flag_values["population_dir"]
  if not folder:
    raise ValueError("population_dir: must be given; the folder to verify")
  if others := not_default(flag_values).keys() - {"population_dir"}:
    name = min(others)
    raise ValueError(
      f"{name}={flag_values[name]}: --verify reads a folder as it is; leave "
      f"{name} out"
    )
  population = Population.open(folder)
  clients_on_disk.notes_of(population.folder)
  population.verify()
  print(
    f"undamaged: {population.num_clients:,} clients, "
    f"{population.num_examples:,} examples: {population.folder}"
  )
  return 0


def convert(flag_values: dict[str, Any]) -> Population:
  """Checks the flags, the quick checks first, and writes the folder.

  Raises:
    ValueError: naming the invalid flag. Nothing was written.
    ImportError: naming the package to install.
    OSError: if the folder cannot be written, such as on a full disk.
  """
  folder = flag_values["population_dir"]
  if not folder:
    raise ValueError(
      "population_dir: must be given; a folder that is new or empty"
    )
  for name in ("client_test_fraction", "heldout_clients", "personalize_steps"):
    if flag_values[name]:
      raise ValueError(
        f"{name}={flag_values[name]:g}: clients on disk have no test "
        f"examples of their own; leave {name} out"
      )
  # Here the folder is written, while in a run the clients come from it.
  flag_values = {**flag_values, "population_dir": None}
  spec = resolve(flag_values)
  if spec.select_on == "clients":  # On disk they have no such parts.
    spec = resolve({**flag_values, "select_on": spec.task.entry.splits[0]})
  why = "a population has the partition of its seed"
  check_absent(flag_values, why, "partition_seed")
  if len(spec.seed) > 1:
    raise ValueError(
      f"seed={flag_values['seed']}: a population has one partition; give one "
      "number"
    )
  clients_on_disk.remove_unfinished(user_path(folder))
  folder = Population.check_new(folder)
  task = loading.without_validation(spec, tasks.load_task(spec))
  clients = task.clients
  if clients is None:
    clients = loading.drawn_clients(spec, task)[0][spec.seed[0]]
  with clients_on_disk.mark(folder, spec.values(), task):
    return Population.of_client_data(folder, clients)


if __name__ == "__main__":
  command.run(main)
