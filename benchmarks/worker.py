"""The loop by which a framework's process answers `round_time.py`.

It prints one line of JSON with the versions of its packages. Then, for each
line {"program": P, "workload": W, "rounds": n} on its standard input, it runs
n rounds and answers {"seconds": t}. The first request for a pair also builds
the program, so its answer contains the compilation.
"""

import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import workloads

# Runs the given number of rounds and returns when they are done.
RunRounds = Callable[[int], None]
Build = Callable[[workloads.Workload], RunRounds]


def num_cores() -> int:
  """Returns the number of cores this process may use."""
  if hasattr(os, "sched_getaffinity"):
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def serve(programs: Mapping[str, Build], packages: Sequence[str]) -> None:
  """Answers requests until standard input ends."""
  # A framework that prints must not disturb the answers.
  answers, sys.stdout = sys.stdout, sys.stderr

  def answer(message):
    print(json.dumps(message), file=answers, flush=True)

  answer({"versions": {p: importlib.metadata.version(p) for p in packages}})
  built = {}
  for line in sys.stdin:
    request = json.loads(line)
    pair = request["program"], request["workload"]
    start = time.perf_counter()
    try:
      if pair not in built:
        built[pair] = programs[pair[0]](workloads.WORKLOADS[pair[1]])
      built[pair](request["rounds"])
    except Exception as error:
      answer({"error": f"{type(error).__name__}: {error}"})
    else:
      answer({"seconds": time.perf_counter() - start})
