"""Clients that are read from disk round by round."""

import functools
import threading

import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt import evaluation
from fedjax_opt.data import population as population_module
from fedjax_opt.engine import feed
from tests.helpers import jax_problems
from tests.helpers.jax_problems import assert_same
from tests.helpers.refusals import refusal

TASK = jax_problems.softmax(sizes=(13, 7, 20, 4, 9, 0, 11))
EVALUATE = evaluation.federated(TASK.per_example)
OPTIONS = {
  "rounds": 5,
  "cohort_size": 4,
  "batch_size": 4,
  "local_epochs": 1.5,
  "eval_every": 3,
  "evaluate": EVALUATE,
}
FED_AVG = fo.fed_avg(TASK.loss_fn, optax.sgd(0.1))


@pytest.fixture
def population(tmp_path):
  return fo.Population.of_client_data(tmp_path / "population", TASK.data)


def assert_no_thread_is_left():
  names = [thread.name for thread in threading.enumerate()]
  assert not [name for name in names if name.startswith(feed.THREAD)]


@pytest.mark.parametrize(
  ("algorithm", "others"),
  [
    (fo.bvr_l_sgd(TASK.loss_fn, 0.1), {"client_chunk": 3, "replacement": True}),
    (
      fo.scaffold(TASK.loss_fn, 0.1),
      {"cohort_size": None, "client_dropout": 0.3},
    ),
  ],
)
@pytest.mark.default_cases("algorithm1-others1")
def test_it_is_as_in_memory(population, algorithm, others):
  run = functools.partial(
    fo.simulate, algorithm, TASK.params, **OPTIONS | others
  )
  assert_same(run(population), run(TASK.data))


@pytest.mark.slow
def test_segments_are_as_long_as_memory_allows(population, monkeypatch):
  """And how long they are changes nothing."""
  run = functools.partial(fo.simulate, FED_AVG, TASK.params, population)
  expected = run(**OPTIONS)
  row = sum(array.nbytes // len(array) for array in TASK.data.examples.values())
  of_round = population.capacity(4) * row
  monkeypatch.setattr(feed, "_SEGMENT_BYTES", 2 * of_round)
  lengths = []
  make = feed.Feed.make_segment

  def noted(self, first, stop):
    lengths.append(stop - first)
    assert threading.current_thread() is not threading.main_thread()
    return make(self, first, stop)

  monkeypatch.setattr(feed.Feed, "make_segment", noted)
  assert_same(run(**OPTIONS), expected)
  # Evaluations are after rounds 0, 3 and 5.
  assert lengths == [2, 1, 1, 1]
  assert_no_thread_is_left()


@pytest.mark.slow
def test_seeds_have_cohorts_of_their_own(population):
  make = lambda rate: fo.fed_avg(TASK.loss_fn, optax.sgd(rate))
  run = functools.partial(
    fo.sweep, make, {"rate": [0.1, 0.2]}, TASK.params, seeds=(3, 4), **OPTIONS
  )
  expected = run(TASK.data)
  assert_same(run(lambda seed: population, grid_map="scan"), expected)


@pytest.mark.slow
def test_large_populations_are_measured_on_a_sample(tmp_path, monkeypatch):
  monkeypatch.setattr(population_module, "_NUM_SAMPLED", 3)
  population = fo.Population.of_client_data(tmp_path / "p", TASK.data)
  sample = population.sample()
  assert sample.sizes.tolist() == [13, 20, 9]
  result = fo.simulate(FED_AVG, TASK.params, population, **OPTIONS)
  initial = EVALUATE(TASK.params, sample, None)["train_loss"]
  assert result.history.metrics["train_loss"][0, 0] == pytest.approx(initial)


def test_a_sample_has_examples(tmp_path, monkeypatch):
  monkeypatch.setattr(population_module, "_NUM_SAMPLED", 2)
  rows = [[], [0, 1], [], [2]]
  data = fo.ClientData.from_partition({"x": np.arange(3.0)}, rows)
  population = fo.Population.of_client_data(tmp_path / "p", data)
  assert population.sample().sizes.tolist() == [0, 2]


def test_only_the_cohort_is_at_hand(population):
  def round(state, cohort):
    sent = cohort.pick(lambda worker, _: worker.client, (), client=0)
    return sent.value, sent

  algorithm = jax_problems.own_algorithm(round, init=lambda params: 0)
  options = {"rounds": 1, "cohort_size": 1, "batch_size": 4}
  message = refusal(fo.simulate, algorithm, TASK.params, population, **options)
  assert "only those of the cohort are in memory" in message


def test_a_population_is_that_of_all_seeds(population, tmp_path):
  other_population = fo.Population.of_client_data(tmp_path / "other", TASK.data)
  of_seed = lambda seed: other_population if seed else population
  arguments = (lambda: FED_AVG, {}, TASK.params, of_seed)
  message = refusal(fo.sweep, *arguments, seeds=(0, 1), **OPTIONS)
  assert "all seeds must have the same population" in message


def failing(*args, **kwargs):
  raise OSError("no such device")


@pytest.mark.parametrize("what", ["program", "reading"])
def test_what_fails_ends_the_run_and_leaves_no_thread(
  what, population, monkeypatch
):
  loss_fn = TASK.loss_fn
  if what == "program":
    loss_fn = lambda params, batch, rng: failing()
  else:
    monkeypatch.setattr(feed.Feed, "_read", failing)
  algorithm = fo.fed_avg(loss_fn, optax.sgd(0.1))
  with pytest.raises((OSError, ValueError), match="no such device"):
    fo.simulate(algorithm, TASK.params, population, **OPTIONS)
  assert_no_thread_is_left()
