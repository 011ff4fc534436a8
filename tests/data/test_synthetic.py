"""The synthetic regressions: their truth, their draws and their sizes."""

import numpy as np
import pytest

from fedjax_opt.data import synthetic

SMALL = {"num_clients": 40, "examples_per_client": 50}


def small(task):
  if task == "lasso":
    return synthetic.lasso(dim=12, num_nonzero=5, **SMALL)
  return synthetic.low_rank(dim=4, rank=3, **SMALL)


def test_variants_of_the_paper():
  assert synthetic.VARIANTS == {
    # num_nonzero, rank, num_clients, examples_per_client
    "I": (512, 16, 64, 128),
    "II": (64, 4, 64, 128),
    "III": (8, 1, 64, 128),
    "IV": (512, 16, 256, 32),
  }


@pytest.mark.parametrize("variant", ["III", "IV"])
def test_full_size(variant):
  sizes = synthetic.VARIANTS[variant]
  sparse = synthetic.lasso(variant)
  assert sparse.w_real.shape == (1024,)
  assert sparse.w_real.sum() == sizes.num_nonzero
  matrix = synthetic.low_rank(variant)
  assert matrix.w_real.shape == (32, 32)
  assert np.linalg.matrix_rank(matrix.w_real) == sizes.rank
  for problem in (sparse, matrix):
    assert problem.data.num_clients == sizes.num_clients
    assert set(problem.data.sizes) == {sizes.examples_per_client}
    assert problem.data.num_examples == 8192
    assert problem.validation["x"].shape == (1024, *problem.w_real.shape)
    assert problem.validation["y"].shape == (1024,)


def test_the_truth():
  sparse, matrix = small("lasso"), small("low_rank")
  np.testing.assert_array_equal(sparse.w_real, [1] * 5 + [0] * 7)
  np.testing.assert_array_equal(matrix.w_real, np.diag([1, 1, 1, 0]))


@pytest.mark.parametrize("task", ["lasso", "low_rank"])
def test_draws(task):
  problem = small(task)
  x, y = problem.data.examples["x"], problem.data.examples["y"]
  assert x.shape == (2000, *problem.w_real.shape)
  for array in (x, y, problem.w_real, problem.b_real):
    assert array.dtype == np.float32

  x = x.reshape(2000, -1)
  noise = y - x @ problem.w_real.reshape(-1) - problem.b_real
  assert abs(noise.mean()) < 0.1
  assert abs(noise.std() - 1) < 0.05

  of_client = x[problem.data.indices]  # [M, n, d]
  means = of_client.mean(axis=1)
  assert abs(means.mean()) < 0.2
  assert abs(means.std() - 1) < 0.1
  spread = of_client - means[:, None]
  assert abs(spread.std() - np.sqrt(49 / 50)) < 0.02


@pytest.mark.parametrize("task", ["lasso", "low_rank"])
def test_validation_is_fresh_and_of_the_same_clients(task):
  problem = small(task)
  train, validation = problem.data.examples["x"], problem.validation["x"]
  assert len(validation) == 40 * (50 // 8)
  together = np.concatenate([train, validation])
  assert len(np.unique(together, axis=0)) == len(together)
  means = lambda x: x.reshape(40, -1, problem.w_real.size).mean(axis=1)
  difference = means(train) - means(validation)
  assert abs(difference.std() - np.sqrt(1 / 50 + 1 / 6)) < 0.06


def test_seeds_and_variants():
  draw = lambda *args, **sizes: synthetic.lasso(*args, dim=8, **SMALL, **sizes)
  first = draw("I", 3, num_nonzero=2)
  again = draw("I", 3, num_nonzero=2)
  np.testing.assert_array_equal(
    first.data.examples["y"], again.data.examples["y"]
  )
  np.testing.assert_array_equal(first.validation["x"], again.validation["x"])
  other = draw("I", 4, num_nonzero=2)
  assert (first.data.examples["x"] != other.data.examples["x"]).all()

  denser = draw("I", 3, num_nonzero=3)
  x = first.data.examples["x"]
  np.testing.assert_array_equal(denser.data.examples["x"], x)
  added = denser.data.examples["y"] - first.data.examples["y"]
  np.testing.assert_allclose(added, x[:, 2], atol=1e-5)


@pytest.mark.parametrize(
  ("call", "message"),
  [
    (
      lambda: synthetic.lasso("V"),
      "variant='V': must be one of I, II, III, IV",
    ),
    (
      lambda: synthetic.lasso(dim=8),
      r"num_nonzero=512: must be .* \[0, dim=8\]",
    ),
    (lambda: synthetic.low_rank(dim=8), r"rank=16: must be .* \[0, dim=8\]"),
    (lambda: synthetic.low_rank(rank=-1), "rank=-1: must be a whole number"),
    (lambda: synthetic.low_rank(dim=0), r"dim=0: must be .* \[1, inf\)"),
    (lambda: synthetic.lasso(num_clients=0), "num_clients=0: must be"),
    (
      lambda: synthetic.lasso(examples_per_client=0),
      "examples_per_client=0: must be",
    ),
    (
      lambda: synthetic.lasso(validation_per_client=0),
      "validation_per_client=0: must be",
    ),
  ],
)
def test_bad_input(call, message):
  with pytest.raises(ValueError, match=message):
    call()
