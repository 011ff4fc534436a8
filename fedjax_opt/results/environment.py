"""What a run ran with: random streams, versions of packages, the device."""

import importlib.metadata
import platform
from typing import Any

import jax

from fedjax_opt.base import STREAMS, VERSION

PACKAGES = (
  "jax",
  "jaxlib",
  "flax",
  "optax",
  "numpy",
  "dm-pix",
)


def record() -> dict[str, Any]:
  """What the configuration of a run says of all this."""
  return {"streams": STREAMS, "versions": versions(), "device": device()}


def versions() -> dict[str, str | None]:
  """Versions of Python, fedjax_opt and `PACKAGES`; None if not installed."""
  by_package: dict[str, str | None] = {
    "python": platform.python_version(),
    "fedjax_opt": VERSION,
  }
  for package in PACKAGES:
    try:
      by_package[package] = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
      by_package[package] = None
  return by_package


def device() -> dict[str, Any]:
  """Platform, kind and count of JAX's devices."""
  devices = jax.devices()
  return {
    "platform": devices[0].platform,
    "kind": devices[0].device_kind,
    "count": len(devices),
  }
