"""Runs what a specification says, and writes the folder of the run."""

import contextlib
import sys

from experiments.processes import command, hosts
from experiments.processes.command import RunFailed
from experiments.single_run import extra_metrics, resuming
from experiments.single_run.job import Job, prepare
from experiments.single_run.loading import Loaded
from experiments.single_run.run_output import RunOutput, all_diverged
from experiments.specification.spec import Spec
from fedjax_opt import Report, Run, multi_process
from fedjax_opt.files import locks
from fedjax_opt.results.checkpoint import Checkpoints
from fedjax_opt.results.closing_table import closing_table


def perform(
  spec: Spec,
  signals: command.Signals,
  started: float,
  loaded: Loaded | None = None,
  in_study: bool = False,
) -> int:
  """Runs what is specified, and writes its folder; returns the exit status.

  Args:
    spec: what runs.
    signals: holds signals back while files are written.
    started: when the run began, in seconds of `time.monotonic`.
    loaded: its data, if they are loaded already.
    in_study: whether it is a part of a study, which holds the lock of the
      folder, and whose report has the pictures.

  Raises:
    ValueError: naming the invalid flag. Nothing was compiled or written.
    RunFailed: if results cannot be written, or memory is full.
  """
  signals.phase = "while data were loaded"
  with contextlib.ExitStack() as lock:
    with hosts.all_or_none():
      job, output = prepare(spec, loaded), None
      # The other processes write nothing.
      if multi_process.is_first_process() and not in_study:
        lock.enter_context(locks.held("output_dir", job.output_dir))
      checkpoints, finished = resuming.checkpoints_or_run(job)
      if finished is not None:
        return _show(job, finished)
      if multi_process.is_first_process():
        output = RunOutput(job, started, draws=not in_study)
    signals.phase = "before the first evaluation"
    signals.where = f"; see {job.output_dir}"
    try:
      return _run(job, checkpoints, output, signals)
    except (OSError, MemoryError) as error:
      raise RunFailed(
        f"{command.line_of(error)}; what was complete before is kept"
        f"{signals.where}"
      ) from error


def _show(job: Job, finished: Run) -> int:
  """Prints the table of a run that is done; returns the exit status."""
  history = finished.history
  if multi_process.is_first_process():
    print(closing_table(history, job.points, job.criterion))
    rounds = history.rounds[-1]
    print(f"nothing left to do: {job.output_dir} ended after {rounds} rounds")
  return int(all_diverged(history))


def _run(
  job: Job,
  checkpoints: Checkpoints | None,
  output: RunOutput | None,
  signals: command.Signals,
) -> int:
  """Simulates, and writes the results; returns the exit status.

  Args:
    job: the run.
    checkpoints: where it is saved.
    output: what it writes; None in all processes but the first.
    signals: holds signals back while files are written.
  """
  options = {"checkpoints": checkpoints}
  options["extra_metrics"] = extra_metrics.measuring(job)
  if output is None:
    result = job.simulate(**options)
  else:

    def on_evaluation(report: Report) -> bool:
      with signals.held():
        is_over = output.add(report)
        signals.begun()
      return is_over

    with output.progress():
      result = job.simulate(on_evaluation=on_evaluation, **options)
    signals.begun()
    with contextlib.suppress(KeyboardInterrupt), signals.held():
      output.finish(result)
  if result.interrupted:
    if output is not None:
      rounds = job.rounds
      print(f"interrupted: only {result.rounds} of {rounds} rounds done")
    return 128 + result.interrupted
  signals.phase = "after the last round, with all files complete"
  if signals.pressed:  # While the last files were written.
    print(signals.line)
    return 128 + signals.pressed
  if not all_diverged(result.history):
    return 0
  if output is not None:
    print(f"error: every point diverged; see {job.output_dir}", file=sys.stderr)
  return 1
