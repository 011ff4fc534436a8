"""What a run writes: during the run, at its end, and in the terminal."""

import concurrent.futures
import contextlib
import pathlib
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from experiments.command_line import flag_words
from experiments.single_run import client_tests, clock_results, tracking
from experiments.single_run.job import Job
from experiments.single_run.stopping import Stopping
from experiments.specification.spec import DP_DELTA, Spec
from fedjax_opt import Population, Report, Result, plots, privacy
from fedjax_opt.arrays import trees
from fedjax_opt.files import json_files
from fedjax_opt.results import progress, run_writer
from fedjax_opt.results.closing_table import closing_table
from fedjax_opt.results.history import History
from fedjax_opt.results.names import name_of
from fedjax_opt.results.selection import select
from fedjax_opt.study.plots.step_size_trace import FIELDS


class RunOutput:
  """Writes the output folder of a run, and shows its progress.

  output = RunOutput(job, started)
  ... output.add(report) at each evaluation ...
  output.finish(result)
  """

  def __init__(self, job: Job, started: float, draws: bool = True):
    """Makes the folder.

    Args:
      job: the run.
      started: when the run began, in seconds of `time.monotonic`.
      draws: whether it draws the curves and the labels of clients.
    """
    self._job, self._started, self._draws = job, started, draws
    spec = job.spec
    lines = "".join(f"{line}\n" for line in flag_words.arguments(spec))
    self._writer = run_writer.RunWriter(
      job.output_dir, job.config, job.points, spec.resume, lines
    )
    self._threads = concurrent.futures.ThreadPoolExecutor(1)
    self._clients_drawn: concurrent.futures.Future | None = None
    self._show = lambda round, metrics: None
    self._profile = _Profile(job.output_dir) if spec.profile else None
    self._stopping = Stopping(spec, job.criterion)
    self._seconds_to_first_evaluation: float | None = None

  @contextlib.contextmanager
  def progress(self) -> Iterator[None]:
    """Shows the rounds done, with `--progress`, while they are computed."""
    if not self._job.spec.progress:
      yield
      return
    metrics = dict.fromkeys(["train_loss", self._job.criterion.metric])
    # A file has no bar that moves, but a line each time.
    file_options = {"mininterval": 10.0, "delay": 10.0}
    bar_options = {} if sys.stderr.isatty() else file_options
    with progress.bar_of_rounds(
      self._job.rounds, list(metrics), **bar_options
    ) as self._show:
      yield

  def add(self, report: Report) -> bool:
    """Writes and shows an evaluated round; returns whether the run ends."""
    if self._draws and self._clients_drawn is None:
      # The device computes rounds meanwhile.
      self._clients_drawn = self._threads.submit(_draw_clients, self._job)
    self._show(report.round, report.metrics)
    if not report.is_repeated:
      self._end_evaluation(report.history)
    return self._stopping.is_over(report.history)

  def _end_evaluation(self, history: History) -> None:
    """Writes an evaluation that this process made.

    Evaluations from before a run was resumed are written with the first of
    these.
    """
    self._writer.write(history)
    if self._seconds_to_first_evaluation is None:
      seconds = time.monotonic() - self._started
      self._seconds_to_first_evaluation = seconds
    if self._profile is not None:
      self._profile.at_evaluation()

  def finish(self, result: Result) -> None:
    """Writes the files that close a run, the summary last; prints its table."""
    self._end_background_work()
    job, history = self._job, result.history
    point = select(history, job.points, job.criterion)
    client_metrics = client_tests.measure(job, result, point)
    client_tests.write(job.output_dir, client_metrics)
    if job.spec.trace and result.rounds:
      _write_traces(job, result, point or 0)
    num_clients = next(iter(job.clients.values())).num_clients
    spent_privacy = privacy_summary(
      job.spec, job.points, num_clients, result.rounds
    )
    clock_summary = clock_results.write(job, result, point, client_metrics)
    if self._draws and history.rounds:
      _draw_curves(job, history)
    parts = {
      name: metrics.summary() for name, metrics in client_metrics.items()
    }
    parts |= {"privacy": spent_privacy, "clock": clock_summary}
    run_entries = self._summary(result) | {n: v for n, v in parts.items() if v}
    # A run that has a summary has all files.
    self._writer.finish(
      history,
      job.criterion,
      run_entries,
      params=lambda point: trees.take(result.params, point),
      point_entries=self._stopping.spent(history),
    )
    lines = [
      *self._table_lines(result, spent_privacy),
      *client_tests.lines(job, client_metrics, point),
      *([clock_results.line(clock_summary)] if clock_summary else []),
      *self._closing_lines(result),
    ]
    print("\n".join(lines))
    if job.spec.track is not None:
      tracking.log_run(job.spec.track, job.output_dir)

  def _end_background_work(self) -> None:
    """Ends the profile, and waits for the picture of the clients."""
    if self._profile is not None:
      self._profile.close()
    if self._clients_drawn is not None:
      self._clients_drawn.result()
    elif self._draws:
      _draw_clients(self._job)

  def _stopped_by(self, result: Result) -> str:
    """What ended the run, in one word."""
    spec, usual = self._job.spec, "rounds"
    if result.interrupted:
      return "signal"
    if self._job.rounds < spec.rounds:
      usual = "schedule" if spec.max_time is None else "max_time"
    return self._stopping.stopped_by or usual

  def _summary(self, result: Result) -> dict[str, Any]:
    """The entries of summary.json that every run has."""
    return {
      "rounds_done": result.rounds,
      "stopped_by": self._stopped_by(result),
      "target": self._stopping.target(result.history),
      "timing": {
        "compile_seconds": result.compile_seconds,
        "run_seconds": result.run_seconds,
        "rounds_per_second": _rate(result),
        # From the start of the process, with imports, data and compilation.
        "seconds_to_first_evaluation": self._seconds_to_first_evaluation,
      },
      "cost": result.cost,
      "padding_waste": result.padding_waste,
      "computation": result.computation,
    }

  def _table_lines(
    self, result: Result, spent_privacy: Mapping[str, Any] | None
  ) -> list[str]:
    """The table of the points, and the lines on privacy and on an early end."""
    job, spec = self._job, self._job.spec
    extra = {"epsilon": spent_privacy["epsilon"]} if spent_privacy else {}
    lines = [closing_table(result.history, job.points, job.criterion, extra)]
    if spec.dp_seed is not None:
      lines.append(
        f"NOT private: the noise comes from dp_seed={spec.dp_seed}, so it "
        "can be computed again and removed; epsilon is what it would be "
        "without dp_seed"
      )
    upload = spec.upload
    sent = upload.static.get("upload_fraction", 1) if upload else 1
    if spec.aggregator.name == "median" and sent < 0.5:
      lines.append(
        f"note: with upload={upload.name!r} most entries of a message are 0, "
        "and so are most medians: the model hardly moves; aggregator=mean, or "
        "upload_fraction above 0.5, avoids this"
      )
    stopped_by = self._stopped_by(result)
    if stopped_by in ("target", "patience", "max_time", "schedule"):
      of_all = f"{result.rounds} of {spec.rounds} rounds"
      lines.append(f"ended by {stopped_by} after {of_all}")
    return lines

  def _closing_lines(self, result: Result) -> list[str]:
    """The lines on the run's time, and on where its files are."""
    job, points = self._job, len(self._job.points)
    of_grid = f" x {points} grid points" if points > 1 else ""
    lines = [
      f"{result.rounds} rounds{of_grid} in {result.run_seconds:.1f} s "
      f"({_rate(result):.1f} rounds/s), after "
      f"{result.compile_seconds:.1f} s of compilation",
      *job.task.notes,
      self._writer.closing_line(),
    ]
    if self._draws and result.history.rounds:
      lines.append(f"picture: {job.output_dir / 'curves.png'}")
    return [*lines, self._how_to_repeat(result)]

  def _how_to_repeat(self, result: Result) -> str:
    """The line on how the run gives the same bits again."""
    spec = self._job.spec
    if spec.privacy and spec.dp_seed is None:
      return (
        "cannot be repeated: the noise of privacy is new in each run; "
        "dp_seed=0 makes it the same, and the run not private"
      )
    settings = {n: v for n, v in result.computation.items() if v is not None}
    flag_texts = [f"--{name}={value}" for name, value in settings.items()]
    return f"to repeat bit for bit, add: {' '.join(flag_texts)}"


