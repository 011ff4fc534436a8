"""Times one federated round in several frameworks, on the CPU.

  python benchmarks/round_time.py \
    --fedjax_python=PATH_TO_PYTHON_WITH_FEDJAX \
    --torch_python=PATH_TO_PYTHON_WITH_TORCH

Each framework runs in its own process, with its own Python (FedJAX:
`pip install fedjax`; PyTorch: `pip install torch numpy`; both default to the
Python that runs this file). The processes take turns, A B C A B C, so that the
noise of the machine is shared; while one works, the others wait. Compilation is
reported apart; it is close to 0 where another row has compiled the same program
before. A framework that cannot run is shown as skipped, with the reason. The
floor takes the same local steps with one model and no federation; the last line
is what the machine's matrix product reaches. Close other programs first: the
numbers are wall-clock times.
"""

import argparse
import functools
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import memory
import workloads
from worker import num_cores

HERE = pathlib.Path(__file__).parent


class Contender(NamedTuple):
  """A program of one worker, as the table calls it."""

  name: str
  worker: str  # the file is `<worker>_worker.py`
  program: str
  settings: Mapping[str, Any] = {}  # of the program


FEDJAX = Contender("FedJAX", "fedjax", "fed_avg")
TORCH = Contender("PyTorch eager", "torch", "fed_avg")
FLOOR = Contender("floor", "fedjax_opt", "floor")
_ours = functools.partial(Contender, worker="fedjax_opt", program="fed_avg")
CONTENDERS = (
  FEDJAX,
  TORCH,
  FLOOR,
  _ours("fedjax_opt"),
  _ours("  clients by scan", settings={"client_map": "scan"}),
  _ours("  clients by vmap", settings={"client_map": "vmap"}),
  _ours("  Delta-SGD, reused", settings={"rule": "delta_sgd_reused"}),
  _ours("  Delta-SGD", settings={"rule": "delta_sgd"}),
)
# The table has one column of ratios for each of these.
BASELINES = ("FedJAX", "PyTorch eager", "floor", "fedjax_opt")


class WorkerError(Exception):
  """A worker could not do what it was asked; the message says why."""


