"""What all tests share."""

import atexit
import os
import shutil
import tempfile

# Programs here are small and run for milliseconds: it is their compilation that
# takes the time. Set before JAX is imported, and inherited by subprocesses.
os.environ["XLA_FLAGS"] = " ".join(
  [
    os.environ.get("XLA_FLAGS", ""),
    "--xla_backend_optimization_level=0",
    # The other cores have tests of their own.
    "--xla_cpu_parallel_codegen_split_count=1",
  ]
)
# Many tests run the same program, in several processes.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
  _folder = tempfile.mkdtemp(prefix="fedjax_opt-programs-")
  atexit.register(shutil.rmtree, _folder, ignore_errors=True)
  os.environ["JAX_COMPILATION_CACHE_DIR"] = _folder
  os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
  os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
