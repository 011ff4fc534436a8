"""Measures a GPU or a TPU in the time that there is, the most telling first.

  python benchmarks/accelerator.py --budget_s=1800 --output_dir=D
  python benchmarks/accelerator.py --budget_s=1800 --output_dir=D \\
      --fedjax_python=P --torch_python=Q --flower_python=R

Each measurement is a process of its own, which has the device to itself. Its
result is written at once, to D/records.json; the same command goes on where it
was stopped, and skips what is there. What is not done when the time is over, or
after ten minutes, is left out, and named. D/report.md shows what there is.

The other frameworks run where a Python is given that has them (`pip install
fedjax dm-haiku`; torch; flwr[simulation] torch). --tiny is a rehearsal: each
kind of measurement once, at sizes that a processor does in minutes. Then the
numbers mean nothing.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas
import shared

_TRANSFORMERS = ("29M", "134M", "1.04B")
WORKLOADS = shared.WORKLOADS | {
  "resnet18": shared.Workload("resnet18", 10, 10, 50, (32, 32, 3), 10, 0.01),
  "vgg16": shared.Workload("vgg16", 10, 10, 32, (32, 32, 3), 10, 0.01),
  # Texts.
  **{
    size: shared.Workload(size, 8, 2, 8, (512,), 2, 0.01)
    for size in _TRANSFORMERS
  },
}
_TF32, _VMAP = {"matmul": "tensorfloat32"}, {"client_map": "vmap"}
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
REHEARSED = (
  "cnn, auto", "mlp, grid of 8", "mlp, chunks of 2",
  "mlp, vmap, float32", "resnet18, vmap, bfloat16", "29M, auto",
  "vgg16, vmap", *(f"cnn, {title}" for title in shared.FRAMEWORKS.values()),
)  # fmt: skip


def jobs(options: argparse.Namespace) -> dict[str, shared.Entry]:
  """All of them by name, the most telling first."""
  entries = {}
  for model in ("cnn", "mlp"):
    entries |= _rounds(model, "auto", **_TF32)
    for name, title in shared.FRAMEWORKS.items():
      if vars(options)[f"{name}_python"]:
        entries |= _rounds(model, title, name)
  for number in (1, 8, 64):
    entries |= _rounds("mlp", f"grid of {number}", **_TF32, points=number)
  for size in _TRANSFORMERS:
    entries |= _rounds(size, "auto", **_TF32)
  for model in ("cnn", "mlp", "resnet18", "vgg16"):
    for form, settings in _FORMS.items():
      if "form" not in settings or model != "mlp":
        entries |= _rounds(model, form, **_TF32 | settings)
  if options.tiny:
    return {name: _tiny(entries[name]) for name in REHEARSED if name in entries}
  return entries


def _rounds(model, title, worker="fedjax_opt", /, **settings):
  entry = shared.Entry(
    title, worker, "fed_avg", WORKLOADS[model], settings, variables={}
  )
  return {f"{model}, {title}": entry}


def _tiny(job):
  """The same at sizes of a rehearsal."""
  workload = job.workload
  tiny_workload = workload._replace(num_clients=2, num_steps=2, batch_size=4)
  if workload.name in ("resnet18", "vgg16", "29M"):
    tiny_workload = tiny_workload._replace(name=f"tiny {workload.name}")
  return job._replace(workload=tiny_workload)


# Doing them.


def run_one(
  job: shared.Entry, pythons: Mapping[str, str], left: float
) -> dict[str, Any]:
  """What processes of its own find, in so many seconds."""
  if left <= 0:
    raise shared.LateError("no time is left")
  flops = None
  # A process that takes ten minutes hangs.
  with shared.Run(job, pythons, min(left, 600)) as run:
    for step in (run.build, *[run.take_turn] * 3):
      step()
    if job.worker == "fedjax_opt":
      points = job.settings.get("points", 1)
      flops = points * run.call("flops", workload=job.workload)
  return run.last | {
    "cells": run.cells,
    "compile_seconds": run.first.get("compile_seconds", run.start),
    "tflops": flops and flops / run.seconds / 1e12,
  }


# The report.


def report(
  device: Mapping[str, str], records: Mapping[str, Any], names: Sequence[str]
) -> str:
  """The results that there are, of jobs in their order."""
  frame = pandas.DataFrame(
    {
      "round": name,
      **dict(zip(("ms", "range"), records[name]["cells"], strict=True)),
      "TFLOP/s": records[name]["tflops"] or np.nan,
      "peak GB": records[name].get("device_peak", 0) / 1e3 or np.nan,
      "compile s": records[name]["compile_seconds"],
    }
    for name in names
    if "cells" in records.get(name, {})
  )
  of_device = "\n".join(f"- {name}: {value}" for name, value in device.items())
  return f"{of_device}\n\n{shared.table_of(frame)}\n"


def main(argv: list[str] | None = None) -> int:
  """The command line; the exit status is 1 if a measurement failed."""
  parser = shared.parser(__doc__, shared.FRAMEWORKS, default="")
  parser.add_argument("--budget_s", type=float, required=True)
  parser.add_argument("--output_dir", type=shared.folder, required=True)
  parser.add_argument("--tiny", action="store_true")
  options = parser.parse_args(argv)
  todo, end = jobs(options), time.monotonic() + options.budget_s
  pythons = shared.pythons(options)
  make = lambda name: run_one(todo[name], pythons, end - time.monotonic())
  page = options.output_dir / "report.md"
  device = shared.in_process("fedjax_opt_worker", "device")
  text_of = lambda records: report(device, records, list(todo))
  has_failed = shared.recorded(page, list(todo), make, text_of)
  print(page.read_text())
  return int(has_failed)


if __name__ == "__main__":
  sys.exit(main())
