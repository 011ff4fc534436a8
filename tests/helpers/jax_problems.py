"""The problems of problems.py as the package takes them: losses in JAX, data.

Parameters are float64 NumPy trees, so that one task serves float32 and, under
`jax.enable_x64(True)`, float64.
"""

import dataclasses
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fedjax_opt
from fedjax_opt.algorithms import ALGORITHMS
from fedjax_opt.base import Algorithm
from fedjax_opt.data.clients import ClientData
from fedjax_opt.engine.traced.cohort import Cohort
from fedjax_opt.engine.traced.mapping import RoundData
from fedjax_opt.engine.traced.worker import Client
from tests import reference
from tests.helpers import problems

# The last client owns nothing.
SIZES = (13, 7, 20, 4, 0)
# Algorithms of models that those here are not: with batch normalization, with
# adapters.
OF_OTHER_MODELS = {"fed_bn", "fed_ex_lora"}


@dataclasses.dataclass(frozen=True)
class Task:
  problem: Any  # the referee's
  params: Any
  loss_fn: Callable
  features_fn: Callable | None = None

  def algorithm(self, name, *, client, rate, psi, **others):
    """The algorithm of this name, given what any of them may take."""
    entry = ALGORITHMS[name]
    arguments = {"client": client} if entry.client_takes == "rule" else {}
    if entry.client_takes == "rate":
      arguments["learning_rate"] = rate
    if entry.takes("psi"):
      arguments["psi"] = psi
    if entry.takes("features_fn"):
      arguments["features_fn"] = self.features_fn
    if "personal" in {p.name for p in entry.hyperparameters}:
      arguments["personal"] = ["bias"]
    return entry.factory(self.loss_fn, **arguments | others)

  def simulate(self, algorithm, **options):
    """`simulate` from the start of the problem."""
    return fedjax_opt.simulate(algorithm, self.params, self.data, **options)

  def sweep(self, make, grid, **options):
    """`sweep` from the start of the problem."""
    return fedjax_opt.sweep(make, grid, self.params, self.data, **options)

  def per_example(self, params, batch):
    """What `evaluation.federated` averages."""
    return {"loss": self.loss_fn(params, batch, None)}

  @property
  def data(self) -> ClientData:
    return ClientData.from_partition(
      self.problem.examples, self.problem.client_rows
    )


def least_squares(sizes=SIZES, seed=0, **options) -> Task:
  problem = problems.least_squares(seed, sizes=sizes, **options)

  def loss_fn(params, batch, rng):
    return (batch["x"] @ params["kernel"] - batch["y"]) ** 2 / 2

  return Task(problem, {"kernel": problem.x0}, loss_fn)


def softmax(sizes=SIZES, seed=0) -> Task:
  problem = problems.softmax_regression(seed, sizes=sizes)
  c = problem.num_classes
  params = {"bias": problem.x0[:c], "kernel": problem.x0[c:].reshape(-1, c)}

  def features_fn(params, batch, rng):  # The logits; there is nothing else.
    return batch["x"] @ params["kernel"] + params["bias"]

  def loss_fn(params, batch, rng):
    logits = features_fn(params, batch, rng)
    squares = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))
    return cross_entropy(logits, batch["y"]) + problem.l2 / 2 * squares

  return Task(problem, params, loss_fn, features_fn)


def mlp(sizes=SIZES, seed=0) -> Task:
  problem = problems.softplus_mlp(seed, sizes=sizes)
  b1, w1, b2, w2 = problem._split(problem.x0)
  params = {
    "hidden": {"bias": b1, "kernel": w1},
    "output": {"bias": b2, "kernel": w2},
  }

  def features_fn(params, batch, rng):
    hidden = params["hidden"]
    return jax.nn.softplus(batch["x"] @ hidden["kernel"] + hidden["bias"])

  def loss_fn(params, batch, rng):
    z = features_fn(params, batch, rng)
    output = params["output"]
    logits = z @ output["kernel"] + output["bias"]
    return cross_entropy(logits, batch["y"])

  return Task(problem, params, loss_fn, features_fn)


