"""What the benchmarks share: rounds to time, workers, memory, tables.

A framework is a process of its own, perhaps of another Python, which runs
`serve`; the benchmark holds a `Worker`, and lets the processes take turns, so
that the noise of the machine is shared. Imports NumPy alone, which every
framework has.
"""

import argparse
import functools
import importlib.metadata
import json
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

HERE = pathlib.Path(__file__).parent
# Different clients; of more, each has the examples of one of these, so that a
# larger cohort needs no more data.
SHARDS = 10
T = TypeVar("T")

# The rounds that every framework is timed on.


class Workload(NamedTuple):
  """One kind of federated round, of random numbers: only time is compared.

  Every client takes part in every round: no framework pays for a choice.
  """

  name: str
  num_clients: int  # C, all of them in every round
  num_steps: int  # K, one epoch over a client's examples
  batch_size: int  # B
  example_shape: tuple[int, ...]
  num_classes: int | None  # None for a real-valued target
  learning_rate: float
  rounds_per_turn: int  # long enough for the clock, short enough to take turns

  @property
  def examples_per_client(self) -> int:
    return self.num_steps * self.batch_size

  @property
  def description(self) -> str:
    shape = " x ".join(map(str, self.example_shape))
    return (
      f"{self.name}: {self.num_clients} clients x {self.num_steps} steps x "
      f"batch {self.batch_size} of {shape}"
    )

  @classmethod
  def from_json(cls, fields: dict[str, Any]) -> "Workload":
    """From what `json` made of `_asdict`."""
    return cls(**fields | {"example_shape": tuple(fields["example_shape"])})


WORKLOADS = {
  workload.name: workload
  for workload in (
    Workload("cnn", 10, 8, 64, (28, 28, 1), 10, 0.01, 5),
    Workload("mlp", 10, 64, 16, (32, 32, 3), 10, 0.01, 5),
    Workload("least_squares", 10, 13, 10, (1024,), None, 0.001, 100),
  )
}


def make_shards(workload: Workload) -> list[dict[str, np.ndarray]]:
  """Returns {'x', 'y'} of each different client, the same in every framework.

  Images are uint8 [n, H, W, 3 or 1] with int32 labels; the examples of a
  regression are float32 [n, d] with float32 targets.
  """
  rng = np.random.default_rng(0)
  n = workload.examples_per_client
  shape = (n, *workload.example_shape)
  shards = []
  for _ in range(min(workload.num_clients, SHARDS)):
    if workload.num_classes is None:
      x = rng.standard_normal(shape, np.float32)
      y = rng.standard_normal(n, np.float32)
    else:
      x = rng.integers(0, 256, shape, np.uint8)
      y = rng.integers(0, workload.num_classes, n, np.int32)
    shards.append({"x": x, "y": y})
  return shards


def make_float_shards(workload: Workload) -> list[dict[str, np.ndarray]]:
  """`make_shards` with pixels in [-1, 1], as users of other frameworks have."""
  scale = lambda x: x.astype(np.float32) / 127.5 - 1.0
  is_image = workload.num_classes is not None
  return [
    {"x": scale(shard["x"]) if is_image else shard["x"], "y": shard["y"]}
    for shard in make_shards(workload)
  ]


def deal(shards: Sequence[T], workload: Workload) -> list[T]:
  """Returns the shard of each client, without a copy."""
  return [shards[i % len(shards)] for i in range(workload.num_clients)]


# A framework's process.

# Runs the given number of rounds and returns when they are done, with None or
# with what else the answer says: {name: number}, "seconds" if it knows better.
RunRounds = Callable[[int], dict[str, float] | None]


def num_cores() -> int:
  """The number of cores that this process may use."""
  if hasattr(os, "sched_getaffinity"):
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def check_finite(leaves: Sequence[Any]) -> None:
  """That no parameter, as an array of NumPy, is infinite."""
  if not all(np.isfinite(leaf).all() for leaf in leaves):
    raise FloatingPointError("the parameters are not finite")


