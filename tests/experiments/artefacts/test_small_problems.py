"""The small problems on which theorems and orders are measured."""

import numpy as np
import pytest

from experiments.bvr import labels, rounds
from experiments.delta_sgd import theory
from experiments.fco import convex


def test_label_counts_are_those_of_the_partition():
  history, points = theory.label_counts(0.1, 7, 50, [3])
  counts = np.concatenate(list(history.metrics.values()), axis=1)
  assert counts.shape == (7, 10)
  assert np.all(counts.sum(axis=1) == 50)
  assert [point["client"] for point in points] == list(range(7))


def test_a_client_has_its_share_of_its_class():
  history, _ = labels.counts(0.6)
  counts = np.concatenate(list(history.metrics.values()), axis=1)
  # 2,000 others of each class, divided by nine clients.
  assert np.all(counts == np.where(np.eye(10), 3000, 222))


@pytest.mark.parametrize(
  ("theorem", "kind"), [("4.1", "l1"), ("4.2", "ball"), ("4.3", "l1")]
)
def test_the_problem_is_what_the_bounds_assume(theorem, kind):
  case = convex.problem(kind, sigma=0.5, zeta=0.3)
  np.testing.assert_allclose(case.spread.sum(axis=0), 0, atol=1e-12)
  np.testing.assert_allclose(np.linalg.norm(case.spread, axis=1), 0.3)
  rng = np.random.default_rng(1)
  for _ in range(50):  # No point near the minimizer is better.
    w = case.minimizer + 0.1 * rng.standard_normal(convex.DIM)
    value = (case.q * w**2).sum() / 2 + case.c @ w + float(case.psi.value(w))
    assert value > case.value
  bounds = [convex.bound(theorem, case, 0.01, r) for r in (10, 100)]
  assert bounds[0] > bounds[1] > 0


@pytest.mark.slow
def test_gaps_are_below_the_bound_and_fall():
  history, points = convex.gaps("4.3", "fed_dual_avg", [0.03, 0.1], 32, [0])
  assert [point["rate"] for point in points] == [0.03, 0.1]
  gap, bound = history.metrics["gap"], history.metrics["bound"]
  assert (gap > 0).all()
  assert (gap < bound).all()
  assert (gap[:, -1] < gap[:, 0] / 4).all()


@pytest.mark.slow
def test_rounds_are_counted_with_and_without_large_gradients():
  options = {
    "zetas": [0.1], "rates": [0.25], "seeds": [0, 1], "batch_size": 2,
    "rounds": 8, "eps": [1e-2, 1e-30],
  }  # fmt: skip
  history, points = rounds.rounds_to_small_gradient("BVR-L-SGD", 64, **options)
  assert [point["seed"] for point in points] == [0, 1]
  without = history.values(rounds.metric(1e-2))[:, 0]
  total = history.values(rounds.metric(1e-2, counts_stages=True))[:, 0]
  assert (without >= 1).all()
  # A stage has ceil(1 + 256 / 128) = 3 rounds.
  np.testing.assert_array_equal(total, without + np.ceil(without / 3))
  assert np.isnan(history.values(rounds.metric(1e-30, True))).all()
