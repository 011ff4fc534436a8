"""What accelerator.py measures in a process of its own, on the device at hand.

  python benchmarks/accelerator_cases.py device '{}' RESULT.json
  python benchmarks/accelerator_cases.py round '{"model": "cnn"}' RESULT.json

Images are random numbers of the right shape: only time and memory count.
"""

import json
import pathlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import large_models
import numpy as np
import optax
import shared
from jax import lax

import fedjax_opt as fo
from fedjax_opt import models, objectives
from fedjax_opt.models import convolution
from fedjax_opt.results import environment

CLASSES = 10
MODELS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
  "mlp": (models.MLP((100,), activation=nn.softplus), (32, 32, 3)),
  "cnn": (models.CNN(), (28, 28, 1)),
  "resnet18": (models.resnet18(), (32, 32, 3)),
  "vgg16": (models.VGG(), (32, 32, 3)),
}
# Of a rehearsal.
MODELS |= {
  "tiny resnet18": (models.ResNet((1, 1), (8, 16)), (8, 8, 3)),
  "tiny vgg16": (models.VGG(stages=((8,), (8,))), (8, 8, 3)),
}
TOKENS, VOCABULARY = 64, 30522
# Of the small checkpoint in common use that is DistilBERT's kind.
ENCODERS = {
  "encoder": models.EncoderConfig(hidden=384, intermediate=1536),
  "tiny encoder": models.EncoderConfig(layers=1, hidden=12, intermediate=12),
}
TRANSFORMERS = {
  f"transformer {name}": size for name, size in large_models.SIZES.items()
} | {"tiny transformer": large_models.Size(1, 64, 32)}


class Task:
  """A model with its loss, and the clients' examples."""

  def __init__(self, name: str, clients: int, examples: int):
    rng = np.random.default_rng(0)
    size = clients * examples
    if name in ENCODERS:
      self._model = models.Encoder(ENCODERS[name], num_classes=CLASSES)
      x = rng.integers(1, VOCABULARY, (size, TOKENS), np.int32)
      self._scale = lambda x: x
    else:
      self._model, shape = MODELS[name]
      x = rng.integers(0, 256, (size, *shape), np.uint8)
      self._scale = lambda x: x / 127.5 - 1.0
    self.examples = {"x": x, "y": rng.integers(0, CLASSES, size, np.int32)}
    self.data = _divided(self.examples, clients)

  def loss_fn(self, params, batch, rng):
    """The loss of each example, [B]."""
    logits = self._model.apply(
      {"params": params},
      self._scale(batch["x"]),
      train=True,
      rngs={"dropout": rng},
    )
    return objectives.cross_entropy(logits, batch["y"])

  def params(self) -> Any:
    """The initial model."""
    x = self._scale(jnp.asarray(self.examples["x"][:1]))
    return self._model.init(jax.random.key(0), x)["params"]

  def flops(self, batch_size: int) -> float:
    """Of a local step, with XLA's own form of convolution."""
    batch = {n: leaf[:batch_size] for n, leaf in self.examples.items()}
    loss = lambda p, b: self.loss_fn(p, b, jax.random.key(0)).mean()
    before = convolution.resolve_implementation
    convolution.resolve_implementation = lambda given: "lax"
    try:
      # XLA counts none for a GPU.
      with jax.default_device(jax.devices("cpu")[0]):
        shapes = jax.eval_shape(self.params)
        cost = jax.jit(jax.grad(loss)).lower(shapes, batch).cost_analysis()
    finally:
      convolution.resolve_implementation = before
    return cost["flops"]


class Transformer(Task):
  """An encoder of large_models.py, and the clients' texts."""

  def __init__(self, name: str, clients: int, examples: int):
    size = TRANSFORMERS[name]
    self._loss_fn, self._init = large_models.loss_and_init(size)
    shape = clients * examples, large_models.TOKENS
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, size.vocabulary, shape, np.int32)
    self.examples = {"tokens": tokens}
    self.data = _divided(self.examples, clients)

  def loss_fn(self, params, batch, rng):
    """The loss of each text, [B]."""
    return self._loss_fn(params, batch, rng)

  def params(self) -> Any:
    """The initial model."""
    return jax.jit(self._init)(jax.random.key(0))


def _divided(examples, clients):
  size = len(next(iter(examples.values())))
  parts = np.split(np.arange(size), clients)
  return fo.ClientData.from_partition(examples, parts)


