"""Rounds of algorithms whose clients send a transform of their differences."""

import functools
import types
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt import transforms
from fedjax_opt.algorithms import ALGORITHMS
from fedjax_opt.arrays.draws import first_of_shuffle
from fedjax_opt.data.clients import ClientData
from fedjax_opt.transforms import upload as uploads
from tests import reference
from tests.helpers import cases, jax_problems, refusals
from tests.helpers.cases import FED_AVG, LR

K = 4  # 0.25 of 15.
OPTIONS = cases.FAULTY
TOP_K = transforms.top_k(0.25)


def simulate(algorithm, **options):
  options = {"rounds": 5} | OPTIONS | options
  return cases.TASK.simulate(algorithm, **options)


def keys_of_rounds():
  """[R] {client: key}, with which the only part of a message is sent."""

  def one_client(worker, _):
    key = jax.random.fold_in(worker.key, uploads._UPLOAD)
    return worker.client, jax.random.key_data(jax.random.fold_in(key, 0))

  @jax.jit
  def of(r):
    return cases.cohort(r, **OPTIONS).each(one_client, ()).value

  rounds = [jax.device_get(of(r)) for r in range(cases.ROUNDS)]
  return [
    dict(zip(numbers.tolist(), keys, strict=True)) for numbers, keys in rounds
  ]


def top_k_with_feedback():
  send = lambda u, r, client: reference.top_k(u, K)
  # Of clients that were out the error is what it was.
  send = reference.ErrorFeedback(send, cases.M)
  return transforms.error_feedback(TOP_K), "params kept", send


def random_k():
  with jax.enable_x64(True):
    keys = keys_of_rounds()

  def send(u, r, client):
    key = jax.random.wrap_key_data(jnp.asarray(keys[r][client]))
    indices = np.asarray(first_of_shuffle(key, 0, len(u), K))
    return reference.random_k(u, indices, is_scaled=True)

  return transforms.random_k(0.25), "params", send


@pytest.mark.parametrize("case", [top_k_with_feedback, random_k])
@pytest.mark.default_cases("top_k_with_feedback")
@pytest.mark.quick_cases("top_k_with_feedback")
def test_fed_avg_is_the_loop(case):
  """With what clients keep and draw; test_compressors.py has the others."""
  upload, fields, send = case()

  def loop(rounds, masses):
    xs = cases.fed_avg_loop(rounds, send=send)
    return zip(xs, getattr(send, "errors", xs), strict=True)

  cases.check_loop(transforms.with_upload(FED_AVG, upload), fields, loop)


def fixed(parts, sends, kept=None, takes=()):
  """An algorithm whose clients send given parts; the server keeps the mean."""

  def round(state, cohort):
    def one_client(worker, _):
      message = parts(worker)
      state = None if kept is None else worker.state + 1
      return fo.ClientOutput(message, state=state, **dict(takes))

    sent = cohort.mean(one_client, state["x"])
    return state | {"sent": sent.value}, sent

  def init(params):
    worker = types.SimpleNamespace(client=np.int32(0))
    shapes = jax.eval_shape(lambda: parts(worker))
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), shapes)
    return {"x": params, "sent": zeros}

  return fo.Algorithm(
    init,
    round,
    params=lambda state: state["x"],
    init_client=None if kept is None else lambda params: jnp.zeros(()),
    sends=sends,
  )


ONE = ClientData.from_client_ids({"x": np.zeros((2, 1), "f")}, np.arange(2))


def run_fixed(algorithm, upload=None, rounds=1, **options):
  return fo.simulate(
    algorithm,
    np.zeros(3, "f"),
    ONE,
    rounds=rounds,
    batch_size=1,
    upload=upload,
    evaluate=lambda params, data, test: {"one": jnp.ones(())},
    **options,
  )


def test_each_difference_of_a_message_is_sent_by_itself_and_the_rest_whole():
  first, second = jnp.array([3.0, 1.0, 2.0]), jnp.array([10.0, 20.0, -50.0])
  algorithm = fixed(
    lambda worker: (first, jnp.array([7.0, 7.0]), second),
    lambda params: [params, None, params],
  )
  result = run_fixed(algorithm, transforms.top_k(1 / 3))
  sent = jax.tree.map(np.asarray, result.state["sent"])
  np.testing.assert_array_equal(sent[0], [3, 0, 0])
  np.testing.assert_array_equal(sent[1], [7, 7])
  np.testing.assert_array_equal(sent[2], [0, 0, -50])
  assert result.cost["bytes_up_per_round"] == 8 + 8 + 8


class Message(NamedTuple):
  change: jax.Array
  steps: jax.Array


@pytest.mark.parametrize(
  ("options", "change"),
  [
    ({"upload": transforms.top_k(1 / 3)}, [0, 4, 0]),
    ({"max_update_norm": 1.0, "max_update_action": "clip"}, [0.6, 0.8, 0]),
  ],
)
def test_a_changed_message_keeps_its_type(options, change):
  message = Message(jnp.array([3.0, 4.0, 0.0]), jnp.float32(7))
  algorithm = fixed(lambda worker: message, lambda params: [params, None])
  sent = run_fixed(algorithm, **options).state["sent"]
  assert isinstance(sent, Message)
  np.testing.assert_allclose(sent.change, change, rtol=1e-6)
  assert sent.steps == 7


