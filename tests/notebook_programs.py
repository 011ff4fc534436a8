"""Lowers the programs of a notebook for accelerators that are not there.

  python -O -m tests.notebook_programs NN_name.py FOUND.json [v5e]

The notebook is executed with its sizes for an accelerator. But what it hands to
`jax.jit`, by itself or through the package, is only traced and lowered, for TPU
and for CUDA; it is neither compiled nor run, and its results are zeros. So this
takes seconds. Images of the right shapes stand for those of a data set: nothing
is downloaded, and all sizes are real. With -O nothing is asserted of the zeros.

With `v5e` the programs are also compiled for that TPU; this needs libtpu from
pip, and no TPU. FOUND.json has of each program its name, the platforms, for how
many devices, the seconds, and the bytes of each chip.
"""

import contextlib
import json
import os
import pathlib
import runpy
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

if __name__ == "__main__":
  # Read by the notebook, and by matplotlib and JAX as they are imported.
  os.environ |= {
    "FEDJAX_OPT_NOTEBOOK_SIZES": "accelerator",
    "JAX_PLATFORMS": "cpu",
    "MPLBACKEND": "agg",
    # Of libtpu, which else looks for its chips and their neighbours.
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
  }
  os.environ.pop("FEDJAX_OPT_SOURCE", None)  # Nothing is to be installed.

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.experimental import topologies

from benchmarks import compiled
from fedjax_opt import processes
from fedjax_opt.datasets import tfds
from fedjax_opt.study import plots

PLATFORMS = ("tpu", "cuda")
V5E_BYTES = 16 * 10**9

_real_jit = jax.jit


class Program(NamedTuple):
  """A program that was lowered.

  Attributes:
    name: of its function.
    exported: what `jax.export` made of it.
    donates: whether its first argument may be overwritten.
    seconds: to trace and lower it.
  """

  name: str
  exported: export.Exported
  donates: bool
  seconds: float


class Programs:
  """All programs of a notebook, each once."""

  def __init__(self):
    self.lowered: list[Program] = []
    self.is_tracing = False

  @contextlib.contextmanager
  def tracing(self) -> Iterator[None]:
    """While programs within the one that is traced are parts of it."""
    self.is_tracing = True
    try:
      yield
    finally:
      self.is_tracing = False

  def jit(self, fun: Any = None, **options: Any) -> Any:
    """Stands for `jax.jit`."""
    if fun is None:
      return lambda fun: self.jit(fun, **options)
    return Jitted(self, fun, options)

  def lower(self, function: "Jitted", args: Any, kwargs: Any) -> Any:
    """Lowers a program for all platforms; returns the zeros of its results."""
    jitted, start = function.real, time.perf_counter()
    with self.tracing():
      traced = jitted.trace(*args, **kwargs)
      exported = export.export(jitted, platforms=PLATFORMS)(*args, **kwargs)
    seconds = time.perf_counter() - start
    self.lowered.append(
      Program(traced.fun_name, exported, function.donates, seconds)
    )
    return jax.tree.map(_zeros, traced.out_info)


class Jitted:
  """A jitted function whose results are zeros."""

  def __init__(self, programs: Programs, fun: Any, options: dict[str, Any]):
    self.__wrapped__ = fun
    self.__name__ = getattr(fun, "__name__", "program")
    self.real = _real_jit(fun, **options)
    self.donates = options.get("donate_argnums") == 0
    self._programs, self._results = programs, {}
    self.tracing = programs.tracing

  def __call__(self, *args, **kwargs):
    leaves, structure = jax.tree.flatten((args, kwargs))
    is_inside = any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)
    if is_inside or self._programs.is_tracing:
      return self.real(*args, **kwargs)
    key = structure, *map(_shape, leaves), jax.config.jax_enable_x64
    if key not in self._results:
      self._results[key] = self._programs.lower(self, args, kwargs)
    return self._results[key]

  def lower(self, *args, **kwargs):
    return self.trace(*args, **kwargs).lower()

  def trace(self, *args, **kwargs):
    return Stage(self, args, kwargs)

  def __getattr__(self, name):  # Such as `eval_shape`.
    return getattr(self.real, name)


class Stage:
  """A program as it was traced, then lowered, then compiled."""

  args_info = ()

  def __init__(self, program: Jitted, args: Any, kwargs: Any):
    self._program, self._given = program, (args, kwargs)

  @property
  def out_info(self):
    args, kwargs = self._given
    with self._program.tracing():
      return jax.eval_shape(self._program.real, *args, **kwargs)

  def lower(self):
    args, kwargs = self._given
    self._results = self._program(*args, **kwargs)
    return self

  def as_text(self):
    return ""  # Of which none is taken again.

  def compile(self, **options):
    del options
    return self

  def memory_analysis(self):
    return None  # Nothing is known of it.

  def __call__(self, *args, **kwargs):
    return self._results


def _shape(leaf):
  if hasattr(leaf, "shape"):
    return leaf.shape, str(leaf.dtype)
  return leaf if isinstance(leaf, str | bool) else type(leaf)


def _zeros(like):
  if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
    return jnp.broadcast_to(jax.random.key(0), like.shape)
  # Memory that is zero from the start, and aligned as JAX has it: it is not
  # copied, and nothing is taken of it before it is written to.
  size = like.size * like.dtype.itemsize
  memory = np.zeros(size + 64, np.uint8)
  start = -memory.ctypes.data % 64
  array = memory[start : start + size].view(like.dtype).reshape(like.shape)
  return jax.device_put(array)


def compile_for_v5e(program: Program) -> dict[str, Any]:
  """Compiles a program for as many chips, and says what it takes of each."""
  topology = topologies.get_topology_desc("v5e:2x2", platform="tpu")
  exported, start = program.exported, time.perf_counter()
  chips = np.array(topology.devices[: exported.nr_devices])
  mesh = jax.sharding.Mesh(chips, ("chips",))
  everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
  shardings = exported.in_shardings_jax(mesh)
  with jax.enable_x64(any(a.dtype == "float64" for a in exported.in_avals)):
    specs = [
      jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding or everywhere)
      for a, sharding in zip(exported.in_avals, shardings, strict=True)
    ]
    args, kwargs = jax.tree.unflatten(exported.in_tree, specs)
    donated = 0 if program.donates else ()
    jitted = _real_jit(exported.call, donate_argnums=donated)
    compiled = jitted.lower(*args, **kwargs).compile()
  memory = compiled.memory_analysis()
  return {
    "compile_seconds": time.perf_counter() - start,
    "bytes": memory.argument_size_in_bytes
    + memory.output_size_in_bytes
    - memory.alias_size_in_bytes
    + memory.temp_size_in_bytes,
  }


def main(argv: list[str]) -> None:
  """Executes a notebook; see the top of this file."""
  notebook, found, *chips = argv
  programs = Programs()
  jax.default_backend = lambda: "tpu"  # What the package asks.
  processes.device_bytes = lambda: V5E_BYTES
  tfds.load = compiled.images
  plots.log_scale = lambda axis, limits=None: None  # Zeros have no logarithm.
  jax.jit = programs.jit
  runpy.run_path(notebook, run_name="__main__")
  records = []
  for program in programs.lowered:
    record = {
      "name": program.name,
      "platforms": program.exported.platforms,
      "devices": program.exported.nr_devices,
      "lower_seconds": program.seconds,
    }
    if chips:
      record |= compile_for_v5e(program)
    records.append(record)
    pathlib.Path(found).write_text(json.dumps(records))


if __name__ == "__main__":
  main(sys.argv[1:])
