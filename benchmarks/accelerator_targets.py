"""GPUs and TPUs to compile for, which need not be there.

Imports no JAX, which reads `environment` as it is imported.
"""

import os
import pathlib
from typing import NamedTuple


class Target(NamedTuple):
  """Devices to compile for.

  Attributes:
    name: as a reader calls them.
    memory: bytes of each device.
    topology: as libtpu calls it; "" for the GPU.
    devices: how many of it are used.
    accelerator: what libtpu is told, which else looks for its chips.
  """

  name: str
  memory: float
  topology: str = ""
  devices: int = 1
  accelerator: str = "v5litepod-4"


_V5E, _V4 = 16e9, 16e9  # A v4 chip has 32 GB for its two cores.
TARGETS = {
  "h100": Target("1 H100", 84.9e9),
  "v5e-1": Target("1 chip v5e", _V5E, "v5e:2x2", 1),
  "v5e-4": Target("4 chips v5e", _V5E, "v5e:2x2", 4),
  "v5e-16": Target("16 chips v5e", _V5E, "v5e:4x4", 16),
  "v5e-64": Target("64 chips v5e", _V5E, "v5e:8x8", 64),
  "v4-1": Target("1 chip v4", _V4, "v4:2x2x1", 2, "v4-8"),
  "v4-4": Target("4 chips v4", _V4, "v4:2x2x1", 8, "v4-8"),
  "v4-16": Target("16 chips v4", _V4, "v4:2x2x4", 32, "v4-8"),
  "v4-64": Target("64 chips v4", _V4, "v4:4x4x4", 128, "v4-8"),
}
# An H100 as XLA describes one that it finds; the facts are the data sheet's.
H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32
  shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 84942979072 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 minor: 0 }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 3 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""


def environment(name: str) -> dict[str, str]:
  """The variables with which JAX compiles for a target, on the processor."""
  # There is no card to try algorithms on.
  flags = [os.environ.get("XLA_FLAGS", ""), "--xla_gpu_autotune_level=0"]
  return os.environ | {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": TARGETS[name].accelerator,
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "XLA_FLAGS": " ".join(filter(None, flags)),
    "PYTHONPATH": str(pathlib.Path(__file__).parents[1]),
  }
