"""What every algorithm of the registry promises.

All are traced; one of each kind is run in each way in which it must not matter.
"""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt import contract, samplers
from fedjax_opt.algorithms import ALGORITHMS
from fedjax_opt.data.clients import ClientData
from fedjax_opt.engine.config import Config
from fedjax_opt.engine.traced import cohort, rounds
from fedjax_opt.engine.traced.mapping import Segment
from tests.helpers.compilations import compilations
from tests.helpers.each_algorithm import KINDS, NAMES, TASK, constants_of, make
from tests.helpers.jax_problems import flat, types_of

OPTIONS = {"cohort_size": 3, "batch_size": 4, "local_epochs": 1.5}
ROUNDS = 5

# All tests of one name, then those of the next: programs are kept for a while.
each_kind = pytest.mark.parametrize("name", KINDS, scope="module")


def run(name, data=None, **options):
  return fo.simulate(
    make(name),
    TASK.params,
    TASK.data if data is None else data,
    rounds=ROUNDS,
    **options_of(name) | {"eval_every": 3} | options,
  )


def options_of(name):
  takes_all = ALGORITHMS[name].cohort == "all"
  return OPTIONS | ({"cohort_size": 5} if takes_all else {})


def padded(order, padding):
  """The clients of TASK, their examples in another order of the pool.

  Args:
    order: of the pool.
    padding: the indices beyond a client's size; each client has nine or more.
  """
  data = TASK.data
  places = np.arange(data.indices.shape[1]) < data.sizes[:, None]
  indices = np.where(places, np.argsort(order)[data.indices], padding)
  columns = np.full((data.num_clients, 9), padding)
  return ClientData(
    examples={name: leaf[order] for name, leaf in data.examples.items()},
    indices=np.concatenate([indices, columns], 1).astype(np.int32),
    sizes=data.sizes,
  )


@functools.cache
def base(name):
  return run(name, padded(np.arange(TASK.data.num_examples), 5))


assert_close = functools.partial(
  chex.assert_trees_all_close, rtol=1e-4, atol=1e-5
)


def start_of(algorithm):
  """The server's state and what clients keep, before the first round."""
  params = jax.tree.map(jnp.asarray, TASK.params)
  return contract.initial_states(algorithm, params, num_clients=5)


@pytest.mark.parametrize("name", NAMES)
def test_a_traced_round_keeps_shapes_and_types(name, monkeypatch):
  """The model has half precision, and the numbers of a grid are float64.

  What is sent has the model's type too, but for single numbers.
  """
  sent = []

  def noted(one_client, worker, received):
    output = client_output(one_client, worker, received)
    sent.extend(jax.tree.leaves((received, output.message)))
    return output

  client_output = cohort.client_output
  monkeypatch.setattr(cohort, "client_output", noted)
  with jax.enable_x64(True):
    half = lambda leaf: jnp.asarray(leaf, "bfloat16")
    params, data = jax.tree.map(half, TASK.params), jax.device_put(TASK.data)
    config = Config.create(data, options_of(name))

    def run(numbers):
      algorithm = make(name, **numbers)
      state = contract.initial_states(algorithm, params, num_clients=5)
      segment = (jax.random.key(0), data, Segment(), jnp.int32(0), jnp.int32(2))
      return state, rounds.run_rounds(config, algorithm, state, *segment)[0]

    numbers = {"learning_rate": 0.3} | constants_of(name)
    state, state_after = jax.eval_shape(run, jax.tree.map(jnp.float64, numbers))
  assert types_of(state_after) == types_of(state)
  arrays = [leaf.dtype for leaf in sent if leaf.ndim]
  assert set(arrays) == {jnp.dtype("bfloat16")}


@each_kind
@pytest.mark.default_cases("scaffold")
def test_loss_falls(name):
  problem, result = TASK.problem, base(name)
  rows = np.concatenate(problem.client_rows)
  loss, _ = problem.gradient(problem.x0, rows)
  loss_after, _ = problem.gradient(flat(result.params), rows)
  assert loss_after < 0.9 * loss
  started = jax.eval_shape(lambda: start_of(make(name)))
  assert types_of((result.state, result.client_state)) == types_of(started)


@each_kind
@pytest.mark.default_cases("scaffold")
@pytest.mark.quick_cases("scaffold")
def test_inert_bit_for_bit(name):
  """Padding indices and the order of the pool change no bit, and no program."""
  expected = base(name)
  order = np.random.default_rng(0).permutation(TASK.data.num_examples)
  with compilations() as programs:
    result = run(name, padded(order, 7))
  assert not programs
  chex.assert_trees_all_equal(result.state, expected.state)
  chex.assert_trees_all_equal(result.client_state, expected.client_state)
  assert result.cost == expected.cost
  assert result.padding_waste == expected.padding_waste


@each_kind
@pytest.mark.default_cases("scaffold")
def test_inert_up_to_rounding(name):
  """What changes nothing but rounding.

  This is padding, rounds between evaluations, the order of the cohort, and how
  clients are mapped. One compilation serves segments of any length.
  """

  def reversed_cohort(*args):
    clients, scale = uniform.draw(*args)
    return jnp.concatenate([clients[:3][::-1], clients[3:]]), scale

  uniform = samplers.uniform()
  options = {"client_map": "vmap", "client_chunk": 2, "eval_every": 2}
  if name != "bvr_l_sgd":  # It picks the client at one place of the cohort.
    options["sampler"] = samplers.Sampler(reversed_cohort)
  expected = base(name)
  with compilations() as programs:
    result = run(name, **options)
  assert len(programs) == 1
  assert_close(result.state, expected.state)
  assert_close(result.client_state, expected.client_state)


def grid_of(name):
  """Two rates, the last as of `base`; none is a number while it is traced."""
  constants = {other: [value] for other, value in constants_of(name).items()}
  return {"learning_rate": [0.15, 0.3]} | constants


# All take traced numbers, see above. The grids of those with a regularizer are
# in test_composite.py.
@pytest.mark.parametrize("name", ["scaffold", "domo"], scope="module")
@pytest.mark.default_cases("scaffold")
@pytest.mark.quick_cases("scaffold")
def test_a_grid_equals_its_points(name):
  of_name = functools.partial(make, name)
  options = options_of(name)
  result = TASK.sweep(of_name, grid_of(name), rounds=ROUNDS, **options)
  first, second = (
    jax.tree.map(lambda leaf, i=i: leaf[i], result.params) for i in (0, 1)
  )
  assert_close(second, base(name).params)
  assert np.any(flat(first) != flat(second))
  assert result.cost == pytest.approx(base(name).cost)


@pytest.mark.slow
def test_the_kind_of_random_keys_of_jax_changes_no_draw():
  run = lambda: TASK.simulate(
    fo.fed_avg(TASK.loss_fn, optax.sgd(0.1)), rounds=2, cohort_size=3,
    batch_size=4,
  )  # fmt: skip
  expected = run()
  with jax.default_prng_impl("rbg"):
    chex.assert_trees_all_equal(run().params, expected.params)


@pytest.mark.slow
def test_given_parameters_stay_usable():
  params = jax.tree.map(jnp.asarray, TASK.params)
  # Its state holds the parameters themselves, too.
  server = fo.delta_sgd(eta_0=1.0, reuse_gradients=True)
  algorithm = fo.fed_avg(TASK.loss_fn, optax.sgd(0.1), server)
  fo.simulate(algorithm, params, TASK.data, rounds=1, batch_size=4)
  assert np.isfinite(flat(params)).all()
