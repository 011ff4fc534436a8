"""Compiles the programs of one run for one target; see accelerator_compile.py.

  PYTHONPATH=. python benchmarks/accelerator_programs.py \\
      h100 '--task=mnist_cnn' RECORD.json

with the variables of `accelerator_targets.environment`. Images of the right
shapes stand for those of a data set: nothing is downloaded, and all sizes are
real.
"""

import json
import pathlib
import sys
import time
from typing import Any

import compiled
import jax
import stand_ins
from accelerator_targets import H100, TARGETS
from experiments.flags import command_line
from jax.experimental import topologies

from experiments import job as jobs
from fedjax_opt import Simulator, target
from fedjax_opt.data import tfds
from fedjax_opt.models import convolution


def devices_of(name: str) -> list[jax.Device]:
  """The devices of a target.

  Raises:
    RuntimeError: where the plugin of CUDA or TPU is not installed.
  """
  described = TARGETS[name]
  if not described.topology:
    return topologies.get_topology_desc(
      platform="cuda", target_config=H100, topology="1x1x1"
    ).devices
  topology = topologies.get_topology_desc(described.topology, platform="tpu")
  return topology.devices[: described.devices]


def programs_of(arguments: list[str]) -> dict[str, Any]:
  """Compiles the programs of a command line of `experiments.run`.

  Returns:
    {'seconds': of all, name: what is known of the program}.
  """
  job = jobs.prepare(command_line.parse(["run", *arguments], ""))
  simulator = Simulator(
    job.make, job.data.get, grid=job.setup.grid, **jobs.sweep_arguments(job)
  )
  start = time.perf_counter()
  programs = simulator.compile(job.task.init)
  seconds = time.perf_counter() - start
  known = {name: _known(program) for name, program in programs.items()}
  return {"seconds": seconds, **known}


def _known(program):
  """What a compiled program says of itself."""
  memory, cost, text = (
    program.memory_analysis(),
    program.cost_analysis() or {},
    program.as_text(),
  )
  shardings = jax.tree.leaves(program.input_shardings)
  return {
    "devices": max(len(s.device_set) for s in shardings),
    "bytes": {
      "arguments": memory.argument_size_in_bytes,
      "temporary": memory.temp_size_in_bytes,
      "results": memory.output_size_in_bytes - memory.alias_size_in_bytes,
      "code": memory.generated_code_size_in_bytes,
    },
    # Loops are counted once.
    "flops": cost.get("flops"),
    "bytes_accessed": cost.get("bytes accessed"),
    "exchanges": compiled.exchanges(text),
    "loops": [loop._asdict() for loop in compiled.loops(text)],
    "convolutions": compiled.convolutions(text),
  }


def main(argv: list[str]) -> None:
  """Compiles, and writes what is known of the programs."""
  name, arguments, record, *form = argv
  tfds.load = stand_ins.images
  if form:
    convolution.resolve_implementation = lambda given: given or form[0]
  with target.use(devices_of(name)):
    found = programs_of(arguments.split())
  versions = {"jax": jax.__version__, "date": time.strftime("%Y-%m-%d")}
  pathlib.Path(record).write_text(json.dumps(found | versions))


if __name__ == "__main__":
  main(sys.argv[1:])
