"""What transformers of 29M to 7B parameters need of each device.

  pip install -e '.[run,tpu-compile,gpu-compile]'
  python benchmarks/large_models.py --output_dir=D
  python benchmarks/large_models.py --output_dir=D --only="1.04B v5e-16 1x16"

Compiles a round of FedAvg for GPUs and TPUs that are not there; none is run.
Of each model and mesh of devices it writes the memory of each device, FLOPs,
what devices exchange, and how many clients at a time `auto` takes: to
D/records.json, and D/table.md for the site. What is in D/records.json is not
compiled again. Eight clients take two local steps of SGD in a round, with
batches of 8 texts of 512 tokens.
"""

import json
import pathlib
import sys
import time
from typing import Any, NamedTuple

import accelerator_compile as compiling
import jax
import jax.numpy as jnp
import numpy as np
import optax
import shared

import fedjax_opt as fo
from fedjax_opt import models

CLIENTS, BATCH, TOKENS = 8, 8, 512


class Size(NamedTuple):
  """A transformer: layers, width, tokens that it knows."""

  layers: int
  width: int
  vocabulary: int
  is_adapted: bool = False  # Only adapters of rank 8 are trained.


SIZES = {
  "29M": Size(8, 512, 8192),
  "134M": Size(12, 896, 20480),
  "1.04B": Size(20, 2048, 16384),
  "7B, LoRA": Size(32, 4096, 32000, is_adapted=True),
}
# Clients x model: over how many devices each is divided.
MESHES = {
  "29M": {"v5e-1": ["1x1"], "v5e-4": ["4x1"], "v5e-16": ["8x2"],
          "h100": ["1x1"], "h100-8": ["8x1"]},
  "134M": {"v5e-1": ["1x1"], "v5e-4": ["4x1", "1x4"], "v5e-16": ["4x4"],
           "h100": ["1x1"], "h100-8": ["8x1"]},
  "1.04B": {"v5e-4": ["1x4"], "v5e-16": ["1x16", "4x4"],
            "h100": ["1x1"], "h100-8": ["1x8"]},
  "7B, LoRA": {"v5e-16": ["1x16"], "h100": ["1x1"], "h100-8": ["1x8"]},
}  # fmt: skip
CASES = [
  f"{size} {target} {mesh}"
  for size, targets in MESHES.items()
  for target, meshes in targets.items()
  for mesh in meshes
]


def compile_here(case: str, record: str) -> None:
  """Compiles, and writes what is known of the program."""
  name, target, mesh = case.rsplit(" ", 2)
  clients, model = map(int, mesh.split("x"))
  size, described = SIZES[name], compiling.TARGETS[target]
  make, init = algorithm_of(size)
  number = 2 * BATCH * 2 * CLIENTS
  texts = {"tokens": np.ones((number, TOKENS), np.int32)}
  rows = np.arange(number).reshape(2 * CLIENTS, -1)
  start = time.perf_counter()
  devices = compiling.devices_of(target)
  with fo.target.use(devices, int(described.memory)):
    simulator = fo.Simulator(
      make, fo.ClientData.from_partition(texts, rows), grid={}, seeds=[0],
      cohort_size=CLIENTS, batch_size=BATCH, local_steps=2,
      client_devices=clients, model_devices=model,
    )  # fmt: skip
    program = simulator.compile(init)["rounds"]
  found = compiling.known_of(program) | {
    "seconds": time.perf_counter() - start,
    "parameters": fo.trees.num_bytes(jax.eval_shape(init, jax.random.key(0))),
    "at_a_time": simulator.computation["client_chunk"],
    "jax": jax.__version__,
  }
  pathlib.Path(record).write_text(json.dumps(found))


def loss_and_init(size: Size):
  """The loss [B] of texts [B, TOKENS], and a function from a key to a model."""
  network = models.Encoder(
    models.EncoderConfig(
      size.vocabulary, size.width, size.layers, size.width // 64,
      4 * size.width, TOKENS,
    )
  )  # fmt: skip

  def loss_fn(params, batch, rng):  # [B]
    logits = network.apply({"params": params}, batch["tokens"])
    return -jax.nn.log_softmax(logits)[:, 0]

  def init(key):
    return network.init(key, jnp.ones((1, TOKENS), jnp.int32))["params"]

  return loss_fn, init


def algorithm_of(size: Size):
  """A function that makes the algorithm, and one from a key to the model."""
  loss_fn, init = loss_and_init(size)
  by_sgd = lambda loss_fn: fo.fed_avg(loss_fn, optax.sgd(0.1))
  if not size.is_adapted:
    return (lambda: by_sgd(loss_fn)), init
  adapted = fo.lora.on_adapted(loss_fn)
  layers = ["query", "value"]
  return (
    lambda: fo.train_only(by_sgd, ["lora_a", "lora_b"], adapted),
    lambda key: fo.lora.adapt(init(key), layers, key),
  )


_COLUMNS = (
  "model", "for", "clients x model", "at a time", "GB a device", "GB of state",
  "fits", "GFLOP", "GB moved", "exchanges", "compile s",
)  # fmt: skip


def table(records: dict[str, Any]) -> str:
  """The records as a table in Markdown."""
  return shared.table(
    _COLUMNS,
    [_cells(case, records[case]) for case in CASES if case in records],
  )


def _cells(case, record):
  name, target, mesh = case.rsplit(" ", 2)
  described = compiling.TARGETS[target]
  first = [name, described.name, mesh.replace("x", " x ")]
  if "error" in record:
    return [*first, record["error"], *["–"] * (len(_COLUMNS) - 4)]
  needs, sizes = compiling.bytes_of(record), record["bytes"]
  of = lambda key: f"{record[key] / 1e9:.3g}" if record[key] else "–"
  exchanged = ", ".join(f"{n} {k}" for k, n in record["exchanges"].items())
  return [
    *first,
    str(record["at_a_time"]),
    f"{needs / 1e9:.2f}",
    f"{sizes['arguments'] / 1e9:.2f}",
    "yes" if needs < described.memory else "no",
    of("flops"),
    of("bytes_accessed"),
    exchanged or "–",
    f"{record['seconds']:.0f}",
  ]


def main(argv: list[str]) -> None:
  """The command line."""
  if argv[:1] == ["--here"]:
    compile_here(*argv[1:])
    return
  parser = shared.parser(__doc__)
  parser.add_argument("--output_dir", required=True)
  parser.add_argument("--only", action="append", choices=CASES)
  options = parser.parse_args(argv)
  folder = pathlib.Path(options.output_dir).expanduser().resolve()
  folder.mkdir(parents=True, exist_ok=True)
  make = lambda case: compiling.in_process(
    folder, case.rsplit(" ", 2)[1], [__file__, "--here", case]
  )
  records = compiling.recorded(folder, options.only or CASES, make)
  (folder / "table.md").write_text(f"{table(records)}\n")


if __name__ == "__main__":
  main(sys.argv[1:])
