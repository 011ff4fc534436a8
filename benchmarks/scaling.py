"""Measures how rounds scale with the cohort, the grid and the devices.

  python benchmarks/scaling.py \
    --fedjax_python=PATH_TO_PYTHON_WITH_FEDJAX \
    --torch_python=PATH_TO_PYTHON_WITH_TORCH \
    --flower_python=PATH_TO_PYTHON_WITH_FLOWER_AND_TORCH

prints tables and draws scaling.png. Each row is a process of its own, and the
processes of a table take turns (see round_time.py); only Flower comes after the
others, since Ray never rests (`pip install "flwr[simulation]" torch`). A
framework that cannot run is shown as skipped, with the reason. Close other
programs first: the numbers are wall-clock times.

Cohort: every client takes part in every round. All clients draw their examples
from one small pool, that of ten clients, so the data are the same for every
cohort. fedjax_opt vectorizes ten clients at a time, chunk after chunk; "auto"
is what it chooses by itself. The floor takes the same local steps with one
model and no federation. The peak is the largest resident memory of the process
with all its libraries, and for Flower of Ray's processes too, pages that they
share counted for each; "planned" is what XLA says the compiled program needs,
data included.

Grid: FedDualAvg on LASSO I of the composite optimization paper (see
lasso_grid.py), all points in one program. The other frameworks have no grids:
shown is the time of one FedAvg round of the same size times the points, an
extrapolation.

Devices: `simulate(..., client_devices=D)` in a process where JAX sees the CPU
as D devices. More devices than cores cannot be faster.
"""

import functools
import pathlib
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import lasso_grid
import workloads
from round_time import (
  FEDJAX,
  FLOOR,
  TORCH,
  Contender,
  Worker,
  WorkerError,
  describe,
  load_average,
  make_parser,
  matrix_product,
  print_machine,
  print_table,
  start_workers,
)

from fedjax_opt import plots

FLOWER = Contender("Flower", "flower", "fed_avg")
CHUNKS = {"client_map": "vmap", "client_chunk": 10}
OURS = Contender("fedjax_opt, chunks of ten", "fedjax_opt", "fed_avg", CHUNKS)
AUTO = Contender("fedjax_opt", "fedjax_opt", "fed_avg")
TURNS = (FEDJAX, TORCH, FLOOR, OURS, AUTO)

LEAST_SQUARES = workloads.WORKLOADS["least_squares"]
TASKS = (LEAST_SQUARES, workloads.WORKLOADS["mlp"]._replace(num_steps=4))
DEVICE_COHORT = 80  # One chunk of ten for each of eight devices.
# What fedjax_opt is to reach with 1,000 clients, as multiples of 10 clients.
TARGETS = {"time": 105, "memory": 1.3}


class Effort(NamedTuple):
  """How much is measured."""

  tasks: Sequence[workloads.Workload]
  cohorts: Sequence[int]
  grids: Sequence[int]
  devices: Sequence[int]
  turns: int  # of each process; the median counts
  turn_seconds: float  # as many rounds as fit, at least one
  budget_seconds: float  # no further turn after so long


FULL = Effort(
  TASKS, (10, 100, 1000), tuple(lasso_grid.GRIDS), (1, 2, 4, 8), 3, 0.5, 6.0
)
QUICK = Effort(TASKS[:1], (10, 100), (1, 7, 49), (1, 2), 2, 0.2, 1.0)


class Key(NamedTuple):
  """A row of a table."""

  task: str
  framework: str
  size: int  # clients, points or devices: what the table scales


class Entry(NamedTuple):
  """What one process does."""

  contender: Contender
  workload: workloads.Workload
  size: int
  devices: int = 1  # that JAX sees

  @property
  def key(self) -> Key:
    return Key(self.workload.name, self.contender.name, self.size)


class Measured(NamedTuple):
  """What an entry took."""

  turns: list[float]  # seconds a round
  compile_seconds: float
  peak: float | None  # MB
  planned: float | None  # MB

  @property
  def seconds(self) -> float:
    return statistics.median(self.turns)


# Entries that could not run have no value.
Results = dict[Key, Measured]


