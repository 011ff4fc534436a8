"""Methods compared from Python: what is chosen, and what is refused."""

import collections
import itertools
import math

import chex
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt.study import arguments, variance
from tests.helpers import linear

N, M = 48, 4
RATES = [0.001, 0.3, 30.0]
SEEDS = (3, 5, 1, 8, 2)  # Of tuning and of the report.


def pool(seed, flipped=0.2):
  rng = np.random.default_rng(seed)
  x = rng.normal(size=(N, 3)).astype(np.float32)
  noise = rng.random(N) < flipped
  return {"x": x, "y": ((x[:, 0] > 0) ^ noise).astype(np.int32)}


TRAIN, VALIDATION, TEST = pool(0), pool(1), pool(2)


def clients(seed, alpha):
  rng = np.random.default_rng([seed, int(10 * alpha)])
  rows = np.array_split(rng.permutation(N), M)
  return fo.ClientData.from_partition(TRAIN, rows, keep_pool=True)


def sgd(learning_rate):
  return fo.fed_avg(linear.loss_fn, optax.sgd(learning_rate))


def prox(learning_rate, mu):
  return fo.fed_prox(linear.loss_fn, optax.sgd(learning_rate), mu=mu)


def evaluate(params, data, test, validation=None):
  """Means over examples; few numbers, which compile quickly."""
  pools = {"train": data.examples, "test": test, "validation": validation}
  return {
    f"{pool}_{name}": jnp.mean(values)
    for pool, examples in pools.items()
    if examples is not None
    for name, values in linear.per_example(params, examples).items()
  }


METHODS = {
  "SGD": fo.Method(sgd, {"learning_rate": RATES}),
  "Prox": (prox, {"learning_rate": RATES, "mu": [0.1]}),
}
CONDITIONS = [
  {"alpha": 1.0, "local_steps": 1},
  {"alpha": 0.1, "local_steps": 3},
]
LENGTH = {"rounds": 3, "eval_every": 3}
SETTINGS = {"batch_size": 4, "evaluate": evaluate, **LENGTH}
WHOLE = {
  "methods": METHODS,
  "params": linear.PARAMS,
  "data": clients,
  "conditions": CONDITIONS,
  "seeds": [3, 5],
  "validation": VALIDATION,
  "test": TEST,
  **SETTINGS,
}


# How often the clients of a seed and an alpha are made for the study.
made = collections.Counter()


@pytest.fixture(scope="module")
def study():
  def counted(seed, alpha):
    made[seed, alpha] += 1
    return clients(seed, alpha)

  options = WHOLE | {"data": counted, "report_seeds": [1, 8, 2]}
  return fo.compare(**options, target=0.5)


def test_methods_share_the_clients_of_a_seed_and_condition(study):
  """They are made once for all checks, and once for all runs."""
  pairs = itertools.product(SEEDS, (1.0, 0.1))
  assert made == dict.fromkeys(pairs, 2)


def of_one(**changed):
  """A study of a method under the first condition."""
  methods, conditions = {"SGD": METHODS["SGD"]}, CONDITIONS[:1]
  defaults = {"methods": methods, "conditions": conditions, "seeds": [3, 5]}
  return fo.compare(**WHOLE | defaults | changed)


def assert_by_hand(
  measured, method, condition, grid, seeds, data=None, **pools
):
  """That these are the points of a grid by `sweep`, and their history."""
  settings = {"local_steps": condition["local_steps"]}
  result = fo.sweep(
    fo.Method(*method).make,
    grid,
    linear.PARAMS,
    data or (lambda seed: clients(seed, condition["alpha"])),
    seeds=seeds,
    validation=VALIDATION,
    **SETTINGS | settings | pools,
  )
  assert measured.points == fo.grid_points(grid, seeds)
  chex.assert_trees_all_equal(measured.history.metrics, result.history.metrics)


def test_same_as_sweeps_by_hand(study):
  for (label, method), condition in zip(
    METHODS.items(), CONDITIONS, strict=True
  ):
    cell = study.cell(label, condition)
    grid = dict(fo.Method(*method).grid)
    assert_by_hand(cell.tuning_runs, method, condition, grid, [3, 5])
    chosen_grid = grid | {"learning_rate": [cell.chosen["learning_rate"]]}
    assert_by_hand(
      cell.report_runs, method, condition, chosen_grid, [1, 8, 2], test=TEST
    )


def test_the_chosen_setting_is_the_best_of_those_tried(study):
  rates = set()
  for cell in study.cells:
    final = cell.tuning_runs.history.metrics["validation_accuracy"][:, -1]
    best = RATES[np.argmax(final.reshape(len(RATES), 2).mean(axis=1))]
    assert cell.chosen["learning_rate"] == best
    rates.add(best)
  assert len(rates) > 1  # There was something to choose.


