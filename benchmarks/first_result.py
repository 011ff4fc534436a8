"""Times what a user waits for: from the command to its first result.

  PYTHONPATH=. python benchmarks/first_result.py

Three waits, each measured in new processes:

- the default command, `python -m experiments.run`, with an empty folder of
  compiled programs (cold) and once more with what the first one left (warm);
- a LASSO grid of four points, in the same way;
- `simulate` twice in one process, the second time with the same algorithm made
  anew: its time as a part of the first one's.

Every moment of a command counts for one stage, so that the stages add up to its
wall time. Within the compilation of the rounds and of the evaluation, tracing,
lowering and compiling are told apart; where one program is traced while another
is compiled in a thread, the moment counts for the one that began last.
"""

import argparse
import contextlib
import functools
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

REPOSITORY = pathlib.Path(__file__).parent.parent
COMMANDS = {
  "default": (),
  "lasso": (
    "--task=lasso",
    "--algorithm=fed_dual_avg",
    "--client_lr=0.0003,0.001,0.003,0.01",
    "--strength=0.1",
  ),
}
# What JAX calls the steps of a compilation.
EVENTS = {
  "/jax/core/compile/jaxpr_trace_duration": "tracing",
  "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowering",
  "/jax/core/compile/backend_compile_duration": "compiling",
}
STAGES = (
  "imports", "data and checks", "init", "tracing", "lowering", "compiling",
  "other compilation", "rounds", "evaluation", "pictures", "other",
)  # fmt: skip


class Interval(NamedTuple):
  """When something was done, in seconds of `time.time`."""

  stage: str
  start: float
  end: float


def split(
  stages: Sequence[Interval],
  events: Sequence[Interval],
  start: float,
  end: float,
) -> dict[str, float]:
  """Divides the time from start to end among the stages.

  Args:
    stages: of one thread, not overlapping.
    events: steps of a compilation; they divide the stage "other compilation",
      and are not looked at elsewhere.
    start: of the process.
    end: of the process.

  Returns:
    {stage: seconds}, of all `STAGES`.
  """
  seconds = dict.fromkeys(STAGES, 0.0)
  times = {start, end}
  times |= {t for i in (*stages, *events) for t in (i.start, i.end)}
  times = sorted(t for t in times if start <= t <= end)
  for begin, stop in itertools.pairwise(times):
    here = [i for i in stages if i.start <= begin and stop <= i.end]
    name = here[0].stage if here else "other"
    if name == "other compilation":
      steps = [e for e in events if e.start <= begin and stop <= e.end]
      if steps:
        name = max(steps, key=lambda event: event.start).stage
    seconds[name] += stop - begin
  return seconds


# In the process that is measured.


def run_command(arguments: Sequence[str], started: float) -> dict[str, float]:
  """Runs one command here, and divides its time."""
  stages, events = [], []

  from experiments import run

  stages.append(Interval("imports", started, time.time()))
  import jax

  from fedjax_opt.checks import inputs
  from fedjax_opt.engine.executor import Executor
  from fedjax_opt.simulator import Simulator
  from fedjax_opt.study import plots

  def listen(name, seconds, **_):
    now = time.time()
    if name in EVENTS:
      events.append(Interval(EVENTS[name], now - seconds, now))

  jax.monitoring.register_event_duration_secs_listener(listen)
  wrap(run, "prepare", "data and checks", stages)
  wrap(Simulator, "_prepare", "init", stages)
  wrap(inputs, "models_of_seeds", "init", stages)
  wrap(Executor, "trace", "other compilation", stages)
  wrap(Executor, "compile", "other compilation", stages)
  wrap(Executor, "advance", "rounds", stages)
  wrap(Executor, "evaluate", "evaluation", stages)
  wrap(plots, "curves", "pictures", stages)
  wrap(plots, "label_histogram", "pictures", stages)
  with contextlib.redirect_stdout(sys.stderr):
    status = run.main(["run", *arguments])
  if status:
    raise SystemExit(status)
  end = time.time()
  return split(stages, events, started, end) | {"total": end - started}


def wrap(owner: Any, name: str, stage: str, intervals: list[Interval]) -> None:
  """Has a function note when it runs."""
  function = getattr(owner, name)

  @functools.wraps(function)
  def timed(*args, **kwargs):
    with noted(stage, intervals):
      return function(*args, **kwargs)

  setattr(owner, name, timed)


@contextlib.contextmanager
def noted(stage: str, intervals: list[Interval]) -> Iterator[None]:
  start = time.time()
  try:
    yield
  finally:
    intervals.append(Interval(stage, start, time.time()))


