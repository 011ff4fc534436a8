"""What the benchmarks share: rounds to time, processes, tables.

A framework is a process of its own, perhaps of another Python. Processes take
turns, so that the noise of the machine is shared. Imports NumPy alone, which
every framework has.
"""

import argparse
import atexit
import contextlib
import functools
import importlib
import json
import os
import pathlib
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))  # Its `experiments` is not installed.
# Different clients; of more, each has the examples of one of these, so that a
# larger cohort needs no more data.
SHARDS = 10

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

  @property
  def examples_per_client(self) -> int:
    return self.num_steps * self.batch_size


LEAST_SQUARES = Workload("least_squares", 10, 13, 10, (1024,), None, 0.001)
WORKLOADS = {
  "cnn": Workload("cnn", 10, 8, 64, (28, 28, 1), 10, 0.01),
  "mlp": Workload("mlp", 10, 64, 16, (32, 32, 3), 10, 0.01),
  "least_squares": LEAST_SQUARES,
}


def make_pool(workload: Workload) -> dict[str, np.ndarray]:
  """Returns {'x', 'y'} of all different clients, one after the other.

  Images are uint8 [n, H, W, 3 or 1] with int32 labels; the examples of a
  regression are float32 [n, d] with float32 targets.
  """
  rng = np.random.default_rng(0)
  n = min(workload.num_clients, SHARDS) * workload.examples_per_client
  shape = (n, *workload.example_shape)
  if workload.num_classes is None:
    x = rng.standard_normal(shape, np.float32)
    return {"x": x, "y": rng.standard_normal(n, np.float32)}
  x = rng.integers(0, 256, shape, np.uint8)
  return {"x": x, "y": rng.integers(0, workload.num_classes, n, np.int32)}


def make_clients(
  workload: Workload, channels_first: bool = False
) -> list[dict[str, np.ndarray]]:
  """Returns {'x', 'y'} of each client, as users of other frameworks have.

  Pixels are in [-1, 1].
  """
  pool = make_pool(workload)
  if workload.num_classes is not None:
    pool["x"] = pixels(pool["x"], channels_first)
  shape = (-1, workload.examples_per_client)
  x, y = (leaf.reshape(*shape, *leaf.shape[1:]) for leaf in pool.values())
  rows = np.arange(workload.num_clients) % len(x)
  return [{"x": x[i], "y": y[i]} for i in rows]


def pixels(images: np.ndarray, channels_first: bool) -> np.ndarray:
  """Images in bytes [n, H, W, C], as numbers in [-1, 1]."""
  x = images.astype(np.float32) / 127.5 - 1.0
  return x.transpose(0, 3, 1, 2).copy() if channels_first else x


# In a process that is asked.

# Runs the given number of rounds and returns when they are done, with None or
# with what else the answer says: {name: number}, "seconds" if it knows better.
RunRounds = Callable[[int], dict[str, float] | None]


def program(
  build: Callable[..., RunRounds],
) -> Callable[..., dict[str, float]]:
  """Makes of `(workload, **settings) -> RunRounds` what a process is asked for.

  The first call with these arguments also builds, so its wall_seconds contain
  the compilation, and so do its seconds unless the program measures its rounds
  apart.
  """
  build = functools.cache(build)

  def run(workload, rounds, **settings):
    start, processor_start = time.perf_counter(), time.process_time()
    workload = Workload(*workload)
    shape = tuple(workload.example_shape)
    extra = build(workload._replace(example_shape=shape), **settings)(rounds)
    seconds = time.perf_counter() - start
    of_all = {"seconds": seconds, "wall_seconds": seconds, "peak": peak()}
    of_all["processor_seconds"] = time.process_time() - processor_start
    return of_all | (extra or {})

  return run


def peak() -> float:
  """Megabytes that this process had at most."""
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def num_cores() -> int:
  """The number of cores that this process may use."""
  return len(os.sched_getaffinity(0))


def check_finite(leaves: Sequence[Any]) -> None:
  """That no parameter, as an array of NumPy, is infinite."""
  if not all(np.isfinite(leaf).all() for leaf in leaves):
    raise FloatingPointError("the parameters are not finite")


def answer() -> None:
  """Answers requests, a line of JSON each, until standard input ends.

  A request [function, arguments] calls a function of the module that the
  command line names.
  """
  # A framework that prints must not disturb the answers.
  answers, sys.stdout = sys.stdout, sys.stderr
  module = importlib.import_module(sys.argv[1])
  for line in sys.stdin:
    function, arguments = json.loads(line)
    try:
      reply = {"found": getattr(module, function)(**arguments)}
    except Exception as error:
      reply = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(reply), file=answers, flush=True)
  # Without waiting for what a framework that failed has left behind.
  atexit._run_exitfuncs()
  os._exit(0)


# In the process that asks.


