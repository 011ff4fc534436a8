"""Methods compared from Python: what is chosen, and what is refused."""

import math

import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt.engine.executor import Executor
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


def test_a_bar_shows_the_cells_and_changes_nothing(study, capsys):
  other = fo.compare(**WHOLE, report_seeds=[1, 8, 2], progress=True)
  shown = capsys.readouterr().err
  assert "4/4" in shown
  assert "Prox, α = 0.1, local steps = 3" in shown
  for one, two in zip(study.cells, other.cells, strict=True):
    np.testing.assert_array_equal(
      one.final("test_accuracy"), two.final("test_accuracy")
    )


def test_nothing_on_test_enters_the_choice(study):
  wrong = {"x": np.full_like(TEST["x"], 1e30), "y": 1 - TEST["y"]}
  other = fo.compare(**WHOLE | {"test": wrong}, report_seeds=[1, 8, 2])
  for one, two in zip(study.cells, other.cells, strict=True):
    assert one.chosen == two.chosen
    assert not any("test_" in name for name in one.tried.history.metrics)
    assert not np.array_equal(one.final("test_loss"), two.final("test_loss"))


def test_fresh_seeds_by_default():
  study = fo.compare(
    **WHOLE | {"methods": {"SGD": METHODS["SGD"]}, "conditions": CONDITIONS[:1]}
  )
  (cell,) = study.cells
  assert cell.tried.seeds == [3, 5]
  assert cell.measured.seeds == [6, 7]


def test_a_criterion_without_validation_examples():
  study = fo.compare(
    **WHOLE
    | {
      "methods": {"SGD": METHODS["SGD"]},
      "conditions": CONDITIONS[:1],
      "validation": None,
      "criterion": fo.Criterion("train_loss", "max"),
      "metric": "test_loss",
    }
  )
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
  study = fo.compare(
    **WHOLE
    | {
      "methods": {"SGD": METHODS["SGD"]},
      "conditions": CONDITIONS[:1],
      "validation": None,
      "criterion": fo.Criterion("test_loss", "min"),
    }
  )
  assert "test_loss" in study.cells[0].tried.history.metrics


def test_a_single_setting_needs_no_validation_examples():
  study = fo.compare(
    **WHOLE
    | {
      "methods": {"one": fo.Method(sgd, {"learning_rate": [0.1]})},
      "validation": None,
    }
  )
  assert [cell.tried for cell in study.cells] == [None, None]
  assert study.cells[0].chosen == {"learning_rate": 0.1}


def test_a_method_that_always_diverges():
  grid = {"learning_rate": [1e30, 1e31]}
  study = fo.compare(
    **WHOLE
    | {
      "methods": {
        "bad": fo.Method(lambda learning_rate: broken(learning_rate), grid),
        "good": fo.Method(sgd, {"learning_rate": [0.1, 0.3]}),
      },
      "conditions": CONDITIONS[:1],
    }
  )
  bad, good = study.cells
  assert bad.measured is None
  assert bad.chosen == {}
  assert bad.tuning.num_diverged == 2
  assert good.measured is not None


def broken(learning_rate):
  loss = lambda params, batch, rng: given.loss_fn(params, batch, rng) * math.nan
  return fo.fed_avg(loss, optax.sgd(learning_rate))


# What is refused.

GRID = {"learning_rate": [0.1, 0.5]}
A = {"A": fo.Method(sgd, GRID)}


def no_validation(params, data, test):
  return {"test_accuracy": 0.5}


def other_metric(params, data, test, validation=None):
  return {"foo": 1.0}


def fails(learning_rate):
  return fo.fed_avg(lambda params, batch, rng: params["no"], optax.sgd(0.1))


def of_alpha(seed, alpha):
  if alpha > 0.5:
    raise RuntimeError("no such alpha")
  return given.DATA


def of_tuning_seeds(seed):
  if seed > 1:
    raise RuntimeError("no such seed")
  return given.DATA