def run_twice(rounds: int) -> dict[str, float]:
  """Seconds of two identical calls of `simulate`."""
  import jax
  import jax.numpy as jnp
  import optax

  import fedjax_opt as fo

  train, test = fo.data.embedded.digits()
  rows = fo.partition.dirichlet(train["y"], num_clients=100, alpha=0.1)
  data = fo.ClientData.from_partition(train, rows)
  model = fo.models.MLP(hidden=(64,), num_classes=10)
  params = model.init(jax.random.key(0), jnp.zeros((1, 8, 8, 1)))["params"]

  def loss_fn(params, batch, rng):
    logits = model.apply({"params": params}, batch["x"] / 16)
    cross_entropy = optax.softmax_cross_entropy_with_integer_labels
    return cross_entropy(logits, batch["y"])

  def simulate() -> float:
    start = time.perf_counter()
    fo.simulate(
      fo.fed_avg(loss_fn, client=fo.delta_sgd(), server=optax.sgd(1.0)),
      params,
      data,
      rounds=rounds,
      cohort_size=10,
      batch_size=64,
      evaluate=fo.evaluation.federated(
        lambda params, batch: {"loss": loss_fn(params, batch, None)}
      ),
      test=test,
    )
    return time.perf_counter() - start

  return {"first": simulate(), "second": simulate()}


# In the process that measures.


def in_new_process(
  arguments: Sequence[str], environment: dict[str, str]
) -> dict[str, float]:
  """Runs this file with these arguments, and returns what it found."""
  started = repr(time.time())
  done = subprocess.run(
    [sys.executable, __file__, f"--started={started}", *arguments],
    check=True,
    stdout=subprocess.PIPE,
    env=environment,
    cwd=REPOSITORY,
    text=True,
  )
  return json.loads(done.stdout.splitlines()[-1])


def measure_commands(
  turns: int, rounds: int | None
) -> dict[str, list[dict[str, float]]]:
  """{'default, cold': results of all turns, ...}."""
  found: dict[str, list[dict[str, float]]] = {}
  for _ in range(turns):
    for name, flags in COMMANDS.items():
      with tempfile.TemporaryDirectory() as folder:
        for which in ("cold", "warm"):
          arguments = [
            "--command",
            *flags,
            f"--compilation_cache={folder}/programs",
            f"--output_dir={folder}/{which}",
          ]
          if rounds is not None:
            arguments.append(f"--rounds={rounds}")
          result = in_new_process(arguments, _environment())
          found.setdefault(f"{name}, {which}", []).append(result)
  return found


def _environment() -> dict[str, str]:
  """Without a folder of compiled programs of the user's."""
  paths = [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
  kept = {
    name: value
    for name, value in os.environ.items()
    if name != "JAX_COMPILATION_CACHE_DIR"
  }
  return kept | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def medians(
  results: Sequence[dict[str, float]],
) -> Callable[[str], float]:
  return lambda name: statistics.median(result[name] for result in results)


def parse_arguments() -> tuple[argparse.Namespace, list[str]]:
  parser = argparse.ArgumentParser(
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  parser.add_argument("--turns", type=int, default=3, help="median of so many")
  parser.add_argument(
    "--num_rounds", type=int, help="instead of the commands' own, for a trial"
  )
  parser.add_argument("--started", type=float, help=argparse.SUPPRESS)
  parser.add_argument("--command", action="store_true", help=argparse.SUPPRESS)
  parser.add_argument("--twice", type=int, help=argparse.SUPPRESS)
  return parser.parse_known_args()


def main() -> None:
  options, flags = parse_arguments()
  if options.command:
    print(json.dumps(run_command(flags, options.started)))
    return
  if options.twice is not None:
    print(json.dumps(run_twice(options.twice)))
    return
  if flags:
    raise SystemExit(f"unknown arguments: {' '.join(flags)}")

  found = measure_commands(options.turns, options.num_rounds)
  print(f"seconds, median of {options.turns}")
  print(f"| stage | {' | '.join(found)} |")
  print(f"|---|{'---|' * len(found)}")
  of = {name: medians(results) for name, results in found.items()}
  for stage in (*STAGES, "total"):
    cells = [f"{median(stage):.2f}" for median in of.values()]
    print(f"| {stage} | {' | '.join(cells)} |")

  # Few, as it is the time around them that is looked at.
  rounds = options.num_rounds or 5
  twice = [
    in_new_process([f"--twice={rounds}"], _environment())
    for _ in range(options.turns)
  ]
  first, second = medians(twice)("first"), medians(twice)("second")
  print(
    f"simulate: {first:.2f} s, the same again {second:.2f} s: "
    f"{second / first:.3f} of it"
  )


if __name__ == "__main__":
  main()