def serve(
  programs: Mapping[str, Callable[..., RunRounds]], packages: Sequence[str]
) -> None:
  """Answers requests, a line of JSON each, until standard input ends.

  The first line of the answers has the versions of the packages. A request
  {"program": P, "workload": W, "settings": S, "rounds": n} runs n rounds; the
  first one with these also builds, so its wall_seconds contain the compilation,
  and so do its seconds unless the program measures its rounds apart.

  Args:
    programs: name -> `(workload, **settings) -> RunRounds`.
    packages: whose versions are told.
  """
  # A framework that prints must not disturb the answers.
  answers, sys.stdout = sys.stdout, sys.stderr
  answer = lambda message: print(json.dumps(message), file=answers, flush=True)
  answer({"versions": {p: importlib.metadata.version(p) for p in packages}})
  built = {}
  for line in sys.stdin:
    request = json.loads(line)
    rounds = request.pop("rounds")
    wanted = json.dumps(request, sort_keys=True)
    start = time.perf_counter()
    try:
      if wanted not in built:
        workload = Workload.from_json(request["workload"])
        build = programs[request["program"]]
        built[wanted] = build(workload, **request["settings"])
      more = built[wanted](rounds)
    except Exception as error:
      answer({"error": f"{type(error).__name__}: {error}"})
    else:
      seconds = time.perf_counter() - start
      answer({"seconds": seconds, "wall_seconds": seconds, **(more or {})})


class WorkerError(Exception):
  """A worker could not do what it was asked; the message says why."""