def raised_by(**bad):
  """What a call with these arguments raises."""
  whole = {
    "methods": {"A": (sgd, GRID), "B": (sgd, {"learning_rate": [0.2, 0.3]})},
    "params": given.PARAMS,
    "data": given.DATA,
    "seeds": [0, 1],
    "validation": given.TEST,
    "test": given.TEST,
    **SETTINGS | {"batch_size": 2},
  }
  with pytest.raises((TypeError, ValueError)) as caught:
    fo.compare(**whole | bad)
  return caught


BAD = [
  ({"methods": sgd}, TypeError, "methods=the function sgd: must be a dict"),
  ({"methods": {}}, TypeError, "methods={}: must be a dict of methods"),
  ({"methods": [A["A"]]}, TypeError, "methods=a list: must be a dict"),
  ({"methods": {"A": sgd}}, TypeError, "methods['A']=the function sgd: must"),
  (
    {"methods": {"A": given.ALGORITHM}},
    TypeError,
    "methods['A']=an Algorithm: must be fo.Method(make, grid)",
  ),
  (
    {"methods": {"A": (given.ALGORITHM, {})}},
    TypeError,
    "methods['A']: make=an Algorithm: must be a function",
  ),
  ({"methods": {1: A["A"]}}, TypeError, "methods: the label 1 must be a str"),
  ({"methods": {"A": (sgd, [0.1])}}, TypeError, "methods['A']: grid=[0.1]: mu"),
  (
    {"methods": {"A": (sgd, {"learning_rate": []})}},
    ValueError,
    "methods['A']: learning_rate: give at least one value",
  ),
  (
    {"methods": A | {"B": (sgd, {"lr": [0.1, 0.2]})}},
    TypeError,
    "methods['B']: make: failed with the hyperparameters of the grid (lr)",
  ),
  (
    {"methods": A | {"B": (fails, GRID)}},
    ValueError,
    "methods['B']: loss_fn: failed on a batch",
  ),
  ({"params": None}, TypeError, "params=None: must be a pytree of arrays"),
  ({"params": {"w": np.zeros(3, int)}}, TypeError, "params['w']: is int64"),
  ({"data": None}, TypeError, "data=None: must be clients"),
  ({"data": given.TEST}, TypeError, "data=a dict: must be clients"),
  ({"data": lambda: given.DATA}, ValueError, "data: must be a function (seed)"),
  ({"data": of_alpha}, ValueError, "data: must be a function (seed), as"),
  ({"data": lambda seed: None}, TypeError, "data(2)=None: must be ClientData"),
  ({"data": dict}, TypeError, "data: failed: TypeError"),
  (
    {"data": of_alpha, "conditions": [{"alpha": 0.1}, {"alpha": 1.0}]},
    ValueError,
    "conditions[1]: data: failed: RuntimeError: no such alpha",
  ),
  (
    {"data": of_tuning_seeds},
    ValueError,
    "data: failed: RuntimeError: no such seed",
  ),
  ({"rounds": -1}, ValueError, "rounds=-1: must not be negative"),
  ({"rounds": "3"}, TypeError, "rounds='3': must be a whole number"),
  ({"seeds": 3}, TypeError, "seeds=3: must be a list of whole numbers"),
  ({"seeds": None}, TypeError, "seeds=None: must be a list of whole numbers"),
  ({"seeds": []}, ValueError, "seeds=[]: give at least one"),
  ({"seeds": [2, 2]}, ValueError, "seeds=[2, 2]: a seed is repeated"),
  ({"seeds": [-1]}, ValueError, "seeds=-1: must not be negative"),
  ({"report_seeds": 5}, TypeError, "report_seeds=5: must be a list of whole"),
  ({"report_seeds": []}, ValueError, "report_seeds=[]: give at least one"),
  ({"report_seeds": [1, 2]}, ValueError, "report_seeds: 1 is one of seeds"),
  ({"report_seeds": [3, 3]}, ValueError, "report_seeds=[3, 3]: a seed is rep"),
  ({"report_seeds": [-3]}, ValueError, "report_seeds=-3: must not be negative"),
  ({"report_seeds": [3.5]}, TypeError, "report_seeds=3.5: must be a whole"),
  ({"report_seeds": [[3]]}, TypeError, "report_seeds=[3]: must be a whole"),
  ({"conditions": {}}, TypeError, "conditions={}: must be a list of dicts"),
  ({"conditions": []}, TypeError, "conditions=[]: must be a list of dicts"),
  (
    {"conditions": [{"local_steps": 1}, {"batch_size": 1}]},
    ValueError,
    "conditions: one has ['local_steps'], another ['batch_size']",
  ),
  ({"conditions": [{"alpha": 1}]}, ValueError, "conditions: 'alpha' is no set"),
  (
    {"conditions": [{"local_steps": 1}, {"local_steps": 1}]},
    ValueError,
    "conditions: {'local_steps': 1} is repeated; give it once",
  ),
  (
    {"conditions": [{"local_steps": 1}, {"local_steps": -1}]},
    ValueError,
    "conditions[1]: local_steps=-1: must be at least 1",
  ),
  (
    {"conditions": [{"batch_size": 1}]},
    ValueError,
    "batch_size: is given, and in conditions too; give it once",
  ),
  ({"conditions": [{1: 1}]}, TypeError, "conditions: the name 1 must be a str"),
  (
    {"conditions": [{"local_steps": [1]}]},
    TypeError,
    "conditions[0]['local_steps']=[1]: must be a number, a string",
  ),
  ({"validation": None}, ValueError, "validation: must be given to choose by"),
  ({"validation": given.DATA}, ValueError, "validation: 12 of its 12 examples"),
  (
    {"test": None},
    ValueError,
    "metric='test_accuracy': is not measured by evaluate; give test= too",
  ),
  ({"test": "x"}, TypeError, "test='x': must be ClientData"),
  ({"test": {"x": given.X}}, ValueError, "per_example: failed on a batch {x"),
  ({"criterion": "train_loss"}, TypeError, "criterion='train_loss': must be a"),
  (
    {"criterion": fo.Criterion("validation_f1", "max")},
    ValueError,
    "criterion='validation_f1': is not measured by evaluate; must be one such "
    "as validation_loss, validation_accuracy",
  ),
  ({"metric": 3}, TypeError, "metric=3: must be a string"),
  (
    {"metric": "test_top5_accuracy"},
    ValueError,
    "metric='test_top5_accuracy': is not measured by evaluate; must be one",
  ),
  ({"metric": "bytes_up"}, ValueError, "metric='bytes_up': it is not known"),
  ({"target": "0.5"}, TypeError, "target='0.5': must be a number"),
  ({"target": math.nan}, ValueError, "target=nan: must be finite; None for"),
  ({"title": 3}, TypeError, "title=3: must be a string"),
  ({"budget": "same"}, ValueError, "budget='same': must be one of equal, un"),
  (
    {"methods": A | {"B": (sgd, {"learning_rate": [0.1, 0.2, 0.3]})}},
    ValueError,
    "budget: methods try different numbers of settings (A 2, B 3)",
  ),
  ({"local_step": 1}, TypeError, "local_step: is no setting; did you mean loc"),
  ({"seed": 1}, TypeError, "seed: is no setting of compare; give a list"),
  ({"grid": GRID}, TypeError, "grid: is no setting of compare; belongs to a m"),
  ({"progress": "yes"}, TypeError, "progress='yes': must be True or False"),
  ({"checkpoints": 3}, TypeError, "checkpoints: is no setting of compare; bel"),
  ({"batch_size": 0}, ValueError, "batch_size=0: must be at least 1"),
  ({"evaluate": None}, ValueError, "evaluate: must be given; such as"),
  (
    {"evaluate": no_validation},
    TypeError,
    "evaluate=the function no_validation: takes (params, data, test); to be",
  ),
  (
    {"evaluate": other_metric},
    ValueError,
    "metric='test_accuracy': is not measured by evaluate",
  ),
]


@pytest.mark.parametrize(("bad", "kind", "message"), BAD)
def test_bad_arguments(bad, kind, message, monkeypatch):
  """One line that names the argument, before anything is compiled."""

  def compile(self):
    raise AssertionError("compiled")

  monkeypatch.setattr(Executor, "compile", compile)
  error = raised_by(**bad)
  assert error.type is kind
  assert str(error.value).startswith(message)
  assert "\n" not in str(error.value)
