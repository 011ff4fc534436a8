"""Compiles runs at the papers' sizes for GPUs and TPUs that are not there.

  pip install -e '.[run,tpu-compile,gpu-compile]'
  python benchmarks/accelerator_compile.py --output_dir=D
  python benchmarks/accelerator_compile.py --output_dir=D \\
      --targets h100 v5e-4 --programs mnist_cnn shakespeare --data_dir=DATA

The compilers of XLA need no device. Of each run and target it writes how long
compilation took, the memory of each device, FLOPs, what devices exchange and
the kernels of each loop: D/records.json, and D/page.md for the site. What is
in D/records.json is not compiled again. Texts need --data_dir; images do not.
"""

import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import compiled
import jax
import shared
from jax.experimental import topologies

import fedjax_opt as fo
from experiments import job as jobs
from experiments.command_line import parser
from experiments.specification.resolve import resolve
from fedjax_opt.datasets import tfds
from fedjax_opt.files import json_files
from fedjax_opt.models import convolution


class Run(NamedTuple):
  """A run to compile.

  Attributes:
    title: in the table.
    flags: of `experiments.run`.
    convolution: 'matmul' or 'lax' instead of what is chosen for the device.
  """

  title: str
  flags: str
  convolution: str = ""

  @property
  def needs_data(self) -> bool:
    """Whether its data set must be there."""
    return any(name in self.flags for name in ("shakespeare", "text"))


# Name | title | preset | flags.
_RUNS = """
digits | Digits, MLP, Delta-SGD (no flags) | |
digits_sgd | Digits, MLP, SGD | | --client=sgd
mnist_mlp | MNIST, MLP, Delta-SGD | delta_sgd/mnist | DELTA --task=mnist_mlp
mnist_cnn | MNIST, CNN, Delta-SGD | delta_sgd/mnist | DELTA
resnet18 | CIFAR-10, ResNet-18, SGD | delta_sgd/cifar10 | --client=sgd
resnet18_delta | CIFAR-10, ResNet-18, Delta-SGD | delta_sgd/cifar10 | DELTA
resnet50 | CIFAR-100, ResNet-50, Delta-SGD | delta_sgd/cifar100_resnet50 | DELTA
vgg16 | CIFAR-10, VGG-16, DOMO | domo/cifar10_vgg16 | --algorithm=domo
resnet20 | SVHN, ResNet-20, DOMO | domo/svhn_resnet20 | --algorithm=domo
bvr_mlp | CIFAR-10, MLP, BVR-L-SGD | bvr/cifar10 | --algorithm=bvr_l_sgd
lasso | LASSO, FedDualAvg, 63 points | fco/lasso | --algorithm=fed_dual_avg
low_rank | Low rank, FedDualAvg, grid | fco/low_rank | --algorithm=fed_dual_avg
shakespeare | Shakespeare, LSTM, Delta-SGD | delta_sgd/shakespeare | DELTA
distilbert | AG News, DistilBERT, Delta-SGD | delta_sgd/text | DELTA
"""


def _read(line: str) -> tuple[str, Run]:
  name, title, preset, flags = (part.strip() for part in line.split("|"))
  file = f"--flagfile=experiments/{preset}.flags " if preset else ""
  return name, Run(title, file + flags.replace("DELTA", "--client=delta_sgd"))


RUNS = dict(map(_read, _RUNS.strip().splitlines()))
# What is chosen by default is with these compared on one device.
OTHER_FORMS = {
  f"{name}_{form}": Run(
    f"{RUNS[name].title}, {title}",
    f"{RUNS[name].flags} {flag}",
    convolution,
  )
  for name in ("mnist_mlp", "mnist_cnn", "resnet18", "vgg16")
  for form, title, flag, convolution in (
    ("scan", "one client at a time", "--client_map=scan", ""),
    ("matmul", "convolutions as products", "", "matmul"),
    ("lax", "XLA's own convolutions", "", "lax"),
  )
  if not (name == "mnist_mlp" and convolution)
}
# Of each device the form of convolutions that is not chosen.
_OTHER_CONVOLUTION = {"h100": "lax", "v5e-1": "matmul"}


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
  "h100-8": Target("8 H100", 84.9e9, devices=8),
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


# Where XLA would search the tiling of a product by trial, and has no card.
WITHOUT_TILINGS = "--xla_gpu_enable_triton_gemm=false"


def environment(name: str, *flags: str) -> dict[str, str]:
  """The variables with which JAX compiles for a target, on the processor.

  Args:
    name: key of `TARGETS`.
    *flags: further ones of XLA.
  """
  # There is no card to try algorithms on.
  given = os.environ.get("XLA_FLAGS", "")
  flags = [given, "--xla_gpu_autotune_level=0", *flags]
  return os.environ | {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": TARGETS[name].accelerator,
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "XLA_FLAGS": " ".join(filter(None, flags)),
    "PYTHONPATH": str(shared.HERE.parent),
  }