def test_the_algorithm_sees_its_own_state_alone():
  algorithm = fixed(
    lambda worker: jnp.array([3.0, 1.0, 2.0]),
    lambda params: [params],
    kept=True,
  )
  upload = transforms.error_feedback(transforms.top_k(1 / 3))
  result = run_fixed(algorithm, upload, rounds=2)
  np.testing.assert_array_equal(result.client_state.own, [2, 2])
  # Round 0 sends 3; of (3, 2, 4) round 1 sends the last one.
  np.testing.assert_array_equal(result.state["sent"], [0, 0, 4])
  ((error, _),) = result.client_state.upload
  np.testing.assert_array_equal(error, [[3, 2, 0]] * 2)


@pytest.mark.slow
def test_a_difference_that_is_not_finite_is_left_out_with_its_state():
  """Random-k would not have sent the one entry that is infinite."""

  def parts(worker):
    return jnp.where(worker.client == 0, 1.0, jnp.array([1.0, 1.0, jnp.inf]))

  algorithm = fixed(parts, lambda params: [params])
  for fraction in (1 / 3, 1.0):
    upload = transforms.error_feedback(transforms.random_k(fraction))
    result = run_fixed(algorithm, upload)
    ((error, _),) = result.client_state.upload
    assert np.isfinite(result.state["sent"]).all()
    assert result.history.metrics["rejected_clients"][0, -1] == 1
    np.testing.assert_array_equal(error[1], np.zeros(3))


def test_any_rule_of_optax_is_an_upload():
  algorithm = fixed(
    lambda worker: jnp.array([3.0, -1.0, 2.0]), lambda params: [params]
  )
  result = run_fixed(algorithm, optax.chain(optax.clip(1.5), optax.scale(2.0)))
  np.testing.assert_allclose(result.state["sent"], [3, -2, 3])
  assert result.client_state is None
  result = run_fixed(algorithm, optax.trace(0.5), rounds=2)
  np.testing.assert_allclose(result.state["sent"], [4.5, -1.5, 3])


@pytest.mark.slow
def test_leaves_that_are_not_trained_are_not_sent():
  make = lambda loss_fn: fo.fed_avg(loss_fn, optax.sgd(LR))
  algorithm = fo.train_only(make, ["bias"], cases.loss_fn)
  upload = transforms.error_feedback(transforms.sign())
  result = simulate(algorithm, upload=upload)
  assert result.cost["bytes_up_per_round"] == 1 + 4
  np.testing.assert_array_equal(
    result.params["kernel"], np.float32(cases.PARAMS["kernel"])
  )
  assert np.any(result.params["bias"] != np.float32(cases.PARAMS["bias"]))


# The algorithms that are no phase in which all clients send differences.
OTHERS = {
  "bvr_l_sgd", "minibatch_sarah", "prox_skip", "centralized", "local",
  "fed_async", "ca2fl",
}  # fmt: skip


@pytest.mark.parametrize(
  "name", sorted(set(ALGORITHMS) - jax_problems.OF_OTHER_MODELS)
)
@pytest.mark.default_cases(
  "fed_avg",
  "fed_prox",
  "scaffold",
  "fed_dyn",
  "fed_buff",
  "p_fed_me",
  "domo",
  "bvr_l_sgd",
  "fed_dual_avg",
  "fed_adamw",
)
def test_the_algorithms_that_send_differences_say_so(name):
  """Traced, and what they say is what they send."""
  features_fn = lambda params, batch, rng: batch["x"]
  task = jax_problems.Task(
    cases.PROBLEM, cases.PARAMS, cases.loss_fn, features_fn
  )
  sgd, psi = optax.sgd(0.1), fo.prox.zero()
  algorithm = task.algorithm(name, client=sgd, rate=0.1, psi=psi)
  assert (algorithm.sends is None) == (name in OTHERS)
  if name in OTHERS:
    with pytest.raises(ValueError, match=r"^upload: the clients of this"):
      transforms.with_upload(algorithm, transforms.sign())
    return
  upload = transforms.error_feedback(transforms.top_k(0.25))
  options = OPTIONS | {"client_dropout": 0.0, "client_chunk": 5}
  simulator = fo.Simulator(algorithm, cases.DATA, upload=upload, **options)
  simulator.init(cases.PARAMS)


@pytest.mark.slow
def test_clients_own_models_are_measured_with_and_without_the_upload():
  algorithm = fo.moon(
    cases.loss_fn, lambda params, batch, rng: batch["x"], optax.sgd(LR)
  )
  upload = transforms.error_feedback(transforms.sign())
  result = simulate(algorithm, upload=upload)
  measured = functools.partial(
    fo.evaluate_clients, result, cases.TASK.per_example, cases.DATA
  )
  losses = [
    measured(algorithm=case).values["personal"]["loss"]
    for case in (algorithm, transforms.with_upload(algorithm, upload))
  ]
  np.testing.assert_array_equal(*losses)


def sending(verbs):
  """An algorithm whose rounds call these verbs of the cohort."""
  identity = lambda worker, x: x
  return FED_AVG._replace(
    round=lambda state, cohort: (
      state,
      [getattr(cohort, verb)(identity, state.params) for verb in verbs],
    )
  )


counting = fixed(
  lambda worker: jnp.zeros(3), lambda params: [params], takes={"bytes_up": 3}
)
wrong = fixed(lambda worker: jnp.zeros(2), lambda params: [params])


test_is_refused = refusals.of_table(
  "uploads.txt", transforms, simulate, run_fixed, sending, FED_AVG=FED_AVG,
  counting=counting, wrong=wrong,
)  # fmt: skip