class Run:
  """An entry's process, while it is measured."""

  def __init__(self, entry: Entry, python: str, effort: Effort):
    self._entry, self._effort = entry, effort
    self._worker = Worker(entry.contender.worker, python, entry.devices)
    self._turns, self._spent, self._rounds = [], 0.0, 0

  def wait(self) -> None:
    """Waits until the process has started."""
    self._worker.wait()

  def build(self) -> None:
    self._first = self._ask(1)

  def take_turn(self) -> None:
    """The first one finds how many rounds are long enough for the clock."""
    if self._spent > self._effort.budget_seconds:
      return
    rounds = self._rounds or 1
    seconds = self._ask(rounds)["seconds"]
    if self._rounds or seconds >= self._effort.turn_seconds:
      self._turns.append(seconds / rounds)
      self._spent += seconds
    self._rounds = max(1, int(self._effort.turn_seconds / seconds), rounds)

  def measured(self) -> Measured:
    compile_seconds = self._first.get(
      "compile_seconds",
      max(self._first["wall_seconds"] - statistics.median(self._turns), 0.0),
    )
    planned = self._first.get("planned")
    return Measured(self._turns, compile_seconds, self._worker.peak(), planned)

  def close(self) -> None:
    self._worker.close()

  def _ask(self, rounds: int) -> dict[str, float]:
    _, _, program, settings = self._entry.contender
    return self._worker.run(program, self._entry.workload, settings, rounds)


def measure(
  entries: Sequence[Entry],
  pythons: Mapping[str, str],
  skipped: Mapping[str, str],
  effort: Effort,
) -> Results:
  """Measures entries in turns; prints why one cannot be measured."""
  runs, results = {}, {}

  def attempt(entry, action):
    try:
      return action()
    except WorkerError as error:
      task, framework, size = entry.key
      print(f"skipped: {framework}, {task}, {size}: {error}", flush=True)
      if entry.key in runs:
        runs.pop(entry.key).close()
      return None

  def start(entry):
    name = entry.contender.worker
    if name in skipped:
      raise WorkerError(skipped[name])
    return Run(entry, pythons[name], effort)

  for entry in entries:
    if run := attempt(entry, functools.partial(start, entry)):
      runs[entry.key] = run
  # All start at once, then one works while the others wait.
  for step in (Run.wait, Run.build, *[Run.take_turn] * (1 + effort.turns)):
    for entry in entries:
      if entry.key in runs:
        attempt(entry, functools.partial(step, runs[entry.key]))
  for key, run in runs.items():
    results[key] = run.measured()
    run.close()
  return results


def ratio(a: float | None, b: float | None) -> str:
  return "-" if a is None or b is None else f"{a / b:.3g}"


def rate(measured: Measured, times: int = 1) -> str:
  return f"{times / measured.seconds:.4g}"


def spread(measured: Measured) -> str:
  low, high = 1e3 * min(measured.turns), 1e3 * max(measured.turns)
  return f"{low:.4g} to {high:.4g}"


def megabytes(number: float | None) -> str:
  return "-" if number is None else f"{number:.4g}"


# Cohorts.


def measure_cohorts(pythons, skipped, effort: Effort) -> Results:
  results = {}
  for task in effort.tasks:
    print(describe(task._replace(num_clients=effort.cohorts[-1])), flush=True)
    of_size = lambda group, clients, task=task: [
      Entry(c, task._replace(num_clients=clients), clients) for c in group
    ]
    # All sizes together: they are compared, and a machine's speed varies.
    groups = [[e for size in effort.cohorts for e in of_size(TURNS, size)]]
    groups += [of_size((FLOWER,), size) for size in effort.cohorts]
    for entries in groups:
      results |= measure(entries, pythons, skipped, effort)
  return results


def print_cohorts(results: Results) -> None:
  rows = []
  for (task, name, clients), measured in results.items():
    floor = results.get(Key(task, FLOOR.name, clients))
    rows.append(
      [
        *(task, f"{clients:,}", name, rate(measured)),
        *(f"{1e3 * measured.seconds:.4g}", spread(measured)),
        ratio(measured.seconds, floor and floor.seconds),
        *(megabytes(measured.peak), megabytes(measured.planned)),
        f"{measured.compile_seconds:.1f}",
      ]
    )
  header = ("task", "clients", "framework", "rounds / s", "ms / round", "range")
  memory = ("peak, MB", "planned, MB", "start + compile, s")
  print_table((*header, "time / floor", *memory), rows)


