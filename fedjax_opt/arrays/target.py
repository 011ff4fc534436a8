"""The devices that programs are compiled for: by default those at hand.

A compiler needs no device. `jax.experimental.topologies` describes those of a
machine that is elsewhere, and::

  with fedjax_opt.target.use(topology.devices):
    programs = Simulator(algorithm, data, cohort_size=10).compile(params)

compiles the programs of a run for them. So the time of compilation, the memory
that they need, and the exchanges between devices are known without such a
machine.
"""

import contextlib
import contextvars
from collections.abc import Iterable, Iterator, Sequence

import jax

from fedjax_opt.checks import memory
from fedjax_opt.checks.values import brief, check_at_least

# The devices of `use`, and the memory of each.
_used: contextvars.ContextVar[tuple[list[jax.Device], int | None] | None]
_used = contextvars.ContextVar("used", default=None)


@contextlib.contextmanager
def use(
  devices: Sequence[jax.Device], memory_bytes: int | None = None
) -> Iterator[None]:
  """Inside, programs are made for these devices, and cannot be run.

  Args:
    devices: all of one kind, as `jax.devices` or a topology gives them.
    memory_bytes: the memory of each, into which the choices of 'auto' must fit;
      None if it is not known.

  Raises:
    ValueError: if there are none, or of several platforms, or the memory is not
      positive or above 2^60.
    TypeError: if it is no list of devices, or the memory no whole number.
  """
  if memory_bytes is not None:
    check_at_least("memory_bytes", memory_bytes, 1, most=2**60)
  is_list = isinstance(devices, Iterable) and not hasattr(devices, "dtype")
  device_list = list(devices) if is_list else [None]
  if not all(hasattr(device, "platform") for device in device_list):
    raise TypeError(
      f"devices={brief(devices)}: must be a list of devices, as "
      "jax.devices() gives it"
    )
  platforms = sorted({device.platform for device in device_list})
  if len(platforms) != 1:
    raise ValueError(
      f"devices: must be one or more of one platform, and are of {platforms}"
    )
  token = _used.set((device_list, memory_bytes))
  try:
    yield
  finally:
    _used.reset(token)


def devices() -> list[jax.Device]:
  """All devices, also those of other processes."""
  target = _used.get()
  return jax.devices() if target is None else target[0]


def present() -> tuple[bool, tuple[jax.Device, ...]]:
  """The devices for which programs are made now, to be compared."""
  return is_elsewhere(), tuple(devices())


def num_processes() -> int:
  """The number of processes among which the devices are divided."""
  if not is_elsewhere():
    return jax.process_count()
  return len({device.process_index for device in devices()})


def platform() -> str:
  """'cpu', 'gpu' or 'tpu'."""
  if not is_elsewhere():
    return jax.default_backend()
  name = devices()[0].platform
  return "gpu" if name in ("cuda", "rocm") else name


def device_bytes() -> int | None:
  """The memory that a program may take of a device; None if it is not known."""
  if is_elsewhere():
    return _used.get()[1]
  device = jax.local_devices()[0]
  if device.platform != "cpu":
    return (device.memory_stats() or {}).get("bytes_limit")
  host_bytes = memory.memory_bytes()
  # Half of it, for other programs, and divided among the host's devices.
  return host_bytes and host_bytes // (2 * jax.local_device_count())


def host() -> jax.Device | None:
  """The CPU of the host, or None where JAX was started without it."""
  try:
    return jax.local_devices(backend="cpu")[0]
  except RuntimeError:  # As with JAX_PLATFORMS=cuda.
    return None


def check_at_hand() -> None:
  """Checks that programs can be run.

  Raises:
    ValueError: within `use`.
  """
  if is_elsewhere():
    raise ValueError(
      "target.use: its devices are elsewhere, so that programs are compiled "
      "and not run; call Simulator.compile"
    )


def is_elsewhere() -> bool:
  """Whether the devices hold no arrays: programs are compiled, not run."""
  return _used.get() is not None