def _rate(result: Result) -> float:
  """Rounds per second."""
  return result.rounds / max(result.run_seconds, 1e-9)


def all_diverged(history: History) -> bool:
  """Whether no point of the grid has a result."""
  return bool(history.rounds) and bool(history.diverged()[:, -1].all())


def privacy_summary(
  spec: Spec, points: list[dict[str, Any]], num_clients: int, rounds: int
) -> dict[str, Any] | None:
  """The entry on privacy for summary.json; None without privacy.

  Args:
    spec: completed by `cohort_size`.
    points: the points of the grid.
    num_clients: M.
    rounds: R.

  Returns:
    `delta`; `epsilon` [S], of each point after R rounds; `is_private`, whether
    nobody can compute the noise again.
  """
  if spec.privacy is None:
    return None
  delta = DP_DELTA if spec.dp_delta is None else spec.dp_delta
  size, scheme = spec.cohort_size, {"sampling": "uniform"}
  if spec.sampler.name == "poisson":
    scheme = {"places": size}
    size = spec.sampler.static["sampler_expected"]
  noises = [point["dp_noise_multiplier"] for point in points]
  epsilons = {
    noise: privacy.epsilon(noise, rounds, num_clients, size, delta, **scheme)
    for noise in set(noises)
  }
  return {
    "delta": delta,
    "epsilon": [epsilons[noise] for noise in noises],
    "is_private": spec.dp_seed is None,
  }