def test_what_the_study_says_of_itself(study):
  assert study.methods == ["SGD", "Prox"]
  assert study.conditions == CONDITIONS
  assert (study.metric, study.target) == ("test_accuracy", 0.5)
  assert {cell.budget for cell in study.cells} == {3}
  assert all(cell.is_fresh for cell in study.cells)
  about = {"seeds of tuning": [3, 5], "seeds of the report": [1, 8, 2]}
  about |= {"rounds": 3, "batch_size": 4, "number of clients": "4"}
  about |= {"parameters of the model": "6", "test examples": "48"}
  assert about.items() <= study.about.items()
  # Local steps do not change the clients.
  assert list(study.clients) == ["α = 1", "α = 0.1"]
  counts = study.clients["α = 0.1"].counts
  expected = clients(1, 0.1).label_counts(2)  # Of the report's first seed.
  np.testing.assert_array_equal(counts, expected)


def test_a_printed_study_is_its_table(study):
  lines = str(study).splitlines()
  assert lines == "\n".join(study.table_lines()).splitlines()
  words = [line.split()[0] for line in lines if line]
  assert words[1:4] == ["Method", "SGD", "Prox"]
  assert repr(study).startswith("Study(2 methods, 2 conditions")


def test_nothing_on_test_enters_the_choice_and_a_bar_changes_nothing(
  study, capsys
):
  wrong = {"x": np.full_like(TEST["x"], 1e30), "y": 1 - TEST["y"]}
  (other,) = of_one(test=wrong, progress=True, report_seeds=[1, 8, 2]).cells
  output = capsys.readouterr().err
  assert "1/1" in output
  assert "SGD, α = 1, local steps = 1" in output
  cell = study.cell("SGD", CONDITIONS[0])
  assert cell.chosen == other.chosen
  tried = cell.tuning_runs.history.metrics
  chex.assert_trees_all_equal(tried, other.tuning_runs.history.metrics)
  assert not any("test_" in name for name in tried)
  assert not np.array_equal(cell.final("test_loss"), other.final("test_loss"))


@pytest.mark.slow
def test_a_criterion_without_validation_examples_and_fresh_seeds():
  criterion = fo.Criterion("train_loss", "max")
  study = of_one(validation=None, criterion=criterion, metric="test_loss")
  (cell,) = study.cells
  final = cell.tuning_runs.history.metrics["train_loss"][:, -1]
  worst = RATES[np.argmax(final.reshape(-1, 2).mean(1))]
  assert cell.chosen == {"learning_rate": worst}
  assert not study.is_larger_better
  assert cell.tuning_runs.seeds == [3, 5]
  assert cell.report_runs.seeds == [*range(6, 16)]


@pytest.mark.slow
def test_a_choice_on_test_examples_if_asked_for():
  criterion = fo.Criterion("test_loss", "min")
  (cell,) = of_one(validation=None, criterion=criterion).cells
  assert "test_loss" in cell.tuning_runs.history.metrics


def test_nested_each_seed_chooses_by_its_own_score():
  """And the report has the points of one grid, which is that of `sweep`."""
  seeds = [1, 8, 2, 4]
  (cell,) = of_one(nested=True, report_seeds=seeds).cells
  grid = {"learning_rate": RATES}
  assert_by_hand(
    cell.tuning_runs, METHODS["SGD"], CONDITIONS[0], grid, seeds, test=TEST
  )
  metrics = cell.tuning_runs.history.metrics
  scores, finals = (
    metrics[name][:, -1].reshape(len(RATES), len(seeds))
    for name in ("validation_accuracy", "test_accuracy")
  )
  best = scores.argmax(axis=0)
  expected = [
    {"learning_rate": RATES[i], "seed": seed}
    for i, seed in zip(best, seeds, strict=True)
  ]
  assert cell.report_runs.points == expected
  np.testing.assert_array_equal(
    cell.final("test_accuracy"), finals[best, range(len(seeds))]
  )
  assert len(set(best)) > 1  # There was luck.
  assert sum(len(entry.points) for entry in cell.choices) == len(seeds)
  assert cell.is_fresh
  assert cell.sets["test"].size == N
  spread = variance.spread_of(cell, "test_accuracy")
  of_choice, results = finals.mean(axis=1)[best], cell.final("test_accuracy")
  parts = results, of_choice, results - of_choice
  expected = [np.std(part, ddof=1) for part in parts]
  assert list(spread.values()) == pytest.approx(expected)


