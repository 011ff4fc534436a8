"""The same rounds in this package, and the floor below them.

The floor takes the same local steps with one model and no federation: one
`lax.scan` over the batches of all clients' examples, shuffled in each round.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import worker
import workloads
from jax import lax

import fedjax_opt
from fedjax_opt.batches import shuffle
from fedjax_opt.program import Program
from fedjax_opt.simulator import run_rounds as simulate_rounds

MODELS = {
  "cnn": fedjax_opt.models.CNN(10),
  "mlp": fedjax_opt.models.MLP((100,), 10, activation=jax.nn.softplus),
  "least_squares": fedjax_opt.models.LinearModel(1, use_bias=False),
}


def make_loss(workload: workloads.Workload):
  """The loss of each example, and the initial parameters."""
  model = MODELS[workload.name]
  regression = workload.num_classes is None

  def loss_fn(params, batch, rng):  # [B]
    x = batch["x"] if regression else batch["x"] / 127.5 - 1.0
    output = model.apply(
      {"params": params}, x, train=True, rngs={"dropout": rng}
    )
    if regression:
      return 0.5 * jnp.square(output[:, 0] - batch["y"])
    cross_entropy = optax.softmax_cross_entropy_with_integer_labels
    return cross_entropy(output, batch["y"])

  example = jnp.zeros((1, *workload.example_shape))
  return loss_fn, model.init(jax.random.key(0), example)["params"]


def pool(workload: workloads.Workload) -> dict[str, np.ndarray]:
  clients = workloads.make_clients(workload)
  return {k: np.concatenate([c[k] for c in clients]) for k in clients[0]}


def check_finite(params) -> None:
  if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params)):
    raise FloatingPointError("the parameters are not finite")


def build_fed_avg(make_rule, **settings):
  """A builder of FedAvg rounds with a client rule."""

  def build(workload: workloads.Workload) -> worker.RunRounds:
    loss_fn, params = make_loss(workload)
    algorithm = fedjax_opt.fed_avg(loss_fn, make_rule(workload))
    examples = pool(workload)
    rows = np.arange(len(examples["y"]))
    data = jax.device_put(
      fedjax_opt.ClientData.from_partition(
        examples, np.split(rows, workload.num_clients)
      )
    )
    program = Program.create(
      data, params, batch_size=workload.batch_size, **settings
    )
    advance = jax.jit(
      lambda state, key, data, first, count: simulate_rounds(
        program, algorithm, state, key, data, None, first, count
      )[0],
      donate_argnums=0,
    )
    state = algorithm.init(params, workload.num_clients)
    key = jax.random.key(0)
    done = 0

    def run_rounds(rounds: int) -> None:
      nonlocal state, done
      state = jax.block_until_ready(advance(state, key, data, done, rounds))
      done += rounds
      check_finite(state.params)

    return run_rounds

  return build


def build_floor(workload: workloads.Workload) -> worker.RunRounds:
  loss_fn, params = make_loss(workload)
  examples = jax.device_put(pool(workload))
  size = len(examples["y"])
  key = jax.random.key(0)

  def one_round(i, params, examples):
    order = shuffle(key, i, size, size)

    def step(params, rows):
      take = lambda leaf: jnp.take(leaf, rows, axis=0, mode="clip")
      batch = jax.tree.map(take, examples)
      rng = jax.random.fold_in(key, rows[0])
      mean_loss = lambda params: jnp.mean(loss_fn(params, batch, rng))
      updates = optax.tree.scale(
        -workload.learning_rate, jax.grad(mean_loss)(params)
      )
      return optax.apply_updates(params, updates), None

    return lax.scan(step, params, order.reshape(-1, workload.batch_size))[0]

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
    check_finite(params)

  return run_rounds


def build_matrix_product(workload: workloads.Workload) -> worker.RunRounds:
  """Products of two float32 matrices of 2048 x 2048, one per "round"."""
  del workload
  a, b = np.random.default_rng(0).standard_normal((2, 2048, 2048), np.float32)
  product = jax.jit(jnp.matmul)

  def run_rounds(rounds: int) -> None:
    for _ in range(rounds):
      jax.block_until_ready(product(a, b))

  a, b = jax.device_put((a, b))
  return run_rounds


PROGRAMS = {
  "fed_avg": build_fed_avg(lambda w: optax.sgd(w.learning_rate)),
  "fed_avg_scan": build_fed_avg(
    lambda w: optax.sgd(w.learning_rate), client_map="scan"
  ),
  "fed_avg_vmap": build_fed_avg(
    lambda w: optax.sgd(w.learning_rate), client_map="vmap"
  ),
  "delta_sgd_reused": build_fed_avg(
    lambda w: fedjax_opt.delta_sgd(eta_0=w.learning_rate, reuse_gradients=True)
  ),
  "delta_sgd": build_fed_avg(
    lambda w: fedjax_opt.delta_sgd(eta_0=w.learning_rate)
  ),
  "floor": build_floor,
  "matrix_product": build_matrix_product,
}

if __name__ == "__main__":
  worker.serve(PROGRAMS, ["fedjax_opt", "jax", "flax", "optax"])
