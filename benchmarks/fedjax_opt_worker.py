"""The same rounds in this package, and the floor below them.

The floor takes the same local steps with one model and no federation: one
`lax.scan` over the batches of all clients' examples, shuffled in each round.
"""

import statistics
import timeit
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import shared
from jax import lax

import fedjax_opt as fo
from experiments.command_line import parser
from experiments.single_run import job as jobs
from experiments.specification.resolve import resolve
from experiments.tasks import classification, images
from fedjax_opt import models
from fedjax_opt.arrays.draws import shuffle
from fedjax_opt.models import convolution
from fedjax_opt.results import environment

# Rounds of a turn, at most, without another compilation.
MAX_ROUNDS = 100_000
MODELS = {
  "cnn": models.CNN(10),
  "mlp": models.MLP((100,), 10, activation=jax.nn.softplus),
  "least_squares": models.LinearModel(1, use_bias=False),
  "resnet18": models.resnet18(),
  "vgg16": models.VGG(),
  # Of a rehearsal.
  "tiny resnet18": models.ResNet((1, 1), (8, 16)),
  "tiny vgg16": models.VGG(stages=((8,), (8,))),
}
# Pixels x are in [-1, 1]: x / 127.5 - 1.
IMAGES = images.Images("random", 10, mean=(1.0,), std=(1.0,), largest=127.5)
TOKENS = 512


def _encoder(layers: int, width: int, vocabulary: int) -> models.EncoderConfig:
  return models.EncoderConfig(
    vocabulary, width, layers, width // 64, 4 * width, TOKENS
  )


TRANSFORMERS = {
  "29M": _encoder(8, 512, 8192),
  "134M": _encoder(12, 896, 20480),
  "1.04B": _encoder(20, 2048, 16384),
  "7B, LoRA": _encoder(32, 4096, 32000),
  "tiny 29M": _encoder(1, 64, 256),  # Of a rehearsal.
}


def make_loss(
  workload: shared.Workload,
) -> tuple[Callable[..., jax.Array], Callable[[jax.Array], Any]]:
  """The loss of each example, and a function from a key to a model."""
  if workload.name in TRANSFORMERS:
    return loss_of_texts(TRANSFORMERS[workload.name])
  model = MODELS[workload.name]
  pool = shared.make_pool(workload._replace(num_clients=1))
  if workload.num_classes is None:
    apply, init = classification.network(model, pool)
    loss = lambda outputs, y: optax.l2_loss(outputs[:, 0], y)  # [B]
    task = classification.task(apply, init, pool, pool, None, loss=loss)
  else:
    task = images.classification(model, IMAGES, pool, pool)
  return task.loss_fn, task.init


def loss_of_texts(config: models.EncoderConfig):
  """`make_loss` of a transformer, whose texts have `TOKENS` tokens each."""
  network = models.Encoder(config)

  def loss_fn(params, batch, rng):  # [B]
    logits = network.apply({"params": params}, batch["x"].astype(jnp.int32))
    return -jax.nn.log_softmax(logits)[:, 0]

  def init(key):
    return network.init(key, jnp.ones((1, TOKENS), jnp.int32))["params"]

  return loss_fn, init


def client_data(workload: shared.Workload) -> fo.ClientData:
  """Each client has rows of the pool, which holds no example twice."""
  pool = shared.make_pool(workload)
  rows = np.arange(len(pool["y"])).reshape(-1, workload.examples_per_client)
  clients = np.arange(workload.num_clients) % len(rows)
  return fo.ClientData.from_partition(pool, list(rows[clients]))


