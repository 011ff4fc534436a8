"""How much memory a program needs: as XLA plans it, and as Linux counts it."""

import pathlib
import resource
from typing import Any


def planned(result: Any) -> float | None:
  """Megabytes that XLA plans for the rounds: arguments, results, temporaries.

  Args:
    result: of `fedjax_opt.simulate` or `sweep`.
  """
  if result.needed_bytes is None:
    return None
  return result.needed_bytes / 1e6


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