class Worker:
  """A framework's process, as the benchmark holds it.

  On the CPU, which JAX sees as so many devices; or on what there is, with no
  number of devices.
  """

  def __init__(self, name: str, python: str, devices: int | None = 1):
    # Kept open while the process lives, and read if it ends too early.
    self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115
    try:
      self._process = subprocess.Popen(
        [python, str(HERE / f"{name}_worker.py")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr,
        text=True, env=_environment(devices),
      )  # fmt: skip
    except OSError as error:
      raise WorkerError(f"cannot run {python}: {error.strerror}") from error
    self.versions: dict[str, str] = {}

  def wait(self) -> None:
    """Waits until it has started and told its versions."""
    self.versions = self.versions or self._answer()["versions"]

  def run(
    self,
    program: str,
    workload: Workload,
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
    return peak_of_family(self._process.pid)

  def close(self) -> None:
    self._process.communicate()

  def _answer(self) -> dict:
    line = self._process.stdout.readline()
    answer = json.loads(line) if line else {"error": self._last_words()}
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


# Processes that take turns.


class Entry(NamedTuple):
  """What one process does.

  Attributes:
    name: as the tables call it.
    worker: the file is `<worker>_worker.py`.
    program: of the worker.
    workload: the round.
    settings: of the program.
    size: clients, points or devices: what a table scales.
    devices: that JAX sees.
  """

  name: str
  worker: str
  program: str
  workload: Workload
  settings: Mapping[str, Any] = {}
  size: int = 0
  devices: int = 1

  @property
  def key(self) -> tuple[str, str, int]:
    return self.workload.name, self.name, self.size


class Measured(NamedTuple):
  """What an entry took."""

  turns: list[float]  # seconds a round
  compile_seconds: float
  peak: float | None  # MB
  planned: float | None  # MB

  @property
  def seconds(self) -> float:
    return statistics.median(self.turns)

  @property
  def cells(self) -> list[str]:
    """Milliseconds a round, and their range."""
    low, high = 1e3 * min(self.turns), 1e3 * max(self.turns)
    return [f"{1e3 * self.seconds:.4g}", f"{low:.4g} to {high:.4g}"]


class _Run:
  """An entry's process, while it is measured."""

  def __init__(self, entry: Entry, python: str, turn_seconds: float):
    self._worker = Worker(entry.worker, python, entry.devices)
    self._entry, self._turn_seconds = entry, turn_seconds
    self._turns, self._rounds = [], 0

  def wait(self) -> None:
    self._worker.wait()

  def build(self) -> None:
    self._first = self._ask(1)

  def take_turn(self) -> None:
    """The first one finds how many rounds are long enough for the clock."""
    rounds = self._rounds or 1
    seconds = self._ask(rounds)["seconds"]
    if self._rounds or seconds >= self._turn_seconds:
      self._turns.append(seconds / rounds)
    self._rounds = max(1, int(self._turn_seconds / seconds), rounds)

  def measured(self) -> Measured:
    first, peak = self._first, self._worker.peak()
    apart = max(first["wall_seconds"] - statistics.median(self._turns), 0.0)
    compiled = first.get("compile_seconds", apart)
    return Measured(self._turns, compiled, peak, first.get("planned"))

  def close(self) -> None:
    self._worker.close()

  def _ask(self, rounds: int) -> dict[str, float]:
    _, _, program, workload, settings, *_ = self._entry
    return self._worker.run(program, workload, settings, rounds)


def measure(
  entries: Sequence[Entry],
  pythons: Mapping[str, str],
  turns: int,
  turn_seconds: float = 0.5,
) -> dict[tuple[str, str, int], Measured]:
  """Measures entries in turns; prints why one cannot be measured.

  Args:
    entries: in the order of their turns.
    pythons: worker -> a Python that has the framework.
    turns: of each process.
    turn_seconds: a turn has as many rounds as fit, at least one.

  Returns:
    {key of the entry: what it took}, of those that could run.
  """
  runs = {}

  def attempt(entry, action):
    try:
      return action()
    except WorkerError as error:
      task, name, _ = entry.key
      print(f"skipped: {name.strip()}, {task}: {error}", flush=True)
      if entry.key in runs:
        runs.pop(entry.key).close()
      return None

  for entry in entries:
    start = functools.partial(_Run, entry, pythons[entry.worker], turn_seconds)
    if run := attempt(entry, start):
      runs[entry.key] = run
  # All start at once, then one works while the others wait.
  for step in (_Run.wait, _Run.build, *[_Run.take_turn] * (1 + turns)):
    for entry in entries:
      if entry.key in runs:
        attempt(entry, functools.partial(step, runs[entry.key]))
  found = {key: run.measured() for key, run in runs.items()}
  for run in runs.values():
    run.close()
  return found


def in_new_process(
  file: str,
  arguments: Sequence[str],
  env: Mapping[str, str] | None = None,
  python: str = sys.executable,
) -> Any:
  """What a program of this folder prints last, as JSON."""
  done = subprocess.run(
    [python, file, *arguments], check=True, stdout=subprocess.PIPE,
    env=env or _environment(None), cwd=HERE.parent, text=True,
  )  # fmt: skip
  return json.loads(done.stdout.splitlines()[-1])


# Memory.


def resident() -> float:
  """Megabytes that this process has now (Linux)."""
  pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
  return pages * resource.getpagesize() / 1e6


def peak() -> float:
  """Megabytes that this process had at most."""
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def peak_of_family(pid: int) -> float | None:
  """Megabytes that a process and its descendants had at most (Linux).

  The sum of each living process's own peak. Pages that several of them share
  count for each. None where the system does not tell.
  """
  process = pathlib.Path(f"/proc/{pid}")
  try:
    status = (process / "status").read_text()
    tasks = list((process / "task").iterdir())
    children = [c for t in tasks for c in (t / "children").read_text().split()]
  except OSError:
    return None
  peaks = [line for line in status.splitlines() if line.startswith("VmHWM")]
  megabytes = int(peaks[0].split()[1]) * 1024 / 1e6 if peaks else 0.0
  return megabytes + sum(peak_of_family(int(c)) or 0.0 for c in children)


# The command line, and what is printed.


def parser(doc: str, **frameworks: str) -> argparse.ArgumentParser:
  """With a flag for the Python of each framework, {name: what it must have}."""
  made = argparse.ArgumentParser(
    description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  for name, needed in frameworks.items():
    made.add_argument(
      f"--{name}_python", default=sys.executable, help=f"has {needed}"
    )
  return made


def pythons(options: argparse.Namespace) -> dict[str, str]:
  """{worker: Python} of the flags of `parser`."""
  given = vars(options).items()
  found = {n.removesuffix("_python"): p for n, p in given if "_python" in n}
  return found | {"fedjax_opt": sys.executable}


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  """A table in Markdown."""
  widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
  lines = [
    "| " + " | ".join(map(str.ljust, row, widths)) + " |"
    for row in [header, ["-" * width for width in widths], *rows]
  ]
  return "\n".join(lines)


def machine() -> str:
  """The processor, and how busy it is."""
  found = platform.processor() or platform.machine()
  cpuinfo = pathlib.Path("/proc/cpuinfo")
  lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
  names = [line.partition(":")[2] for line in lines if "model name" in line]
  load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
  return (
    f"CPU: {(names or [found])[0].strip()}, {num_cores()} cores; "
    f"load before the start {load:.2f} (close to 0 on a quiet machine)"
  )
