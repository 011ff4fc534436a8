"""Runs of `experiments.run` that are done once, and found again."""

import contextlib
import hashlib
import io
import json
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from experiments import job
from experiments import run as runner
from experiments.ctrl_c import CtrlC
from experiments.flags import command_line
from experiments.flags.registries import single_or_list
from experiments.resuming import without_place
from experiments.workers import Interrupted, RunFailed
from fedjax_opt import Run, load_run
from fedjax_opt.base import STREAMS
from fedjax_opt.data import digest
from fedjax_opt.results import json_files
from fedjax_opt.results.checkpoint import difference


def run(folder: pathlib.Path, arguments: Sequence[str]) -> tuple[Run, bool]:
  """The run with these flags, done now unless it is there.

  One that was stopped goes on from its last checkpoint, or starts again.

  Args:
    folder: of the run.
    arguments: flags of the run, but for the folder.

  Returns:
    The run, and whether it was there already.

  Raises:
    ValueError: if the folder holds a complete run with other flags or data.
    Interrupted: by Ctrl-C or SIGTERM.
    RunFailed: with what the run said. A grid whose points all diverged is a
      result, not a failure.
  """
  found = find(folder, arguments)
  if found is not None:
    return found, True
  command = [*arguments, f"--output_dir={folder}", "--noprogress"]
  if (folder / "config.json").exists():
    command.append("--resume")
  said = io.StringIO()
  quiet = contextlib.redirect_stdout(said), contextlib.redirect_stderr(said)
  with CtrlC() as ctrl_c, quiet[0], quiet[1]:
    status = runner.main(["experiments.run", *command])
  if status >= 128:
    raise Interrupted(status)
  if ctrl_c.pressed:  # While the files of a whole run were written.
    raise Interrupted
  found = _complete(folder, arguments)
  if found is None:
    lines = [line for line in said.getvalue().splitlines() if line.strip()]
    why = lines[-1] if lines else f"exit status {status}"
    raise RunFailed(why.removeprefix("error: "))
  return found, False


def find(folder: pathlib.Path, arguments: Sequence[str]) -> Run | None:
  """The run with these flags in a folder; None if none there is complete.

  Args:
    folder: folder of a run.
    arguments: flags of the run, but for the folder.

  Raises:
    ValueError: if the folder holds a complete run with other flags or data.
  """
  found = _complete(folder, arguments)
  if found is not None and found.config.get(digest.NAME):
    now = _data_of(arguments)
    before = {digest.NAME: found.config[digest.NAME]}
    if now and (other := difference(before, {digest.NAME: now})):
      raise ValueError(
        f"{str(folder)!r} holds a run with {other}; give what that run had, or "
        "another folder"
      )
  return found


def _complete(folder: pathlib.Path, arguments: Sequence[str]) -> Run | None:
  """As `find`, whatever the data are now."""
  if not (folder / "summary.json").exists():
    return None
  found = load_run(folder)
  if not found.is_complete:
    return None
  other = differing(found.config, identity(arguments))
  if (streams := found.config.get("streams", 1)) != STREAMS:
    other = f"streams={streams}, not {STREAMS}"
  if other is not None:
    raise ValueError(
      f"{str(folder)!r} holds a run with {other}; give another folder, or "
      "remove that one"
    )
  return found


# By what they were made from: runs of a study share their data.
_known: dict[str, digest.Digests] = {}


def _data_of(arguments: Sequence[str]) -> digest.Digests | None:
  """Digests of the data as they are now; None if they cannot be read.

  Nothing new can then run on other data.
  """
  resolved = job.resolve(command_line.parse(["run", *arguments], ""))
  # What chooses the method says nothing of the data.
  others = {"algorithm", *resolved.setup.resolved(), *job.MAY_DIFFER}
  flags = {
    name: value
    for name, value in (resolved.flags | {"seed": resolved.seeds}).items()
    if value is not None and (name not in others or name == "data_dir")
  }
  folder = flags.get("population_dir")
  files = [flags.get("data_file"), folder and f"{folder}/population.json"]
  try:
    stats = [os.stat(os.path.expanduser(f)) for f in files if f]
    made_from = [[stat.st_size, stat.st_mtime_ns] for stat in stats]
    key = json.dumps(json_files.plain([flags, made_from]))
    if key not in _known:
      _known[key] = job.data_digests(*job.load(resolved))
    return _known[key]
  except (OSError, ValueError, ImportError):
    return None


# What a run is.

# Flags that the data decide, if they were not given.
_OF_DATA = ("cohort_size", "local_epochs")


def identity(arguments: Sequence[str]) -> dict[str, Any]:
  """All flags of a run that its results depend on, as JSON has them.

  Args:
    arguments: flags of the run.

  Raises:
    ValueError: naming the flag that cannot be.
  """
  resolved = job.resolve(command_line.parse(["run", *arguments], ""))
  flags = resolved.flags | {"seed": single_or_list(resolved.seeds)}
  return json_files.plain(
    {
      name: without_place(name, value)
      for name, value in flags.items()
      if name not in job.MAY_DIFFER and not (name in _OF_DATA and value is None)
    }
  )


def differing(
  config: Mapping[str, Any], wanted: Mapping[str, Any]
) -> str | None:
  """In words, what differs between a run and what is wanted; None if nothing.

  Args:
    config: that of the run. Of a flag that was added later it had what is now
      the default.
    wanted: an `identity`.
  """
  defaults = command_line.parse(["run"], "")
  found = {
    name: without_place(name, config.get(name, defaults[name]))
    for name in wanted
  }
  found = json_files.plain(found)
  return None if found == wanted else difference(found, dict(wanted))


def folder_name(words: str, identity: Mapping[str, Any]) -> str:
  """A folder's name: words for people, and a digest of what is in it.

  Args:
    words: become letters, digits and `_.=-`.
    identity: by name; what is None does not count.
  """
  words = re.sub(r"[^\w.=-]+", "_", words, flags=re.ASCII)
  same = {n: v for n, v in sorted(identity.items()) if v is not None}
  text = json.dumps(json_files.plain(same))
  digest = hashlib.sha256(text.encode()).hexdigest()[:8]
  return f"{words.strip('_')[:80]}-{digest}"
