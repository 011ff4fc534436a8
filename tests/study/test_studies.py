"""Methods compared from Python: what is chosen, and what is refused."""

import math

import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt.study import compare as studies
from tests.checks import given

N, M = 48, 4
RATES = [0.001, 0.3, 30.0]


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
  return fo.fed_avg(given.loss_fn, optax.sgd(learning_rate))


def prox(learning_rate, mu):
  return fo.fed_prox(given.loss_fn, optax.sgd(learning_rate), mu=mu)


METHODS = {
  "SGD": fo.Method(sgd, {"learning_rate": RATES}),
  "Prox": (prox, {"learning_rate": RATES, "mu": [0.1]}),
}
CONDITIONS = [
  {"alpha": 1.0, "local_steps": 1},
  {"alpha": 0.1, "local_steps": 3},
]
SETTINGS = {
  "rounds": 3,
  "batch_size": 4,
  "eval_every": 3,
  "evaluate": fo.evaluation.federated(given.per_example),
}
WHOLE = {
  "methods": METHODS,
  "params": given.PARAMS,
  "data": clients,
  "conditions": CONDITIONS,
  "seeds": [3, 5],
  "validation": VALIDATION,
  "test": TEST,
  **SETTINGS,
}


@pytest.fixture(scope="module")
def study():
  return fo.compare(**WHOLE, report_seeds=[1, 8, 2], target=0.5)


def of_one(**changed):
  """A study of a method under the first condition."""
  methods, conditions = {"SGD": METHODS["SGD"]}, CONDITIONS[:1]
  alone = {"methods": methods, "conditions": conditions, "seeds": [3, 5]}
  return fo.compare(**WHOLE | alone | changed)


def by_hand(method, condition, grid, seeds, **pools):
  """The points of a grid by `sweep`, and their history."""
  own = {"local_steps": condition["local_steps"]}
  result = fo.sweep(
    fo.Method(*method).make,
    grid,
    given.PARAMS,
    lambda seed: clients(seed, condition["alpha"]),
    seeds=seeds,
    **SETTINGS | own | pools,
  )
  return fo.grid_points(grid, seeds), result.history


def test_same_as_sweeps_by_hand(study):
  chosen = set()
  for label, method in METHODS.items():
    for condition in CONDITIONS:
      cell = study.cell(label, condition)
      grid = dict(fo.Method(*method).grid)
      points, history = by_hand(
        method, condition, grid, [3, 5], validation=VALIDATION
      )
      assert cell.tried.points == points
      assert cell.tried.history.metrics.keys() == history.metrics.keys()
      for name, values in history.metrics.items():
        np.testing.assert_array_equal(
          cell.tried.history.metrics[name], values, err_msg=name
        )
      final = history.metrics["validation_accuracy"][:, -1]
      best = np.argmax(final.reshape(len(RATES), 2).mean(axis=1))
      chosen.add(RATES[best])
      assert cell.chosen["learning_rate"] == RATES[best]
      points, history = by_hand(
        method,
        condition,
        grid | {"learning_rate": [RATES[best]]},
        [1, 8, 2],
        validation=VALIDATION,
        test=TEST,
      )
      assert cell.measured.points == points
      for name, values in history.metrics.items():
        np.testing.assert_array_equal(
          cell.measured.history.metrics[name], values, err_msg=name
        )
  assert len(chosen) > 1  # There was something to choose.


def test_what_the_study_says_of_itself(study):
  assert study.methods == ["SGD", "Prox"]
  assert study.conditions == CONDITIONS
  assert (study.metric, study.target) == ("test_accuracy", 0.5)
  assert {cell.budget for cell in study.cells} == {3}
  assert all(cell.is_fresh for cell in study.cells)
  about = {"seeds of tuning": [3, 5], "seeds of the report": [1, 8, 2]}
  assert {"rounds": 3, "batch_size": 4, **about}.items() <= study.about.items()


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
  changed = {"test": wrong, "progress": True}
  other = fo.compare(**WHOLE | changed, report_seeds=[1, 8, 2])
  shown = capsys.readouterr().err
  assert "4/4" in shown
  assert "Prox, α = 0.1, local steps = 3" in shown
  for one, two in zip(study.cells, other.cells, strict=True):
    assert one.chosen == two.chosen
    for name, values in one.tried.history.metrics.items():
      np.testing.assert_array_equal(two.tried.history.metrics[name], values)
    assert not any("test_" in name for name in one.tried.history.metrics)
    assert not np.array_equal(one.final("test_loss"), two.final("test_loss"))


def test_fresh_seeds_by_default():
  (cell,) = of_one().cells
  assert cell.tried.seeds == [3, 5]
  assert cell.measured.seeds == [6, 7]


def test_a_criterion_without_validation_examples():
  criterion = fo.Criterion("train_loss", "max")
  study = of_one(validation=None, criterion=criterion, metric="test_loss")
  final = study.cells[0].tried.history.metrics["train_loss"][:, -1]
  worst = RATES[np.argmax(final.reshape(-1, 2).mean(1))]
  assert study.cells[0].chosen == {"learning_rate": worst}
  assert not study.is_larger_better


@pytest.mark.parametrize(
  ("metric", "criterion"),
  [
    ("test_loss", "validation_loss"),
    ("train_loss", "validation_loss"),
    ("regularized_test_loss", "regularized_validation_loss"),
    ("f1", "validation_f1"),
  ],
)
def test_the_criterion_is_that_of_the_validation_examples(metric, criterion):
  assert studies._on_validation(metric) == criterion


def test_a_choice_on_test_examples_if_asked_for():
  criterion = fo.Criterion("test_loss", "min")
  (cell,) = of_one(validation=None, criterion=criterion).cells
  assert "test_loss" in cell.tried.history.metrics


def test_a_single_setting_needs_no_validation_examples():
  one = {"one": fo.Method(sgd, {"learning_rate": [0.1]})}
  (cell,) = of_one(methods=one, validation=None).cells
  assert cell.tried is None
  assert cell.chosen == {"learning_rate": 0.1}


def test_a_method_that_always_diverges():
  grid = {"learning_rate": [1e30, 1e31]}
  bad = fo.Method(lambda learning_rate: broken(learning_rate), grid)
  good = fo.Method(sgd, {"learning_rate": [0.1, 0.3]})
  bad, good = of_one(methods={"bad": bad, "good": good}).cells
  assert bad.measured is None
  assert bad.chosen == {}
  assert bad.tuning.num_diverged == 2
  assert good.measured is not None


def broken(learning_rate):
  loss = lambda params, batch, rng: given.loss_fn(params, batch, rng) * math.nan
  return fo.fed_avg(loss, optax.sgd(learning_rate))
