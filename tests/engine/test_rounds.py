"""The loop over rounds, and what a round returns to it."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt import contract
from fedjax_opt.engine.config import Config
from fedjax_opt.engine.traced import rounds
from fedjax_opt.engine.traced.cohort import Cohort
from fedjax_opt.engine.traced.mapping import Segment
from tests.helpers import jax_problems
from tests.helpers.refusals import refusal


@pytest.mark.slow
def test_what_a_large_population_keeps_is_held_once():
  """SCAFFOLD's, of 100,000 clients: XLA plans no copy of it."""
  population, size = 100_000, 50
  data = fo.ClientData(
    {"x": np.ones((10, size), np.float32)},
    np.zeros((population, 1), np.int32),
    np.ones(population, np.int32),
  )
  loss = lambda params, batch, rng: batch["x"] @ params["w"]
  algorithm = fo.scaffold(loss, 0.1)
  settings = {"cohort_size": 4, "batch_size": 1, "client_chunk": 2}
  config = Config.create(data, settings)
  model = {"w": jnp.zeros(size)}
  start = lambda: contract.initial_states(algorithm, model, population)

  def run(state, key, data):
    args = (key, data, Segment(), jnp.int32(0), jnp.int32(9))
    return rounds.run_rounds(config, algorithm, state, *args)

  state, key = jax.eval_shape(start), jax.random.key(0)
  lowered = jax.jit(run, donate_argnums=0).lower(state, key, data)
  plan = lowered.compile().memory_analysis()
  memory = 4 * size * population
  assert plan.alias_size_in_bytes >= memory  # The same buffer, in and out.
  assert plan.temp_size_in_bytes < memory / 2


# ----------------------------------------------------------- Draws of a segment


def squares(params, batch, rng):
  return (batch["x"] @ params["w"] - batch["y"]) ** 2


def ahead_of_rounds(algorithm, **settings):
  """The model after seven rounds of ten clients of 3 to 12 examples."""
  rng = np.random.default_rng(0)
  x = rng.normal(size=(75, 3)).astype(np.float32)
  owner = np.repeat(np.arange(10), np.arange(3, 13))
  data = fo.ClientData.from_client_ids({"x": x, "y": x[:, 0]}, owner)
  settings = {"batch_size": 4, "eval_every": 3, "client_chunk": 4} | settings
  params = {"w": jnp.zeros(3)}
  return fo.simulate(algorithm, params, data, rounds=7, **settings).params["w"]


@pytest.mark.parametrize(
  ("make", "settings"),
  [
    (lambda: fo.fed_avg(squares, optax.sgd(0.1)), {}),
    (lambda: fo.fed_avg(squares, fo.delta_sgd()), {"local_epochs": 2.5}),
    (lambda: fo.scaffold(squares, 0.1), {"client_dropout": 0.4}),
    (
      lambda: fo.bvr_l_sgd(squares, 0.1),
      {"sampler": fo.samplers.weighted(range(1, 11))},
    ),
    (
      lambda: fo.fed_avg(squares, optax.sgd(0.1)),
      {"sampler": fo.samplers.poisson(2.0), "local_steps": 3},
    ),
  ],
  ids=["FedAvg", "Delta-SGD", "SCAFFOLD", "BVR-L-SGD", "Poisson"],
)
@pytest.mark.slow
def test_draws_ahead_are_those_of_the_rounds(make, settings, monkeypatch):
  """As on a GPU: all cohorts and batches of a segment before its rounds."""
  settings = {"cohort_size": 4} | settings
  expected = ahead_of_rounds(make(), **settings)
  draws, traced = Cohort.draws, []

  def count(cohort):
    traced.append(cohort)
    return draws(cohort)

  monkeypatch.setattr(rounds.target, "platform", lambda: "gpu")
  monkeypatch.setattr(Cohort, "draws", count)
  actual = ahead_of_rounds(make(), **settings)
  assert traced
  np.testing.assert_allclose(actual, expected, rtol=1e-5)


# ------------------------------------------------------- What a round returns