def device(tiny: bool = False) -> dict[str, Any]:
  """What the device can: matrix products, memory, and starting kernels."""
  n, copied = (256, 1 << 20) if tiny else (8192, 1 << 28)
  found = environment.device() | environment.versions()
  for name, dtype, precision in (
    ("float32", jnp.float32, "highest"),
    ("tf32", jnp.float32, "tensorfloat32"),
    ("bfloat16", jnp.bfloat16, "default"),
  ):
    a = jax.random.normal(jax.random.key(0), (n, n), dtype)
    with jax.default_matmul_precision(precision):
      product = jax.jit(lambda a: a @ a)
      found[f"{name}_tflops"] = 2 * n**3 / _seconds(product, a) / 1e12
  x = jnp.ones(copied, jnp.float32)
  moved = 2 * x.nbytes
  found["gb_per_s"] = moved / _seconds(jax.jit(lambda x: x + 1), x) / 1e9
  steps = 100 if tiny else 10_000

  def one_after_the_other(x):
    # Each kernel depends on the one before, and cannot be fused with it.
    step = lambda i, x: jnp.sort(x + i)
    return lax.fori_loop(0, steps, step, x)

  seconds = _seconds(jax.jit(one_after_the_other), jnp.arange(16.0))
  found["microseconds_a_step_of_two_kernels"] = seconds / steps * 1e6
  return found


def _seconds(program, *args, repetitions=5):
  """The median time of a call, after one that compiles."""
  jax.block_until_ready(program(*args))
  taken = []
  for _ in range(repetitions):
    start = time.perf_counter()
    jax.block_until_ready(program(*args))
    taken.append(time.perf_counter() - start)
  return statistics.median(taken)


def round(
  model: str,
  clients: int = 10,
  steps: int = 8,
  batch_size: int = 64,
  rounds: int = 20,
  settings: dict[str, Any] | None = None,
  matmul: str = "tensorfloat32",
  form: str = "",
  settings_of_grid: int = 1,
) -> dict[str, Any]:
  """A round of FedAvg.

  Args:
    model: key of `MODELS`, `ENCODERS` or `TRANSFORMERS`.
    clients: C, all in each round.
    steps: K, one epoch.
    batch_size: B.
    rounds: of each of three turns, after one that compiles.
    settings: of `simulate`.
    matmul: precision of float32 matrix products.
    form: of convolutions; "" for what is chosen.
    settings_of_grid: rates that run in one program.
  """
  if form:
    convolution.resolve_implementation = lambda given: given or form
  kind = Transformer if model in TRANSFORMERS else Task
  task = kind(model, clients, steps * batch_size)
  make = lambda rate: fo.fed_avg(task.loss_fn, optax.sgd(rate))
  given = {"batch_size": batch_size, "eval_every": max(rounds, 100_000)}
  given |= settings or {}
  rates = np.geomspace(1e-3, 1e-2, settings_of_grid)
  turns = []
  with jax.default_matmul_precision(matmul):
    params, flops = task.params(), task.flops(batch_size)
    for _ in range(4):
      if settings_of_grid == 1:
        result = fo.simulate(
          make(rates[0]), params, task.data, rounds=rounds, **given
        )
      else:
        grid = {"rate": rates}
        result = fo.sweep(make, grid, params, task.data, rounds=rounds, **given)
      turns.append(result)
  times = _times([t.run_seconds for t in turns[1:]], rounds)
  memory = jax.devices()[0].memory_stats() or {}
  work = flops * clients * steps * settings_of_grid
  return {
    **times,
    "compile_seconds": turns[0].compile_seconds,
    "planned_gb": (turns[0].needed_bytes or 0) / 1e9,
    "peak_gb": memory.get("peak_bytes_in_use", 0) / 1e9,
    "tflops": work / times["ms_per_round"] / 1e9,
    "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
  }


def peer(
  framework: str, python: str, workload: str, rounds: int = 5
) -> dict[str, Any]:
  """Rounds of another framework, in its own process.

  Args:
    framework: the worker's name.
    python: that has the framework.
    workload: key of `shared.WORKLOADS`.
    rounds: of a turn.

  Raises:
    shared.WorkerError: if it cannot run; the message says why.
  """
  of, worker = (
    shared.WORKLOADS[workload],
    shared.Worker(framework, python, None),
  )
  turn = lambda: worker.run("fed_avg", of, rounds=rounds)["seconds"]
  first, *turns = (turn() for _ in range(4))
  worker.close()
  return _times(turns, rounds) | {
    "compile_seconds": first, "versions": worker.versions
  }  # fmt: skip


def _times(turns, rounds):
  ordered = sorted(1e3 * seconds / rounds for seconds in turns)
  return {
    "ms_per_round": statistics.median(ordered),
    "range_ms": [ordered[0], ordered[-1]],
  }


CASES: dict[str, Callable[..., dict[str, Any]]] = {
  "device": device,
  "round": round,
  "peer": peer,
}


def main(argv: list[str]) -> None:
  """Measures one case, and writes what was found."""
  case, arguments, result = argv
  found = CASES[case](**json.loads(arguments))
  pathlib.Path(result).write_text(json.dumps(found))


if __name__ == "__main__":
  main(sys.argv[1:])
