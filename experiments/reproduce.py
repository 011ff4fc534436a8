"""Runs of `experiments.run` that are done once, and what they left."""

import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from absl import app, flags

from experiments import job
from experiments.flags import command_line
from experiments.flags.registries import single_or_list
from fedjax_opt import Run, load_run
from fedjax_opt.results import json_files
from fedjax_opt.results.checkpoint import difference

FLAGS = flags.FLAGS


def define_flags(output_dir: str) -> None:
  """Defines the flags of a program that does many runs on a data set."""
  flags.DEFINE_string("data_dir", None, "Folder of tensorflow_datasets.")
  flags.DEFINE_string("output_dir", output_dir, "Folder of all runs.")
  flags.DEFINE_integer("jobs", 1, "Runs at a time.")
  flags.DEFINE_bool("only_print", False, "Run nothing, show what is there.")


def run_all(run: Callable[..., None], cells: Sequence[tuple]) -> None:
  """Calls `run(*cell)` for every cell, `--jobs` at a time."""
  with concurrent.futures.ThreadPoolExecutor(FLAGS.jobs) as pool:
    list(pool.map(lambda cell: run(*cell), cells))


def program(main: Callable[[list[str]], None]) -> None:
  """Runs a program on the command line; a ValueError is one line."""

  def run(argv: list[str]) -> int:
    try:
      main(argv)
    except ValueError as error:
      return command_line.refuse(error)
    return 0

  app.run(run)


def run_cell(folder: pathlib.Path, arguments: Sequence[str]) -> None:
  """As `run_once`, by the flags of `define_flags`."""
  if FLAGS.only_print:
    return
  if FLAGS.data_dir is not None:
    arguments = [*arguments, f"--data_dir={FLAGS.data_dir}"]
  run_once(folder, arguments, one_core=FLAGS.jobs > 1)


def run_once(
  folder: pathlib.Path, arguments: Sequence[str], one_core: bool = False
) -> None:
  """Runs `experiments.run` into a folder, unless that run is there complete.

  A run that was stopped is done anew.

  Args:
    folder: folder for the results.
    arguments: flags of the run, but for the folder.
    one_core: whether to use one core of the machine instead of all.

  Raises:
    ValueError: if the folder holds a complete run with other flags.
  """
  if find(folder, arguments) is not None:
    return
  if (folder / "config.json").exists():  # Nothing but a run is removed.
    shutil.rmtree(folder)
  arguments = [*arguments, f"--output_dir={folder}", "--noprogress"]
  command = [sys.executable, "-m", "experiments.run", *arguments]
  print(" ".join(["python", *command[1:]]), flush=True)
  env = dict(os.environ)
  if one_core:
    env["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
  done = subprocess.run(command, env=env, stdout=subprocess.DEVNULL)
  # A grid whose points all diverged is a result too.
  if done.returncode and _complete(folder) is None:
    raise subprocess.CalledProcessError(done.returncode, command)


def find(folder: pathlib.Path, arguments: Sequence[str]) -> Run | None:
  """The run with these flags in a folder; None if none there is complete.

  Args:
    folder: folder of a run.
    arguments: flags of the run, but for the folder.

  Raises:
    ValueError: if the folder holds a complete run with other flags.
  """
  run = _complete(folder)
  if run is not None:
    _check_same(folder, run.config, arguments)
  return run


def _complete(folder: pathlib.Path) -> Run | None:
  """The run in a folder, if it went to its end."""
  if not (folder / "summary.json").exists():
    return None
  run = load_run(folder)
  return run if run.is_complete else None


# Flags that may differ: where the data are does not say what they are.
_MAY_DIFFER = (*job.MAY_DIFFER, "data_dir")
# Flags that the data decide, if they were not given.
_OF_DATA = ("cohort_size", "local_epochs")


def _check_same(
  folder: pathlib.Path, config: dict[str, Any], arguments: Sequence[str]
) -> None:
  """Checks that a run with these flags has that `config.json`."""
  defaults = command_line.parse(["run"], "")
  resolved = job.resolve(command_line.parse(["run", *arguments], ""))
  flags = resolved.flags | {"seed": single_or_list(resolved.seeds)}
  wanted = {
    name: value
    for name, value in flags.items()
    if name not in _MAY_DIFFER and not (name in _OF_DATA and value is None)
  }
  # A run from before a flag was added had what is now its default.
  found = {name: config.get(name, defaults[name]) for name in wanted}
  found, wanted = json_files.plain(found), json_files.plain(wanted)
  if found != wanted:
    raise ValueError(
      f"{str(folder)!r} holds a run with {difference(found, wanted)}; give "
      "another folder, or remove that one"
    )
