"""Several processes, on one host or on many, that do one run, and end together.

If one ends before the others, JAX aborts those that are left, from a thread of
a library, with many lines of that library's log. JAX has a callback that would
tell us first, but not for Python: converting its argument ends the process. So
the logs of libraries pass through a pipe here, and an abort waits until the end
of the log was read.
"""

import contextlib
import ctypes
import os
import re
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax

from experiments.processes import command
from fedjax_opt import multi_process
from fedjax_opt.checks.errors import first_line
from fedjax_opt.files import json_files

# Seconds without a sign of a process after which it counts as dead. Busy
# machines are late by seconds.
_SECONDS_TO_NOTICE = 20

# Errors of collectives; JAX raises one or the other.
_LOSS = re.compile(
  "(UNKNOWN|UNAVAILABLE|INTERNAL|ABORTED|CANCELLED|DEADLINE_EXCEEDED|"
  "FAILED_PRECONDITION|DATA_LOSS): "
)

# How lines of the log begin: E1122 10:26:18.99 18739 file.cc:1] in JAX's
# libraries, [external/gloo/file.cc:1] in those that connect processes.
_BEGIN = re.compile(rb"(?:[IWEF]\d{4} [\d:.]+ +\d+ |\[)([\w./-]+):\d+\] ")
_OF_PROCESSES = re.compile(
  rb"(.*/)?(coordination_|preemption_sync|client\.|gloo/)"
)
_LOST = b"distributed service detected"
# Seconds for which lines that may begin such an end are held back. An abort
# must wait longer: its handler, `sleep`, is called with the signal's number.
_SECONDS_HELD = 5
assert _SECONDS_HELD < signal.SIGABRT

_stderr = 2
_speaks = threading.Lock()
_is_watched = False


def join(flags: Mapping[str, Any]) -> None:
  """Waits for the other processes, if there are to be any.

  Call it before anything else asks for devices.

  Args:
    flags: values of all flags.

  Raises:
    ValueError: naming the invalid flag, or if the others do not come.
  """
  coordinator, number = flags["coordinator"], flags["num_processes"]
  numbers = {n: flags[n] for n in ("num_processes", "process_id")}
  if coordinator is None:
    if flags["cluster"]:
      _start("cluster=True")
    return
  if flags["cluster"]:
    raise ValueError(
      f"coordinator={coordinator!r} with cluster: on a cluster processes find "
      "each other; give only one of them"
    )
  if not re.fullmatch(r"[^:\s]+:\d+|\[[^\]\s]+\]:\d+", coordinator):
    raise ValueError(
      f"coordinator={coordinator!r}: must be HOST:PORT, such as 10.0.0.1:1234"
    )
  for name, value in numbers.items():
    if value is None:
      raise ValueError(f"{name}: must be given with coordinator")
  if number < 1:
    raise ValueError(f"num_processes={number}: must be at least 1")
  if not 0 <= numbers["process_id"] < number:
    raise ValueError(
      f"process_id={numbers['process_id']}: must be from 0 to {number - 1}"
    )
  _start(
    f"coordinator={coordinator!r}",
    coordinator_address=coordinator,
    # Otherwise JAX would listen on all interfaces, without authentication.
    coordinator_bind_address=coordinator,
    **numbers,
  )


def is_loss(error: Exception) -> bool:
  """Whether an error of JAX may be due to the end of another process."""
  return jax.process_count() > 1 and bool(_LOSS.match(str(error)))


@contextlib.contextmanager
def all_or_none() -> Iterator[None]:
  """Continues only if the code inside succeeded in all processes.

  Raises:
    ValueError: if another process could not.
  """
  try:
    yield
  except Exception:
    multi_process.of_any_process(1)
    raise
  if multi_process.of_any_process(0):
    raise ValueError("another process refused this run; its message says why")


def _start(flag: str, **arguments: Any) -> None:
  # JAX's own limit is 100. At the end the others may wait longer for the first
  # process, which still writes files.
  arguments["heartbeat_timeout_seconds"] = _SECONDS_TO_NOTICE
  # JAX would handle SIGTERM itself.
  if hasattr(jax.config, "jax_enable_preemption_service"):
    jax.config.update("jax_enable_preemption_service", False)
  if command.is_command():  # Otherwise the process is not the run's to end.
    watch()
  try:
    jax.distributed.initialize(**arguments)
  except (RuntimeError, ValueError) as error:
    reason = first_line(error)
    raise ValueError(f"{flag}: no processes to join ({reason})") from error


# How they end.


def watch() -> None:
  """Ends this process in one line if JAX notices that another one has ended.

  A program calls it once, before it joins the others. Then an uncaught
  exception, or `exit_if_watched`, ends the process at once: the others wait for
  numbers from it, and would never reach the common end that JAX waits for.
  """
  global _is_watched, _stderr
  sys.stderr.flush()
  _is_watched, _stderr = True, os.dup(2)
  encoding = sys.stderr.encoding
  sys.stderr = open(  # noqa: SIM115
    _stderr, "w", buffering=1, encoding=encoding, errors="backslashreplace"
  )
  log, end = os.pipe()
  os.dup2(end, 2)
  os.close(end)
  threading.Thread(
    target=copy_log, args=(log, exit_as_lost), daemon=True
  ).start()
  libc = ctypes.CDLL(None)
  libc.signal.argtypes = ctypes.c_int, ctypes.c_void_p
  libc.signal.restype = ctypes.c_void_p
  libc.signal(signal.SIGABRT, ctypes.cast(libc.sleep, ctypes.c_void_p))
  hook = sys.excepthook

  def ends(*error):
    hook(*error)
    exit_if_watched(1)

  sys.excepthook = ends


def exit_as_lost(reason: str) -> int:
  """Prints that another process has ended, and ends this one too."""
  if not _speaks.acquire(blocking=False):  # Two threads may notice it.
    threading.Event().wait()
  os.write(_stderr, f"error: {message(reason)}\n".encode())
  return exit_if_watched(1)


def message(reason: str) -> str:
  """In one line, that another process has ended.

  Args:
    reason: a library's message; its first sentence is enough.
  """
  first = re.split(r"[\n.;]|\[", reason.strip())[0].strip(" :")
  return f"another process has ended ({first}); start all of them again"


def exit_if_watched(status: int) -> int:
  """Ends this process at once if it is watched; if not, returns the status."""
  if _is_watched:
    json_files.remove_unfinished()
    for stream in (sys.stdout, sys.stderr):
      with contextlib.suppress(OSError, ValueError):
        stream.flush()
    os._exit(status)
  return status


def copy_log(log: int, on_lost: Callable[[str], object]) -> None:
  """Writes to stderr what libraries log, until its end.

  Args:
    log: what is read.
    on_lost: called with the reason if the log says that another process has
      ended. Those lines are not written.
  """
  held_lines, tail, is_held = b"", b"", False
  while True:
    waits = _SECONDS_HELD if held_lines or tail else None
    is_late = not select.select([log], [], [], waits)[0]
    part = b"" if is_late else os.read(log, 1 << 16)
    *lines, tail = (tail + part).split(b"\n")
    for line in lines:
      if begin := _BEGIN.match(line):
        is_held = bool(_OF_PROCESSES.match(begin[1]))
      if is_held and _LOST in line:
        reason = line.partition(b"absl::Status: ")[2] or b"as JAX says"
        on_lost(reason.decode(errors="replace"))
        return
      if is_held:
        held_lines += line + b"\n"
      else:
        os.write(_stderr, line + b"\n")
    if not part:  # Another process has not ended.
      os.write(_stderr, held_lines + tail)
      held_lines = tail = b""
      if not is_late:
        return