_LIMIT_S = 1800


def compile_all(
  folder: pathlib.Path, targets: list[str], names: list[str], data_dir: str
) -> dict[str, Any]:
  """The records of all, of which those not yet known are made now."""
  keys = [
    f"{name} {target}"
    for name in names
    for target in targets
    if _is_due(name, target, data_dir)
  ]
  make = lambda key: compile_one(folder, *key.split(), data_dir)
  return recorded(folder, keys, make)


def recorded(
  folder: pathlib.Path,
  keys: Sequence[str],
  make: Callable[[str], dict[str, Any]],
) -> dict[str, Any]:
  """What records.json of a folder has, with those of `keys` that it lacked."""
  file = folder / "records.json"
  records = json.loads(file.read_text()) if file.exists() else {}
  for key in [key for key in keys if key not in records]:
    start = time.perf_counter()
    records[key] = make(key)
    seconds = time.perf_counter() - start
    print(f"{key}: {records[key].get('error', f'{seconds:.0f} s')}", flush=True)
    json_files.write_whole(file, json.dumps(records, indent=1).encode())
  return records


def _is_due(name, target, data_dir):
  if name in OTHER_FORMS:
    other = _OTHER_CONVOLUTION.get(target)
    return bool(other) and OTHER_FORMS[name].convolution in ("", other)
  return bool(data_dir) or not RUNS[name].needs_data


def compile_one(
  folder: pathlib.Path, name: str, target: str, data_dir: str
) -> dict[str, Any]:
  """What is known of a run on a target; {'error': line} if it fails."""
  run = (RUNS | OTHER_FORMS)[name]
  given = run.flags
  if run.needs_data:
    given += f" --data_dir={data_dir}"
  arguments = [__file__, "--only", target, given]
  others = [run.convolution] if run.convolution else []
  return in_process(folder, target, arguments, others)


def in_process(
  folder: pathlib.Path,
  target: str,
  arguments: list[str],
  others: Sequence[str] = (),
) -> dict[str, Any]:
  """What a process writes that compiles for a target; {'error': line}.

  If a GPU's program does not compile, it is tried without tilings.

  Args:
    folder: where it writes.
    target: key of `TARGETS`.
    arguments: of Python, before the file to write.
    others: those after it.
  """
  record = folder / "record.json"
  command = [sys.executable, *arguments, str(record), *others]
  found = _compiled(command, record, environment(target))
  if "h100" in target and found.get("error", _LATE) != _LATE:
    found = _compiled(command, record, environment(target, WITHOUT_TILINGS))
  return found


_LATE = f"not compiled after {_LIMIT_S} s"


def _compiled(command, record, environ):
  """What one process writes; {'error': line} if it writes nothing."""
  record.unlink(missing_ok=True)
  try:
    ended = subprocess.run(
      command, cwd=shared.HERE.parent, env=environ,
      capture_output=True, text=True, check=False, timeout=_LIMIT_S,
    )  # fmt: skip
  except subprocess.TimeoutExpired:
    return {"error": _LATE}
  if ended.returncode == 0 and record.exists():
    return json.loads(record.read_text())
  lines = ended.stderr.strip().splitlines() or ["no reason given"]
  # XLA adds where in Python it may come from.
  named = [line for line in lines if "Error: " in line]
  return {"error": (named or lines)[-1][:120]}


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


def programs_of(arguments: list[str]) -> dict[str, Any]:
  """Compiles the programs of a command line of `experiments.run`.

  Returns:
    {'seconds': of all, name: what is known of the program}.
  """
  job = jobs.prepare(resolve(parser.parse(["run", *arguments])))
  start = time.perf_counter()
  programs = job.simulator.compile(job.task.init)
  seconds = time.perf_counter() - start
  known = {name: known_of(program) for name, program in programs.items()}
  chosen = {"computation": job.simulator.computation}
  return {"seconds": seconds, **chosen, **known}


def known_of(program: jax.stages.Compiled) -> dict[str, Any]:
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
  }


def compile_here(
  name: str, arguments: str, record: str, form: str = ""
) -> None:
  """Compiles, and writes what is known of the programs."""
  tfds.load = compiled.images
  if form:
    convolution.resolve_implementation = lambda given: given or form
  with fo.target.use(devices_of(name), int(TARGETS[name].memory)):
    found = programs_of(arguments.split())
  versions = {"jax": jax.__version__, "date": time.strftime("%Y-%m-%d")}
  pathlib.Path(record).write_text(json.dumps(found | versions))