SIZES = (8, 4, 12, 4)
OWNER = np.repeat(np.arange(4), SIZES)
FOUR = fo.ClientData.from_client_ids({"x": np.ones((28, 1), np.float32)}, OWNER)
SETTINGS = {"batch_size": 4, "local_steps": 1}


class Both(NamedTuple):
  """A state that is a tuple of two itself."""

  total: jax.Array
  rounds: jax.Array


def simple(round, init=lambda *_: jnp.float32(0), init_client=None):
  return jax_problems.own_algorithm(round, init, init_client=init_client)


def averaging(one_client, **options):
  """The state is the mean of what clients return."""

  def round(state, cohort):
    sent = cohort.mean(one_client, ())
    return sent.value, sent

  return simple(round, **options)


def run(algorithm, rounds=1, data=FOUR, **settings):
  return fo.simulate(algorithm, (), data, rounds=rounds, **SETTINGS | settings)


def number(worker, _):
  return 1.0 * worker.client


def both(*_):
  return Both(jnp.float32(0), jnp.int32(0))


@pytest.mark.parametrize(
  ("init", "returned"),
  [
    (None, lambda state, sent: state),
    (both, lambda state, sent: Both(*state)),
    (None, lambda state, sent: None),
    (None, lambda state, sent: (state, sent, 0)),
    (None, lambda state, sent: (state, sent.value)),
    (None, lambda state, sent: (state, (sent, 0))),
    (None, lambda state, sent: [state, sent]),
  ],
)
def test_a_round_returns_its_state_and_replies(init, returned):
  def round(state, cohort):
    return returned(state, cohort.mean(number, ()))

  init = init or (lambda *_: jnp.float32(0))
  message = refusal(run, simple(round, init), kind=ValueError)
  assert message.startswith("round: must return (state, reply), or (state, (r")


def all_but(forgotten):
  """The replies of a round of three verbs, the last under a condition."""

  def replies(cohort):
    sent = [cohort.mean(number, ()), cohort.each(number, (), phase=1)]
    verb = lambda: cohort.mean(number, (), phase=2)
    sent.append(cohort.cond(cohort.round > 0, verb, 0.0))
    return tuple(reply for reply in sent if reply.phase != forgotten)

  return replies


# What is said of the replies of a round.
ONCE = (
  "round: called verbs of the phases [0, 0] and returned replies of the phases "
  "{}; give each verb a phase of its own, such as cohort.mean(..., phase=1), "
  "and return each reply once"
)
REPLIES = {
  ONCE.format([0, 0]): lambda cohort: (
    cohort.mean(number, ()),
    cohort.pick(number, ()),
  ),
  ONCE.format([0]): lambda cohort: [cohort.mean(number, ()) for _ in range(2)][
    1
  ],
  **{
    f"round: the reply of phase {phase} was not returned; return (state, "
    "(reply, ...)) with the replies of all verbs that were called": (
      all_but(phase)
    )
    for phase in range(3)
  },
}


@pytest.mark.parametrize("message", REPLIES)
def test_each_verb_has_a_phase_and_its_reply_is_returned(message):
  round = lambda state, cohort: (state, REPLIES[message](cohort))
  assert refusal(run, simple(round), kind=ValueError) == message


def test_a_round_without_a_verb():
  result = run(simple(lambda state, cohort: (state + 1, ())), rounds=3)
  assert float(result.params) == 3
  assert set(result.cost.values()) == {0}


# ------------------------------------------------------- What clients return


def test_own_weights_replace_the_usual_ones():
  """They need not sum to 1."""
  own = 3.0 * np.arange(4) + 1

  def round(state, cohort):
    one_client = lambda worker, _: fo.ClientOutput(
      number(worker, _), weight=jnp.asarray(own)[worker.client]
    )
    sent = cohort.mean(one_client, ())
    return (sent.value, sent.weights), sent

  init = lambda *_: (jnp.float32(0), jnp.zeros(4))
  value, weights = run(simple(round, init), client_chunk=3).state
  assert float(value) == pytest.approx(np.average(np.arange(4), weights=own))
  np.testing.assert_allclose(weights, own)


