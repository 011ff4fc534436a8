"""Scores of predictions equal those of scikit-learn."""

import jax
import numpy as np
import pytest
from sklearn import metrics

import fedjax_opt as fo
from fedjax_opt import scores

RNG = np.random.default_rng(0)
N = 300


@pytest.mark.parametrize("seed", range(8))
def test_of_few_examples_with_ties_and_absent_classes(seed):
  rng = np.random.default_rng(seed)
  logits = rng.integers(0, 3, (7, 4)).astype(np.float32)
  y = rng.integers(0, rng.integers(1, 5), 7)
  predicted, classes = logits.argmax(1), np.unique(y)
  recalls = metrics.recall_score(
    y, predicted, labels=classes, average="macro", zero_division=0
  )
  np.testing.assert_allclose(scores.balanced_accuracy(logits, y), recalls)
  expected = metrics.f1_score(y, predicted, average="macro", zero_division=0)
  np.testing.assert_allclose(scores.f1(logits, y), expected, rtol=1e-6)
  chances = np.asarray(jax.nn.log_softmax(logits, -1))
  areas = [
    metrics.roc_auc_score(y == c, chances[:, c])
    for c in classes
    if len(classes) > 1
  ]
  expected = np.mean(areas) if areas else np.nan
  np.testing.assert_allclose(scores.auc(logits, y), expected, rtol=1e-5)


@pytest.mark.slow
def test_sure_examples_differ():
  """Where float32 has the same probability, 1."""
  margin = RNG.normal(30, 20, N).astype(np.float32)
  y = (margin + RNG.normal(0, 3, N) > 30).astype(int)
  logits = np.stack([np.zeros(N, np.float32), margin], 1)
  score = scores.auc(logits, y)
  np.testing.assert_allclose(score, metrics.roc_auc_score(y, margin), rtol=1e-5)


@pytest.mark.slow
def test_of_labels():
  logits = RNG.integers(-3, 4, (N, 3)).astype(np.float32)
  y = (RNG.random((N, 3)) < [0.1, 0.5, 0.8]).astype(np.float32)
  accuracies = [
    metrics.balanced_accuracy_score(y[:, i], logits[:, i] > 0) for i in range(3)
  ]
  expected = {
    "balanced_accuracy": np.mean(accuracies),
    "f1": metrics.f1_score(y, logits > 0, average="macro"),
    "auc": metrics.roc_auc_score(y, logits, average="macro"),
  }
  for name, value in expected.items():
    actual = scores.SCORES[name].of(logits, y)
    np.testing.assert_allclose(actual, value, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("unit", [1, 1e-25, 1e30])
@pytest.mark.parametrize("constant", [None, 0, 3.1])
def test_of_numbers(unit, constant):
  y = RNG.normal(size=(N, 2))
  if constant is not None:
    y[:, 0] = constant
  outputs = (y + RNG.normal(size=(N, 2))) * unit
  # In 64 bits scikit-learn sees that it is constant; it has these numbers.
  y, outputs = (a.astype("f4").astype(float) for a in (y * unit, outputs))
  actual = scores.r2(outputs, y), scores.mae(outputs, y)
  expected = (
    metrics.r2_score(y, outputs),
    metrics.mean_absolute_error(y, outputs),
  )
  np.testing.assert_allclose(actual, expected, rtol=1e-5)
  assert scores.r2(np.full(4, 2.0), np.full(4, 2.0)) == 1


def test_names_say_which_way_is_better():
  directions = {n: fo.metrics.direction(f"test_{n}") for n in scores.SCORES}
  assert directions == dict.fromkeys(scores.SCORES, "max") | {"mae": "min"}
