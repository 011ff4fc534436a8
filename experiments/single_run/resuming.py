"""What `--resume` finds in a folder: nothing, a part of a run, or all of it.

A run that ended is extended if only `--rounds` grew. It then has the same bits
as a run of that many rounds that never stopped.
"""

import pathlib
import warnings
from typing import Any

from experiments.single_run.job import Job
from experiments.specification.spec import Spec, identity_of_config
from fedjax_opt import Run, load_run, multi_process
from fedjax_opt.checks.errors import reworded_errors
from fedjax_opt.files import json_files
from fedjax_opt.results import environment, folder_digests
from fedjax_opt.results.checkpoint import Checkpoints, what_differs

# Data whose place may change: the digests say whether they are the same.
_MAY_MOVE = {"data_file", "population_dir"}


def checkpoints_or_run(job: Job) -> tuple[Checkpoints | None, Run | None]:
  """The checkpoints to save to and to resume from; or the finished run.

  Returns:
    The checkpoints, None if none are saved; and the run, None if there are
    rounds left.

  Raises:
    ValueError: if the run in the folder has other flags or versions, or cannot
      be extended.
  """
  spec, output_dir = job.spec, job.output_dir
  every, folder = spec.checkpoint_every, output_dir / "checkpoints"
  if every is None and not spec.resume:
    return None, None
  config = job.config | environment.record()
  identity = _identity_to_resume(json_files.to_json(config))
  is_resumed = False
  if spec.resume and (output_dir / "config.json").exists():
    before = _config_of(output_dir)
    # A run that was stopped before its first checkpoint starts again.
    is_resumed = Checkpoints.are_in(folder)
    if not is_resumed and not (output_dir / "summary.json").exists():
      before |= {name: config[name] for name in ("versions", "device")}
    if clash := what_differs(_identity_to_resume(before), identity):
      raise ValueError(
        f"resume=True: {str(output_dir)!r} holds a run with {clash}; give what "
        "that run had, or another folder"
      )
    _check_rounds(output_dir, before["rounds"], spec)
    run = _complete(output_dir)
    if run is not None and run.summary["config"]["rounds"] == spec.rounds:
      return None, run
    if run is not None and not is_resumed:
      raise ValueError(
        f"resume=True: {str(output_dir)!r} holds a run of {before['rounds']} "
        "rounds that saved no checkpoint to go on from; give another folder, "
        "and checkpoint_every for a run that can be extended"
      )
  return Checkpoints(folder, every, resume=is_resumed, identity=identity), None


def _identity_to_resume(config):
  """The flags that must agree, whatever the length and way of computing."""
  one_device = {"device": config.get("device", {}) | {"count": 1}}
  flags = {n: v for n, v in {**config, **one_device}.items() if v is not None}
  for name in _MAY_MOVE & flags.keys():
    flags[name] = pathlib.Path(flags[name]).name
  return identity_of_config(flags, "rounds")


def _config_of(output_dir: pathlib.Path) -> dict[str, Any]:
  """The `config.json` of a run."""
  path = output_dir / "config.json"
  with reworded_errors(f"resume=True: {str(output_dir)!r}"):
    folder_digests.check(output_dir, path.name)
  try:
    config = json_files.read_json(path)
    config["rounds"] = int(config["rounds"])
  except (OSError, ValueError, TypeError, KeyError, OverflowError):
    raise ValueError(
      f"resume=True: {str(path)!r} cannot be read; give the folder of a run"
    ) from None
  return config


def _check_rounds(output_dir: pathlib.Path, before: int, spec: Spec) -> None:
  """Checks that a run of `before` rounds is the beginning of this one."""
  rounds = spec.rounds
  holds = (
    f"resume=True: rounds={rounds}: {str(output_dir)!r} holds a run of "
    f"{before} rounds"
  )
  if rounds < before:
    raise ValueError(
      f"{holds}; give rounds={before} or more, or another folder"
    )
  if rounds > before and spec.client_schedule == "step_decay":
    raise ValueError(
      f"{holds}, whose rate drops after fractions of them "
      f"(client_schedule={spec.client_schedule!r}), so a longer run would not "
      f"begin like it; give rounds={before}, or another folder"
    )
  # The whole timetable decides where versions of the model are kept.
  if rounds > before and spec.schedule and "buffer" in spec.schedule.static:
    raise ValueError(
      f"{holds}, on a timetable that ends with them; give rounds={before}, or "
      "another folder"
    )


def _complete(output_dir: pathlib.Path) -> Run | None:
  """The run of a folder, if it went to its end and can be read.

  A run that cannot be read continues from its checkpoints, which have digests
  of their own. All other files are then written again.
  """
  try:
    run = load_run(output_dir)
  except ValueError as error:
    if multi_process.is_first_process():
      problem = str(error).rpartition("; ")[0]  # Without what to do otherwise.
      warnings.warn(f"{problem}; it is written again", stacklevel=2)
    return None
  return run if run.is_complete else None