@pytest.mark.parametrize("given_weight", [0.0, math.nan])
def test_a_weight_that_is_none(given_weight):
  """Zero leaves the client out of the mean, what is not finite rejects it."""

  def one_client(worker, _):
    weight = jnp.where(worker.client == 2, given_weight, 1.0)
    return fo.ClientOutput(number(worker, _), weight=weight)

  evaluate = lambda params, data, test: {"value": params}
  result = run(averaging(one_client), evaluate=evaluate)
  assert float(result.params) == pytest.approx((0 + 1 + 3) / 3)
  rejected = result.history.metrics["rejected_clients"][0, -1]
  assert rejected == (0 if given_weight == 0 else 1)


def test_bytes_that_clients_say_they_send():
  """As those of a message that is sparse."""

  def round(state, cohort):
    def one_client(worker, _):
      return fo.ClientOutput(jnp.zeros(50), bytes_up=10 * (worker.client + 1))

    sent = cohort.mean(one_client, ())
    plain = cohort.mean(number, jnp.zeros(2), phase=1, label="apart")
    return state, (sent, plain)

  cost = run(simple(round), rounds=3).cost
  assert cost["bytes_up_per_round"] == (10 + 20 + 30 + 40) / 4 + 4
  assert cost["apart_bytes_up_per_round"] == 4
  assert cost["bytes_down_per_round"] == cost["apart_bytes_down_per_round"] == 8


def test_metrics_of_clients_are_recorded_for_each_round():
  """Those of the clients drawn, in the order of the cohort."""
  rounds = 5

  def round(state, cohort):
    def one_client(worker, _):
      metrics = {
        "client": worker.client,
        "twice": 2.0 * worker.client + 100 * worker.round,
      }
      return fo.ClientOutput(number(worker, _), metrics=metrics)

    sent = cohort.mean(one_client, ())
    # Of one client there is nothing to record.
    picked = cohort.pick(one_client, (), phase=1)
    return state.at[cohort.round].set(cohort.clients), (sent, picked)

  init = lambda *_: jnp.zeros((rounds, 3), jnp.int32)
  settings = {"cohort_size": 3, "client_chunk": 2, "eval_every": 2}
  result = run(simple(round, init), rounds=rounds, **settings)
  cohorts = np.asarray(result.state)
  assert set(result.traces) == {"client", "twice"}
  np.testing.assert_array_equal(result.traces["client"], cohorts)
  expected = 2 * cohorts + 100 * np.arange(rounds)[:, None]
  np.testing.assert_array_equal(result.traces["twice"], expected)


def test_rarely_evaluated_rounds_need_no_more_memory(monkeypatch):
  monkeypatch.setattr("fedjax_opt.engine.config._MOST_ROUNDS", 2)
  one_client = lambda worker, _: fo.ClientOutput(
    number(worker, _), metrics={"client": worker.client}
  )
  of_every = lambda rounds: run(
    averaging(one_client), rounds=3, eval_every=rounds
  )
  rarely, often = of_every(10**9), of_every(1)
  np.testing.assert_array_equal(rarely.traces["client"], often.traces["client"])


def test_a_verb_of_some_rounds_records_and_keeps_in_them_only():
  def round(state, cohort, otherwise=0.0):
    one_client = lambda worker, _: fo.ClientOutput(
      1.0, state=worker.state + 1, metrics={"round": 1.0 * worker.round}
    )
    verb = lambda: cohort.mean(one_client, ())
    sent = cohort.cond(cohort.round % 2 == 1, verb, otherwise)
    return state + sent.value, sent

  keeps = lambda _: jnp.int32(0)
  result = run(simple(round, init_client=keeps), rounds=4)
  expected = np.array([np.nan, 1, np.nan, 3])[:, None].repeat(4, 1)
  np.testing.assert_array_equal(result.traces["round"], expected)
  np.testing.assert_array_equal(result.client_state, [2] * 4)
  assert float(result.params) == pytest.approx(2)
  with pytest.raises(ValueError, match="cond: otherwise is"):
    run(simple(lambda *args: round(*args, [0.0]), init_client=keeps), rounds=1)