def print_growth(results: Results, small: int, large: int) -> None:
  rows = []
  for (task, name, clients), few in results.items():
    many = results.get(Key(task, name, large))
    if clients == small and many:
      time = ratio(many.seconds, few.seconds)
      memory = (ratio(many.peak, few.peak), ratio(many.planned, few.planned))
      rows.append([task, name, time, *memory])
  print(
    f"{large:,} clients as a multiple of {small:,} (to be reached by "
    f"{OURS.name} from 10 to 1,000: time at most {TARGETS['time']}, memory at "
    f"most {TARGETS['memory']})"
  )
  print_table(("task", "framework", "time", "peak", "planned"), rows)


# Grids.


def measure_grids(pythons, skipped, effort: Effort) -> Results:
  entries = [Entry(c, LEAST_SQUARES, 1) for c in (FEDJAX, TORCH)]
  for points in effort.grids:
    grid = OURS._replace(program="lasso_grid", settings={"points": points})
    entries.append(Entry(grid, LEAST_SQUARES, points))
  return measure(entries, pythons, skipped, effort)


def print_grids(results: Results, sizes: Sequence[int]) -> None:
  rows = []
  for (_, name, points), measured in results.items():
    for size in [points] if name == OURS.name else sizes:
      times = size // points
      rows.append(
        [
          f"{size:,}",
          name if times == 1 else f"{name}, extrapolated",
          f"{points / measured.seconds:.4g}",
          f"{1e3 * times * measured.seconds:.4g}",
          spread(measured) if times == 1 else "-",
          megabytes(measured.peak) if times == 1 else "-",
          f"{measured.compile_seconds:.1f}",
        ]
      )
  header = ("points", "framework", "rounds x points / s", "ms / round of all")
  print_table((*header, "range", "peak, MB", "start + compile, s"), rows)


# Devices.


def measure_devices(pythons, skipped, effort: Effort) -> Results:
  results = {}
  for task in effort.tasks:
    workload = task._replace(num_clients=DEVICE_COHORT)
    print(f"{describe(workload)}, over devices", flush=True)
    entries = []
    for devices in effort.devices:
      settings = CHUNKS | {"client_devices": devices}
      ours = OURS._replace(settings=settings)
      entries.append(Entry(ours, workload, devices, devices))
    results |= measure(entries, pythons, skipped, effort)
  return results


def print_devices(results: Results) -> None:
  rows = []
  for (task, name, devices), measured in results.items():
    one = results.get(Key(task, name, 1))
    rows.append(
      [
        *(task, str(devices), rate(measured)),
        *(f"{1e3 * measured.seconds:.4g}", spread(measured)),
        ratio(one and one.seconds, measured.seconds),
        megabytes(measured.peak),
        f"{measured.compile_seconds:.1f}",
      ]
    )
  header = ("task", "devices", "rounds / s", "ms / round", "range")
  print_table((*header, "speed / 1 device", "peak, MB", "compile, s"), rows)


# The picture.

TITLES = {"least_squares": "Least squares", "mlp": "MLP"}
LOOKS = {
  name: {"color": color, "linestyle": style, "marker": marker}
  for name, color, style, marker in (
    (OURS.name, plots.COLORS[0], "-", "o"),
    (AUTO.name, plots.COLORS[5], "--", "o"),
    (FEDJAX.name, plots.COLORS[1], "-", "s"),
    (TORCH.name, plots.COLORS[2], "-", "^"),
    (FLOWER.name, plots.COLORS[3], "-", "D"),
    (FLOOR.name, plots.COLORS[6], ":", None),
  )
}


