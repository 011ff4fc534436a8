"""The outcome of a tuning grid."""

import numpy as np
import pytest

from fedjax_opt.results.history import History
from fedjax_opt.results.selection import Criterion, Edge, tune

CRITERION = Criterion("validation_accuracy", "max")


def tuned(values, rates=(0.1, 1.0, 10.0), loss=None):
  """Values [settings, seeds] at the last round."""
  values = np.asarray(values, float)
  points = [
    {"client_lr": rate, "server_lr": 1.0, "seed": seed}
    for rate in rates
    for seed in range(values.shape[1])
  ]
  metrics = {"validation_accuracy": values.reshape(-1, 1)}
  if loss is not None:
    metrics["train_loss"] = np.asarray(loss, float).reshape(-1, 1)
  return tune(History([5], metrics), points, CRITERION)


def test_the_best_mean_over_seeds_wins():
  found = tuned([[0.5, 0.6], [0.9, 0.7], [0.85, 0.7]])
  assert found.best.hyperparameters == {"client_lr": 1.0, "server_lr": 1.0}
  assert found.score == pytest.approx(0.8)
  np.testing.assert_allclose(found.scores, [0.55, 0.8, 0.775])
  assert (found.budget, found.num_seeds, found.num_diverged) == (3, 2, 0)
  assert found.edges == ()


@pytest.mark.parametrize(
  ("values", "edge"),
  [
    ([[0.9], [0.5], [0.5]], Edge("client_lr", 0.1, "smallest")),
    ([[0.5], [0.5], [0.9]], Edge("client_lr", 10.0, "largest")),
  ],
)
def test_the_edge_of_the_grid_is_told(values, edge):
  assert tuned(values).edges == (edge,)


def test_a_diverged_seed_loses_against_none():
  found = tuned(
    [[0.99, 0.99], [0.5, 0.5], [0.4, 0.4]],
    loss=[[1, np.nan], [1, 1], [1, 1]],
  )
  assert found.best.hyperparameters["client_lr"] == 1.0
  assert found.num_diverged == 1
  assert np.isnan(found.scores[0])


def test_all_diverged():
  found = tuned([[0.9], [0.9], [0.9]], loss=[[np.nan]] * 3)
  assert found.best is None
  assert np.isnan(found.score)
  assert (found.num_diverged, found.edges) == (3, ())


def test_nothing_evaluated():
  with pytest.raises(ValueError, match="history: no round was evaluated"):
    tune(History(), [], CRITERION)
