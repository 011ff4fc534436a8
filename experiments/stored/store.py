"""A store of runs: each runs once, and is found again by its digest."""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import pathlib
import re
import time
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from experiments.processes import command
from experiments.processes.command import RunFailed
from experiments.single_run import execution, timetables
from experiments.single_run.loading import Loader
from experiments.specification import spec as specs
from experiments.specification.choice_flags import CHOICE_FLAGS
from experiments.specification.spec import FLAGS, Spec
from fedjax_opt import Run, load_run
from fedjax_opt.base import STREAMS
from fedjax_opt.data import digest
from fedjax_opt.files import json_files, locks
from fedjax_opt.results.checkpoint import what_differs


@dataclasses.dataclass(frozen=True)
class Store:
  """A folder with a folder for each run.

  Attributes:
    folder: folder of all runs.
    loader: loads their data, once for runs with the same data.
  """

  folder: pathlib.Path
  loader: Loader = dataclasses.field(default_factory=Loader)

  def folder_of(self, spec: Spec) -> pathlib.Path:
    """The folder of a run, which may not exist yet."""
    return self.folder / run_name(spec)

  def find(self, spec: Spec) -> Run | None:
    """A stored run that is complete; None if there is none.

    Raises:
      ValueError: if its folder holds a complete run of something else, or a run
        on other data than the present ones. If data can no longer be read, this
        is not checked: nothing can run on others.
    """
    folder = self.folder_of(spec)
    if not (folder / "summary.json").exists():
      return None
    run = load_run(folder)
    if not run.is_complete:
      return None
    spec = spec.as_limited_in(run.config)
    mismatch = other_flags_text(run.config, spec.identity)
    if (streams := run.config.get("streams")) != STREAMS:
      mismatch = f"streams={streams}, not {STREAMS}"
    if not mismatch:
      before, now = run.config.get(digest.DATA_DIGESTS), self.digests_of(spec)
      mismatch = digest.changed(before, now) if before and now else ""
    if mismatch:
      raise ValueError(
        f"{str(folder)!r} holds a run with {mismatch}; give another folder, or "
        "remove that one"
      )
    return run

  def digests_of(self, spec: Spec) -> digest.Digests | None:
    """The digests of the present data; None if they can no longer be read."""
    try:
      return timetables.with_clock_files(spec, self.loader.load(spec).digests)
    except (OSError, ValueError, ImportError):
      return None

  def run(self, spec: Spec) -> tuple[Run, bool]:
    """The stored run; if there is none, it runs now.

    A run that was stopped resumes from its last checkpoint, or starts again. If
    another process runs it now, as a part of another cell, this waits for it.

    Returns:
      The run, and whether it was there already, or another process ran it.

    Raises:
      ValueError: if its folder holds a complete run of something else.
      KeyboardInterrupt: by Ctrl-C or SIGTERM.
      RunFailed: if it left no result. A grid whose points all diverged has one.
    """
    run = self.find(spec)
    if run is not None:
      return run, True
    folder = self.folder_of(spec)
    with locks.held("output_dir", folder, waits=True):
      if run := self.find(spec):
        return run, True
      self._perform(spec, folder)
    run = self.find(spec)
    if run is None:
      raise RunFailed(f"{str(folder)!r}: the run left no result")
    return run, False

  def _perform(self, spec: Spec, folder: pathlib.Path) -> None:
    """Runs it in a folder whose lock is held."""
    spec = dataclasses.replace(
      spec,
      output_dir=str(folder),
      progress=False,
      resume=(folder / "config.json").exists(),
    )
    with command.Signals() as signals, _quiet(folder.name):
      loaded = self.loader.load(spec)
      start = time.monotonic()
      status = execution.perform(spec, signals, start, loaded, in_study=True)
    if status >= 128:
      raise command.Signalled(status - 128)
    if signals.pressed:  # While the files of a whole run were written.
      raise command.Signalled(signals.pressed)


@contextlib.contextmanager
def _quiet(name: str) -> Iterator[None]:
  """Prints nothing inside; warnings follow, with the name of the run."""
  try:
    with (
      warnings.catch_warnings(record=True) as caught,
      open(os.devnull, "w", errors="backslashreplace") as nowhere,
      contextlib.redirect_stdout(nowhere),
      contextlib.redirect_stderr(nowhere),
    ):
      yield
  finally:
    for text in dict.fromkeys(str(warning.message) for warning in caught):
      warnings.warn(f"{name}: {text}", stacklevel=2)


def other_flags_text(
  config: Mapping[str, Any], wanted: Mapping[str, Any]
) -> str | None:
  """Says how a run differs from what is wanted; None if it does not.

  Args:
    config: the run's config, which may have other entries than flags. A flag
      that was added later counts as having its present default.
    wanted: the `identity` of what is wanted.
  """
  values, wanted_values = {}, {}
  run_values = specs.identity_of_config(config)
  flags = specs.all_flags()
  for name in dict.fromkeys([*wanted, *(n for n in run_values if n in flags)]):
    default = FLAGS[name].default if name in FLAGS else _default(name, config)
    values[name] = run_values.get(name, default)
    wanted_values[name] = wanted.get(name)
  values = json_files.to_json(values)
  return (
    None if values == wanted_values else what_differs(values, wanted_values)
  )


def _default(name: str, config: Mapping[str, Any]) -> Any:
  """The default of a hyperparameter of the choices that ran."""
  for flag, choice_flag in CHOICE_FLAGS.items():
    # Records leave out flags with their defaults, such as --algorithm=fed_avg.
    name_of_choice = config.get(flag, FLAGS[flag].default)
    is_known = name_of_choice in choice_flag.entries
    parameters = choice_flag.parameters(name_of_choice) if is_known else {}
    if name in parameters:
      return parameters[name].default
  return None


def run_name(spec: Spec) -> str:
  """The name of a run's folder.

  It has a few words for people, such as 'digits-fed_avg-sgd-alpha=0.1-6x5' for
  six settings with five seeds, and ends with a digest of all on which the
  results depend. The label of a method, and the way of computing it, are no
  part of that.
  """
  words = [spec.task.name, spec.algorithm.name, spec.client.name]
  parameters = spec.partition.static if spec.partition else {}
  words += [f"{name}={value}" for name, value in list(parameters.items())[:1]]
  settings = math.prod(map(len, spec.grid.values()))
  words.append(f"{settings}x{len(spec.seed)}")
  return folder_name("-".join(words), spec.identity)


def folder_name(words: str, identity: Mapping[str, Any]) -> str:
  """A folder's name: words for people, and a digest of what is in it.

  Args:
    words: converted to letters, digits and `_.=-`, beginning with a letter.
    identity: name -> value; entries that are None are left out.
  """
  words = re.sub(r"[^\w.=-]+", "_", words, flags=re.ASCII)
  words = re.sub(r"^[^A-Za-z]+", "", words).rstrip("_") or "run"
  entries = {n: v for n, v in sorted(identity.items()) if v is not None}
  text = json.dumps(json_files.to_json(entries))
  short_digest = hashlib.sha256(text.encode()).hexdigest()[:8]
  return f"{words[:80]}-{short_digest}"
