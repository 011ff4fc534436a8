"""What a round of each method costs, and rules that they take."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt.arrays import trees
from tests.helpers import cases, jax_problems
from tests.helpers.tables_of_calls import read_cases

N, D, K, C = 6, 5, 3, 4
TASK = jax_problems.least_squares(sizes=(N,) * C, dim=D)
LOSS = TASK.loss_fn
OPTIONS = {"batch_size": N, "local_steps": K, "cohort_size": C}
MODEL = 4 * D  # bytes
START = {"kernel": np.zeros(D, np.float32)}
ONCE = K * N  # gradients of an example by plain local steps
RATE = 0.05
SGD = optax.sgd(RATE)
NUMBER = 4 / MODEL  # in models
FULL = N / ONCE  # the gradient of all examples

# name -> (algorithm, models down, models up, gradients by plain local steps) of
# those whose rounds begin a stage, here the first of two; in the last place the
# examples of its large gradient. Gradients are taken at two points, of which a
# client has the older one already; of four clients one has the local routine.
OF_ONE = (1 + 1 / C, 1 + 1 / C, 2 + 2 / C)
STAGES = {
  "minibatch_sarah": (fo.minibatch_sarah(LOSS, RATE), 1, 1, 2, N),
  "bvr_l_sgd": (fo.bvr_l_sgd(LOSS, RATE), *OF_ONE, N),
  "bvr_l_sgd, sampled": (fo.bvr_l_sgd(LOSS, RATE, large_batch=4), *OF_ONE, 4),
  "bvr_l_sgd, theory": (
    fo.bvr_l_sgd(LOSS, RATE, practical=False),
    *(2, 3, 4, N),
  ),
}
NAMES = "bytes_down", "bytes_up", "gradient_evaluations"
UNITS = MODEL, MODEL, ONCE
# With the numbers that are of the model's type where JAX has float64.
WIDE = "fo.fed_nova(LOSS, RATE)", "fo.fed_speed(LOSS, RATE)"


@pytest.mark.parametrize(("call", "costs"), read_cases("algorithms/costs.txt"))
@pytest.mark.default_cases(
  "fo.scaffold(LOSS, RATE)", "fo.fed_adamw(LOSS, RATE)", *WIDE
)
def test_costs_are_those_counted_by_hand(call, costs):
  *counted, num_kept = eval(costs)
  with jax.enable_x64(call in WIDE):
    result = fo.simulate(eval(call), START, TASK.data, rounds=2, **OPTIONS)
  assert result.cost == {
    f"{cost}_per_round": pytest.approx(number * unit)
    for cost, number, unit in zip(NAMES, counted, UNITS, strict=True)
  }
  leaves = jax.tree.leaves(result.client_state)
  assert sum(leaf.nbytes for leaf in leaves) == C * num_kept * MODEL


@pytest.mark.slow
@pytest.mark.parametrize("name", STAGES)
def test_costs_of_stages_are_those_counted_by_hand(name):
  """Also along the run: what a client has spent so far."""
  algorithm, *counted, large = STAGES[name]
  evaluate = lambda params, data, test: {"x": 0.0}
  result = TASK.simulate(
    algorithm, rounds=2, eval_every=1, evaluate=evaluate, **OPTIONS
  )
  expected = {"communication_rounds": 1.5}
  columns = zip(NAMES, counted, UNITS, (MODEL, MODEL, large), strict=True)
  for name, number, unit, more in columns:
    usual = number * unit
    expected[f"{name}_per_round"] = usual + more / 2
    expected[f"stage_start_{name}_per_round"] = more / 2
    spent = result.history.metrics[name][0]
    np.testing.assert_allclose(spent, [0, usual + more, 2 * usual + more])
  assert result.cost == pytest.approx(expected)


def test_all_clients_of_prox_skip_meet_or_none():
  """Also those that have fewer steps than the coin takes to fall."""
  task = jax_problems.least_squares(sizes=(1, 6, 6, 6), dim=D)
  rounds = 20
  result = task.simulate(
    fo.prox_skip(task.loss_fn, 0.01, p=0.3),
    rounds=rounds,
    batch_size=1,
    weighting="uniform",
  )
  meetings = result.cost["bytes_up_per_round"] * rounds / MODEL
  assert 10 <= meetings < rounds
  assert meetings == pytest.approx(round(meetings))


def test_prox_skip_sends_more_bytes_than_32_bits_count(monkeypatch):
  monkeypatch.setattr(trees, "num_bytes", lambda _: (1 << 33) + 1)
  task = jax_problems.least_squares(sizes=(4, 4), dim=D)
  result = task.simulate(
    fo.prox_skip(task.loss_fn, 0.01, p=1.0), rounds=2, batch_size=4
  )
  assert result.cost["bytes_up_per_round"] == (1 << 33) + 1


@pytest.mark.slow
def test_prox_skip_if_a_client_sends_nan_now_and_then():
  """None meet in that round; if the others did, the run would diverge."""
  task = jax_problems.least_squares(sizes=(4, 4, 4), dim=D)
  x, y = (task.data.examples[name] for name in "xy")

  def loss_fn(params, batch, rng):
    is_wrong = (batch["y"] == y[0]) & jax.random.bernoulli(rng, 0.02)
    return task.loss_fn(params, batch, rng) * jnp.where(is_wrong, jnp.nan, 1)

  with jax.enable_x64(True):
    result = fo.simulate(
      fo.prox_skip(loss_fn, 0.1, p=0.4), task.params, task.data,
      rounds=600, batch_size=4, local_steps=6, weighting="uniform",
      evaluate=lambda params, data, test: {"none": jnp.zeros(())},
    )  # fmt: skip
  assert result.history.metrics["rejected_clients"][0, -1] > 0
  controls = np.asarray(result.client_state.control["kernel"])
  np.testing.assert_allclose(controls.sum(axis=0), 0, atol=1e-9)
  optimum = np.linalg.lstsq(x, y, rcond=None)[0]
  assert np.linalg.norm(np.asarray(result.params["kernel"]) - optimum) < 0.2


@pytest.mark.slow
def test_mime_lite_takes_any_base_optimizer():
  """One client, one step on all of its examples: that optimizer itself."""
  base = optax.scale_by_adam()
  task = jax_problems.least_squares(sizes=(N,), dim=D)
  with jax.enable_x64(True):
    result = task.simulate(
      fo.mime_lite(task.loss_fn, 0.1, base=base),
      rounds=4,
      batch_size=N,
      local_steps=1,
    )
    expected, state = task.params, base.init(task.params)
    for _ in range(4):
      _, grad = task.problem.gradient(expected["kernel"], np.arange(N))
      updates, state = base.update({"kernel": grad}, state)
      updates = optax.tree.scale(-0.1, updates)
      expected = optax.apply_updates(expected, updates)
  jax_problems.assert_close(result.params, expected["kernel"], rtol=1e-10)
  close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10)
  jax.tree.map(close, result.state.base, state)


@pytest.mark.slow
@pytest.mark.parametrize("factory", [fo.fed_dyn, fo.ditto])
def test_a_rule_may_be_a_function_of_the_round(factory):
  rates = np.float32([0.1, 0.02])
  of_round = lambda round: optax.sgd(jax.numpy.asarray(rates)[round])
  dropping, constant = (
    [
      server.params["kernel"]
      for server, _ in cases.run(factory(LOSS, rule), TASK, 2, **OPTIONS)
    ]
    for rule in (of_round, optax.sgd(0.1))
  )
  np.testing.assert_allclose(dropping[1], constant[1], rtol=1e-6)
  assert np.linalg.norm(dropping[2] - constant[2]) > 1e-3
