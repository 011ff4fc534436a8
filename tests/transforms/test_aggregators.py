"""Aggregators against loops, and rounds with clients that send wrong things."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_opt as fo
from fedjax_opt import transforms
from fedjax_opt.transforms import aggregators, faults
from tests import reference
from tests.helpers import cases, jax_problems, refusals
from tests.helpers.cases import FED_AVG

OPTIONS = cases.CASES["uniform"]
AGGREGATORS = {
  "median": aggregators.median(),
  "trimmed_mean": aggregators.trimmed_mean(0.3),
  "multi_krum": aggregators.multi_krum(1),
}


REFEREES = {
  "median": reference.median,
  "trimmed_mean": lambda sent: reference.trimmed_mean(sent, 0.3),
  "multi_krum": reference.multi_krum,
}


def stack(rows, dtype=float):
  """Messages of two leaves, [n, 2, 2] and [n, 3]."""
  rows = jnp.asarray(rows, dtype)
  return {"a": rows[:, :4].reshape(-1, 2, 2), "b": rows[:, 4:]}


def flat(message):
  return np.concatenate([np.ravel(message["a"]), np.ravel(message["b"])])


@pytest.mark.parametrize("n", [8, 7, 4, 3, 2, 1])
@pytest.mark.parametrize("name", AGGREGATORS)
def test_it_is_the_loop_over_those_that_count(name, n):
  rng = np.random.default_rng(n)
  rows = rng.normal(size=(9, 7))
  rows[4] += 30
  counted = np.zeros(9, bool)
  counted[rng.permutation(9)[:n]] = True
  rows_sent = rows.copy()
  rows_sent[~counted] = np.where(rng.random((9 - n, 7)) < 0.5, np.nan, -np.inf)
  with jax.enable_x64(True):
    actual = jax.jit(AGGREGATORS[name].combine)(stack(rows_sent), counted)
  expected = REFEREES[name](rows[counted])
  np.testing.assert_allclose(flat(actual), expected, rtol=1e-12)


@pytest.mark.parametrize("name", AGGREGATORS)
def test_ties_types_and_nobody(name):
  combine = jax.jit(AGGREGATORS[name].combine)
  combined = combine(stack(np.full((5, 7), 2.5), "f2"), np.ones(5, bool))
  assert {leaf.dtype.name for leaf in combined.values()} == {"float16"}
  np.testing.assert_array_equal(flat(combined), np.full(7, 2.5))
  median = combine(jnp.array([1, 2, 2, 2, 9]), np.ones(5, bool))
  assert median.dtype == np.float32
  zeros = combine(stack(np.full((5, 7), np.nan)), np.zeros(5, bool))
  np.testing.assert_array_equal(flat(zeros), np.zeros(7))


def test_an_exact_share_is_cut_in_float32():
  rows = np.arange(100.0) ** 2
  mean = aggregators.trimmed_mean(0.29).combine(
    jnp.asarray(rows, "f"), np.ones(100, bool)
  )
  np.testing.assert_allclose(mean, rows[29:71].mean(), rtol=1e-6)


def test_some_of_few_messages_stay():
  """Of ten, 0.49999 cut five at each end, up to rounding."""
  mean = aggregators.trimmed_mean(0.49999).combine(
    jnp.arange(10.0) ** 2, np.ones(10, bool)
  )
  assert mean == (4**2 + 5**2) / 2


def simulate(algorithm, **options):
  options = {"rounds": 5} | OPTIONS | options
  return cases.TASK.simulate(algorithm, **options)


def check_rounds(fields, combine, send=None, **options):
  """FedAvg of clients that send something else, combined otherwise."""

  def loop(rounds, masses):
    assert len({len(r.clients) for r in rounds}) > 1
    xs = cases.fed_avg_loop(
      rounds, send=send, combine=lambda sent, weights: combine(sent)
    )
    return zip(xs, getattr(send, "errors", xs), strict=True)

  cases.check_loop(FED_AVG, fields, loop, "uniform", **options)


@pytest.mark.slow
def test_all_three_go_together():
  """The server has the median of what was sent, of the faulty flipped."""
  upload = transforms.error_feedback(transforms.sign())
  fault = faults.flip(0.3, strength=4.0, seed=2)
  faulty = faults.clients_of(fault, cases.M)
  assert len(faulty) == 2
  feedback = reference.ErrorFeedback(
    lambda u, r, client: reference.sign(u), cases.M
  )

  def send(u, r, client):
    sent = feedback(u, r, client)
    return sent * (-4 if client in faulty else 1)

  send.errors = feedback.errors
  parts = {"upload": upload, "fault": fault, "aggregator": aggregators.median()}
  check_rounds("params kept", reference.median, send, **parts)
  result = simulate(FED_AVG, rounds=1, **parts)
  assert result.cost["bytes_up_per_round"] == 2 + 4


def test_a_rejected_client_does_not_count():
  """Its message is not finite; the others are 1, 2 and 3."""

  def round(state, cohort):
    def one_client(worker, _):
      value = worker.client.astype(float) + 1
      return jnp.where(worker.client == 3, jnp.nan, value)

    sent = cohort.mean(one_client, state)
    return sent.value, sent

  data = fo.ClientData.from_client_ids(
    {"x": np.zeros((4, 1), "f")}, np.arange(4)
  )
  result = fo.simulate(
    jax_problems.own_algorithm(round),
    np.float32(0),
    data,
    rounds=1,
    batch_size=1,
    weighting="uniform",
    aggregator=aggregators.median(),
    evaluate=lambda params, data, test: {"one": jnp.ones(())},
  )
  assert result.params == 2
  assert result.history.metrics["rejected_clients"][0, -1] == 1


def test_noise_has_the_size_that_it_says():
  u = {"a": jnp.full((50, 40), 0.1), "b": jnp.zeros(500)}
  norm = 0.1 * np.sqrt(2000)
  corrupt = faults.noise(0.5, strength=3.0).corrupt
  added = jax.tree.map(jnp.subtract, corrupt(u, jax.random.key(0)), u)
  z = np.concatenate([np.ravel(added["a"]), added["b"]]) / (
    3 * norm / np.sqrt(2500)
  )
  assert abs(z.mean()) < 0.1
  assert abs(z.std() - 1) < 0.06
  assert abs(np.mean(z**4) - 3) < 0.6
  other = corrupt(u, jax.random.key(1))
  assert np.any(other["b"] != added["b"])


def test_who_is_faulty_depends_on_the_seed_alone():
  faulty = faults.clients_of(faults.flip(0.3), 100)
  assert len(set(faulty)) == 30
  more_faulty = faults.clients_of(faults.noise(0.4), 100)
  assert set(faulty) < set(more_faulty)
  other_seed = faults.clients_of(faults.flip(0.3, seed=1), 100)
  assert set(other_seed) != set(faulty)
  assert len(faults.clients_of(faults.flip(0.0), 100)) == 0
  # 0.7 times 45 is 31.499999999999996, and 31.5 in float32, as in a program.
  assert len(faults.clients_of(faults.flip(0.7), 45)) == 32
  of_point = jax.jit(lambda f: faults._num_faulty(faults.flip(f), 95))
  assert of_point(0.3) == len(faults.clients_of(faults.flip(0.3), 95))
  with pytest.raises(ValueError, match="is none of 10 clients; must be 0"):
    faults.clients_of(faults.flip(0.05), 10)


@pytest.mark.slow
def test_the_share_of_faulty_clients_may_be_tuned():
  make = lambda fraction: faults.with_fault(FED_AVG, faults.flip(fraction))
  fractions = [0.0, 0.3, 1.0]
  grid = {"fraction": fractions}
  result = cases.TASK.sweep(make, grid, rounds=2, **OPTIONS)
  result_3 = simulate(FED_AVG, fault=faults.flip(0.3), rounds=2)
  ends = cases.flat(result.params, lead=1)
  np.testing.assert_allclose(
    ends[1], cases.flat(result_3.params), rtol=1e-5, atol=1e-6
  )
  assert len(np.unique(ends[:, 0])) == 3


def weighing():
  one_client = lambda worker, params: fo.ClientOutput(params, weight=1.0)
  round = lambda state, cohort: (state, cohort.mean(one_client, state.params))
  return FED_AVG._replace(round=round)


def without_mean():
  identity = lambda worker, params: params
  round = lambda state, cohort: (state, cohort.each(identity, state.params))
  return FED_AVG._replace(round=round)


MEDIAN = aggregators.median()
test_is_refused = refusals.of_table(
  "aggregators.txt", aggregators, faults, cases, simulate, weighing,
  without_mean, FED_AVG=FED_AVG, MEDIAN=MEDIAN,
)  # fmt: skip
