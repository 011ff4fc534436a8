"""Compiles runs at the papers' sizes for GPUs and TPUs that are not there.

  pip install -e '.[run,tpu-compile,gpu-compile]'
  python benchmarks/accelerator_compile.py --output_dir=D --data_dir=DATA
  python benchmarks/accelerator_compile.py --output_dir=D --data_dir=DATA \\
      --targets h100 v5e-4 --programs mnist_cnn shakespeare

The compilers of XLA need no device. Of each run and target it writes how long
compilation took, the memory of each device, FLOPs, what devices exchange and
the kernels of each loop: D/records.json, and D/page.md for the site. What
D/records.json has is not compiled again, but what failed is tried again. DATA
has the texts; images need not be there.
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import compiled
import fedjax_opt_worker as ours
import jax
import numpy as np
import pandas
import shared
from jax.experimental import topologies

import fedjax_opt as fo
from experiments.tasks.images import DATASETS
from fedjax_opt.datasets import tfds
from fedjax_opt.models import convolution
from fedjax_opt.results.names import format_number


class Target(NamedTuple):
  """Devices to compile for.

  Attributes:
    name: as a reader calls them.
    topology: as libtpu calls it; "" for the GPU.
    devices: how many of it are used.
    accelerator: what libtpu is told, which else looks for its chips.
    memory: bytes of each device.
  """

  name: str
  topology: str = ""
  devices: int = 1
  accelerator: str = "v5litepod-4"
  memory: float = 16e9


TARGETS = {
  "h100": Target("1 H100", memory=84.9e9),
  "h100-8": Target("8 H100", devices=8, memory=84.9e9),
  "v5e-1": Target("1 chip v5e", "v5e:2x2", 1),
  "v5e-4": Target("4 chips v5e", "v5e:2x2", 4),
  "v5e-16": Target("16 chips v5e", "v5e:4x4", 16),
  "v5e-64": Target("64 chips v5e", "v5e:8x8", 64),
  # Each of the two cores of such a chip is a device.
  "v4-1": Target("1 chip v4", "v4:2x2x1", 2, "v4-8"),
  "v4-4": Target("4 chips v4", "v4:2x2x1", 8, "v4-8"),
  "v4-16": Target("16 chips v4", "v4:2x2x4", 32, "v4-8"),
  "v4-64": Target("64 chips v4", "v4:4x4x4", 128, "v4-8"),
}


class Run(NamedTuple):
  """A run to compile.

  Attributes:
    title: in the table.
    flags: of `experiments.run`; TEXTS stands for the folder of the texts.
    convolution: 'matmul' or 'lax' instead of what is chosen for the device.
    targets: keys of `TARGETS`.
  """

  title: str
  flags: str
  convolution: str = ""
  targets: Sequence[str] = tuple(TARGETS)


# Name | title | preset | flags.
_RUNS = """
digits | Digits, MLP, Δ-SGD (no flags) | |
digits_sgd | Digits, MLP, SGD | | --client=sgd
mnist_mlp | MNIST, MLP, Δ-SGD | delta_sgd/mnist | DELTA --task=mnist_mlp
mnist_cnn | MNIST, CNN, Δ-SGD | delta_sgd/mnist | DELTA
resnet18 | CIFAR-10, ResNet-18, SGD | delta_sgd/cifar10 | --client=sgd
resnet18_delta | CIFAR-10, ResNet-18, Δ-SGD | delta_sgd/cifar10 | DELTA
resnet50 | CIFAR-100, ResNet-50, Δ-SGD | delta_sgd/cifar100_resnet50 | DELTA
vgg16 | CIFAR-10, VGG-16, DOMO | domo/cifar10_vgg16 | --algorithm=domo
resnet20 | SVHN, ResNet-20, DOMO | domo/svhn_resnet20 | --algorithm=domo
bvr_mlp | CIFAR-10, MLP, BVR-L-SGD | bvr/cifar10 | --algorithm=bvr_l_sgd
lasso | LASSO, FedDualAvg, 63 points | fco/lasso | --algorithm=fed_dual_avg
low_rank | Low rank, FedDualAvg, grid | fco/low_rank | --algorithm=fed_dual_avg
shakespeare | Shakespeare, LSTM, Δ-SGD | delta_sgd/shakespeare | DELTA TEXTS
distilbert | AG News, DistilBERT, Δ-SGD | delta_sgd/text | DELTA TEXTS
"""


def _read(line: str) -> tuple[str, Run]:
  name, title, preset, flags = (part.strip() for part in line.split("|"))
  file = f"--flagfile=experiments/{preset}.flags " if preset else ""
  flags = flags.replace("DELTA", "--client=delta_sgd")
  return name, Run(title, file + flags.replace("TEXTS", "--data_dir=TEXTS"))


RUNS = dict(map(_read, _RUNS.strip().splitlines()))
# What is chosen by default is with these compared on one device of each kind.
for _name in ("mnist_mlp", "mnist_cnn", "resnet18", "vgg16"):
  for _title, _flag, _form, _targets in (
    ("one client at a time", " --client_map=scan", "", ("h100", "v5e-1")),
    ("convolutions as products", "", "matmul", ("v5e-1",)),
    ("XLA's own convolutions", "", "lax", ("h100",)),
  ):
    if _name != "mnist_mlp" or not _form:
      _run = RUNS[_name]
      RUNS[f"{_name}_{_form or 'scan'}"] = Run(
        f"{_run.title}, {_title}", _run.flags + _flag, _form, _targets
      )


# An H100 as XLA describes one that it finds; the facts are the data sheet's.
H100 = (shared.HERE / "h100.textproto").read_text()


# Where XLA would search the tiling of a product by trial, and has no card.
WITHOUT_TILINGS = "--xla_gpu_enable_triton_gemm=false"


def environment(name: str, *flags: str) -> dict[str, str]:
  """The variables with which JAX compiles for a target, on the processor.

  Args:
    name: key of `TARGETS`.
    *flags: further ones of XLA.
  """
  # There is no card to try algorithms on.
  xla_flags = os.environ.get("XLA_FLAGS", "")
  flags = [xla_flags, "--xla_gpu_autotune_level=0", *flags]
  return {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": TARGETS[name].accelerator,
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "XLA_FLAGS": " ".join(filter(None, flags)),
  }


def compile_one(name: str, target: str, data_dir: str) -> dict[str, Any]:
  """What is known of a run on a target."""
  run = RUNS[name]
  flags = [flag.replace("TEXTS", data_dir) for flag in run.flags.split()]
  arguments = {"target": target, "flags": flags, "form": run.convolution}
  return in_process("accelerator_compile", arguments)


def in_process(
  module: str, arguments: dict[str, Any], *flags: str
) -> dict[str, Any]:
  """What `compile_here` of a module returns in a process for a target.

  If a GPU's program does not compile, it is tried without tilings.

  Args:
    module: of this folder.
    arguments: of the function, such as `target`, a key of `TARGETS`.
    *flags: of XLA, see `environment`.
  """
  variables = environment(arguments["target"], *flags)
  try:
    record = shared.in_process(
      module, "compile_here", arguments, variables=variables
    )
  except shared.WorkerError:
    if flags or "h100" not in arguments["target"]:
      raise
    return in_process(module, arguments, WITHOUT_TILINGS)
  return record | {"jax": jax.__version__, "date": time.strftime("%Y-%m-%d")}


# In the process of one target: images of the right shapes stand for those of a
# data set, so nothing is downloaded, and all sizes are real.


def devices_of(name: str) -> list[jax.Device]:
  """The devices of a target.

  Raises:
    RuntimeError: where the plugin of CUDA or TPU is not installed.
  """
  described = TARGETS[name]
  if not described.topology:
    return topologies.get_topology_desc(
      platform="cuda",
      target_config=H100,
      topology=f"1x1x{described.devices}",
    ).devices
  topology = topologies.get_topology_desc(described.topology, platform="tpu")
  return topology.devices[: described.devices]


# Examples of the two splits.
_SIZES = {"mnist": (60_000, 10_000), "svhn_cropped": (73_257, 26_032)}
_CIFAR = 50_000, 10_000


def images(name: str, split: str, data_dir: Any = None) -> dict[str, Any]:
  """What `datasets.tfds.load` would give: images that stand for a data set's.

  Programs are compiled with all their real sizes, and nothing is downloaded.
  """
  del data_dir
  (of,) = [i for i in DATASETS.values() if i.tfds_name == name]
  size = _SIZES.get(name, _CIFAR)[split == "test"]
  x = np.zeros((size, of.side, of.side, len(of.mean)), np.uint8)
  y = np.random.default_rng(0).integers(of.num_classes, size=size)
  return {"x": x, "y": y.astype(np.int32)}


def compile_for(
  target: str, prepare: Callable[[], tuple[fo.Simulator, Any]]
) -> dict[str, Any]:
  """Compiles the programs of a simulator for a target.

  Args:
    target: key of `TARGETS`.
    prepare: makes it, and its initial model.

  Returns:
    The seconds of all programs; what that of the rounds says of itself; and how
    many clients it takes at a time.
  """
  with fo.target.use(devices_of(target), int(TARGETS[target].memory)):
    simulator, params = prepare()
    start = time.perf_counter()
    program = simulator.compile(params)["rounds"]
    seconds = time.perf_counter() - start
  memory, cost = program.memory_analysis(), program.cost_analysis() or {}
  text, shardings = program.as_text(), jax.tree.leaves(program.input_shardings)
  return {
    "seconds": seconds,
    "at_a_time": simulator.computation["client_chunk"],
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
    "loops": compiled.loops(text),
  }


def compile_here(
  target: str, flags: list[str], form: str = ""
) -> dict[str, Any]:
  """Compiles what a command line of `experiments.run` would run."""
  tfds.load = images
  if form:
    convolution.resolve_implementation = lambda name: name or form

  def prepare():
    job = ours.job_of(flags)
    return job.simulator, job.task.init

  return compile_for(target, prepare)


# The table.


def page(records: dict[str, Any]) -> str:
  """The records as a page of the site, with a table for each target."""
  compiled_records = [record for record in records.values() if "jax" in record]
  versions = sorted({record["jax"] for record in compiled_records})
  dates = sorted({record["date"] for record in compiled_records})
  parts = [
    "# Tables of compiled programs\n\n"
    "Written by `benchmarks/accelerator_compile.py`, with JAX "
    f"{', '.join(versions)}; {', '.join(dates)}. How to read it: [compiled "
    "without a device](compiled.md).\n"
  ]
  for target, device in TARGETS.items():
    rows = [
      {"run": run.title, **cells(records[f"{name} {target}"], target)}
      for name, run in RUNS.items()
      if "bytes" in records.get(f"{name} {target}", {})
    ]
    if rows:
      parts.append(f"## {device.name}\n\n{table(rows)}\n")
  return "\n".join(parts)


def table(rows: Sequence[dict[str, str]]) -> str:
  """A table of {column: text}, without columns in which no text is."""
  frame = pandas.DataFrame(rows).replace("", None)
  return shared.table_of(frame.dropna(axis=1, how="all").fillna("–"))


def cells(record: dict[str, Any], target: str) -> dict[str, str]:
  """{column: text} of what is known of a program."""
  sizes, device = record["bytes"], TARGETS[target]
  needs = sizes["arguments"] + sizes["temporary"] + sizes["results"]
  # XLA does not tell the kernels of a TPU.
  counts = ("", "") if device.topology else kernels(record["loops"])
  giga = lambda n: format_number(float(f"{n / 1e9:.3g}")) if n else ""
  memory = lambda n: f"{n / 1e9:.2f}".replace("0.00", "< 0.01")
  return {
    "devices": str(record["devices"]),
    "at a time": str(record["at_a_time"]),
    "compile s": f"{record['seconds']:.0f}",
    "GB a device": memory(needs),
    "GB of state": memory(sizes["arguments"]),
    "fits": "yes" if needs < device.memory else "no",
    "code MB": f"{sizes['code'] / 1e6:.1f}" if sizes["code"] else "",
    "GFLOP": giga(record["flops"]),
    "GB moved": giga(record["bytes_accessed"]),
    "exchanges": ", ".join(f"{n} {k}" for k, n in record["exchanges"].items()),
    "kernels of the rest of the round": str(counts[1]),
    "kernels of a local step": str(counts[0]),
  }


def kernels(loops: Sequence[int]) -> tuple[int, int]:
  """The kernels of a local step, and those of the rest of a round.

  The loop over rounds is the outermost one; the local steps are the inner one
  with the most kernels. Deeper ones are small, such as that of a random draw.

  Args:
    loops: see `compiled.loops`.
  """
  loops = loops or [0]
  depths = range(min(1, len(loops) - 1), len(loops))
  of_steps = max(depths, key=loops.__getitem__)
  return loops[of_steps], sum(loops[:of_steps])


def main(argv: list[str] | None = None) -> None:
  """The command line."""
  parser = shared.parser(__doc__)
  parser.add_argument("--output_dir", type=shared.folder, required=True)
  for flag, choices in (("--targets", TARGETS), ("--programs", RUNS)):
    parser.add_argument(flag, nargs="+", choices=choices, default=list(choices))
  parser.add_argument("--data_dir", required=True)
  options = parser.parse_args(argv)
  keys = [
    f"{name} {target}"
    for name in options.programs
    for target in options.targets
    if target in RUNS[name].targets
  ]
  make = lambda key: compile_one(*key.split(), options.data_dir)
  shared.recorded(options.output_dir / "page.md", keys, make, page)


if __name__ == "__main__":
  main()