class WorkerError(Exception):
  """A process could not do what it was asked; the message says why."""


class LateError(WorkerError):
  """What was asked does not fit into the time."""


class Process(contextlib.AbstractContextManager):
  """A module of this folder in a process of its own.

  Args:
    module: whose functions are called.
    python: that has what the module imports.
    variables: of its environment, beside those of this process.
    limit: seconds after which it is killed.
  """

  def __init__(
    self,
    module: str,
    python: str = sys.executable,
    variables: Mapping[str, str] = {},
    limit: float = threading.TIMEOUT_MAX,
  ):
    # Kept open while the process lives, and read if it ends too early.
    self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115
    paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    try:
      self._process = subprocess.Popen(
        [python, "-c", "import shared; shared.answer()", module],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr,
        text=True, cwd=HERE.parent,
        env=os.environ | {"PYTHONPATH": paths} | variables,
      )  # fmt: skip
    except OSError as error:
      raise WorkerError(f"cannot run {python}: {error.strerror}") from error
    self._limit, self._is_late = limit, False
    self._timer = threading.Timer(limit, self._kill)
    self._timer.start()

  def call(self, function: str, **arguments: Any) -> Any:
    """What a function of its module returns, given arguments that JSON has.

    Raises:
      WorkerError: if it fails.
      LateError: if it is not done in time.
    """
    with contextlib.suppress(BrokenPipeError):  # It has no answer then.
      print(json.dumps([function, arguments]), file=self._process.stdin)
      self._process.stdin.flush()
    line = self._process.stdout.readline()
    if not line and self._is_late:
      raise LateError(f"was not done after {self._limit:.0f} s")
    answer = json.loads(line) if line else {"error": self._last_words()}
    if "error" in answer:
      raise WorkerError(answer["error"])
    return answer["found"]

  def __exit__(self, *_: Any) -> None:
    with contextlib.suppress(BrokenPipeError):
      self._process.communicate()
    self._timer.cancel()

  def _kill(self) -> None:
    self._is_late = True
    self._process.kill()

  def _last_words(self) -> str:
    code = self._process.wait()
    self._stderr.seek(0)
    lines = self._stderr.read().strip().splitlines()
    # XLA adds where in Python an error may come from.
    named = [line for line in lines if "Error: " in line]
    return (named or lines or [f"the process ended with code {code}"])[-1]


def in_process(
  module: str,
  function: str,
  arguments: Mapping[str, Any] = {},
  **of_process: Any,
) -> Any:
  """What one call in a new process returns; see `Process`."""
  with Process(module, **of_process) as process:
    return process.call(function, **arguments)


def recorded(
  page: pathlib.Path,
  keys: Sequence[str],
  make: Callable[[str], dict[str, Any]],
  text_of: Callable[[dict[str, Any]], str],
) -> bool:
  """Makes the records that records.json beside a page lacks.

  What failed, or did not fit into the time, is made again.

  Args:
    page: is written before the first record and after each.
    keys: of the records.
    make: a record, given its key.
    text_of: the page, given all records.

  Returns:
    Whether one failed.
  """
  from fedjax_opt.files import json_files

  page.parent.mkdir(parents=True, exist_ok=True)
  file = page.with_name("records.json")
  records = json_files.read_json(file) if file.exists() else {}
  page.write_text(text_of(records))
  for key in keys:
    if "error" not in records.get(key, {"error": ""}):
      continue
    try:
      records[key], outcome = make(key), "done"
    except LateError as error:
      outcome = str(error)
    except WorkerError as error:
      records[key], outcome = {"error": str(error)[:300]}, str(error)
    print(f"{key}: {outcome}", flush=True)
    json_files.write_json(file, records)
    page.write_text(text_of(records))
  return any("error" in records.get(key, {}) for key in keys)


# Processes that take turns.

# Of a process that has the processor alone, whatever else there is.
ON_CPU = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}


class Entry(NamedTuple):
  """What one process does.

  Attributes:
    name: as the tables call it.
    worker: the module is `<worker>_worker`.
    program: of the worker.
    workload: the round.
    settings: of the program.
    size: clients, points or devices: what a table scales.
    variables: of its environment.
  """

  name: str
  worker: str
  program: str
  workload: Workload
  settings: Mapping[str, Any] = {}
  size: int = 0
  variables: Mapping[str, str] = ON_CPU

  @property
  def key(self) -> tuple[str, str, int]:
    return self.workload.name, self.name, self.size