class Worker:
  """A framework's process: answers one request at a time.

  On the CPU, which JAX sees as so many devices; or on what there is, with no
  number of devices.
  """

  def __init__(self, name: str, python: str, devices: int | None = 1):
    # Kept open while the process lives, and read if it ends too early.
    self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115
    try:
      self._process = subprocess.Popen(
        [python, str(HERE / f"{name}_worker.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=self._stderr,
        text=True,
        env=_environment(devices),
      )
    except OSError as error:
      raise WorkerError(f"cannot run {python}: {error.strerror}") from error
    self.versions: dict[str, str] = {}

  def wait(self) -> None:
    """Waits until it has started and told its versions."""
    self.versions = self.versions or self._answer()["versions"]

  def run(
    self,
    program: str,
    workload: workloads.Workload,
    settings: Mapping[str, Any] | None = None,
    rounds: int | None = None,
  ) -> dict[str, float]:
    """Runs one turn of rounds; returns its "seconds" and what else is told."""
    self.wait()
    request = {
      "program": program,
      "workload": workload._asdict(),
      "settings": dict(settings or {}),
      "rounds": rounds or workload.rounds_per_turn,
    }
    try:
      self._process.stdin.write(json.dumps(request) + "\n")
      self._process.stdin.flush()
    except BrokenPipeError:
      pass  # `_answer` finds out why the process ended.
    return self._answer()

  def peak(self) -> float | None:
    """Megabytes that it, with its own processes, had at most so far."""
    return memory.peak_of_family(self._process.pid)

  def close(self) -> None:
    self._process.communicate()

  def _answer(self) -> dict:
    line = self._process.stdout.readline()
    if not line:
      raise WorkerError(self._last_words())
    answer = json.loads(line)
    if "error" in answer:
      raise WorkerError(answer["error"])
    return answer

  def _last_words(self) -> str:
    code = self._process.wait()
    self._stderr.seek(0)
    lines = self._stderr.read().strip().splitlines()
    return lines[-1] if lines else f"the process ended with code {code}"


def _environment(devices: int | None) -> dict[str, str]:
  """With the repository's folder, for its `experiments`."""
  paths = [str(HERE.parent), os.environ.get("PYTHONPATH", "")]
  found = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
  if devices is None:
    return found
  flags = [os.environ.get("XLA_FLAGS", "")]
  if devices > 1:
    flags.append(f"--xla_force_host_platform_device_count={devices}")
  return found | {
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    "XLA_FLAGS": " ".join(filter(None, flags)),
  }


def start_workers(
  pythons: dict[str, str],
) -> tuple[dict[str, Worker], dict[str, str]]:
  """Returns the workers that started, and why the others did not."""
  started, skipped = {}, {}
  for name, python in pythons.items():
    try:
      started[name] = Worker(name, python)
    except WorkerError as error:
      skipped[name] = str(error)
  for name, worker in list(started.items()):
    try:
      worker.wait()
    except WorkerError as error:
      skipped[name] = str(error)
      del started[name]
  return started, skipped


class Times(NamedTuple):
  """Seconds that one contender took on one workload."""

  first: float  # the first turn, which also builds and compiles
  turns: list[float]  # the turns after it, one per repetition


def time_workload(
  workload: workloads.Workload,
  workers: dict[str, Worker],
  skipped: dict[str, str],
  repetitions: int,
) -> dict[str, Times | str]:
  """Returns each contender's times, or the reason why it has none."""
  results = {c.name: skipped.get(c.worker) for c in CONTENDERS}
  for repetition in range(1 + repetitions):
    for name, worker, program, settings in CONTENDERS:
      if isinstance(results[name], str):
        continue
      try:
        answer = workers[worker].run(program, workload, settings)
      except WorkerError as error:
        results[name] = str(error)
        continue
      if repetition == 0:
        results[name] = Times(first=answer["wall_seconds"], turns=[])
      else:
        results[name].turns.append(answer["seconds"])
  return results


def table_rows(
  workload: workloads.Workload, results: dict[str, Times | str]
) -> list[list[str]]:
  """Returns the cells of one workload, one row per contender that ran."""
  timed = {n: t for n, t in results.items() if isinstance(t, Times)}
  medians = {name: statistics.median(t.turns) for name, t in timed.items()}
  to_round_ms = 1e3 / workload.rounds_per_turn
  rows = []
  for name, times in timed.items():
    round_ms = medians[name] * to_round_ms
    low, high = min(times.turns), max(times.turns)
    ratios = [
      f"{medians[name] / medians[baseline]:.3f}" if baseline in medians else "-"
      for baseline in BASELINES
    ]
    rows.append(
      [
        workload.name,
        name,
        f"{round_ms:.4g}",
        f"{low * to_round_ms:.4g} to {high * to_round_ms:.4g}",
        f"{round_ms / workload.steps_per_round:.4f}",
        *ratios,
        f"{max(times.first - medians[name], 0.0):.1f}",
      ]
    )
  return rows


HEADER = (
  *("workload", "framework", "ms / round", "range", "ms / local step"),
  *(f"time / {baseline}" for baseline in BASELINES),
  "compile, s",
)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
  columns = zip(header, *rows, strict=True)
  widths = [max(len(cell) for cell in column) for column in columns]
  for row in [header, ["-" * width for width in widths], *rows]:
    cells = [cell.ljust(w) for cell, w in zip(row, widths, strict=True)]
    print("| " + " | ".join(cells) + " |")


def cpu_model() -> str:
  cpuinfo = pathlib.Path("/proc/cpuinfo")
  if cpuinfo.exists():
    for line in cpuinfo.read_text().splitlines():
      if line.startswith("model name"):
        return line.partition(":")[2].strip()
  return platform.processor() or platform.machine()


def load_average() -> float | None:
  """How many processes wanted to run in the last minute; None if unknown."""
  return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def print_machine(workers: dict[str, Worker], load: float | None) -> None:
  print(f"CPU: {cpu_model()}, {num_cores()} cores")
  if load is not None:
    print(f"Load before the start: {load:.2f} (close to 0 on a quiet machine)")
  for worker in workers.values():
    print(", ".join(f"{name} {v}" for name, v in worker.versions.items()))


def describe(workload: workloads.Workload) -> str:
  shape = " x ".join(str(size) for size in workload.example_shape)
  return (
    f"{workload.name}: {workload.num_clients} clients x {workload.num_steps} "
    f"steps x batch {workload.batch_size} of {shape}"
  )


def matrix_product(worker: Worker) -> float:
  """Returns the GFLOP/s of a large float32 matrix product, best of five."""
  workload = workloads.WORKLOADS["cnn"]  # It says how many products a turn has.
  turn = lambda: worker.run("matrix_product", workload)["seconds"]
  times = [turn() for _ in range(6)][1:]
  return workload.rounds_per_turn * 2 * 2048**3 / min(times) / 1e9


def make_parser(doc: str, **needed: str) -> argparse.ArgumentParser:
  """With a flag for the Python of each framework, {name: what it must have}."""
  parser = argparse.ArgumentParser(
    description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  for name, package in needed.items():
    parser.add_argument(
      f"--{name}_python",
      default=sys.executable,
      help=f"a Python that has {package}",
    )
  return parser


def parse_arguments() -> argparse.Namespace:
  parser = make_parser(__doc__, fedjax="FedJAX", torch="PyTorch")
  parser.add_argument(
    "--workloads",
    nargs="+",
    choices=list(workloads.WORKLOADS),
    default=list(workloads.WORKLOADS),
    help="which rounds to time",
  )
  parser.add_argument(
    "--repetitions",
    type=int,
    default=9,
    help="turns per framework; the table shows their median",
  )
  arguments = parser.parse_args()
  if arguments.repetitions < 1:
    parser.error(f"--repetitions={arguments.repetitions} must be at least 1")
  return arguments


def main() -> None:
  arguments = parse_arguments()
  load = load_average()
  workers, skipped = start_workers(
    {
      "fedjax": arguments.fedjax_python,
      "torch": arguments.torch_python,
      "fedjax_opt": sys.executable,
    }
  )
  print_machine(workers, load)
  rows, reasons = [], []
  for name in arguments.workloads:
    workload = workloads.WORKLOADS[name]
    print(describe(workload), flush=True)
    results = time_workload(workload, workers, skipped, arguments.repetitions)
    rows += table_rows(workload, results)
    reasons += [
      f"skipped: {name}, {contender}: {reason}"
      for contender, reason in results.items()
      if isinstance(reason, str)
    ]
  print()
  print_table(HEADER, rows)
  print("\n".join(reasons))
  if "fedjax_opt" in workers:
    print(
      f"matrix product: {matrix_product(workers['fedjax_opt']):.0f} GFLOP/s"
    )
  for worker in workers.values():
    worker.close()


if __name__ == "__main__":
  main()
