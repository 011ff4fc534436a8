"""Times rounds of another framework on the device at hand; see accelerator.py.

  PYTHONPATH=. python benchmarks/accelerator_peers.py \\
      '{"framework": "torch", "python": "python", "workload": "cnn"}' R.json
"""

import json
import pathlib
import statistics
import sys
from typing import Any

import round_time
import workloads

_TURNS = 3


def measure(
  framework: str, python: str, workload: str, rounds: int = 5, **sizes: Any
) -> dict[str, Any]:
  """Milliseconds a round, and seconds of the first turn.

  Args:
    framework: the worker's name.
    python: that has the framework.
    workload: key of `workloads.WORKLOADS`.
    rounds: of a turn.
    **sizes: fields of the workload that are otherwise.

  Raises:
    round_time.WorkerError: if it cannot run; the message says why.
  """
  of = workloads.WORKLOADS[workload]._replace(**sizes)
  worker = round_time.Worker(framework, python, devices=None)
  turns = [
    worker.run("fed_avg", of, rounds=rounds)["seconds"]
    for _ in range(1 + _TURNS)
  ]
  worker.close()
  return {
    "ms_per_round": 1e3 * statistics.median(turns[1:]) / rounds,
    "range_ms": [1e3 * seconds / rounds for seconds in turns[1:]],
    "first_turn_seconds": turns[0],
    "versions": worker.versions,
  }


def main(argv: list[str]) -> None:
  """Measures one framework, and writes what was found."""
  arguments, result = argv
  found = measure(**json.loads(arguments))
  pathlib.Path(result).write_text(json.dumps(found))


if __name__ == "__main__":
  main(sys.argv[1:])
