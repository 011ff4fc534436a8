"""Metrics inside the program against a plain computation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_opt import evaluation
from fedjax_opt.data.clients import ClientData
from fedjax_opt.simulation import Simulator, simulate
from tests.helpers import jax_problems

RNG = np.random.default_rng(0)
N = 23
EXAMPLES = {"x": RNG.normal(size=N).astype(np.float32)}
TEST = {"x": RNG.normal(size=11).astype(np.float32)}
VALIDATION = {"x": np.linspace(-2, 1, 7, dtype=np.float32)}
# Drawn with replacement: clients own examples twice, and share them.
SIZES = np.array([5, 1, 9, 0, 7, 3, 2, 8, 4, 6, 9, 5, 5], np.int32)
INDICES = RNG.integers(0, N, (13, 12)).astype(np.int32)
DATA = ClientData(EXAMPLES, INDICES, SIZES)


def per_example(params, batch):
  x = batch["x"] + params
  return {"loss": x**2, "accuracy": x > 0}


def test_training_examples_may_be_left_out():
  evaluate = evaluation.federated(per_example, measures_train=False)
  actual, metrics = (
    jax.jit(lambda params, f=f: f(params, DATA, TEST, validation=VALIDATION))(
      np.float32(0.1)
    )
    for f in (evaluate, evaluation.federated(per_example))
  )
  expected = {n: v for n, v in metrics.items() if not n.startswith("train_")}
  assert expected != metrics
  check(actual, expected)
  # Nothing but the model is needed of what is not measured.
  of_test = jax.eval_shape(lambda params: evaluate(params, None, TEST), 0.1)
  assert set(of_test) == {"test_loss", "test_accuracy"}


@pytest.mark.slow
def test_half_precision_is_summed_in_more():
  """A thousand losses of 100 are beyond the largest float16."""
  data = ClientData.from_partition({"x": np.zeros(1001)}, [np.arange(1001)])

  def of_example(params, batch):
    is_right = jnp.arange(len(batch["x"])) < 503
    return {
      "loss": jnp.full(len(batch["x"]), 100, jnp.float16),
      "accuracy": is_right.astype(jnp.bfloat16),
    }

  evaluate = evaluation.federated(of_example, 1001)
  metrics = evaluate(np.float32(0), data, data.examples)
  for split in ("train", "test"):
    assert metrics[f"{split}_loss"] == 100
    assert metrics[f"{split}_accuracy"] == pytest.approx(503 / 1001, rel=1e-6)


@pytest.mark.parametrize("batch_size", [4, 500])
def test_equals_a_plain_computation(batch_size):
  evaluate = jax.jit(evaluation.federated(per_example, batch_size))
  actual = jax.device_get(
    evaluate(np.float32(0.1), DATA, TEST, validation=VALIDATION)
  )

  client_rows = [INDICES[m, : SIZES[m]] for m in range(13)]
  loss = (EXAMPLES["x"] + 0.1) ** 2
  is_right = (EXAMPLES["x"] + 0.1) > 0
  all_rows = np.concatenate(client_rows)
  accuracy = [np.mean(is_right[rows]) for rows in client_rows if len(rows)]
  expected = {
    "train_loss": np.mean(loss[all_rows]),
    "train_accuracy": np.mean(is_right[all_rows]),
    # Two of the twelve clients with examples.
    "train_worst_decile_accuracy": np.mean(np.sort(accuracy)[:2]),
    "validation_loss": np.mean((VALIDATION["x"] + 0.1) ** 2),
    "validation_accuracy": np.mean(VALIDATION["x"] + 0.1 > 0),
    "test_loss": np.mean((TEST["x"] + 0.1) ** 2),
    "test_accuracy": np.mean(TEST["x"] + 0.1 > 0),
  }
  for i in range(1, 10):
    expected[f"train_accuracy_decile_{i}"] = np.quantile(accuracy, i / 10)
  check(actual, expected)


def test_the_last_batch_is_filled_with_the_first_examples():
  """For models that look at their batch: here its mean is subtracted."""

  def centered(params, batch):
    return {"loss": (batch["x"] - jnp.mean(batch["x"])) ** 2}

  evaluate = jax.jit(evaluation.federated(centered, batch_size=4))
  actual = evaluate(np.float32(0), DATA, TEST)["test_loss"]
  x = TEST["x"]
  batches = [x[:4], x[4:8], np.append(x[8:], x[:1])]
  losses = np.concatenate([(b - b.mean()) ** 2 for b in batches])
  np.testing.assert_allclose(actual, losses[:11].mean(), rtol=1e-5)


# How far from stationary.


def test_squared_gradient_norm():
  batch_size = 4

  def loss_fn(params, batch, rng):
    assert rng is None
    a, b = params["a"], params["b"]
    return (batch["x"] * a[0] + a[1] ** 2 - b) ** 4

  params = {"a": jnp.array([0.3, -0.7]), "b": jnp.float32(0.2)}
  evaluate = evaluation.grad_norm_sq(loss_fn, batch_size)
  actual = jax.jit(evaluate)(params, DATA, TEST)

  client_rows = [INDICES[m, : SIZES[m]] for m in range(13)]
  x = EXAMPLES["x"][np.concatenate(client_rows)].astype(np.float64)
  slope = 4 * (x * 0.3 + 0.49 - 0.2) ** 3
  gradient = [np.mean(slope * x), np.mean(slope * -1.4), np.mean(-slope)]
  check(actual, {"grad_norm_sq": np.sum(np.square(gradient))})

  unowned = {"x": np.append(EXAMPLES["x"], np.float32(np.inf))}
  others = evaluate(params, ClientData(unowned, INDICES, SIZES), TEST)
  check(others, actual)

  evaluate_both = evaluation.federated(
    lambda p, batch: {"loss": loss_fn(p, batch, None)},
    batch_size,
    gradient_of=loss_fn,
  )
  metrics = evaluate_both(params, DATA, None)
  assert set(metrics) == {"train_loss", "grad_norm_sq"}
  check({"grad_norm_sq": metrics["grad_norm_sq"]}, actual)


# How well coefficients are recovered.


@pytest.mark.parametrize(
  ("w", "w_real", "precision", "recall", "f1", "density"),
  [
    ([0, 0, 0, 0], [1, 0, 1, 0], 0, 0, 0, 0),  # Nothing found.
    ([0, 0.3, 0, 0.2], [1, 0, 1, 0], 0, 0, 0, 0.5),  # Only what is wrong.
    ([0, 0.3, 0, 0.2], [0, 0, 0, 0], 0, 0, 0, 0.5),  # Nothing to be found.
    ([0, 0, 0, 0], [0, 0, 0, 0], 0, 0, 0, 0),
    ([0.2, 0, -0.1, 0], [1, 0, 1, 0], 1, 1, 1, 0.5),  # All, one at 0.1 itself.
    ([1, 0, 0.09, 0], [1, 0, 1, 0], 1, 0.5, 2 / 3, 0.25),
  ],
)
def test_recovered_support(w, w_real, precision, recall, f1, density):
  """By hand, of a matrix."""
  w, w_real = (np.float32(x).reshape(2, 2) for x in (w, w_real))
  actual = jax.jit(evaluation.recovered_support)(w, w_real, np.float32(0.1))
  error = np.linalg.norm(w - w_real)
  expected = dict(precision=precision, recall=recall, f1=f1, density=density)
  check(actual, expected | {"recovery_error": error})


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_recovered_rank(rank):
  rng = np.random.default_rng(2)
  matrix = rng.normal(size=(4, rank)) @ rng.normal(size=(rank, 9))
  w = (matrix + 1e-4 * rng.normal(size=(4, 9))).astype(np.float32)
  w_real = rng.normal(size=(4, 9)).astype(np.float32)
  actual = evaluation.recovered_rank(w, w_real, 1e-2)
  assert np.linalg.matrix_rank(w, tol=1e-2) == rank
  check(
    actual, {"rank": rank, "recovery_error": np.linalg.norm(w - w_real, "fro")}
  )


def test_singular_values_at_the_threshold_count_as_zero():
  w, zero = np.diag(np.float32([2, 0.5, 0.25])), np.zeros((3, 3), np.float32)
  assert evaluation.recovered_rank(w, zero, 0.5)["rank"] == 1


def check(actual, expected):
  assert actual.keys() == expected.keys()
  for name, value in expected.items():
    np.testing.assert_allclose(actual[name], value, rtol=1e-5, err_msg=name)


# What a model alone, and a regularizer, add.


def test_metrics_of_the_model_alone():
  of_params = lambda params: {"size": abs(params)}
  evaluate = evaluation.federated(
    lambda p, batch: {"loss": batch["x"]}, of_params=of_params
  )
  metrics = evaluate(-2.0, DATA, TEST)
  assert set(metrics) == {"train_loss", "test_loss", "size"}
  assert metrics["size"] == 2


def test_regularized_loss_is_the_loss_and_the_penalty():
  algorithm = jax_problems.own_algorithm(
    lambda state, cohort: (state + 1, ()), penalty=lambda params: 10 * params
  )

  history = simulate(
    algorithm,
    np.float32(0),
    DATA,
    rounds=2,
    eval_every=1,
    batch_size=4,
    evaluate=evaluation.federated(per_example),
    test=TEST,
    validation=VALIDATION,
  ).history.metrics
  for split in ("train", "validation", "test"):
    penalties = history[f"regularized_{split}_loss"] - history[f"{split}_loss"]
    np.testing.assert_allclose(penalties, [[0, 10, 20]], atol=1e-5)
    assert f"regularized_{split}_accuracy" not in history


def test_validation_examples_come_by_name_and_only_if_given():
  algorithm = jax_problems.own_algorithm(lambda state, cohort: (state + 1, ()))

  def evaluate(params, data, test, **batches):
    assert set(batches) <= {"validation"}
    means = {name: jnp.mean(batch["x"]) for name, batch in batches.items()}
    return {"test": jnp.mean(test["x"])} | means

  def measured(**options):
    run = Simulator(
      algorithm, DATA, batch_size=4, evaluate=evaluate, test=TEST, **options
    )
    return run.run(run.init(np.float32(0)), 1)[1]

  assert set(measured()) == {"test"}
  metrics = measured(validation=VALIDATION)
  assert metrics["validation"] == pytest.approx(-0.5)
  assert metrics["test"] == pytest.approx(TEST["x"].mean())


@settings(max_examples=20, deadline=None)
@given(
  seed=st.integers(0, 10**6),
  clients=st.integers(1, 40),
  empty=st.floats(0, 0.9),
)
def test_over_clients_it_is_a_plain_loop(seed, clients, empty):
  rng = np.random.default_rng(seed)
  sizes = np.where(rng.random(clients) < empty, 0, 5)
  accuracy = np.where(sizes > 0, rng.random(clients), np.nan)
  accuracies = np.sort(accuracy[sizes > 0])
  # Padding keeps one shape, so that all examples share one compilation.
  pad = 40 - clients
  args = np.pad(accuracy, (0, pad)), np.pad(sizes, (0, pad))
  worst = jax.jit(evaluation.worst_decile)(*args)
  deciles = jax.jit(evaluation.deciles)(*args)
  assert list(deciles) == [f"accuracy_decile_{i}" for i in range(1, 10)]
  if not accuracies.size:
    assert np.isnan(worst)
    return
  count = int(np.ceil(accuracies.size / 10))
  np.testing.assert_allclose(worst, accuracies[:count].mean(), rtol=1e-5)
  expected = np.quantile(accuracies, np.arange(1, 10) / 10)
  actual = list(deciles.values())
  np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-7)
