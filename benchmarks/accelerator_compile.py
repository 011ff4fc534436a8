"""Compiles runs at the papers' sizes for GPUs and TPUs that are not there.

  pip install -e '.[run,tpu-compile,gpu-compile]'
  python benchmarks/accelerator_compile.py --output_dir=D
  python benchmarks/accelerator_compile.py --output_dir=D \\
      --targets=h100,v5e-4 --programs=mnist_cnn,shakespeare --data_dir=DATA

The compilers of XLA need no device. Of each run and target it writes how long
compilation took, the memory of each device, FLOPs, what devices exchange and
the kernels of each loop: D/records.json, and D/page.md for the site. What is
in D/records.json is not compiled again. Texts need --data_dir; images do not.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Any, NamedTuple

import accelerator_report
import accelerator_targets

from fedjax_opt.results import json_files

_DELTA, _DOMO = "experiments/delta_sgd", "experiments/domo"
_FCO, _BVR = "experiments/fco", "experiments/bvr"


class Run(NamedTuple):
  """A run to compile.

  Attributes:
    title: in the table.
    flags: of `experiments.run`.
    needs_data: whether its data set must be there.
    convolution: 'matmul' or 'lax' instead of what is chosen for the device.
  """

  title: str
  flags: str
  needs_data: bool = False
  convolution: str = ""


RUNS = {
  "digits": Run("Digits, MLP, Delta-SGD (no flags)", ""),
  "digits_sgd": Run("Digits, MLP, SGD", "--client=sgd"),
  "mnist_mlp": Run(
    "MNIST, MLP, Delta-SGD",
    f"--flagfile={_DELTA}/mnist.flags --task=mnist_mlp --client=delta_sgd",
  ),
  "mnist_cnn": Run(
    "MNIST, CNN, Delta-SGD",
    f"--flagfile={_DELTA}/mnist.flags --client=delta_sgd",
  ),
  "resnet18": Run(
    "CIFAR-10, ResNet-18, SGD",
    f"--flagfile={_DELTA}/cifar10.flags --client=sgd",
  ),
  "resnet18_delta": Run(
    "CIFAR-10, ResNet-18, Delta-SGD",
    f"--flagfile={_DELTA}/cifar10.flags --client=delta_sgd",
  ),
  "resnet50": Run(
    "CIFAR-100, ResNet-50, Delta-SGD",
    f"--flagfile={_DELTA}/cifar100_resnet50.flags --client=delta_sgd",
  ),
  "vgg16": Run(
    "CIFAR-10, VGG-16, DOMO",
    f"--flagfile={_DOMO}/cifar10_vgg16.flags --algorithm=domo",
  ),
  "resnet20": Run(
    "SVHN, ResNet-20, DOMO",
    f"--flagfile={_DOMO}/svhn_resnet20.flags --algorithm=domo",
  ),
  "bvr_mlp": Run(
    "CIFAR-10, MLP, BVR-L-SGD",
    f"--flagfile={_BVR}/cifar10.flags --algorithm=bvr_l_sgd",
  ),
  "lasso": Run(
    "LASSO, FedDualAvg, 63 points",
    f"--flagfile={_FCO}/lasso.flags --algorithm=fed_dual_avg",
  ),
  "low_rank": Run(
    "Low rank, FedDualAvg, grid",
    f"--flagfile={_FCO}/low_rank.flags --algorithm=fed_dual_avg",
  ),
  "shakespeare": Run(
    "Shakespeare, LSTM, Delta-SGD",
    f"--flagfile={_DELTA}/shakespeare.flags --client=delta_sgd",
    needs_data=True,
  ),
  "distilbert": Run(
    "AG News, DistilBERT, Delta-SGD",
    f"--flagfile={_DELTA}/text.flags --client=delta_sgd",
    needs_data=True,
  ),
}
# What is chosen by default is with these compared on one device.
OTHER_FORMS = {
  f"{name}_{form}": Run(
    f"{RUNS[name].title}, {title}",
    f"{RUNS[name].flags} {flag}",
    convolution=convolution,
  )
  for name in ("mnist_mlp", "mnist_cnn", "resnet18", "vgg16")
  for form, title, flag, convolution in (
    ("scan", "one client at a time", "--client_map=scan", ""),
    ("matmul", "convolutions as products", "", "matmul"),
  )
  if not (name == "mnist_mlp" and convolution)
}
TARGETS = tuple(accelerator_targets.TARGETS)
_LIMIT_S = 1800
_ROOT = pathlib.Path(__file__).parents[1]


def compile_all(
  folder: pathlib.Path, targets: list[str], names: list[str], data_dir: str
) -> dict[str, Any]:
  """The records of all, of which those not yet known are made now."""
  file = folder / "records.json"
  records = json.loads(file.read_text()) if file.exists() else {}
  for name in names:
    for target in targets:
      key = f"{name} {target}"
      if key in records or not _is_due(name, target, data_dir):
        continue
      start = time.perf_counter()
      records[key] = compile_one(folder, name, target, data_dir)
      seconds = time.perf_counter() - start
      said = records[key].get("error", f"{seconds:.0f} s")
      print(f"{key}: {said}", flush=True)
      json_files.write_whole(file, json.dumps(records, indent=1).encode())
  return records


def _is_due(name, target, data_dir):
  if name in OTHER_FORMS:
    return target in ("h100", "v5e-1")
  return bool(data_dir) or not RUNS[name].needs_data


def compile_one(
  folder: pathlib.Path, name: str, target: str, data_dir: str
) -> dict[str, Any]:
  """What is known of a run on a target; {'error': line} if it fails."""
  run = (RUNS | OTHER_FORMS)[name]
  given = run.flags
  if run.needs_data:
    given += f" --data_dir={data_dir}"
  record = folder / "record.json"
  record.unlink(missing_ok=True)
  program = str(_ROOT / "benchmarks/accelerator_programs.py")
  command = [sys.executable, program, target, given, str(record)]
  command += [run.convolution] if run.convolution else []
  try:
    ended = subprocess.run(
      command, cwd=_ROOT, capture_output=True, text=True, check=False,
      timeout=_LIMIT_S, env=accelerator_targets.environment(target),
    )  # fmt: skip
  except subprocess.TimeoutExpired:
    return {"error": f"not compiled after {_LIMIT_S} s"}
  if ended.returncode or not record.exists():
    lines = ended.stderr.strip().splitlines() or ["no reason given"]
    # XLA adds where in Python it may come from.
    named = [line for line in lines if "Error: " in line]
    return {"error": (named or lines)[-1][:120]}
  found = json.loads(record.read_text())
  record.unlink()
  return found


# The table.

_COLUMNS = (
  "run", "for", "devices", "compile s", "GB a device", "fits", "code MB",
  "GFLOP", "GB moved", "exchanges", "kernels of a round", "of a step",
)  # fmt: skip


def page(records: dict[str, Any]) -> str:
  """The records as a page of the site."""
  made = [record for record in records.values() if "jax" in record]
  versions = sorted({record["jax"] for record in made})
  dates = sorted({record["date"] for record in made})
  return (
    "# Compiled for accelerators\n\n"
    "Written by `benchmarks/accelerator_compile.py`, with JAX "
    f"{', '.join(versions)}; {', '.join(dates)}. How to read it: "
    f"[accelerators](accelerators.md).\n\n{table(records)}"
  )


def table(records: dict[str, Any]) -> str:
  """The records as a table in Markdown, by target and run."""
  rows = [
    _cells(name, target, records[f"{name} {target}"])
    for target in TARGETS
    for name in RUNS | OTHER_FORMS
    if f"{name} {target}" in records
  ]
  return accelerator_report.table(_COLUMNS, rows) + "\n"


def _cells(name, target, record):
  """The texts of a line."""
  title = (RUNS | OTHER_FORMS)[name].title
  device = accelerator_targets.TARGETS[target]
  if "error" in record:
    missing = ["–"] * (len(_COLUMNS) - 4)
    return [title, device.name, "–", record["error"], *missing]
  rounds = record["rounds"]
  needs = _bytes(rounds)
  of_code = rounds["bytes"]["code"]
  step, rest = kernels(rounds["loops"])
  of = lambda name: f"{rounds[name] / 1e9:.3g}" if rounds[name] else "–"
  # Of several exchanges of one kind.
  exchanged = ", ".join(f"{n} {k}" for k, n in rounds["exchanges"].items())
  is_gpu = not device.topology
  return [
    title,
    device.name,
    str(rounds["devices"]),
    f"{record['seconds']:.0f}",
    f"{needs / 1e9:.2f}",
    "yes" if needs < device.memory else "no",
    f"{of_code / 1e6:.1f}" if of_code else "–",
    of("flops"),
    of("bytes_accessed"),
    exchanged or "–",
    str(rest) if is_gpu else "–",
    str(step) if is_gpu else "–",
  ]


def _bytes(program):
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
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--output_dir", required=True)
  parser.add_argument("--targets", default=",".join(TARGETS))
  parser.add_argument("--programs", default=",".join(RUNS | OTHER_FORMS))
  parser.add_argument("--data_dir", default="")
  options = parser.parse_args(argv)
  targets, names = options.targets.split(","), options.programs.split(",")
  for option, given, known in (
    ("targets", targets, TARGETS),
    ("programs", names, RUNS | OTHER_FORMS),
  ):
    unknown = [name for name in given if name not in known]
    if unknown:
      parser.error(f"--{option}: {unknown[0]} is none of {', '.join(known)}")
  folder = pathlib.Path(options.output_dir).expanduser().resolve()
  os.makedirs(folder, exist_ok=True)
  records = compile_all(folder, targets, names, options.data_dir)
  (folder / "page.md").write_text(page(records))
  print(table(records))


if __name__ == "__main__":
  main()