class Run(Process):
  """The process of an entry that is measured.

  Args:
    entry: what it does.
    pythons: worker -> a Python that has the framework.
    limit: seconds after which the process is killed.
  """

  def __init__(
    self,
    entry: Entry,
    pythons: Mapping[str, str],
    limit: float = threading.TIMEOUT_MAX,
  ):
    arguments = f"{entry.worker}_worker", pythons[entry.worker], entry.variables
    super().__init__(*arguments, limit)
    self._entry = entry
    self.turns = []  # Seconds a round.

  def build(self) -> None:
    """A turn will have as many rounds as fit into half a second, or one."""
    self.first = self.ask(1)
    self._rounds = max(1, int(0.5 / self.ask(1)["seconds"]))

  def take_turn(self) -> None:
    self.last = self.ask(self._rounds)
    self.turns.append(self.last["seconds"] / self._rounds)

  def ask(self, rounds: int) -> dict[str, float]:
    """What a turn of so many rounds takes."""
    _, _, name, workload, settings, *_ = self._entry
    return self.call(name, workload=workload, rounds=rounds, **settings)

  @property
  def seconds(self) -> float:
    return statistics.median(self.turns)

  @property
  def start(self) -> float:
    """Seconds that the first round took more."""
    return max(self.first["wall_seconds"] - self.seconds, 0.0)

  @property
  def cells(self) -> list[str]:
    """Milliseconds a round, and their range."""
    low, high = 1e3 * min(self.turns), 1e3 * max(self.turns)
    return [f"{1e3 * self.seconds:.4g}", f"{low:.4g} to {high:.4g}"]


def measure(
  entries: Sequence[Entry], pythons: Mapping[str, str], turns: int
) -> dict[tuple[str, str, int], Run]:
  """Measures entries in turns; prints why one cannot be measured.

  Args:
    entries: in the order of their turns.
    pythons: see `Run`.
    turns: of each process.

  Returns:
    {key of the entry: its run}, of those that could run.
  """
  runs, active_entries = {}, list(entries)
  with contextlib.ExitStack() as stack:
    for _ in range(1 + turns):
      for entry in tuple(active_entries):
        try:
          if entry.key in runs:
            runs[entry.key].take_turn()
          else:
            runs[entry.key] = stack.enter_context(Run(entry, pythons))
            runs[entry.key].build()
        except WorkerError as error:
          task, name, _ = entry.key
          print(f"skipped: {name}, {task}: {error}", flush=True)
          active_entries.remove(entry)
          runs.pop(entry.key, None)
  return runs


# The command line, and what is printed.


FRAMEWORKS = {"fedjax": "FedJAX", "torch": "PyTorch, eager", "flower": "Flower"}


def parser(
  doc: str, frameworks: Sequence[str] = (), default: str = sys.executable
) -> argparse.ArgumentParser:
  """With a flag for the Python of each framework."""
  flags_parser = argparse.ArgumentParser(
    description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  for name in frameworks:
    flags_parser.add_argument(f"--{name}_python", default=default)
  return flags_parser


def folder(given: str) -> pathlib.Path:
  """A folder that a flag names, which processes find from their own."""
  return pathlib.Path(given).expanduser().resolve()


def pythons(options: argparse.Namespace) -> dict[str, str]:
  """{worker: Python} of the flags of `parser`."""
  flags = vars(options).items()
  by_worker = {n.removesuffix("_python"): p for n, p in flags if "_python" in n}
  return by_worker | {"fedjax_opt": sys.executable}


Rows = list[dict[str, Any]]  # Of a table, column -> cell.


def frame_of(runs: Mapping[tuple[str, str, int], Run]) -> Any:
  """What `measure` found, as a frame of pandas."""
  import pandas

  return pandas.DataFrame(
    {
      "task": task,
      "framework": name,
      "size": size,
      "ms / round": 1e3 * run.seconds,
      "range": run.cells[1],
      "start + compile, s": run.start,
      "peak, MB": run.last["peak"],
    }
    for (task, name, size), run in runs.items()
  )


def table_of(frame: Any) -> str:
  """A frame as a table in Markdown."""
  from fedjax_opt.study.report import formats

  text_of = lambda cell: cell if isinstance(cell, str) else f"{cell:.4g}"
  texts = frame.map(text_of).replace("nan", "-")
  return formats.markdown_rows(list(texts), texts.to_numpy().tolist())


def machine() -> str:
  """The processor, and how busy it is."""
  text = pathlib.Path("/proc/cpuinfo").read_text()
  name, *_ = re.findall(r"model name\s*: (.*)", text) or [platform.machine()]
  load = f"load before the start {os.getloadavg()[0]:.2f}"
  return f"CPU: {name}, {num_cores()} cores; {load}"


def print_part(
  part_parser: argparse.ArgumentParser, parts: Mapping[str, Callable[..., Rows]]
) -> None:
  """The table of the part that the command line names, given its options."""
  import pandas

  part_parser.add_argument("part", choices=parts)
  options = part_parser.parse_args()
  print(f"{machine()}; jax {metadata.version('jax')}", flush=True)
  print(table_of(pandas.DataFrame(parts[options.part](options))))
