"""What the checks let through, and what they cost."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_opt import Algorithm, Simulator, fed_avg, scaffold, simulate
from fedjax_opt.checks import errors
from fedjax_opt.checks.values import check_integer
from fedjax_opt.engine.initial_state import InitialState
from fedjax_opt.engine.run_state import GridPoints
from tests.helpers.linear import (
  ALGORITHM,
  DATA,
  DEFAULTS,
  PARAMS,
  SGD,
  TEST,
  evaluate,
  loss_fn,
)


def not_a_number(params, batch, rng):
  return jnp.sqrt(jnp.sum(params["w"])) * batch["x"][:, 0]


GOOD = {
  "a gradient that is NaN at the start": {
    "algorithm": fed_avg(not_a_number, SGD)
  },
  "NumPy's numbers": {"rounds": np.int64(1), "client_dropout": np.float32(0)},
  "a rule of the round": {
    "algorithm": fed_avg(loss_fn, lambda round: optax.sgd(0.1 / (1 + round)))
  },
  "a rate as an array": {"algorithm": scaffold(loss_fn, jnp.float32(0.1))},
  "metrics that are numbers": {
    "test": TEST,
    "evaluate": lambda params, data, test: {"one": 1, "has": test is None},
  },
  "a number as state": {
    "algorithm": Algorithm(
      init=lambda params: 0,
      round=lambda state, cohort: (
        state + 1,
        cohort.each(lambda worker, _: worker.client, ()),
      ),
      params=lambda state: state,
    )
  },
}


@pytest.mark.parametrize("case", GOOD)
@pytest.mark.slow_cases("a rule of the round", "a rate as an array")
def test_good_input_runs(case):
  assert simulate(**DEFAULTS | GOOD[case]).rounds in (1, 2)


def test_a_run_is_traced_ahead_once():
  chex.clear_trace_counter()
  traced_once = chex.assert_max_traces(evaluate, n=1)
  simulator = Simulator(ALGORITHM, DATA, batch_size=2, evaluate=traced_once)
  state = simulator.init(PARAMS)
  simulator.init(PARAMS)
  simulator.run(state, 1)
  with pytest.raises(ValueError, match="traced > 1 times"):
    Simulator(ALGORITHM, DATA, batch_size=2, evaluate=traced_once).init(PARAMS)


def test_models_of_several_seeds_are_drawn_one_after_the_other():
  """A batch of QR decompositions can stop jaxlib on CPU for good."""

  @jax.custom_batching.custom_vmap
  def orthogonal(key):
    return jax.nn.initializers.orthogonal()(key, (8, 8))

  @orthogonal.def_vmap
  def _(axis_size, in_batched, key):
    raise AssertionError("was vectorized over seeds")

  draw = lambda key: {"w": orthogonal(key)}
  model = jax.eval_shape(lambda: {"w": jnp.ones((8, 8))})
  points = GridPoints(lambda: ALGORITHM, {}, 1, seeds=(0, 1, 2), is_grid=True)
  start = InitialState(points, draw, model, num_clients=4)
  models = start.make_state(None, on_host=False).server.params
  expected = draw(jax.random.key(1))["w"]
  np.testing.assert_allclose(models["w"][0, 1], expected, atol=1e-5)


def test_own_errors_are_told_from_those_of_libraries():
  for call, is_own in (
    (lambda: check_integer("a", 0.5), True),
    (lambda: jnp.zeros(2) @ jnp.zeros(3), False),
    (lambda: {}["a"], False),
    (lambda: jax.eval_shape(lambda: check_integer("a", 0.5)), True),
  ):
    with pytest.raises((TypeError, KeyError)) as error:
      call()
    assert errors.is_own(error.value) == is_own
