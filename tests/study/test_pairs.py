"""Pairs of methods, against SciPy; errors of studies; parts of a variance."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from fedjax_opt import statistics
from fedjax_opt.results.history import History
from fedjax_opt.results.selection import Criterion
from fedjax_opt.study import pairs, variance
from fedjax_opt.study.cells import PointResults
from fedjax_opt.study.sizes import ExampleSet
from fedjax_opt.study.verdicts import BEST, COLLAPSED, TIED, WORSE
from tests.helpers import studies
from tests.helpers.studies import cell, study
from tools import verdict_errors as errors


def test_p_values_are_those_of_scipy():
  rng = np.random.default_rng(0)
  for n in (2, 3, 10):
    a, b = rng.normal(size=(2, n, 5))
    np.testing.assert_allclose(
      pairs.p_values(a, b), stats.ttest_rel(a, b).pvalue, rtol=1e-9
    )
  assert np.isnan(pairs.p_values([[0.5]], [[0.6]])).all()


def test_differences_without_a_width_have_a_sign_test():
  a = np.array([0.5, 0.6, 0.7, 0.8])
  assert pairs.p_values(a, a - 0.1) == pairs.p_values(a, a + 0.1) == 0.125
  assert pairs.p_values(a, a) == 1


@pytest.mark.parametrize(
  ("p", "expected"),
  [
    ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
    ([0.9, np.nan, 0.02], [0.9, np.nan, 0.04]),
    ([0.6, 0.7], [1, 1]),
    ([], []),
  ],
)
def test_holm_by_hand(p, expected):
  np.testing.assert_allclose(pairs.holm(p), expected)


def test_pairs_of_all_conditions_are_one_family():
  case = studies.plain()
  assert len(case.pairs) == 6
  raw = np.array([pair.p for pair in case.pairs])
  adjusted = [pair.adjusted for pair in case.pairs]
  np.testing.assert_allclose(adjusted, pairs.holm(raw))
  assert min(adjusted) == pytest.approx(6 * raw.min())
  first = case.pairs[0]
  a, b = (c.final("test_accuracy") for c in (first.first, first.second))
  interval = stats.ttest_rel(a, b).confidence_interval(0.95)
  assert first.difference[1:] == pytest.approx(tuple(interval))
  assert first.swapped().difference.estimate == -first.difference.estimate


def test_pairs_are_compared_on_the_seeds_that_they_share():
  """Of which one method has them in another order."""
  one, two, three = np.random.default_rng(0).uniform(0.4, 0.9, (3, 5))
  values = one, two, three, one[:3]
  seeds = range(5), range(6, 1, -1), range(4, 9), range(20, 23)
  cells = (
    cell(m, v, seeds=s) for m, v, s in zip("ABCD", values, seeds, strict=True)
  )
  case = study(*cells)
  found = {(p.first.method, p.second.method): p for p in case.pairs}
  assert [p.num_seeds for p in found.values()] == [3, 1, 0, 3, 0, 0]
  test = stats.ttest_rel(one[2:], two[:1:-1])
  assert found["A", "B"].p == pytest.approx(test.pvalue)
  interval = found["A", "B"].difference
  assert interval[1:] == pytest.approx(tuple(test.confidence_interval()))
  expected = stats.ttest_rel(two[2::-1], three[:3]).pvalue
  assert found["B", "C"].p == pytest.approx(expected)
  assert sum(p.has_test for p in found.values()) == 2


def test_a_small_effect_and_one_below_the_grain():
  steps = np.array([0.0, 0.002, 0.001, 0.003, 0.002])
  a, b = cell("a", 0.9 + steps), cell("b", 0.896 + 1.1 * steps)
  small = study(a, b)
  (verdict,) = [v for v in small.verdicts if v.kind != BEST]
  assert (verdict.kind, verdict.remark) == (
    TIED, "differs by less than the smallest effect of interest"
  )  # fmt: skip
  (verdict,) = [v for v in study(a, b, min_effect=0).verdicts if v.pair]
  assert (verdict.kind, verdict.remark) == (WORSE, "")
  coarse = cell("b", 0.896 + 1.1 * steps, sets={"test": ExampleSet(100)})
  (verdict,) = [v for v in study(a, coarse, min_effect=0).verdicts if v.pair]
  assert (verdict.kind, verdict.remark) == (
    WORSE,
    "less than one of 100 examples",
  )


def test_what_is_no_better_than_chance_has_collapsed():
  sets = {"test": ExampleSet(400, 0.2)}
  chance = 0.2 + 2 * np.sqrt(0.2 * 0.8 / 400)
  for final, verdict in ((chance - 1e-3, COLLAPSED), (chance + 1e-3, WORSE)):
    finals = final + np.array([-1e-4, 0, 1e-4])
    case = study(cell("a", [0.9, 0.9, 0.9001]), cell("b", finals, sets=sets))
    assert [v.kind for v in case.verdicts] == [BEST, verdict]
  # Without the examples, the first model has 0.1.
  case = study(cell("a", [0.1, 0.1]), cell("b", [0.09, 0.1]))
  assert [v.kind for v in case.verdicts] == [COLLAPSED, COLLAPSED]
  tuned_cell = cell("a", [0.5] * 2, tried={0.1: [0.5], 1.0: [0.1], 3.0: [0.05]})
  assert tuned_cell.num_collapsed == 2


def test_power_is_that_of_simulated_studies():
  rng = np.random.default_rng(1)
  effect = statistics.smallest_difference(5, 0.01, num_pairs=6)
  differences = effect + 0.01 * rng.normal(size=(5, 20_000))
  p = pairs.p_values(differences, 0 * differences)
  assert np.mean(p < 0.05 / 6) == pytest.approx(0.8, abs=0.015)
  num = statistics.seeds_needed(0.01, 0.01)
  effects = [statistics.smallest_difference(n, 0.01) for n in (num - 1, num)]
  assert effects[1] <= 0.01 < effects[0]


def test_simulated_errors_are_by_the_rule_of_studies():
  rng = np.random.default_rng(2)
  values = 0.7 + 0.01 * rng.normal(size=(4, 6, 12))
  values[0] += 0.012
  are_worse = errors.are_worse(values)
  for i in range(values.shape[2]):
    cells = [cell(str(m), finals) for m, finals in enumerate(values[..., i])]
    is_worse = [v.kind == WORSE for v in study(*cells).verdicts]
    assert is_worse == are_worse[:, i].tolist()
  assert 0 < are_worse.mean() < 1
  assert errors.equal_methods(rng, 5, 5, 2000) < 0.06
  assert errors.chosen_by_luck(rng, 5, 10, False, 300) > 0.5
  assert errors.chosen_by_luck(rng, 5, 10, True, 2000) < 0.065


# What the spread of results is made of: against simulated studies.


PARTITION, SEED, BOTH = 2.0, 1.0, 1.5
QUALITIES = np.array([0.0, 4.0, 5.0])


def simulated(rng, num_partitions, num_seeds):
  """[P, T], with effects of known standard deviations."""
  normal = lambda *shape: rng.normal(size=shape)
  effects = PARTITION * normal(num_partitions, 1) + SEED * normal(num_seeds)
  return 70 + effects + BOTH * normal(num_partitions, num_seeds)


def crossed_cell(values, scores):
  """A cell that tried settings on partitions with seeds. [H, P, T] each.

  Without scores, {}, there are no validation examples.
  """
  num_settings, num_partitions, num_seeds = values.shape
  points = [
    {"client_lr": float(h), "seed": t}
    for h in range(num_settings)
    for t in range(num_seeds)
  ]
  criterion = Criterion("validation_loss", "min")
  runs = []
  for p in range(num_partitions):
    names = {"test_loss": values}
    if len(scores):
      names["validation_loss"] = scores
    metrics = {n: x[:, p].reshape(-1, 1) for n, x in names.items()}
    runs.append(PointResults(points, History([10], metrics), criterion))
  return dataclasses.replace(cell("a", [0.5, 0.6]), crossed=tuple(runs))


def test_components_are_those_of_simulated_effects():
  rng = np.random.default_rng(0)
  estimates = [variance.components(simulated(rng, 6, 5)) for _ in range(4000)]
  expected = {
    variance.PARTITION: PARTITION,
    variance.SEED: SEED,
    variance.BOTH: BOTH,
  }
  for name, sd in expected.items():
    # An estimate below 0 becomes 0, so the mean is a little too large.
    mean = np.mean([estimate[name] ** 2 for estimate in estimates])
    assert sd**2 * 0.97 < mean < sd**2 * 1.08, name


def test_the_luck_of_choosing_is_told_from_partition_and_seed():
  """Validation cannot tell the settings apart, so any is chosen as often."""
  rng = np.random.default_rng(2)
  spreads = []
  for _ in range(400):
    values = QUALITIES[:, None, None] + simulated(rng, 6, 5)
    values = values + 0.5 * rng.normal(size=values.shape)
    sample = crossed_cell(values, rng.normal(size=values.shape))
    spreads.append(variance.spread_of(sample, "test_loss"))
  mean = {n: np.mean([row[n] ** 2 for row in spreads]) for n in spreads[0]}
  assert mean[variance.CHOICE] == pytest.approx(np.var(QUALITIES), rel=0.1)
  assert mean[variance.PARTITION] == pytest.approx(PARTITION**2, rel=0.15)
  assert mean[variance.BOTH] == pytest.approx(BOTH**2 + 0.5**2, rel=0.1)
  total = sum(mean[n] for n in list(mean)[1:])
  assert mean[variance.WHOLE] == pytest.approx(total)


def test_the_best_by_its_own_score_is_chosen_and_a_single_setting_is_not():
  rng = np.random.default_rng(3)
  values = QUALITIES[:, None, None] + simulated(rng, 3, 4)
  best = variance.spread_of(crossed_cell(values, values), "test_loss")
  assert best[variance.CHOICE] == 0
  alone = variance.components(values[0])
  assert {n: best[n] for n in alone} == pytest.approx(alone)
  # Without validation examples it has no score.
  single = crossed_cell(values[:1], {})
  parts = variance.spread_of(single, "test_loss")
  assert {n: parts[n] for n in alone} == pytest.approx(alone)
  assert parts[variance.CHOICE] == 0
  lost = np.where(np.arange(4) == 2, np.nan, values)
  assert variance.spread_of(crossed_cell(lost, values), "test_loss") is None
  assert variance.spread_of(cell("a", [0.5, 0.6]), "test_loss") is None