# The table.

_COLUMNS = (
  "run", "devices", "compile s", "GB a device", "fits", "code MB", "GFLOP",
  "GB moved", "exchanges", "kernels of a round", "of a step",
)  # fmt: skip
_NOTHING = "–"


def page(records: dict[str, Any]) -> str:
  """The records as a page of the site."""
  made = [record for record in records.values() if "jax" in record]
  versions = sorted({record["jax"] for record in made})
  dates = sorted({record["date"] for record in made})
  return (
    "# Tables of compiled programs\n\n"
    "Written by `benchmarks/accelerator_compile.py`, with JAX "
    f"{', '.join(versions)}; {', '.join(dates)}. How to read it: [compiled "
    f"without a device](compiled.md).\n\n{tables(records)}"
  )


def tables(records: dict[str, Any]) -> str:
  """The records as tables in Markdown, one for each target."""
  found = []
  for target, device in TARGETS.items():
    names = [n for n in RUNS | OTHER_FORMS if f"{n} {target}" in records]
    rows = [_cells(name, target, records[f"{name} {target}"]) for name in names]
    if rows:
      found.append(f"## {device.name}\n\n{_table(rows)}\n")
  return "\n".join(found)


def _table(rows: Sequence[Sequence[str]]) -> str:
  """A table without the columns that say nothing of this target."""
  columns = zip(_COLUMNS, *rows, strict=True)
  told = [column for column in columns if {*column[1:]} != {_NOTHING}]
  header, *rows = zip(*told, strict=True)
  return shared.table(header, rows)


def _cells(name, target, record):
  """The texts of a line."""
  title = (RUNS | OTHER_FORMS)[name].title
  device = TARGETS[target]
  if "error" in record:
    # The records have the compiler's own words.
    said = record["error"]
    said = "not compiled" if "Error: " in said else said
    missing = [_NOTHING] * (len(_COLUMNS) - 3)
    return [title, _NOTHING, said, *missing]
  rounds = record["rounds"]
  needs = bytes_of(rounds)
  of_code = rounds["bytes"]["code"]
  step, rest = kernels(rounds["loops"])
  of = lambda name: f"{rounds[name] / 1e9:.3g}" if rounds[name] else _NOTHING
  # Of several exchanges of one kind.
  exchanged = ", ".join(f"{n} {k}" for k, n in rounds["exchanges"].items())
  is_gpu = not device.topology
  return [
    title,
    str(rounds["devices"]),
    f"{record['seconds']:.0f}",
    f"{needs / 1e9:.2f}",
    "yes" if needs < device.memory else "no",
    f"{of_code / 1e6:.1f}" if of_code else _NOTHING,
    of("flops"),
    of("bytes_accessed"),
    exchanged or _NOTHING,
    str(rest) if is_gpu else _NOTHING,
    str(step) if is_gpu else _NOTHING,
  ]


def bytes_of(program: dict[str, Any]) -> int:
  """What a program needs of each device."""
  sizes = program["bytes"]
  return sizes["arguments"] + sizes["temporary"] + sizes["results"]


def kernels(loops: list[dict[str, int]]) -> tuple[int, int]:
  """The kernels of a local step, and those of the rest of a round.

  The loop over rounds is the outermost one that has a loop inside; the local
  steps are the innermost one with the most kernels.
  """
  depths = [loop["depth"] for loop in loops]
  inner = max(depths, default=0)
  of_depth = lambda depth: max(
    (loop["kernels"] for loop in loops if loop["depth"] == depth), default=0
  )
  # Deeper loops are small ones within a step, such as that of a random draw.
  step_depth = max(range(min(1, inner), inner + 1), key=of_depth, default=inner)
  rest = sum(of_depth(depth) for depth in range(step_depth))
  return of_depth(step_depth), rest


def main(argv: list[str] | None = None) -> None:
  """The command line."""
  argv = sys.argv[1:] if argv is None else argv
  if argv[:1] == ["--only"]:
    compile_here(*argv[1:])
    return
  parser = shared.parser(__doc__)
  parser.add_argument("--output_dir", required=True)
  for name, known in (("targets", TARGETS), ("programs", RUNS | OTHER_FORMS)):
    known = list(known)
    parser.add_argument(f"--{name}", nargs="+", choices=known, default=known)
  parser.add_argument("--data_dir", default="")
  options = parser.parse_args(argv)
  folder = pathlib.Path(options.output_dir).expanduser().resolve()
  os.makedirs(folder, exist_ok=True)
  records = compile_all(
    folder, options.targets, options.programs, options.data_dir
  )
  (folder / "page.md").write_text(page(records))
  print(tables(records))


if __name__ == "__main__":
  main()
