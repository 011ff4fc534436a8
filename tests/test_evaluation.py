"""Metrics inside the program against a plain computation."""

import jax
import numpy as np
import pytest

from fedjax_opt import evaluation
from fedjax_opt.data.clients import ClientData

RNG = np.random.default_rng(0)
N = 23
EXAMPLES = {"x": RNG.normal(size=N).astype(np.float32)}
TEST = {"x": RNG.normal(size=11).astype(np.float32)}
# Drawn with replacement: clients own examples twice, and share them.
SIZES = np.array([5, 1, 9, 0, 7, 3, 2, 8, 4, 6, 9, 5, 5], np.int32)
INDICES = RNG.integers(0, N, (13, 12)).astype(np.int32)
DATA = ClientData(EXAMPLES, INDICES, SIZES)


def per_example(params, batch):
  x = batch["x"] + params
  return {"loss": x**2, "accuracy": x > 0}


@pytest.mark.parametrize("batch_size", [4, 23, 500])
def test_equals_a_plain_computation(batch_size):
  evaluate = jax.jit(evaluation.federated(per_example, batch_size))
  actual = jax.device_get(evaluate(np.float32(0.1), DATA, TEST))

  owned = [INDICES[m, : SIZES[m]] for m in range(13)]
  loss = (EXAMPLES["x"] + 0.1) ** 2
  right = (EXAMPLES["x"] + 0.1) > 0
  together = np.concatenate(owned)
  accuracy = [np.mean(right[rows]) for rows in owned if len(rows)]
  expected = {
    "train_loss": np.mean(loss[together]),
    "train_accuracy": np.mean(right[together]),
    "worst_decile_accuracy": np.mean(np.sort(accuracy)[:2]),  # of 12 clients
    "test_loss": np.mean((TEST["x"] + 0.1) ** 2),
    "test_accuracy": np.mean(TEST["x"] + 0.1 > 0),
  }
  for i in range(1, 10):
    expected[f"accuracy_decile_{i}"] = np.quantile(accuracy, i / 10)
  assert actual.keys() == expected.keys()
  for name, value in expected.items():
    np.testing.assert_allclose(actual[name], value, rtol=1e-5, err_msg=name)


def test_without_test_examples_and_accuracy_there_is_less():
  evaluate = evaluation.federated(lambda p, batch: {"loss": batch["x"]})
  assert set(evaluate(0.0, DATA, None)) == {"train_loss"}
