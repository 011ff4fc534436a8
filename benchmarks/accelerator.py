"""Measures a GPU or a TPU in the time that there is, the most telling first.

  python benchmarks/accelerator.py --budget_s=1800 --output_dir=D
  python benchmarks/accelerator.py --budget_s=1800 --output_dir=D \\
      --fedjax_python=P --torch_python=Q --flower_python=R \\
      --data_dir=DATA

Each measurement is a process of its own, which has the device to itself. Its
result is written at once, to D/records.json; the same command goes on where it
was stopped, and skips what is there. What would not fit into the time that is
left is left out, and named. D/report.md shows what there is.

The other frameworks run where a Python is given that has them (`pip install
fedjax dm-haiku`; torch; flwr[simulation] torch). Published protocols need
--data_dir, and go on from their checkpoints in D. --tiny is a rehearsal: all
else that this program does, at sizes that a processor does in minutes. Then the
numbers mean nothing.
"""

import argparse
import contextlib
import io
import pathlib
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import shared

from experiments import run as experiments_run
from fedjax_opt.results.checkpoint import Checkpoints

# A process that has used up its estimate this many times hangs.
_PATIENCE = 4


class Job(NamedTuple):
  """One measurement.

  Attributes:
    seconds: that it takes on an H100, about, with its compilation.
    entry: rounds to time.
    command: of `experiments.run`.
  """

  seconds: float
  entry: shared.Entry | None = None
  command: tuple[str, ...] = ()


_TRANSFORMERS = ("29M", "134M", "1.04B")
WORKLOADS = shared.WORKLOADS | {
  "resnet18": shared.Workload("resnet18", 10, 10, 50, (32, 32, 3), 10, 0.01, 5),
  "vgg16": shared.Workload("vgg16", 10, 10, 32, (32, 32, 3), 10, 0.01, 5),
  # Texts.
  **{
    size: shared.Workload(size, 8, 2, 8, (512,), 2, 0.01, 1)
    for size in _TRANSFORMERS
  },
}
_SECONDS = {
  "cnn": 40, "mlp": 30, "resnet18": 120, "vgg16": 120,
  "29M": 60, "134M": 90, "1.04B": 240,
}  # fmt: skip
_VMAP = {"client_map": "vmap"}
_FORMS = {
  "vmap": _VMAP,
  "chunks of 2": {**_VMAP, "client_chunk": 2},
  "scan": {"client_map": "scan"},
  "vmap, float32": {**_VMAP, "matmul": "highest"},
  "vmap, bfloat16": {**_VMAP, "precision": "bfloat16"},
  # One of them is what `auto` takes.
  "as products": {"form": "matmul"},
  "XLA's convolutions": {"form": "lax"},
}
# A rehearsal has all models in one form, and one setting of each kind.
_REHEARSED = (
  "device", "cnn, auto", "mlp, grid of 8", "mlp, chunks of 2",
  "mlp, vmap, float32", "resnet18, vmap, bfloat16", "transformer 29M, auto",
  "vgg16, vmap", *(f"cnn, {title}" for title in shared.FRAMEWORKS.values()),
)  # fmt: skip
# Published protocols, as command lines of `experiments.run`.
_NIID = (
  "--task=cifar10_cnn --num_clients=10 --cohort_size=10 --batch_size=64 "
  "--local_epochs=10 --rounds=50 --eval_every=10 --select_on=test "
  "--client=sgd --client_lr=0.1,0.01,0.001 --alpha=0.5 --seed=0,1,2"
)
_COMMANDS = {
  "FLUTE's MNIST": (
    "--task=mnist_logistic --num_clients=1000 --cohort_size=10 --batch_size=10 "
    "--local_epochs=1 --client=sgd --client_lr=0.03 --rounds=100 --alpha=0.5 "
    "--examples_per_client=60 --select_on=test"
  ),
  **{
    f"niid_bench, {name}": f"{_NIID} --algorithm={name}"
    for name in ("fed_avg", "fed_prox", "scaffold", "fed_nova")
  },
}


def jobs(options: argparse.Namespace, folder: pathlib.Path) -> dict[str, Job]:
  """All of them by name, the most telling first."""
  found = {"device": Job(60)}
  for model in ("cnn", "mlp"):
    found |= _rounds(model, "auto")
    for name, title in shared.FRAMEWORKS.items():
      if vars(options)[f"{name}_python"]:
        entry = shared.Entry(
          title, name, "fed_avg", WORKLOADS[model], variables={}
        )
        found[f"{model}, {title}"] = Job(120 if name == "flower" else 60, entry)
  for number in (1, 8, 64):
    found |= _rounds("mlp", f"grid of {number}", points=number)
  found |= _rounds("resnet18", "vmap, bfloat16", **_FORMS["vmap, bfloat16"])
  for size in _TRANSFORMERS:
    found |= _rounds(size, "auto")
  for model in ("cnn", "mlp", "resnet18", "vgg16"):
    for form, how in _FORMS.items():
      if "form" not in how or model != "mlp":
        found |= _rounds(model, form, **how)
  if options.tiny:
    return {name: _tiny(found[name]) for name in _REHEARSED if name in found}
  if options.data_dir:
    for name, flags in _COMMANDS.items():
      own = folder / "".join(c if c.isalnum() else "_" for c in name)
      command = [*flags.split(), f"--data_dir={options.data_dir}"]
      if Checkpoints.are_in(own / "checkpoints"):
        command.append("--resume")
      found[name] = Job(300, command=(*command, f"--output_dir={own}"))
  return found


def _rounds(model, title, /, **settings):
  settings = {"matmul": "tensorfloat32"} | settings
  kind = f"transformer {model}" if model in _TRANSFORMERS else model
  name = f"{kind}, {title}"
  entry = shared.Entry(
    name, "fedjax_opt", "fed_avg", WORKLOADS[model], settings, variables={}
  )
  return {name: Job(_SECONDS[model], entry)}