def delta_sgd_by_hand(rate: float) -> optax.GradientTransformation:
  """Δ-SGD with reused gradients: its formulas, and no guard or option."""

  def init(params):
    zeros = [jnp.zeros(leaf.size) for leaf in jax.tree.leaves(params)]
    return zeros, rate, 1.0, jnp.inf

  def update(grads, state, _):
    previous_grads, previous_rate, theta, norm = state
    flat = [leaf.ravel() for leaf in jax.tree.leaves(grads)]
    change = optax.tree.norm(optax.tree.sub(flat, previous_grads))
    growth = jnp.sqrt(1 + 0.1 * theta)
    rate = previous_rate * jnp.minimum(norm / change, growth)  # γ = 2
    state = flat, rate, rate / previous_rate, optax.tree.norm(flat)
    return optax.tree.scale(-rate, grads), state

  return optax.GradientTransformation(init, update)


RULES = {
  "sgd": optax.sgd,
  "adamw": optax.adamw,
  "delta_sgd_by_hand": delta_sgd_by_hand,
  "delta_sgd": lambda rate: fo.delta_sgd(eta_0=rate),
  "delta_sgd_reused": lambda rate: fo.delta_sgd(
    eta_0=rate, reuse_gradients=True
  ),
}


@shared.program
def fed_avg(
  workload: shared.Workload,
  rule: str = "sgd",
  matmul: str | None = None,
  form: str = "",
  points: int = 1,
  **settings,
) -> shared.RunRounds:
  """FedAvg rounds with a client rule and settings of `sweep`.

  Every turn is a run of its own, which begins with the same model. Only the
  first one traces and compiles, since all turns have one program: a turn has
  fewer rounds than lie between two evaluations. The answer has the time of the
  rounds alone.

  Args:
    workload: the round.
    rule: key of `RULES`.
    matmul: precision of float32 matrix products.
    form: of convolutions; "" for what is chosen.
    points: rates that run in one program.
    **settings: of `sweep`.
  """
  if form:
    convolution.resolve_implementation = lambda name: name or form
  jax.config.update("jax_default_matmul_precision", matmul)
  loss_fn, init = make_loss(workload)
  make = lambda rate: fo.fed_avg(loss_fn, RULES[rule](rate))
  grid = {"rate": workload.learning_rate * np.geomspace(1, 0.1, points)}
  data = jax.device_put(client_data(workload))
  params = jax.jit(init)(jax.random.key(0))
  settings |= {"batch_size": workload.batch_size, "eval_every": MAX_ROUNDS}
  simulator = fo.Simulator(make, data, grid=grid, **settings)

  def run_rounds(rounds: int) -> dict[str, float]:
    result = simulator.run_all(params, rounds)
    shared.check_finite(jax.tree.leaves(result.params))
    of_device = jax.devices()[0].memory_stats() or {}
    return {
      "seconds": result.run_seconds,
      "compile_seconds": result.compile_seconds,
      "device_peak": of_device.get("peak_bytes_in_use", 0) / 1e6,
    }

  return run_rounds


def flops(workload: list) -> float:
  """Of a round, with XLA's own form of convolution, after all rounds."""
  work = shared.Workload(*workload)
  loss_fn, init = make_loss(work)
  pool = shared.make_pool(work)
  batch = {name: leaf[: work.batch_size] for name, leaf in pool.items()}
  loss = lambda p, b: loss_fn(p, b, jax.random.key(0)).mean()
  convolution.resolve_implementation = lambda name: "lax"
  # XLA counts none for a GPU.
  with jax.default_device(jax.devices("cpu")[0]):
    shapes = jax.eval_shape(init, jax.random.key(0))
    cost = jax.jit(jax.grad(loss)).lower(shapes, batch).cost_analysis()
  return cost["flops"] * work.num_steps * work.num_clients


def job_of(flags: Sequence[str]) -> jobs.Job:
  """What a command line of `experiments.run` would run."""
  return jobs.prepare(resolve(parser.parse(["run", *flags])))


