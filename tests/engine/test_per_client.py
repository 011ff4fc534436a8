"""Clients' own results and models against a plain loop over the clients."""

import csv

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt import evaluation
from fedjax_opt.data.example_parts import ExampleParts
from fedjax_opt.engine.own_models import OwnModels
from tests.helpers import cases, jax_problems

TASK = jax_problems.softmax(sizes=(13, 7, 20, 4, 1, 9), seed=3)
DATA = TASK.data
TRAIN, HELD_OUT = DATA.split(0.4, seed=1)
PROBLEM = TASK.problem
LR = 0.3
# As many as the largest client has: each step is over all its examples.
FULL = {"batch_size": int(TRAIN.sizes.max())}


def per_example(params, batch):
  logits = TASK.features_fn(params, batch, None)
  right = jnp.argmax(logits, 1) == batch["y"]
  return {"loss": TASK.loss_fn(params, batch, None), "accuracy": right}


def rows_of(data, client):
  return np.asarray(data.indices)[client, : data.sizes[client]]


def measured(params, rows):
  """Loss and accuracy of softmax regression on pooled rows, in NumPy."""
  if not len(rows):
    return {"loss": np.nan, "accuracy": np.nan}
  params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
  flat = np.concatenate([params["bias"], params["kernel"].ravel()])
  loss, _ = PROBLEM.gradient(flat, rows)
  logits = DATA.examples["x"][rows] @ params["kernel"] + params["bias"]
  right = logits.argmax(1) == DATA.examples["y"][rows]
  return {"loss": loss, "accuracy": right.mean()}


def descended(params, rows, steps):
  """Full-batch gradient descent in NumPy; none without rows."""
  c = PROBLEM.num_classes
  flat = np.concatenate([params["bias"], params["kernel"].ravel()])
  for _ in range(steps if len(rows) else 0):
    flat = flat - LR * PROBLEM.gradient(flat, rows)[1]
  return {"bias": flat[:c], "kernel": flat[c:].reshape(-1, c)}


def check(values, models, data=HELD_OUT, atol=1e-6):
  """That metrics are those of one model for each client."""
  expected = [measured(p, rows_of(data, m)) for m, p in enumerate(models)]
  for name in ("loss", "accuracy"):
    target = [metrics[name] for metrics in expected]
    np.testing.assert_allclose(values[name], target, rtol=0, atol=atol)


@pytest.mark.parametrize(("steps", "chunk"), [(0, None), (3, 4)])
@pytest.mark.default_cases("3-4")
def test_equals_a_loop(steps, chunk):
  options = FULL | ({"client_chunk": chunk} if chunk else {})
  with jax.enable_x64(True):
    evals = fo.evaluate_clients(
      TASK.params, per_example, HELD_OUT, train=TRAIN, loss_fn=TASK.loss_fn,
      client=optax.sgd(LR), local_steps=steps, **options,
    )  # fmt: skip
  assert list(evals.values) == ["global", "personalized"]
  check(evals.values["global"], [TASK.params] * 6)
  models = [descended(TASK.params, rows_of(TRAIN, m), steps) for m in range(6)]
  check(evals.values["personalized"], models)
  # Each client has moved, which is seen in its loss.
  moved = evals.values["personalized"]["loss"] != evals.values["global"]["loss"]
  counted = HELD_OUT.sizes > 0
  assert moved[counted].all() == bool(steps)
  assert np.isnan(evals.values["global"]["loss"][~counted]).all()
  assert evals.num_test.tolist() == [5, 3, 8, 2, 0, 4]
  assert evals.num_train.tolist() == TRAIN.sizes.tolist()


def test_a_client_without_training_examples_takes_no_step():
  evals = fo.evaluate_clients(
    TASK.params, per_example, TRAIN, train=HELD_OUT, local_steps=2,
    loss_fn=TASK.loss_fn, client=optax.sgd(LR), batch_size=8,
  )  # fmt: skip
  equal = evals.values["global"]["loss"] == evals.values["personalized"]["loss"]
  assert equal.tolist() == [False, False, False, False, True, False]


