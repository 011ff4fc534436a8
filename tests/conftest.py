"""What all tests share."""

import atexit
import importlib.util
import mmap
import os
import pathlib
import shutil
import tempfile


def _is_known_to_xla(flag: str) -> bool:
  """Whether this version has the flag; it ends a process that gives others."""
  folder = pathlib.Path(importlib.util.find_spec("jaxlib").origin).parent
  for library in folder.glob("*.so"):
    with (
      library.open("rb") as file,
      mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
      if content.find(flag.encode()) >= 0:
        return True
  return False


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
_own = [
  f"--{flag}={value}"
  for flag, value in _FLAGS.items()
  if flag not in _given and _is_known_to_xla(flag)
]
os.environ["XLA_FLAGS"] = " ".join([_given, *_own])
# Many tests run the same program, in several processes.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
  _folder = tempfile.mkdtemp(prefix="fedjax_opt-programs-")
  atexit.register(shutil.rmtree, _folder, ignore_errors=True)
  os.environ["JAX_COMPILATION_CACHE_DIR"] = _folder
  os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
  os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