# ----------------------------------------------------------- What clients keep


def counting(is_bad=lambda worker: False, state_of=lambda visits: visits + 1):
  """Clients count their visits; the server notes who counted in each round."""

  def round(state, cohort):
    def one_client(worker, _):
      message = jnp.where(is_bad(worker), jnp.inf, 1.0)
      return fo.ClientOutput(message, state=state_of(worker.state))

    sent = cohort.mean(one_client, ())
    return state.at[cohort.clients].add(sent.counted.astype(jnp.int32)), sent

  return simple(
    round,
    init=lambda params: jnp.zeros(4, jnp.int32),
    init_client=lambda params: jnp.int32(0),
  )


@pytest.mark.parametrize("client_memory", ["device", "host"])
@pytest.mark.default_cases("device")
def test_who_is_left_out_keeps_what_it_had(client_memory):
  """Whether it drops out or is rejected."""
  result = run(
    counting(lambda worker: worker.client == 2),
    rounds=12,
    cohort_size=3,
    client_chunk=2,
    client_dropout=0.3,
    client_memory=client_memory,
  )
  visits = np.asarray(result.client_state)
  np.testing.assert_array_equal(visits, result.state)
  assert visits[2] == 0
  assert 0 < visits.sum() < 36 * 3 / 4


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
@pytest.mark.default_cases("order1")
def test_a_verb_that_returns_no_state_changes_none(order):
  """Before or after one that does, and in whatever order they are returned."""

  def round(state, cohort):
    keep = lambda worker, _: fo.ClientOutput(1.0, state=worker.state + 1)
    updated = cohort.mean(keep, ())
    plain = cohort.each(number, (), phase=1)
    picked = cohort.pick(number, (), phase=2)
    return state, [(updated, plain, picked)[i] for i in order]

  result = run(simple(round, init_client=lambda _: jnp.int32(0)), rounds=3)
  np.testing.assert_array_equal(result.client_state, [3] * 4)


@pytest.mark.parametrize("others_work", [False, True])
def test_the_picked_client_keeps_its_own(others_work):
  def round(state, cohort):
    def one_client(worker, _):
      return fo.ClientOutput(worker.client, state=worker.state + 1)

    sent = cohort.pick(one_client, (), others_work=others_work)
    return state.at[sent.value].add(1), sent

  algorithm = simple(
    round,
    init=lambda params: jnp.zeros(4, jnp.int32),
    init_client=lambda params: jnp.int32(0),
  )
  result = run(algorithm, rounds=6)
  expected = [6] * 4 if others_work else result.state
  np.testing.assert_array_equal(result.client_state, expected)


def test_a_state_may_be_a_plain_number():
  result = run(counting(state_of=lambda visits: 7))
  np.testing.assert_array_equal(result.client_state, [7] * 4)


# -------------------------------------------------------------- Reports of it


def test_a_report_has_copies_of_model_and_state():
  """Which stay what they were while the run goes on, and may be changed."""

  def round(state, cohort):  # Counts the rounds; the model is twice that.
    sent = cohort.mean(lambda worker, _: 1.0, ())
    return {"sum": state["sum"] + jnp.round(sent.value)}, sent

  algorithm = fo.Algorithm(
    init=lambda *_: {"sum": jnp.zeros(3)},
    round=round,
    params=lambda state: {"w": 2 * state["sum"]},
  )
  reports = []
  fo.sweep(
    lambda **_: algorithm, {"unused": [1.0, 2.0]}, (), FOUR, seeds=(0, 1),
    rounds=6, eval_every=2,
    evaluate=lambda params, *_: {"train_loss": params["w"][0]},
    on_evaluation=lambda report: reports.append(
      (report.round, report.params["w"], report.state["sum"])
    ),
    **SETTINGS,
  )  # fmt: skip
  assert [round for round, _, _ in reports] == [0, 2, 4, 6]
  for round, params, state in reports:
    np.testing.assert_array_equal(params, np.full((4, 3), 2 * round))
    np.testing.assert_array_equal(state, np.full((4, 3), round))
