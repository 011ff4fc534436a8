"""The loop by which a framework's process answers `round_time.Worker`.

It prints one line of JSON with the versions of its packages. Then, for each
line {"program": P, "workload": W, "settings": S, "rounds": n} on its standard
input, it runs n rounds and answers {"seconds": t, "wall_seconds": w}. The first
request for a program with its workload and settings also builds it, so its
wall_seconds contain the compilation; so do its seconds, unless the program
measures its rounds apart.
"""

import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import workloads

# Runs the given number of rounds and returns when they are done, with None or
# with what else the answer says: {name: number}, "seconds" if it knows better.
RunRounds = Callable[[int], dict[str, float] | None]
# (workload, **settings) -> RunRounds
Build = Callable[..., RunRounds]


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
    rounds = request.pop("rounds")
    wanted = json.dumps(request, sort_keys=True)
    start = time.perf_counter()
    try:
      if wanted not in built:
        workload = workloads.Workload.from_json(request["workload"])
        build = programs[request["program"]]
        built[wanted] = build(workload, **request["settings"])
      more = built[wanted](rounds)
    except Exception as error:
      answer({"error": f"{type(error).__name__}: {error}"})
    else:
      seconds = time.perf_counter() - start
      answer({"seconds": seconds, "wall_seconds": seconds, **(more or {})})
