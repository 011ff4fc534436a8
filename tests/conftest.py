"""What all tests share."""

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile


def _are_known_to_xla(flags: str) -> bool:
  """Whether this version has the flags; it ends a process that gives others."""
  command = [sys.executable, "-c", "import jax; jax.devices()"]
  given = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
  ended = subprocess.run(command, env=given, capture_output=True, check=False)
  return ended.returncode == 0


# Programs here are small and run for milliseconds: it is their compilation that
# takes the time. Set before JAX is imported, and inherited by subprocesses.
_FLAGS = {
  "xla_backend_optimization_level": "0",
  # The other cores have tests of their own.
  "xla_cpu_parallel_codegen_split_count": "1",
  # The older way to compile fusions is twice as fast at it.
  "xla_cpu_use_fusion_emitters": "false",
}
_given = os.environ.get("XLA_FLAGS", "")
_own = " ".join(
  f"--{flag}={value}" for flag, value in _FLAGS.items() if flag not in _given
)
# Workers of pytest-xdist have them from the process that began them.
if _own and _are_known_to_xla(_own):
  os.environ["XLA_FLAGS"] = f"{_given} {_own}"
# A shell's background process ignores Ctrl-C, and so would the commands that
# tests begin, some of which they interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
  signal.signal(signal.SIGINT, signal.default_int_handler)
# Many tests run the same program, in several processes.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
  _folder = tempfile.mkdtemp(prefix="fedjax_opt-programs-")
  atexit.register(shutil.rmtree, _folder, ignore_errors=True)
  os.environ["JAX_COMPILATION_CACHE_DIR"] = _folder
  os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
  os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
