"""Peak memory of a round of VGG-16, by how many clients are vectorized.

  PYTHONPATH=. python benchmarks/chunk_memory.py

16 clients take one local step of DOMO on 32 images of CIFAR-10's shape each.
For every chunk size a process of its own compiles the round, asks XLA how much
memory it plans for it, runs it, and reads the largest memory that the process
had, above what it had before the round.
"""

import argparse
import json
import subprocess
import sys

import jax
import memory
from bvr_round import random_task

import fedjax_opt as fo

CLIENTS, B = 16, 32


def measure(model_name: str, chunk: int) -> dict[str, float]:
  """Megabytes and seconds of one round."""
  task, data = random_task(model_name, CLIENTS, B)
  before = []  # Read after compilation, before the round.
  result = fo.simulate(
    fo.domo(task.loss_fn, 0.01),
    task.init(jax.random.key(0)),
    data,
    rounds=1,
    batch_size=B,
    client_map="vmap",
    client_chunk=chunk,
    on_evaluation=lambda report: before.append(memory.resident()),
  )
  return {
    "planned": memory.planned(result),
    "resident": memory.peak() - before[0],
    "compile_seconds": result.compile_seconds,
    "run_seconds": result.run_seconds,
  }


def main() -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--model", default="vgg16", help="a model of cifar10_...")
  parser.add_argument("--chunks", default="16,8,4,1")
  parser.add_argument("--only", type=int, help="one chunk size, as JSON")
  args = parser.parse_args()
  if args.only is not None:
    print(json.dumps(measure(args.model, args.only)))
    return
  print(
    f"{args.model}, {CLIENTS} clients, batches of {B}; jax {jax.__version__}"
  )
  print("| at a time | planned | of all | resident | compile | run |")
  print("|---|---|---|---|---|---|")
  whole = None
  for chunk in args.chunks.split(","):
    command = [sys.executable, __file__, f"--model={args.model}"]
    out = subprocess.run(
      [*command, f"--only={chunk}"], check=True, stdout=subprocess.PIPE
    )
    found = json.loads(out.stdout)
    whole = whole or found["planned"]
    print(
      f"| {chunk} | {found['planned']:.0f} MB | {found['planned'] / whole:.2f} "
      f"| {found['resident']:.0f} MB | {found['compile_seconds']:.1f} s | "
      f"{found['run_seconds']:.1f} s |",
      flush=True,
    )


if __name__ == "__main__":
  main()