def draw(
  cohorts: Results, grids: Results, devices: Results, effort: Effort, path
) -> None:
  """Draws a panel for the cohorts of each task, the grids, and the devices."""
  tasks = [task.name for task in effort.tasks]
  with plots.figure(columns=len(tasks) + 2) as (figure, axes):
    panels = iter(axes[0])
    for task in tasks:
      panel = next(panels)
      for name, look in LOOKS.items():
        plot_line(panel, cohorts, task, name, label=name, **look)
      finish(panel, effort.cohorts, "Clients in a round", "Rounds per second")
      panel.set_title(TITLES[task])
    handles, names = axes[0, 0].get_legend_handles_labels()

    panel = next(panels)
    for (_, name, points), measured in grids.items():
      if name != OURS.name:  # As fast for every point.
        flat = [points / measured.seconds] * len(effort.grids)
        panel.plot(effort.grids, flat, color=LOOKS[name]["color"], ls="--")
    plot_line(
      panel, grids, LEAST_SQUARES.name, OURS.name, True, **LOOKS[OURS.name]
    )
    finish(
      panel, effort.grids, "Points of the grid", "Rounds x points per second"
    )
    panel.set_title("LASSO grid (dashed: extrapolated)")

    panel = next(panels)
    for task, style in zip(tasks, plots.LINE_STYLES, strict=False):
      look = LOOKS[OURS.name] | {"linestyle": style}
      plot_line(panel, devices, task, OURS.name, **look, label=TITLES[task])
    finish(panel, effort.devices, "Devices", "Rounds per second")
    panel.set_title(f"Devices, {DEVICE_COHORT} clients")
    if devices:
      panel.legend()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names))
    figure.savefig(path)


def plot_line(
  panel, results: Results, task: str, name: str, by_size=False, **look
) -> None:
  """One framework's line; rounds per second, times the size if asked for."""
  sizes = sorted(s for t, n, s in results if (t, n) == (task, name))
  rates = [
    (size if by_size else 1) / results[Key(task, name, size)].seconds
    for size in sizes
  ]
  if sizes:
    panel.plot(sizes, rates, markersize=4, **look)


def finish(panel, sizes: Sequence[int], x_label: str, y_label: str) -> None:
  if not panel.lines:
    center = {"ha": "center", "va": "center", "transform": panel.transAxes}
    panel.text(0.5, 0.5, "could not run", **center)
  plots.log_scale(panel.xaxis)
  plots.log_scale(panel.yaxis)
  panel.set_xticks(sizes, [f"{size:,}" for size in sizes])
  panel.set_xticks([], minor=True)
  panel.set_xlabel(x_label)
  panel.set_ylabel(y_label)


def main() -> None:
  parser = make_parser(
    __doc__, fedjax="FedJAX", torch="PyTorch", flower="Flower and PyTorch"
  )
  parser.add_argument(
    "--output_dir",
    type=pathlib.Path,
    default=pathlib.Path("runs/scaling"),
    help="where to write scaling.png (default: %(default)s)",
  )
  parser.add_argument(
    "--quick", action="store_true", help="fewer sizes and turns, one task"
  )
  arguments = parser.parse_args()
  effort = QUICK if arguments.quick else FULL
  plots.check_installed()
  arguments.output_dir.mkdir(parents=True, exist_ok=True)
  start, load = time.perf_counter(), load_average()
  pythons = {
    "fedjax": arguments.fedjax_python,
    "torch": arguments.torch_python,
    "flower": arguments.flower_python,
    "fedjax_opt": sys.executable,
  }
  workers, skipped = start_workers(pythons)
  print_machine(workers, load)
  if "fedjax_opt" in workers:
    peak = matrix_product(workers["fedjax_opt"])
    print(f"matrix product: {peak:.0f} GFLOP/s", flush=True)
  for worker in workers.values():
    worker.close()

  cohorts = measure_cohorts(pythons, skipped, effort)
  print("\nCohorts")
  print_cohorts(cohorts)
  print()
  print_growth(cohorts, min(effort.cohorts), max(effort.cohorts))
  print("\nGrids", flush=True)
  grids = measure_grids(pythons, skipped, effort)
  print_grids(grids, effort.grids)
  print("\nDevices", flush=True)
  devices = measure_devices(pythons, skipped, effort)
  print_devices(devices)
  path = arguments.output_dir / "scaling.png"
  draw(cohorts, grids, devices, effort, path)
  print(f"\n{path}; {time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
  main()