def cross_entropy(logits, labels):
  label_logits = jnp.take_along_axis(logits, labels[:, None], 1)[:, 0]
  return jax.nn.logsumexp(logits, axis=1) - label_logits


def from_start(problem, x0, gradient=None):
  """A referee's problem with another start, or another gradient."""
  return types.SimpleNamespace(
    x0=x0,
    gradient=gradient or problem.gradient,
    client_rows=problem.client_rows,
  )


def flat(tree, lead=0) -> np.ndarray:
  """All leaves as one float64 vector [d], in the referee's order.

  Of leaves with `lead` more axes in front, [..., d].
  """
  leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)]
  join = [leaf.reshape(*leaf.shape[:lead], -1) for leaf in leaves]
  return np.concatenate(join, axis=-1)


def types_of(tree):
  """The shape and the type of each leaf."""
  return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree)


def cohort_of(config, data, key, round) -> Cohort:
  """The cohort of a round of clients in memory, of the run with that key."""
  data = RoundData(data.examples, data.sizes, data.indices)
  return Cohort(config, key, round, data)


def drawn_rounds(config, data, seed, num_rounds, **which):
  """The rounds that `simulate` draws, as the referee takes them."""
  return drawn_phases(config, data, seed, num_rounds, 1, **which)[0]


def drawn_phases(config, data, seed, num_rounds, num_phases, counted=False):
  """As `drawn_rounds`, the rounds of each phase.

  Args:
    config: of a run.
    data: its clients.
    seed: its seed.
    num_rounds: R.
    num_phases: of a round.
    counted: whether clients that drop out are left out.

  Returns:
    [phase][round], each a `reference.Round`.
  """
  key, on_device = jax.random.key(seed), jax.device_put(data)

  @jax.jit
  def draw(round):
    cohort = cohort_of(config, on_device, key, round)
    return [clients_of(cohort, phase) for phase in range(num_phases)]

  rounds_of_phases = [[] for _ in range(num_phases)]
  for r in range(num_rounds):
    phases = jax.device_get(draw(jnp.int32(r)))
    first = phases[0]
    assert len(first.number) == config.cohort_size
    places = np.nonzero(~first.is_out if counted else first.number >= 0)[0]
    clients, weights = first.number[places].tolist(), first.weight[places]
    for rounds, drawn in zip(rounds_of_phases, phases, strict=True):
      batches = [
        [
          drawn.batches[i, k, : drawn.batch_sizes[i, k]]
          for k in range(drawn.num_steps[i])
        ]
        for i in places
      ]
      rounds.append(reference.Round(clients, batches, weights))
  return rounds_of_phases


def clients_of(cohort, phase=0) -> Client:
  """The clients of a cohort with their batches in a phase, leaves [C, ...]."""
  fields = {"key": None, "location": None}
  one_client = lambda worker, _: client_of(worker)._replace(**fields)
  return cohort.each(one_client, (), phase=phase).value


def client_of(worker) -> Client:
  """What a worker works with; nothing else of the tests reaches for it."""
  return worker._client


def dropouts_of(cohort, phase=0) -> jax.Array:
  """[C] bool, who is out of a phase."""
  return clients_of(cohort, phase).is_out


def assert_close(actual, expected, rtol):
  """That parameters or arrays agree, relative to the largest entry expected."""
  actual, expected = (
    np.asarray(value) if hasattr(value, "shape") else flat(value)
    for value in (actual, expected)
  )
  atol = rtol * np.max(np.abs(expected))
  np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)


def own_algorithm(round, init=lambda params: params, **others) -> Algorithm:
  """An algorithm of one's own, whose state is the model that is evaluated."""
  return Algorithm(init, round, params=lambda state: state, **others)


def assert_same(actual, expected):
  """That two results agree up to rounding."""
  leaves = lambda result: jax.tree.leaves(
    (
      *(result.params, result.state, result.client_state),
      *(result.history.metrics, result.traces),
    )
  )
  for leaf, target in zip(leaves(actual), leaves(expected), strict=True):
    np.testing.assert_allclose(leaf, target, rtol=1e-6, atol=1e-7)
  assert actual.cost == expected.cost
  assert actual.padding_waste == expected.padding_waste
  assert actual.history.rounds == expected.history.rounds
