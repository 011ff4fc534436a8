"""The problem and the rounds in which methods run against their loops.

Clients differ in size and one owns nothing, five of seven take part in a round,
last batches are partial, some drop out, and two clients are computed side by
side, so that a place is filled up with no client.
"""

import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fedjax_opt as fo
from fedjax_opt.engine.config import Config
from tests import reference
from tests.helpers import jax_problems

SIZES = (13, 7, 20, 4, 9, 16, 0)
TASK = jax_problems.softmax(sizes=SIZES)  # bias [3], then kernel [4, 3]
PROBLEM, PARAMS, loss_fn = TASK.problem, TASK.params, TASK.loss_fn
DATA, X0, GRADIENT = TASK.data, PROBLEM.x0, PROBLEM.gradient
KERNEL = slice(PROBLEM.num_classes, len(X0))
M, ROUNDS, LR = len(SIZES), 7, 0.3
FED_AVG = fo.fed_avg(loss_fn, optax.sgd(LR))
PLAIN = {"cohort_size": 5, "batch_size": 4, "local_epochs": 1.5}
# Five clients in chunks of two: the sixth does not exist.
FAULTY = PLAIN | {"client_dropout": 0.3, "client_chunk": 2}
CASES = {"dropouts": FAULTY, "uniform": FAULTY | {"weighting": "uniform"}}
flat = jax_problems.flat


def rate(r):
  """Drops from round to round."""
  return LR / (1 + 0.1 * r)


def cohort(round, **options):
  """The cohort of a round of a run with these options."""
  config = Config.create(DATA, options, PARAMS)
  key = jax.random.key(0)
  return jax_problems.cohort_of(
    config, jax.device_put(DATA), key, jnp.int32(round)
  )


def draw(num_rounds, **options):
  """The rounds that `simulate` draws with these options, as loops take them.

  Those that drop out are not in them.
  """
  config = Config.create(DATA, options, PARAMS)
  return jax_problems.drawn_rounds(config, DATA, 0, num_rounds, counted=True)


@functools.cache
def drawn(case):
  """The rounds of a case, which are as hard as they should be."""
  with jax.enable_x64(True):  # For the weights.
    rounds = draw(ROUNDS, **CASES[case])
  steps = [rows for r in rounds for batches in r.batches for rows in batches]
  assert {len(rows) for rows in steps} > {1, 4}
  assert any(M - 1 in r.clients for r in rounds)  # It owns nothing.
  for r in rounds:  # The package draws them; a loop would not see a mistake.
    share = lambda values: np.array(values) / np.sum(values)
    np.testing.assert_allclose(share(r.weights), share(masses(case)[r.clients]))
    for client, batches in zip(r.clients, r.batches, strict=True):
      passes = np.concatenate([[], *batches]).astype(int)
      own = np.sort(PROBLEM.client_rows[client])
      np.testing.assert_array_equal(np.sort(passes[: len(own)]), own)
      assert len(np.unique(passes[len(own) :])) == len(passes) - len(own)
      assert set(passes) <= set(own)
  assert all(np.sum(r.weights) > 0 for r in rounds)
  assert {len(r.clients) == 5 for r in rounds} == {True, False}
  return rounds


def masses(case):
  """[M], the weights of all clients."""
  return np.ones(M) if case == "uniform" else np.array(SIZES)


def run(algorithm, task=TASK, rounds=ROUNDS, **options):
  """What the server and the clients have before the rounds and after each."""
  simulator = fo.Simulator(algorithm, task.data, **options)
  states = [simulator.init(task.params)]
  for _ in range(rounds):
    states.append(simulator.run(states[-1], 1)[0])
  return [jax.device_get((s.server, s.client_state)) for s in states]


def check_loop(
  algorithm, fields, loop, case="dropouts", x64=True, task=TASK, **options
):
  """Compares an algorithm with its loop after each round.

  Args:
    algorithm: any.
    fields: names between blanks of what the loop yields first: fields of the
      server's state, "kept" for what the clients keep, "model" for the model
      that is evaluated.
    loop: `(rounds, masses) -> one tuple a round`.
    case: of `CASES`.
    x64: whether in double precision.
    task: another one than TASK, of clients of these sizes.
    **options: besides those of the case.
  """
  with jax.enable_x64(x64):
    _, *after = run(algorithm, task, **CASES[case], **options)
    models = [algorithm.params(server) for server, _ in after]
    expected = [*zip(*loop(drawn(case), masses(case)), strict=True)]
  servers, client_states = zip(*after, strict=True)
  by_name = {"kept": client_states, "model": models}
  names = fields.split()
  assert len(names) <= len(expected)
  for field, values in zip(names, expected, strict=False):
    actual = by_name.get(field) or map(operator.attrgetter(field), servers)
    assert_close(list(actual), values, 1e-10 if x64 else 1e-5)
  assert np.linalg.norm(flat(models[-1]) - task.problem.x0) > 0.05


def fed_avg_loop(rounds, **how):
  """The models of the loop of FedAvg with SGD; see reference.py."""
  make_rule = lambda r, client: reference.Sgd(LR)
  return [x for x, _ in reference.fed_avg(PROBLEM, rounds, make_rule, **how)]


def assert_close(actual, expected, rtol):
  """[R, ...], relative to the largest entry of each round."""
  assert len(actual) == len(expected)
  for r, (value, target) in enumerate(zip(actual, expected, strict=True)):
    value = flat(value, lead=np.ndim(target) - 1)
    atol = rtol * max(np.max(np.abs(target)), 1e-3)
    np.testing.assert_allclose(value, target, 0, atol, err_msg=f"round {r}")
