"""What transformers of 29M to 7B parameters need of each device.

  pip install -e '.[run,tpu-compile,gpu-compile]'
  python benchmarks/large_models.py --output_dir=D

Compiles a round of FedAvg for GPUs and TPUs that are not there; none is run.
Of each model and mesh of devices it writes the memory of each device, FLOPs,
what devices exchange, and how many clients at a time `auto` takes: to
D/records.json, and D/table.md for the site. What D/records.json has is not
compiled again, but what failed is tried again. Eight clients take two local
steps of SGD in a round, with batches of 8 texts of 512 tokens.
"""

from typing import Any

import accelerator_compile as compiling
import fedjax_opt_worker as ours
import numpy as np
import optax
import shared

import fedjax_opt as fo

CLIENTS, BATCH = 8, 8
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
CASES = {
  f"{name} {target} {mesh}": {"name": name, "target": target, "mesh": mesh}
  for name, targets in MESHES.items()
  for target, meshes in targets.items()
  for mesh in meshes
}


def compile_here(name: str, target: str, mesh: str) -> dict[str, Any]:
  """Compiles; returns what is known of the program."""
  clients, model = map(int, mesh.split("x"))
  make, init = algorithm_of(name)
  number = 2 * BATCH * 2 * CLIENTS
  texts = {"x": np.ones((number, ours.TOKENS), np.int32)}
  rows = np.arange(number).reshape(2 * CLIENTS, -1)

  def prepare():
    simulator = fo.Simulator(
      make, fo.ClientData.from_partition(texts, list(rows)), grid={}, seeds=[0],
      cohort_size=CLIENTS, batch_size=BATCH, local_steps=2,
      client_devices=clients, model_devices=model,
    )  # fmt: skip
    return simulator, init

  return compiling.compile_for(target, prepare)


def algorithm_of(name: str):
  """A function that makes the algorithm, and one from a key to the model."""
  loss_fn, init = ours.loss_of_texts(ours.TRANSFORMERS[name])
  by_sgd = lambda loss_fn: fo.fed_avg(loss_fn, optax.sgd(0.1))
  if "LoRA" not in name:
    return (lambda: by_sgd(loss_fn)), init
  adapted = fo.lora.on_adapted(loss_fn)
  layers = ["query", "value"]
  return (
    lambda: fo.train_only(by_sgd, ["lora_a", "lora_b"], adapted),
    lambda key: fo.lora.adapt(init(key), layers, key),
  )


def page(records: dict[str, Any]) -> str:
  """The records as a table in Markdown."""
  rows = []
  for key, case in CASES.items():
    if "bytes" in records.get(key, {}):
      row = {"model": case["name"]}
      row["for"] = compiling.TARGETS[case["target"]].name
      row["clients x model"] = case["mesh"].replace("x", " x ")
      rows.append(row | compiling.cells(records[key], case["target"]))
  return f"{compiling.table(rows)}\n"


def main() -> None:
  """The command line."""
  parser = shared.parser(__doc__)
  parser.add_argument("--output_dir", type=shared.folder, required=True)
  file = parser.parse_args().output_dir / "table.md"
  make = lambda key: compiling.in_process("large_models", CASES[key])
  shared.recorded(file, list(CASES), make, page)


if __name__ == "__main__":
  main()
