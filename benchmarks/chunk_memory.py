"""Peak memory of a round of VGG-16, by how many clients are side by side.

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
import time

import jax
import jax.numpy as jnp
import memory
from bvr_round import random_task
from fedjax_opt.program import Program

import fedjax_opt as fo
from fedjax_opt import simulator

CLIENTS, B = 16, 32


def measure(model_name: str, chunk: int) -> dict[str, float]:
  """Megabytes and seconds of one round."""
  task, data = random_task(model_name, CLIENTS, B)
  data = jax.device_put(data)
  algorithm = fo.domo(task.loss_fn, 0.01)
  state = algorithm.init(task.init(jax.random.key(0)), CLIENTS)
  state = jax.tree.map(jnp.array, state)
  program = Program.create(
    data, batch_size=B, client_map="vmap", client_chunk=chunk
  )

  def one_round(state, data, key):
    args = (key, data, None, jnp.int32(0), jnp.int32(1))
    return simulator.run_rounds(program, algorithm, state, *args)[0]

  key = jax.random.key(0)
  start = time.perf_counter()
  jitted = jax.jit(one_round, donate_argnums=0)
  compiled = jitted.lower(state, data, key).compile()
  compile_seconds = time.perf_counter() - start
  before = memory.resident()
  start = time.perf_counter()
  jax.block_until_ready(compiled(state, data, key))
  return {
    "planned": memory.planned(compiled),
    "resident": memory.peak() - before,
    "compile_seconds": compile_seconds,
    "run_seconds": time.perf_counter() - start,
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
  print("| side by side | planned | of all | resident | compile | run |")
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
