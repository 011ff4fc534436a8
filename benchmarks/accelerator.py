"""Measures a GPU or a TPU in the time that there is, the most telling first.

  python benchmarks/accelerator.py --budget_s=1800 --output_dir=D
  python benchmarks/accelerator.py --budget_s=1800 --output_dir=D \\
      --fedjax_python=P --torch_python=Q --pfl_python=R --flower_python=S \\
      --data_dir=DATA

Each measurement is a process of its own, which has the device to itself. Its
result is written at once, to D/results; the same command goes on where it was
stopped, and skips what is there. What would not fit into the time that is left
is left out, and named. D/report.md and D/*.png show what there is.

The other frameworks run where a Python is given that has them (`pip install
fedjax dm-haiku`; torch; pfl[pytorch]; flwr[simulation] torch). Published
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

import accelerator_report

from fedjax_opt.results import json_files
from fedjax_opt.results.checkpoint import Checkpoints

_ROOT = pathlib.Path(__file__).parents[1]
FRAMEWORKS = {
  "fedjax": "FedJAX",
  "torch": "PyTorch, eager",
  "pfl": "pfl-research",
  "flower": "Flower",
}
# A process that has used up its estimate this many times hangs.
_PATIENCE = 4


class Job(NamedTuple):
  """One measurement.

  Attributes:
    name: of its result.
    seconds: that it takes on an H100, about, with its compilation.
    case: of accelerator_cases.py; 'peer', 'paper' or 'command'.
    arguments: of the case.
  """

  name: str
  seconds: float
  case: str
  arguments: Mapping[str, Any]


def _round(name: str, seconds: float, **arguments: Any) -> Job:
  return Job(name, seconds, "round", arguments)


# The shapes of rounds: clients x steps x batch size.
_CNN = {"model": "cnn", "steps": 8, "batch_size": 64}
_MLP = {"model": "mlp", "steps": 64, "batch_size": 16}
_RESNET = {"model": "resnet18", "steps": 10, "batch_size": 50, "rounds": 5}
_VGG = {"model": "vgg16", "steps": 10, "batch_size": 32, "rounds": 5}
_ENCODER = {"model": "encoder", "steps": 10, "batch_size": 16, "rounds": 5}
_MODELS = {
  "cnn": (_CNN, 40), "mlp": (_MLP, 30), "resnet18": (_RESNET, 120),
  "vgg16": (_VGG, 120), "encoder": (_ENCODER, 120),
}  # fmt: skip
_FORMS = {
  "vmap": {"settings": {"client_map": "vmap"}},
  "chunks of 2": {"settings": {"client_map": "vmap", "client_chunk": 2}},
  "scan": {"settings": {"client_map": "scan"}},
}
# Forms that a rehearsal has of the MLP alone.
_LIKE = ("chunks of 2", "scan", "vmap, float32", "vmap, mixed")


def jobs(options: argparse.Namespace) -> list[Job]:
  """All of them, the most telling first."""
  given = vars(options)
  pythons = {n: given[f"{n}_python"] for n in FRAMEWORKS}
  found = [Job("device", 60, "device", {})]
  for model in ("cnn", "mlp"):
    shape, seconds = _MODELS[model]
    found.append(_round(f"{model}, auto", seconds, **shape))
    found += [
      Job(
        f"{model}, {FRAMEWORKS[name]}",
        120 if name == "flower" else 60,
        "peer",
        {"framework": name, "python": python, "workload": model},
      )
      for name, python in pythons.items()
      if python
    ]
  found += [
    _round(f"mlp, grid of {n}", 40, **_MLP, settings_of_grid=n)
    for n in (1, 8, 64)
  ]
  bfloat16 = {"settings": {"client_map": "vmap", "precision": "bfloat16"}}
  found.append(_round("resnet18, vmap, bfloat16", 150, **_RESNET, **bfloat16))
  found += _papers(options, "delta_sgd/table1")
  found += [
    Job(f"FL-Simulator, {name}", 150, "method", {"name": name})
    for name in _FL_SIMULATOR
  ]
  found.append(
    _round(
      "pfl's CIFAR-10, IID",
      60,
      model="pfl_cnn",
      clients=50,
      steps=5,
      batch_size=10,
      rounds=100,
    )
  )
  for model, (shape, seconds) in _MODELS.items():
    found += [
      _round(f"{model}, {form}", seconds, **shape, **how)
      for form, how in _FORMS.items()
    ]
    found += [
      _round(f"{model}, vmap, float32", seconds, **shape, matmul="highest"),
      _round(f"{model}, vmap, mixed", seconds, **shape,
             settings={"client_map": "vmap", "precision": "mixed"}),
    ]  # fmt: skip
    if model in ("cnn", "vgg16", "resnet18"):
      found.append(
        _round(f"{model}, as products", seconds, **shape, form="matmul")
      )
  found += _protocols(options)
  found += _papers(options, "domo/figure1")
  found += _trained(options)
  if options.tiny:
    found = [_tiny(job) for job in found if _is_rehearsed(job)]
  return found


def _is_rehearsed(job):
  """Whether a rehearsal has it: needs no data, and no job like it is done."""
  model, _, form = job.name.partition(", ")
  is_like_others = {
    "cnn": form in ("vmap", *_LIKE),
    "resnet18": form in ("chunks of 2", "scan", "as products", *_LIKE),
    "vgg16": form != "vmap",
    "encoder": form != "vmap",
    "FL-Simulator": form in ("fed_prox", "fed_dyn", "fed_cm"),
    "mlp": form in ("vmap", "grid of 1", "grid of 64"),
  }
  of_data = ("paper", "command")
  return job.case not in of_data and not is_like_others.get(model, False)


def _papers(options, artefact):
  """A paper's own setting, several minutes at a time."""
  if not options.data_dir:
    return []
  return [Job(f"paper {artefact}", 300, "paper", {"artefact": artefact})]