@pytest.mark.slow
def test_a_step_is_that_of_the_next_round():
  # The third round has one client alone, in turn.
  def run(client, rounds):
    return fo.simulate(
      fo.fed_avg(TASK.loss_fn, rule), TASK.params, TRAIN, rounds=rounds, seed=7,
      sampler=lambda key, round: jnp.where(round < 2, 0, client)[None],
      cohort_size=1, batch_size=3, local_steps=3,
    )  # fmt: skip

  rule = lambda round: optax.adam(0.05 / (1 + round))
  metrics = fo.evaluate_clients(
    run(0, 2), per_example, HELD_OUT, train=TRAIN, loss_fn=TASK.loss_fn,
    client=rule, local_steps=3, batch_size=3, seed=7,
  )  # fmt: skip
  clients = (0, 2, 3)
  models = {m: run(m, 3).params for m in clients}
  for m in clients:
    expected = measured(models[m], rows_of(HELD_OUT, m))
    for name, value in expected.items():
      actual = metrics.values["personalized"][name][m]
      np.testing.assert_allclose(actual, value, atol=2e-6)


MOON = fo.moon(TASK.loss_fn, TASK.features_fn, optax.sgd(LR))


@pytest.mark.slow
def test_personal_models_of_moon():
  of_report = []
  measure = lambda result: fo.evaluate_clients(
    result, per_example, HELD_OUT, algorithm=MOON
  )
  result = fo.simulate(
    MOON, TASK.params, TRAIN, rounds=2, cohort_size=2, batch_size=4, seed=2,
    eval_every=1, evaluate=evaluation.federated(per_example),
    on_evaluation=lambda report: of_report.append(measure(report)),
  )  # fmt: skip
  state = result.client_state
  assert 0 < state.exists.sum() < 6
  metrics = measure(result)
  assert list(metrics.values) == ["global", "personal"]
  assert metrics.num_train is None
  models = [
    jax.tree.map(lambda leaf, m=m: leaf[m], state.params)
    if state.exists[m]
    else result.params
    for m in range(6)
  ]
  check(metrics.values["personal"], models, atol=2e-6)
  check(metrics.values["global"], [result.params] * 6, atol=2e-6)
  assert len(of_report) == 3
  chex.assert_trees_all_equal(of_report[-1], metrics)
  assert of_report[0].mean("global", "loss") != metrics.mean("global", "loss")


@pytest.mark.slow
def test_one_point_of_a_grid_is_named():
  options = {"rounds": 1, "cohort_size": 2, "batch_size": 4}
  make = lambda lr: fo.fed_avg(TASK.loss_fn, optax.sgd(lr))
  grid, seeds = {"lr": [0.1, 0.3]}, [0, 1]
  grid_result = fo.sweep(make, grid, TASK.params, TRAIN, seeds=seeds, **options)
  with pytest.raises(ValueError, match="is of a grid of 4 points; give the"):
    fo.evaluate_clients(grid_result, per_example, HELD_OUT)
  with pytest.raises(ValueError, match="point=4: must be from 0 to 3"):
    fo.evaluate_clients(grid_result, per_example, HELD_OUT, point=4)
  result = fo.simulate(make(0.1), TASK.params, TRAIN, **options)
  with pytest.raises(ValueError, match="point=0: belongs to a result of sweep"):
    fo.evaluate_clients(result, per_example, HELD_OUT, point=0)


@pytest.mark.slow
def test_shared_rows_and_batches_of_the_pool():
  rng = np.random.default_rng(0)
  indices = rng.integers(0, 54, (40, 30)).astype(np.int32)
  sizes = rng.integers(0, 31, 40).astype(np.int32)
  data = fo.ClientData(DATA.examples, indices, sizes)
  for batch_size in (5, 500):
    evaluate = jax.jit(evaluation.per_client(per_example, batch_size))
    check(evaluate(TASK.params, data), [TASK.params] * 40, data, atol=2e-6)
  # As many own examples as fill several batches of a client's.
  lists = np.tile(np.arange(54, dtype=np.int32), (2, 5))
  data = fo.ClientData(DATA.examples, lists, np.array([270, 131], np.int32))
  metrics = fo.evaluate_clients(
    TASK.params, per_example, data, train=data, loss_fn=TASK.loss_fn,
    client=optax.sgd(LR), local_steps=0,
  )  # fmt: skip
  check(metrics.values["personalized"], [TASK.params] * 2, data, atol=2e-6)


# What is made of the numbers.


def metrics_of(accuracy, sizes, **metrics):
  accuracy = np.where(np.array(sizes) > 0, accuracy, np.nan)
  values = {"global": {"accuracy": accuracy} | metrics}
  return fo.ClientMetrics(values, np.array(sizes))