class _Profile:
  """Traces the rounds between the first two evaluations: all is compiled."""

  def __init__(self, output_dir: pathlib.Path):
    """Begins nothing yet; the trace will be in `output_dir`/profile."""
    self._folder = output_dir / "profile"
    self._ends: contextlib.ExitStack | None = None

  def at_evaluation(self) -> None:
    """Begins the trace at the first evaluation, and ends it at the second."""
    if self._ends is not None:
      self._ends.close()
      return
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # Python's calls would be most of the file.
    jax.profiler.start_trace(
      self._folder, create_perfetto_trace=True, profiler_options=options
    )
    self._ends = contextlib.ExitStack()
    self._ends.callback(jax.profiler.stop_trace)

  def close(self) -> None:
    """Ends the trace, if it is still going on, and says where it is."""
    if self._ends is None:
      return
    self._ends.close()
    # A resumed run has several traces in the folder, named by their time.
    trace = max(self._folder.rglob("perfetto_trace.json.gz"))
    print(
      f"profile: {trace}, for https://ui.perfetto.dev; the folder profile is "
      "for TensorBoard's profiler",
      file=sys.stderr,
    )


# Pictures.


def _draw_clients(job: Job) -> None:
  """The labels of the first seed's clients, if they have labels."""
  if job.task.num_classes is None:
    return
  seed, data = next(iter(job.clients.items()))
  title = f"{name_of(job.spec.task.name)}, {_partition_title(job)}"
  if isinstance(data, Population):
    data = data.sample()
    title += f", {data.num_clients} of them"
  elif len(job.clients) > 1:
    title += f", seed {seed}"
  counts = data.label_counts(job.task.num_classes)
  plots.label_histogram(counts, job.output_dir / "clients.png", title=title)


def _draw_curves(job: Job, history: History) -> None:
  """The task's panels that were measured; some need a regularizer."""
  spec, panels = job.spec, job.task.panels
  if "optimality_gap" in history.metrics:
    panels = ("optimality_gap", *(panels or ("test_accuracy",)))
  if panels is not None:
    panels = [name for name in panels if name in history.metrics]
  # With a regularizer, the client rule is always SGD.
  choices = (spec.task, spec.algorithm, spec.regularizer or spec.client)
  title = "".join(f"{name_of(entry.name)}, " for entry in choices)
  plots.curves(
    history,
    job.points,
    job.output_dir / "curves.png",
    criterion=job.criterion,
    panels=panels,
    title=title + _partition_title(job),
    x_axis=spec.x_axis,
  )


def _partition_title(job: Job) -> str:
  clients = next(iter(job.clients.values()))
  if job.task.clients is not None or isinstance(clients, Population):
    return f"{clients.num_clients:,} clients"
  partition = job.spec.partition
  return plots.partition_title(partition.name, partition.static.get("alpha"))


def _write_traces(job: Job, result: Result, point: int) -> None:
  """Writes all step sizes as numbers, and one point's as a picture."""
  folder: pathlib.Path = job.output_dir
  traces = {n: result.traces[n] for n in job.spec.client.entry.traced}
  with (
    json_files.atomic_write(folder / "traces.npz") as unfinished,
    open(unfinished, "wb") as file,  # Given a name, savez appends ".npz".
  ):
    np.savez(file, **traces)  # Each [S, R, C, K].
  of_point = {name: traces[field][point] for name, field in FIELDS.items()}
  number = next(iter(of_point.values())).shape[1]
  clients = f"{number} client{'s' if number > 1 else ''} of each round"
  plots.step_sizes(
    of_point,
    folder / "step_sizes.png",
    title=f"{name_of(job.spec.client.name)}, {clients}",
  )