def _tiny(job):
  """The same at sizes of a rehearsal."""
  if not job.entry:
    return Job(1)
  of = job.entry.workload
  small = of._replace(num_clients=2, num_steps=2, batch_size=4)
  if of.name in ("resnet18", "vgg16", "29M"):
    shape = (8, 8, 3) if of.name != "29M" else of.example_shape
    small = small._replace(name=f"tiny {of.name}", example_shape=shape)
  return Job(1, job.entry._replace(workload=small))


# Doing them.


def run_one(
  job: Job, options: argparse.Namespace, left: float
) -> dict[str, Any]:
  """What processes of its own find, in so many seconds."""
  if job.seconds > left:
    raise shared.LateError(
      f"needs about {job.seconds:.0f} s, and {max(left, 0):.0f} s left"
    )
  limit = left if options.tiny else min(left, _PATIENCE * job.seconds)
  if job.command:
    given = {"flags": job.command}
    said = shared.in_process("accelerator", "command", given, limit=limit)
    return {"said": said[-2000:]}
  if not job.entry:
    given = {"is_tiny": options.tiny}
    return shared.in_process("fedjax_opt_worker", "device", given, limit=limit)
  settings, flops = dict(job.entry.settings), None
  points = settings.get("points", 1)
  turn_seconds = 0.0 if options.tiny else 0.5
  run = shared.Run(job.entry, shared.pythons(options), turn_seconds, limit)
  with contextlib.closing(run.process):
    for step in (run.build, run.set_length, *[run.take_turn] * 3):
      step()
    if job.entry.worker == "fedjax_opt":
      flops = run.process.call("flops", workload=job.entry.workload)
  return run.last | {
    "cells": run.cells,
    "compile_seconds": run.first.get("compile_seconds", run.start),
    "tflops": flops and flops * points / run.seconds / 1e12,
    "settings": settings,
  }


def command(flags: Sequence[str]) -> str:
  """What a command line of `experiments.run` prints."""
  with contextlib.redirect_stdout(io.StringIO()) as said:
    status = experiments_run.main(["run", *flags])
  if status:
    raise RuntimeError(f"the run ended with status {status}")
  return said.getvalue()


# The report.


def report(records: Mapping[str, Any], names: Sequence[str]) -> str:
  """The results that there are, of jobs in their order."""
  device = records.get("device", {})
  found = {name: records[name] for name in names if name in records}
  text = ["No device was measured."]
  if "kind" in device:
    text = [_device(device)]
  rows = [_cells(n, r, device) for n, r in found.items() if "cells" in r]
  if rows:
    header = (
      "round", "ms", "range", "TFLOP/s", "% of the product's", "peak GB",
      "compile s",
    )  # fmt: skip
    text += ["## Rounds", shared.table(header, rows)]
  text += [
    f"### {name}\n\n```\n{record['said'].rstrip()}\n```"
    for name, record in found.items()
    if "said" in record
  ]
  reasons = {name: "not begun" for name in names if name not in found}
  for name, record in found.items():
    if reason := record.get("left_out") or record.get("error"):
      reasons[name] = reason
  if reasons:
    lines = (f"- {name}: {reason}" for name, reason in reasons.items())
    text += ["## Left out", "\n".join(lines)]
  return "\n\n".join(text) + "\n"


def _device(record):
  """What was measured of the device itself."""
  if "kind" not in record:
    return "No device was measured."
  versions = (f"{n} {record[n]}" for n in ("jax", "jaxlib", "flax", "optax"))
  speeds = (
    f"{record[f'{name}_tflops']:.3g} in {name}"
    for name in ("float32", "tf32", "bfloat16")
  )
  return (
    f"{record['count']} x {record['kind']}; {', '.join(versions)}. Matrix "
    f"products, TFLOP/s: {', '.join(speeds)}. Memory at "
    f"{record['gb_per_s']:.4g} GB/s; a step of a loop with two small kernels "
    f"takes {record['microseconds_a_step_of_two_kernels']:.3g} µs."
  )


def _cells(name, record, device):
  """A row of the table."""
  settings = record["settings"]
  types = "float32" if settings.get("matmul") == "highest" else "tf32"
  types = settings.get("precision", types)
  product, tflops = device.get(f"{types}_tflops"), record["tflops"]
  number = lambda x: f"{x:.3g}" if x else "–"
  return [
    name,
    *record["cells"],
    number(tflops),
    number(tflops and product and 100 * tflops / product),
    number(record.get("device_peak", 0) / 1e3),
    f"{record['compile_seconds']:.3g}",
  ]


def main(argv: list[str] | None = None) -> int:
  """The command line; the exit status is 1 if a measurement failed."""
  parser = shared.parser(__doc__, shared.FRAMEWORKS, default="")
  parser.add_argument("--budget_s", type=float, required=True)
  parser.add_argument("--output_dir", required=True)
  parser.add_argument("--data_dir", default="")
  parser.add_argument("--tiny", action="store_true")
  options = parser.parse_args(argv)
  if options.budget_s <= 0:
    parser.error(f"--budget_s={options.budget_s:g}: must be above 0")
  folder, end = shared.folder_of(options), time.monotonic() + options.budget_s
  todo = jobs(options, folder)
  make = lambda name: run_one(todo[name], options, end - time.monotonic())
  show = lambda records: (folder / "report.md").write_text(
    report(records, list(todo))
  )
  has_failed = shared.recorded(folder, list(todo), make, show)
  print((folder / "report.md").read_text())
  return int(has_failed)


if __name__ == "__main__":
  sys.exit(main())