def test_clients_without_examples_are_left_out():
  accuracy = np.arange(23) / 100
  sizes = np.arange(23) % 4  # Six clients have none.
  counted = accuracy[sizes > 0]
  metrics = metrics_of(accuracy, sizes, loss=-accuracy, drift=accuracy)
  np.testing.assert_allclose(
    metrics.deciles(), np.quantile(counted, np.arange(1, 10) / 10)
  )
  np.testing.assert_allclose(metrics.worst_decile(), counted[:2].mean())
  # The worst losses are the highest.
  np.testing.assert_allclose(
    metrics.worst_decile("global", "loss"), -counted[:2].mean()
  )
  np.testing.assert_allclose(
    metrics.mean(), np.average(counted, weights=sizes[sizes > 0])
  )
  with pytest.raises(ValueError, match="not known whether larger or smaller"):
    metrics.worst_decile("global", "drift")
  with pytest.raises(ValueError, match="name='acuracy'"):
    metrics.deciles("global", "acuracy")
  with pytest.raises(ValueError, match="kind='personal'"):
    metrics.deciles("personal")
  summary = metrics.summary()["global"]
  assert set(summary) == {
    "client_test_accuracy", "client_test_loss", "client_test_drift",
    "client_test_worst_decile_accuracy",
    *(f"client_test_accuracy_decile_{i}" for i in range(1, 10)),
  }  # fmt: skip
  assert summary["client_test_accuracy_decile_5"] == metrics.deciles()[4]


def test_table(tmp_path):
  path = tmp_path / "per_client.csv"
  values = {
    "global": {"loss": np.array([0.25, np.nan])},
    "personal": {"loss": np.array([0.1, np.nan])},
  }
  sizes = np.array([3, 0])
  fo.ClientMetrics(values, sizes, np.array([7, 1])).to_csv(path)
  assert list(tmp_path.iterdir()) == [path]
  with open(path, newline="") as file:
    assert list(csv.reader(file)) == [
      ["client", "num_train", "num_test", "global_loss", "personal_loss"],
      ["0", "7", "3", "0.25", "0.1"],
      ["1", "1", "0", "", ""],
    ]
  fo.ClientMetrics(values, sizes).to_csv(path)
  assert path.read_text().splitlines()[1] == "0,,3,0.25,0.1"
  with pytest.raises(ValueError, match="cannot be written: No such file"):
    fo.ClientMetrics(values, sizes).to_csv(tmp_path / "none" / "x.csv")


# The metrics of clients' own models, of all points of a grid at once.


OPTIONS = {"batch_size": 4, "local_steps": 3, "cohort_size": 4}


def per_example_of_cases(params, batch):
  loss = cases.loss_fn(params, batch, None)
  return {"loss": loss, "accuracy": (loss < 1) * 1.0}


def ditto(lr):
  return fo.ditto(cases.loss_fn, optax.sgd(lr), lam=0.1)


def per_fed_avg(lr):
  return fo.per_fed_avg(cases.loss_fn, lr, inner_learning_rate=0.5)


def fed_avg(lr):
  return fo.fed_avg(cases.loss_fn, optax.sgd(lr))


@pytest.mark.slow
@pytest.mark.parametrize("make", [ditto, per_fed_avg, fed_avg])
def test_are_those_of_each_client(make):
  """Of two rates and two seeds, whose clients differ, before and after."""
  splits = {seed: cases.DATA.split(0.4, seed) for seed in (5, 2)}
  train, test = ({s: pair[i] for s, pair in splits.items()} for i in (0, 1))
  grid = {"lr": [0.05, 0.5]}
  points = fo.grid_points(grid, list(train))
  parts = {seed: ExampleParts(*pair) for seed, pair in splits.items()}
  own_models = OwnModels(make, points, per_example_of_cases, parts, ["test"])
  actual, expected = [], []

  def on_evaluation(report):
    actual.append(own_models(report))
    expected.append([])
    for i, point in enumerate(points):
      options = {"train": train[point["seed"]], "seed": point["seed"]}
      if make is not fed_avg:
        options["algorithm"] = make(point["lr"])
      metrics = fo.evaluate_clients(
        report, per_example_of_cases, test[point["seed"]], point=i, **options
      )
      kind = "global" if make is fed_avg else "personal"
      expected[-1].append(metrics.summary()[kind])

  fo.sweep(
    make,
    grid,
    cases.PARAMS,
    train.get,
    rounds=2,
    seeds=list(train),
    evaluate=fo.evaluation.federated(per_example_of_cases),
    eval_every=2,
    on_evaluation=on_evaluation,
    **OPTIONS,
  )
  assert len(actual) == 2
  for metrics_i, summaries in zip(actual, expected, strict=True):
    assert set(metrics_i) == {"client_test_loss", "client_test_accuracy"}
    for name, values in metrics_i.items():
      of_points = [summary[name] for summary in summaries]
      np.testing.assert_allclose(values, of_points, rtol=1e-5)
  assert len(set(actual[-1]["client_test_loss"].tolist())) == len(points)