@shared.program
def lasso_grid(workload: shared.Workload, points: int) -> shared.RunRounds:
  """FedDualAvg on a grid of rates, then the server's, then strengths.

  One round of one point is as large as one of the workload "least_squares".
  """
  del workload
  grid = {
    "client_lr": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1),
    "server_lr": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
    "strength": np.geomspace(0.01, 1.0, 7).tolist(),
  }
  preset = f"--flagfile={shared.HERE.parent}/experiments/fco/lasso.flags"
  lists = (
    f"--{name}={','.join(map(str, values if points > 7**i else values[:1]))}"
    for i, (name, values) in enumerate(grid.items())
  )
  job = job_of([preset, "--algorithm=fed_dual_avg", *lists])
  # Without evaluations all points take all rounds.
  settings = job.options | {"eval_every": MAX_ROUNDS, "evaluate": None}
  settings["grid"] = job.spec.grid
  simulator = fo.Simulator(job.make, job.task.clients, **settings)

  def run_rounds(rounds: int) -> dict[str, float]:
    result = simulator.run_all(job.task.init, rounds)
    return {"seconds": result.run_seconds}

  return run_rounds


@shared.program
def floor(workload: shared.Workload, rule: str = "sgd") -> shared.RunRounds:
  """The local steps alone; the rule begins anew as often as with clients."""
  loss_fn, init = make_loss(workload)
  optimizer = RULES[rule](workload.learning_rate)
  params = init(jax.random.key(0))
  examples = jax.device_put(shared.make_pool(workload))
  pool_size = len(examples["y"])
  size = workload.num_clients * workload.examples_per_client
  key = jax.random.key(0)

  def one_round(i, params, examples):
    order = shuffle(key, i, size, size) % pool_size

    def step(carry, rows):
      params, state = carry
      take = lambda leaf: jnp.take(leaf, rows, axis=0, mode="clip")
      batch = jax.tree.map(take, examples)
      rng = jax.random.fold_in(key, rows[0])
      mean_loss = lambda params: jnp.mean(loss_fn(params, batch, rng))
      grads = jax.grad(mean_loss)(params)
      updates, state = optimizer.update(grads, state, params)
      return (optax.apply_updates(params, updates), state), None

    def of_client(params, rows):
      state = jax.tree.map(jnp.asarray, optimizer.init(params))
      return lax.scan(step, (params, state), rows)[0][0], None

    shape = workload.num_clients, -1, workload.batch_size
    return lax.scan(of_client, params, order.reshape(shape))[0]

  advance = jax.jit(
    lambda params, examples, first, count: lax.fori_loop(
      first, first + count, lambda i, p: one_round(i, p, examples), params
    ),
    donate_argnums=0,
  )
  done = 0

  def run_rounds(rounds: int) -> None:
    nonlocal params, done
    params = jax.block_until_ready(advance(params, examples, done, rounds))
    done += rounds
    shared.check_finite(jax.tree.leaves(params))

  return run_rounds


def device() -> dict[str, Any]:
  """What the device can: matrix products and memory; of a processor, small."""
  is_small = jax.default_backend() == "cpu"
  n, copied = (256, 1 << 20) if is_small else (8192, 1 << 28)
  x = jnp.ones(copied, jnp.float32)
  seconds = median_seconds(jax.jit(lambda x: x + 1), x)
  rates = {
    "float32_tflops": tflops(n),
    "tf32_tflops": tflops(n, precision="tensorfloat32"),
    "bfloat16_tflops": tflops(n, "bfloat16", "default"),
    "gb_per_s": 2 * x.nbytes / seconds / 1e9,
  }
  return rates | environment.device() | environment.versions()


def tflops(n: int, dtype: str = "float32", precision: str = "highest") -> float:
  """What products of matrices of n x n reach."""
  a = jax.random.normal(jax.random.key(0), (n, n), dtype)
  with jax.default_matmul_precision(precision):
    return 2 * n**3 / median_seconds(jax.jit(lambda a: a @ a), a) / 1e12


def median_seconds(program: Callable[..., Any], *args) -> float:
  """The median time of a call, after one that compiles."""
  call = lambda: jax.block_until_ready(program(*args))
  return statistics.median(timeit.repeat(call, call, number=1))
