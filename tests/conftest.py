"""What all tests share."""

import os

# Programs here are small and run for milliseconds: it is their compilation that
# takes the time. Set before JAX is imported, and inherited by subprocesses.
os.environ["XLA_FLAGS"] = " ".join(
  [os.environ.get("XLA_FLAGS", ""), "--xla_backend_optimization_level=0"]
)
