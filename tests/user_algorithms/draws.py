"""The problem of these tests in JAX, and the rounds that the engine draws."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_opt import ClientData
from fedjax_opt.engine.cohort import Cohort
from fedjax_opt.engine.config import Config
from fedjax_opt.engine.mapping import RoundData
from tests import problems

# Clients of unequal sizes; the last one owns nothing.
SIZES = (13, 7, 20, 4, 9, 16, 0)
PROBLEM = problems.softmax_regression(0, sizes=SIZES)
_C = PROBLEM.num_classes
PARAMS = {
  "bias": PROBLEM.x0[:_C],
  "kernel": PROBLEM.x0[_C:].reshape(-1, _C),
}


def loss_fn(params, batch, rng):
  """[B], the loss of `problems.SoftmaxRegression`."""
  del rng
  logits = batch["x"] @ params["kernel"] + params["bias"]
  own = jnp.take_along_axis(logits, batch["y"][:, None], 1)[:, 0]
  squares = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))
  return jax.nn.logsumexp(logits, axis=1) - own + PROBLEM.l2 / 2 * squares


def client_data() -> ClientData:
  return ClientData.from_partition(PROBLEM.examples, PROBLEM.client_rows)


def flat(tree, lead=0) -> np.ndarray:
  """float64 [d], or of leaves with `lead` more axes [..., d]."""
  leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)]
  join = [leaf.reshape(*leaf.shape[:lead], -1) for leaf in leaves]
  return np.concatenate(join, axis=-1)


@dataclasses.dataclass
class Rounds:
  """What is drawn, [rounds][clients], as the loops of reference_user.py take.

  Attributes:
    cohorts: those whose message counts.
    batches: the rows of each of their local steps.
    weights: theirs, not normalized.
    drawn: the clients drawn, with those that drop out.
  """

  cohorts: list[list[int]]
  batches: list[list[list[np.ndarray]]]
  weights: list[list[float]]
  drawn: list[list[int]]


def cohort(round: int, seed: int = 0, **settings: Any) -> Cohort:
  """The cohort of a round of a run with these settings."""
  data = client_data()
  config = Config.create(data, settings, PARAMS)
  of_round = RoundData(
    *jax.device_put((data.examples, data.sizes, data.indices))
  )
  return Cohort.create(config, jax.random.key(seed), jnp.int32(round), of_round)


def draw(num_rounds: int, seed: int = 0, **settings: Any) -> Rounds:
  """The rounds that `simulate` draws with these settings."""
  data = client_data()
  config = Config.create(data, settings, PARAMS)
  of_round = RoundData(
    *jax.device_put((data.examples, data.sizes, data.indices))
  )

  def one_client(worker, _):
    own = worker._client
    return own.batches, own.counts, own.num_steps, own.weight, own.is_out

  @jax.jit
  def of(round):
    cohort = Cohort.create(config, jax.random.key(seed), round, of_round)
    return cohort.clients, cohort.each(one_client, ()).value

  rounds = Rounds([], [], [], [])
  for r in range(num_rounds):
    clients, sent = jax.device_get(of(jnp.int32(r)))
    rows, counts, num_steps, weight, is_out = sent
    left = [i for i in range(len(clients)) if not is_out[i]]
    rounds.drawn.append(clients.tolist())
    rounds.cohorts.append([int(clients[i]) for i in left])
    rounds.weights.append([float(weight[i]) for i in left])
    rounds.batches.append(
      [[rows[i, k, : counts[i, k]] for k in range(num_steps[i])] for i in left]
    )
  return rounds
