"""The same rounds in this package, and the floor below them.

The floor takes the same local steps with one model and no federation: one
`lax.scan` over the batches of all clients' examples, shuffled in each round.
"""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax
import shared
from jax import lax

import fedjax_opt
from experiments.tasks import composite
from fedjax_opt.draws import shuffle

# Rounds of a turn, at most, without another compilation.
MAX_ROUNDS = 100_000

MODELS = {
  "cnn": fedjax_opt.models.CNN(10),
  "mlp": fedjax_opt.models.MLP((100,), 10, activation=jax.nn.softplus),
  "least_squares": fedjax_opt.models.LinearModel(1, use_bias=False),
}


def make_loss(workload: shared.Workload):
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


def pool(workload: shared.Workload) -> dict[str, np.ndarray]:
  """The examples of all different clients, one after the other."""
  shards = shared.make_shards(workload)
  return {k: np.concatenate([s[k] for s in shards]) for k in shards[0]}


def client_data(workload: shared.Workload) -> fedjax_opt.ClientData:
  """Each client has rows of the pool, which holds no example twice."""
  examples = pool(workload)
  shards = np.arange(len(examples["y"])).reshape(
    -1, workload.examples_per_client
  )
  rows = shared.deal(shards, workload)
  return fedjax_opt.ClientData.from_partition(examples, rows)


RULES = {
  "sgd": lambda w: optax.sgd(w.learning_rate),
  "delta_sgd": lambda w: fedjax_opt.delta_sgd(eta_0=w.learning_rate),
  "delta_sgd_reused": lambda w: fedjax_opt.delta_sgd(
    eta_0=w.learning_rate, reuse_gradients=True
  ),
}


def build_fed_avg(
  workload: shared.Workload, rule: str = "sgd", **settings
) -> shared.RunRounds:
  """FedAvg rounds with a client rule and settings of `simulate`.

  Every turn is a run of its own, which begins with the same model. Only the
  first one compiles, since all turns have one program: a turn has fewer rounds
  than lie between two evaluations. The answer has the time of the rounds
  alone, and how much memory XLA plans for the program.
  """
  loss_fn, params = make_loss(workload)
  algorithm = fedjax_opt.fed_avg(loss_fn, RULES[rule](workload))
  data = jax.device_put(client_data(workload))

  def run_rounds(rounds: int) -> dict[str, float]:
    result = fedjax_opt.simulate(
      algorithm,
      params,
      data,
      rounds=rounds,
      batch_size=workload.batch_size,
      eval_every=max(rounds, MAX_ROUNDS),
      **settings,
    )
    shared.check_finite(jax.tree.leaves(result.params))
    planned = result.needed_bytes and result.needed_bytes / 1e6
    return {"seconds": result.run_seconds, "planned": planned}

  return run_rounds


# LASSO I of the composite optimization paper.
ALGORITHMS = {
  "fed_mid": (fedjax_opt.fed_mid, False),
  "fed_mid_osp": (fedjax_opt.fed_mid, True),
  "fed_dual_avg": (fedjax_opt.fed_dual_avg, False),
  "fed_dual_avg_osp": (fedjax_opt.fed_dual_avg, True),
}
CLIENT_RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)
SERVER_RATES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
# Grids of 7 rates, then 7 of the server's, then 7 strengths: points -> grid.
_THREE = {
  "client_lr": CLIENT_RATES[:7],
  "server_lr": SERVER_RATES,
  "strength": np.geomspace(0.01, 1.0, 7).tolist(),
}
GRIDS = {
  7**k: {n: v if i < k else v[:1] for i, (n, v) in enumerate(_THREE.items())}
  for k in range(4)
}


def run_lasso_grid(
  name: str,
  grid: Mapping[str, Sequence[float]],
  rounds: int,
  eval_every: int | None = None,
) -> fedjax_opt.Result:
  """Runs one algorithm's whole grid.

  With evaluations, points that diverged are dropped, as in any run; without,
  all points take all rounds.
  """
  task = composite.lasso("I")
  factory, only_server_prox = ALGORITHMS[name]

  def make(client_lr, server_lr, strength=0.1):
    return factory(
      task.loss_fn,
      fedjax_opt.prox.kernels(fedjax_opt.prox.l1(strength)),
      client_lr,
      server_lr,
      only_server_prox=only_server_prox,
    )

  return fedjax_opt.sweep(
    make,
    grid,
    task.init,
    task.clients,
    rounds=rounds,
    cohort_size=10,
    batch_size=10,
    evaluate=task.evaluate if eval_every else None,
    eval_every=eval_every or rounds,
  )


def build_lasso_grid(workload: shared.Workload, points: int):
  """FedDualAvg on the first so many points of the LASSO's grid.

  One round of one point is as large as one of the workload "least_squares".
  """
  del workload

  def run_rounds(rounds: int) -> dict[str, float]:
    result = run_lasso_grid("fed_dual_avg", GRIDS[points], rounds)
    return {
      "seconds": result.run_seconds,
      "compile_seconds": result.compile_seconds,
    }

  return run_rounds


def build_floor(workload: shared.Workload) -> shared.RunRounds:
  loss_fn, params = make_loss(workload)
  examples = jax.device_put(pool(workload))
  pool_size = len(examples["y"])
  size = workload.num_clients * workload.examples_per_client
  key = jax.random.key(0)

  def one_round(i, params, examples):
    order = shuffle(key, i, size, size) % pool_size

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
    shared.check_finite(jax.tree.leaves(params))

  return run_rounds


def build_matrix_product(workload: shared.Workload) -> shared.RunRounds:
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
  "fed_avg": build_fed_avg,
  "lasso_grid": build_lasso_grid,
  "floor": build_floor,
  "matrix_product": build_matrix_product,
}

if __name__ == "__main__":
  shared.serve(PROGRAMS, ["fedjax_opt", "jax", "flax", "optax"])
