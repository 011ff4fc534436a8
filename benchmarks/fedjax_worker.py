"""FedAvg rounds in FedJAX, as its own examples write them.

Models in haiku, in-memory clients, `fedjax.algorithms.fed_avg` and the default
backend, which jits one local step and calls it for each batch.
"""

import jax

# FedJAX calls a name that newer versions of JAX removed.
if not hasattr(jax, "tree_map"):
  jax.tree_map = jax.tree.map

import fedjax
import haiku as hk
import jax.numpy as jnp
import shared


def cnn(batch):
  """The CNN of the Δ-SGD paper, with both of its dropouts."""
  max_pool = hk.MaxPool((1, 2, 2, 1), (1, 2, 2, 1), "VALID")
  x = hk.Conv2D(10, 5, padding="VALID")(batch["x"])
  x = jax.nn.relu(max_pool(x))
  x = hk.Conv2D(20, 5, padding="VALID")(x)
  x = hk.dropout(hk.next_rng_key(), 0.5, x, broadcast_dims=(1, 2))
  x = jax.nn.relu(max_pool(x))
  x = jax.nn.relu(hk.Linear(50)(hk.Flatten()(x)))
  x = hk.dropout(hk.next_rng_key(), 0.5, x)
  return hk.Linear(10)(x)


def mlp(batch):
  x = jax.nn.softplus(hk.Linear(100)(hk.Flatten()(batch["x"])))
  return hk.Linear(10)(x)


def least_squares(batch):
  return hk.Linear(1, with_bias=False)(batch["x"])[:, 0]


def cross_entropy(batch, logits):
  return fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], logits)


def half_squared_error(batch, prediction):
  return 0.5 * jnp.square(prediction - batch["y"])


MODELS = {
  "cnn": (cnn, cross_entropy),
  "mlp": (mlp, cross_entropy),
  "least_squares": (least_squares, half_squared_error),
}


def simulation(model, clients, cohort_size, rate, server_optimizer, **batches):
  """FedAvg on clients in memory.

  Args:
    model: FedJAX's.
    clients: {'x', 'y'} of each.
    cohort_size: C.
    rate: of the clients' SGD.
    server_optimizer: FedJAX's.
    **batches: settings of `ShuffleRepeatBatchHParams`.

  Returns:
    `seed -> (rounds -> model)`: what begins with a model and cohorts of a seed,
    and then takes so many more rounds.
  """
  algorithm = fedjax.algorithms.fed_avg.federated_averaging(
    fedjax.model_grad(model),
    fedjax.optimizers.sgd(rate),
    server_optimizer,
    fedjax.ShuffleRepeatBatchHParams(**batches),
  )
  population = fedjax.InMemoryFederatedData(
    {b"%d" % i: client for i, client in enumerate(clients)}
  )

  def start(seed):
    sampler = fedjax.client_samplers.UniformGetClientSampler(
      population, cohort_size, seed=seed
    )
    state = algorithm.init(model.init(jax.random.PRNGKey(seed)))

    def run(rounds):
      nonlocal state
      for _ in range(rounds):
        state, _ = algorithm.apply(state, sampler.sample())
      return jax.block_until_ready(state.params)

    return run

  return start


@shared.program
def fed_avg(workload: shared.Workload) -> shared.RunRounds:
  """All clients in each round."""
  clients = shared.make_clients(workload)
  forward, train_loss = MODELS[workload.name]
  model = fedjax.create_model_from_haiku(
    transformed_forward_pass=hk.transform(forward),
    sample_batch={name: rows[:1] for name, rows in clients[0].items()},
    train_loss=train_loss,
  )
  run = simulation(
    model, clients, len(clients), workload.learning_rate,
    fedjax.optimizers.sgd(1.0), batch_size=workload.batch_size, num_epochs=1,
  )(0)  # fmt: skip
  return lambda rounds: shared.check_finite(jax.tree.leaves(run(rounds)))
