"""What the spread of results is made of: against simulated studies."""

import dataclasses

import numpy as np
import pytest

from fedjax_opt.results.history import History
from fedjax_opt.results.selection import Criterion
from fedjax_opt.study import variance
from fedjax_opt.study.cells import Measured
from tests.study.made import cell

PARTITION, SEED, BOTH = 2.0, 1.0, 1.5
QUALITIES = np.array([0.0, 4.0, 5.0])


def simulated(rng, num_partitions, num_seeds):
  """[P, T], with effects of known standard deviations."""
  normal = lambda *shape: rng.normal(size=shape)
  effects = PARTITION * normal(num_partitions, 1) + SEED * normal(num_seeds)
  return 70 + effects + BOTH * normal(num_partitions, num_seeds)


def crossed_cell(values, scores):
  """A cell that tried settings on partitions with seeds. [H, P, T] each."""
  num_settings, num_partitions, num_seeds = values.shape
  points = [
    {"client_lr": float(h), "seed": t}
    for h in range(num_settings)
    for t in range(num_seeds)
  ]
  criterion = Criterion("validation_loss", "min")
  runs = []
  for p in range(num_partitions):
    names = {"test_loss": values, "validation_loss": scores}
    metrics = {n: x[:, p].reshape(-1, 1) for n, x in names.items()}
    runs.append(Measured(points, History([10], metrics), criterion))
  return dataclasses.replace(cell("a", [0.5, 0.6]), crossed=tuple(runs))


def test_components_are_those_of_simulated_effects():
  rng = np.random.default_rng(0)
  found = [variance.components(simulated(rng, 6, 5)) for _ in range(4000)]
  expected = {
    variance.PARTITION: PARTITION,
    variance.SEED: SEED,
    variance.BOTH: BOTH,
  }
  for name, sd in expected.items():
    # An estimate below 0 becomes 0, so the mean is a little too large.
    mean = np.mean([each[name] ** 2 for each in found])
    assert sd**2 * 0.97 < mean < sd**2 * 1.08, name


def test_effects_that_are_not_there_are_about_nothing():
  rng = np.random.default_rng(1)
  values = rng.normal(size=(40, 40))
  found = variance.components(values)
  assert found[variance.BOTH] == pytest.approx(1, abs=0.06)
  assert max(found[variance.PARTITION], found[variance.SEED]) < 0.1
  of_partitions = variance.components(values + 3 * rng.normal(size=(40, 1)))
  assert of_partitions[variance.PARTITION] == pytest.approx(3, abs=0.8)
  assert of_partitions[variance.SEED] == pytest.approx(found[variance.SEED])


def test_the_luck_of_choosing_is_told_from_partition_and_seed():
  """Validation cannot tell the settings apart, so any is chosen as often."""
  rng = np.random.default_rng(2)
  found = []
  for _ in range(400):
    values = QUALITIES[:, None, None] + simulated(rng, 6, 5)
    values = values + 0.5 * rng.normal(size=values.shape)
    one = crossed_cell(values, rng.normal(size=values.shape))
    found.append(variance.spread_of(one, "test_loss"))
  mean = {n: np.mean([each[n] ** 2 for each in found]) for n in found[0]}
  assert mean[variance.CHOICE] == pytest.approx(np.var(QUALITIES), rel=0.1)
  assert mean[variance.PARTITION] == pytest.approx(PARTITION**2, rel=0.15)
  assert mean[variance.BOTH] == pytest.approx(BOTH**2 + 0.5**2, rel=0.1)
  whole = sum(mean[n] for n in list(mean)[1:])
  assert mean[variance.WHOLE] == pytest.approx(whole)


def test_the_best_by_its_own_score_is_chosen_and_a_single_setting_is_not():
  rng = np.random.default_rng(3)
  values = QUALITIES[:, None, None] + simulated(rng, 3, 4)
  best = variance.spread_of(crossed_cell(values, values), "test_loss")
  assert best[variance.CHOICE] == 0
  alone = variance.components(values[0])
  assert {n: best[n] for n in alone} == pytest.approx(alone)
  assert variance.spread_of(crossed_cell(values[:1], values[:1]), "test_loss")
  lost = np.where(np.arange(4) == 2, np.nan, values)
  assert variance.spread_of(crossed_cell(lost, values), "test_loss") is None
  assert variance.spread_of(cell("a", [0.5, 0.6]), "test_loss") is None