def _protocols(options):
  """Published protocols that are command lines of `experiments.run`."""
  if not options.data_dir:
    return []
  niid = (
    "--task=cifar10_cnn --num_clients=10 --cohort_size=10 --batch_size=64 "
    "--local_epochs=10 --rounds=50 --eval_every=10 --select_on=test "
    "--client=sgd --client_lr=0.1,0.01,0.001 --alpha=0.5 --seed=0,1,2"
  )
  flute = (
    "--task=mnist_logistic --num_clients=1000 --cohort_size=10 --batch_size=10 "
    "--local_epochs=1 --client=sgd --client_lr=0.03 --rounds=100 --alpha=0.5 "
    "--examples_per_client=60 --select_on=test"
  )
  return [
    Job("FLUTE's MNIST", 120, "command", {"flags": flute}),
    *(
      Job(
        f"niid_bench, {name}",
        400,
        "command",
        {"flags": f"{niid} --algorithm={name}"},
      )
      for name in ("fed_avg", "fed_prox", "scaffold", "fed_nova")
    ),
  ]


# Methods of FL-Simulator's README, with the flags of its defaults.
_FL_SIMULATOR = {
  "fed_avg": "--client=sgd",
  "fed_prox": "--client=sgd --mu=0.1",
  "scaffold": "",
  "fed_dyn": "--client=sgd --algorithm_alpha=0.1",
  "fed_cm": "--algorithm_alpha=0.1",
}


def _trained(options):
  """FL-Simulator's runs of 1,000 rounds, for their accuracy."""
  if not options.data_dir:
    return []
  flags = (
    "--task=cifar10_resnet18 --norm=group --augmentation=crop_flip --l2=0.001 "
    "--num_clients=100 --cohort_size=10 --examples_per_client=500 --alpha=0.6 "
    "--batch_size=50 --local_epochs=5 --client_lr=0.1 "
    "--client_schedule=exponential --client_decay=0.998 --rounds=1000 "
    "--eval_every=50 --checkpoint_every=50 --select_on=test"
  )
  return [
    Job(
      accelerator_report.trained(name),
      300,
      "command",
      {"flags": f"{flags} --algorithm={name} {own}"},
    )
    for name, own in _FL_SIMULATOR.items()
  ]


def _tiny(job):
  """The same at sizes of a rehearsal."""
  small = {"clients": 2, "steps": 2, "batch_size": 4, "rounds": 2}
  of_case = {
    "device": {"tiny": True},
    "round": small,
    "method": {
      "model": "mlp", "clients": 4, "cohort_size": 2, "examples": 8,
      "batch_size": 4, "local_epochs": 1, "rounds": 2,
    },
    "peer": {"rounds": 1},
  }  # fmt: skip
  arguments = {**job.arguments, **of_case.get(job.case, {})}
  if arguments.get("model") in ("resnet18", "vgg16", "encoder"):
    arguments["model"] = f"tiny {arguments['model']}"
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
  accelerator_report.write(folder, names)
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
    accelerator_report.write(folder, names)
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
  file = "peers" if job.case == "peer" else "cases"
  program = str(_ROOT / f"benchmarks/accelerator_{file}.py")
  name = [] if job.case == "peer" else [job.case]
  arguments = json.dumps(dict(job.arguments))
  return [sys.executable, program, *name, arguments, str(result)]


def _file_name(name):
  return "".join(c if c.isalnum() else "_" for c in name)


def main(argv: list[str] | None = None) -> int:
  """The command line; the exit status is 1 if a measurement failed."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
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