@pytest.mark.slow
def test_partitions_and_seeds_that_are_crossed_are_those_of_sweeps():
  (cell,) = of_one(report_seeds=[1, 8], crossed=2).cells
  grid = {"learning_rate": RATES}
  for partition_seed, crossed in zip([9, 10], cell.crossed, strict=True):
    options = {"data": clients(partition_seed, 1.0), "test": TEST}
    arguments = METHODS["SGD"], CONDITIONS[0], grid, [11, 12]
    assert_by_hand(crossed, *arguments, **options)
  spread = variance.spread_of(cell, "test_accuracy")
  assert list(spread)[1:] == [
    variance.CHOICE,
    variance.PARTITION,
    variance.SEED,
    variance.BOTH,
  ]


@pytest.mark.parametrize(
  ("given", "expected"),
  [
    ((None, None, True), ([0, 1, 2, 3, 4], list(range(5, 15)))),
    ((None, [9], True), ([0, 1, 2, 3, 4], [9])),
    ((None, [0], False), ([0, 1, 2, 3, 4], [0])),
  ],
)
def test_ten_fresh_seeds_report_unless_others_are_given(given, expected):
  assert arguments.both_seeds(*given) == expected


def broken(learning_rate):
  loss = lambda params, batch, rng: (
    linear.loss_fn(params, batch, rng) * math.nan
  )
  return fo.fed_avg(loss, optax.sgd(learning_rate))


@pytest.mark.slow
def test_one_that_always_diverges_and_one_that_is_not_tuned():
  methods = {
    "bad": fo.Method(broken, {"learning_rate": [0.1, 0.2]}),
    "one": fo.Method(sgd, {"learning_rate": [0.1]}),
  }
  bad_cell, untuned_cell = of_one(methods=methods).cells
  assert bad_cell.report_runs is None
  assert bad_cell.chosen == {}
  assert bad_cell.tuning.num_diverged == 2
  assert untuned_cell.tuning_runs is None
  assert untuned_cell.chosen == {"learning_rate": 0.1}


@pytest.mark.slow
def test_a_single_setting_needs_no_validation_examples():
  """And the settings of a method are told; who takes part is the schedule's."""
  methods = {name: fo.Method(sgd, {"learning_rate": [0.1]}) for name in "AB"}
  methods["B"] = methods["B"]._replace(options={"batch_size": 2})
  table = fo.schedules.by_hand([[0], [1], [2]])
  study = of_one(methods=methods, validation=None, schedule=table)
  assert np.isfinite(study.cells[0].final("test_loss")).all()
  unsaid = {"seeds of tuning", "cohort_size", "batch_size"}
  assert not unsaid & study.about.keys()
  assert study.notes == ("Methods differ in batch size: 4 for A; 2 for B.",)


def test_what_is_said_of_methods_for_own_models():
  loss_fn = linear.loss_fn
  make = {"A": lambda: fo.fed_avg(loss_fn, optax.sgd(0.1))}
  make["D"] = lambda lam: fo.ditto(loss_fn, optax.sgd(0.1), lam=lam)
  methods = {"A": fo.Method(make["A"]), "D": fo.Method(make["D"], {"lam": [1]})}
  (note,) = arguments.notes_of(methods)
  assert note.startswith("D: its settings are chosen by the server's model")


@pytest.mark.slow
def test_settings_are_chosen_and_compared_by_the_clients_own_models():
  make = lambda lam: fo.ditto(linear.loss_fn, optax.sgd(0.5), lam=lam)
  methods = {"Ditto": fo.Method(make, {"lam": [0.1, 30.0]})}
  options = {"own_models": linear.per_example, "report_seeds": [1, 8]}
  study = of_one(methods=methods, **options)
  (cell,) = study.cells
  assert (study.metric, study.notes) == ("client_test_accuracy", ())
  assert "client_test_accuracy" not in cell.tuning_runs.history.metrics
  scores = cell.tuning_runs.history.metrics["client_validation_accuracy"][:, -1]
  better = int(scores[2:].sum() > scores[:2].sum())
  assert cell.chosen["lam"] == [0.1, 30.0][better]
  for seed, value in zip([1, 8], cell.final(study.metric), strict=True):
    remaining, test = clients(seed, 1.0).split(0.2, seed)
    train, _ = remaining.split(0.1, seed)
    algorithm = make(cell.chosen["lam"])
    settings = SETTINGS | {"local_steps": 1, "seed": seed}
    result = fo.simulate(algorithm, linear.PARAMS, train, **settings)
    measured = fo.evaluate_clients(
      result, linear.per_example, test, train=train, algorithm=algorithm
    )
    expected = measured.summary()["personal"][study.metric]
    np.testing.assert_allclose(value, expected, rtol=1e-5)
