"""Measures a GPU or a TPU in the time that there is, the most telling first.

  python benchmarks/accelerator.py --budget_s=1800 --output_dir=D
  python benchmarks/accelerator.py --budget_s=1800 --output_dir=D \\
      --fedjax_python=P --torch_python=Q --flower_python=R \\
      --data_dir=DATA

Each measurement is a process of its own, which has the device to itself. Its
result is written at once, to D/results; the same command goes on where it was
stopped, and skips what is there. What would not fit into the time that is left
is left out, and named. D/report.md shows what
there is.

The other frameworks run where a Python is given that has them (`pip install
fedjax dm-haiku`; torch; flwr[simulation] torch). Published
protocols and the papers' own runs need --data_dir; the long ones go on from
their checkpoints in D. --tiny is a rehearsal: all else that this program does,
at sizes that a processor does in minutes. Then the numbers mean nothing.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import shared

from fedjax_opt.files import json_files
from fedjax_opt.results.checkpoint import Checkpoints

_ROOT = pathlib.Path(__file__).parents[1]
FRAMEWORKS = {
  "fedjax": "FedJAX", "torch": "PyTorch, eager", "flower": "Flower"
}  # fmt: skip
# A process that has used up its estimate this many times hangs.
_PATIENCE = 4


class Job(NamedTuple):
  """One measurement.

  Attributes:
    name: of its result.
    seconds: that it takes on an H100, about, with its compilation.
    case: of accelerator_cases.py; 'paper' or 'command'.
    arguments: of the case.
  """

  name: str
  seconds: float
  case: str
  arguments: Mapping[str, Any]


# Rounds of a model: seconds of the job, steps, batch size, rounds of a turn.
_MODELS = {
  "cnn": (40, 8, 64, 20), "mlp": (30, 64, 16, 20), "resnet18": (120, 10, 50, 5),
  "vgg16": (120, 10, 32, 5), "encoder": (120, 10, 16, 5),
}  # fmt: skip
# Of large_models.py, with the seconds of the job.
_TRANSFORMERS = {"29M": 60, "134M": 90, "1.04B": 240}
_VMAP = {"client_map": "vmap"}
_FORMS = {
  "vmap": {"settings": _VMAP},
  "chunks of 2": {"settings": {**_VMAP, "client_chunk": 2}},
  "scan": {"settings": {"client_map": "scan"}},
  "vmap, float32": {"matmul": "highest"},
  "vmap, mixed": {"settings": {**_VMAP, "precision": "mixed"}},
  # One of them is what `auto` takes.
  "as products": {"form": "matmul"},
  "XLA's convolutions": {"form": "lax"},
}
# A rehearsal has all models in one form, and one setting of each kind.
_REHEARSED = (
  "cnn, auto", "mlp, grid of 8", "mlp, chunks of 2", "mlp, vmap, float32",
  "resnet18, vmap, bfloat16", "transformer 29M, auto", "vgg16, vmap",
  "encoder, vmap",
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


def jobs(options: argparse.Namespace) -> list[Job]:
  """All of them, the most telling first."""
  found = [Job("device", 60, "device", {})]
  for model in ("cnn", "mlp"):
    found.append(_round(model, "auto"))
    found += [
      Job(
        f"{model}, {title}", 120 if name == "flower" else 60, "peer",
        {"framework": name, "python": python, "workload": model},
      )
      for name, title in FRAMEWORKS.items()
      if (python := vars(options)[f"{name}_python"])
    ]  # fmt: skip
  found += [
    _round("mlp", f"grid of {number}", settings_of_grid=number)
    for number in (1, 8, 64)
  ]
  bfloat16 = {"settings": {**_VMAP, "precision": "bfloat16"}}
  found.append(_round("resnet18", "vmap, bfloat16", **bfloat16))
  found += [
    Job(f"transformer {size}, auto", seconds, "round", _transformer(size))
    for size, seconds in _TRANSFORMERS.items()
  ]
  found += [
    _round(model, form, **how)
    for model in _MODELS
    for form, how in _FORMS.items()
    if "form" not in how or model in ("cnn", "vgg16", "resnet18")
  ]
  if options.tiny:
    return [_tiny(job) for job in found if _is_rehearsed(job)]
  if options.data_dir:
    paper = lambda name: Job(f"paper {name}", 300, "paper", {"artefact": name})
    found.insert(1, paper("delta_sgd/table1"))
    found += [
      Job(name, 300, "command", {"flags": flags})
      for name, flags in _COMMANDS.items()
    ]
    found.append(paper("domo/figure1"))
  return found


def _round(model, title, /, **how):
  seconds, steps, batch_size, rounds = _MODELS[model]
  shape = {"steps": steps, "batch_size": batch_size, "rounds": rounds}
  arguments = {"model": model, **shape, **how}
  return Job(f"{model}, {title}", seconds, "round", arguments)


def _transformer(size):
  """Eight clients with two steps on 8 texts."""
  shape = {"clients": 8, "steps": 2, "batch_size": 8, "rounds": 1}
  return {"model": f"transformer {size}"} | shape


def _is_rehearsed(job):
  return job.case in ("device", "peer") or job.name in _REHEARSED


def _tiny(job):
  """The same at sizes of a rehearsal."""
  small = {"clients": 2, "steps": 2, "batch_size": 4, "rounds": 2}
  of_case = {"device": {"tiny": True}, "round": small, "peer": {"rounds": 1}}
  arguments = {**job.arguments, **of_case[job.case]}
  if arguments.get("model") in ("resnet18", "vgg16", "encoder"):
    arguments["model"] = f"tiny {arguments['model']}"
  if arguments.get("model") == "transformer 29M":
    arguments["model"] = "tiny transformer"
  return job._replace(seconds=1.0, arguments=arguments)


# Doing them.


def run_all(
  todo: Sequence[Job], folder: pathlib.Path, options: argparse.Namespace
) -> bool:
  """Does what fits into the time, and writes the report after each job.

  Returns:
    Whether one failed.
  """
  has_failed, end = False, time.monotonic() + options.budget_s
  results = folder / "results"
  results.mkdir(parents=True, exist_ok=True)
  names = [job.name for job in todo]
  write(folder, names)
  for job in todo:
    file = results / f"{_file_name(job.name)}.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    if known and not {"left_out", "error"} & set(known):
      continue
    left = end - time.monotonic()
    if job.seconds > left:
      reason = f"needs about {job.seconds:.0f} s, and {max(left, 0):.0f} s left"
      found = {"left_out": reason}
    else:
      start = time.monotonic()
      found = run_one(job, folder, options, left)
      found["seconds"] = time.monotonic() - start
    record = {**job.arguments, "name": job.name, "case": job.case} | found
    json_files.write_whole(file, json.dumps(record, indent=1).encode())
    has_failed |= "error" in found
    said = found.get("left_out") or found.get("error") or "done"
    print(f"{job.name}: {said}", flush=True)
    write(folder, names)
  return has_failed


def run_one(
  job: Job, folder: pathlib.Path, options: argparse.Namespace, left: float
) -> dict[str, Any]:
  """What a process of its own finds, or {'error': line}."""
  result = folder / "result.json"
  result.unlink(missing_ok=True)
  command = _command(job, folder, options, result)
  limit = left if options.tiny else min(left, _PATIENCE * job.seconds)
  try:
    ended = subprocess.run(
      command, cwd=_ROOT, capture_output=True, text=True, check=False,
      timeout=limit, env=os.environ | {"PYTHONPATH": str(_ROOT)},
    )  # fmt: skip
  except subprocess.TimeoutExpired:
    return {"left_out": f"was not done after {limit:.0f} s"}
  if ended.returncode:
    lines = ended.stderr.strip().splitlines() or ["no reason given"]
    return {"error": lines[-1][:300]}
  if job.case in ("paper", "command"):
    return {"said": ended.stdout[-2000:]}
  return json.loads(result.read_text())


def _command(job, folder, options, result):
  """The command line of a job."""
  run = [sys.executable, "-m"]
  if job.case == "paper":
    return [
      *run, "experiments.reproduce", f"--artefact={job.arguments['artefact']}",
      "--size=paper", f"--data_dir={options.data_dir}",
      f"--output_dir={folder / 'runs'}",
    ]  # fmt: skip
  if job.case == "command":
    own = folder / _file_name(job.name)
    is_begun = Checkpoints.are_in(own / "checkpoints")
    return [
      *run, "experiments.run", *job.arguments["flags"].split(),
      f"--data_dir={options.data_dir}", f"--output_dir={own}",
      *(["--resume"] if is_begun else []),
    ]  # fmt: skip
  program = str(_ROOT / "benchmarks/accelerator_cases.py")
  arguments = json.dumps(dict(job.arguments))
  return [sys.executable, program, job.case, arguments, str(result)]


def _file_name(name):
  return "".join(c if c.isalnum() else "_" for c in name)


# The report.


def write(folder: pathlib.Path, names: Sequence[str]) -> None:
  """Writes report.md, from the results that there are.

  Args:
    folder: of the output.
    names: of the jobs, in their order.
  """
  files = (folder / "results").glob("*.json")
  found = {r["name"]: r for r in (json.loads(f.read_text()) for f in files)}
  records = [found[name] for name in names if name in found]
  is_done = lambda record: not {"left_out", "error"} & set(record)
  rounds = [r for r in records if "ms_per_round" in r and is_done(r)]
  device = found.get("device", {})
  text = [_device(device)]
  if rounds:
    header = (
      "round", "ms", "range", "TFLOP/s", "% of the product's", "peak GB",
      "compile s",
    )  # fmt: skip
    rows = [_cells(record, device) for record in rounds]
    text += ["## Rounds", shared.table(header, rows)]
  text += [
    f"### {record['name']}\n\n```\n{record['said'].rstrip()}\n```"
    for record in records
    if "said" in record
  ]
  reasons = {name: "not begun" for name in names if name not in found} | {
    r["name"]: r.get("left_out") or r["error"]
    for r in records
    if not is_done(r)
  }
  if reasons:
    lines = (f"- {name}: {reason}" for name, reason in reasons.items())
    text += ["## Left out", "\n".join(lines)]
  (folder / "report.md").write_text("\n\n".join(text) + "\n")


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


def _cells(record, device):
  """A row of the table."""
  precision = (record.get("settings") or {}).get("precision", "float32")
  types = "float32" if record.get("matmul") == "highest" else "tf32"
  types = types if precision == "float32" else "bfloat16"
  peak, tflops = device.get(f"{types}_tflops"), record.get("tflops")
  number = lambda x: f"{x:.3g}" if x else "–"
  return [
    record["name"],
    f"{record['ms_per_round']:.4g}",
    " to ".join(f"{ms:.4g}" for ms in record["range_ms"]),
    number(tflops),
    number(tflops and peak and 100 * tflops / peak),
    number(record.get("peak_gb")),
    f"{record['compile_seconds']:.3g}",
  ]


def main(argv: list[str] | None = None) -> int:
  """The command line; the exit status is 1 if a measurement failed."""
  parser = shared.parser(__doc__)
  parser.add_argument("--budget_s", type=float, required=True)
  parser.add_argument("--output_dir", required=True)
  parser.add_argument("--data_dir", default="")
  parser.add_argument("--tiny", action="store_true")
  for name, title in FRAMEWORKS.items():
    parser.add_argument(f"--{name}_python", default="", help=f"has {title}")
  options = parser.parse_args(argv)
  if options.budget_s <= 0:
    parser.error(f"--budget_s={options.budget_s:g}: must be above 0")
  folder = pathlib.Path(options.output_dir).expanduser().resolve()
  os.makedirs(folder, exist_ok=True)
  has_failed = run_all(jobs(options), folder, options)
  print((folder / "report.md").read_text())
  return int(has_failed)


if __name__ == "__main__":
  sys.exit(main())
