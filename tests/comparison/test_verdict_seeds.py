"""Verdicts where seeds differ, are few, diverged or are missing."""

import csv
import io

import numpy as np
import pytest

import fedjax_opt as fo
from fedjax_opt.comparison import csv_table, report, tables, verdicts
from fedjax_opt.comparison.cells import Cell, Measured, Study
from fedjax_opt.comparison.limits import limits_of
from fedjax_opt.results.history import History

CRITERION = fo.Criterion("validation_accuracy")


def cell(method, by_seed, condition=None, metric="test_accuracy"):
  """A cell with these final values, {seed: value}."""
  history = History([10], {metric: np.array([[v] for v in by_seed.values()])})
  points = [{"rate": 0.1, "seed": seed} for seed in by_seed]
  measured = Measured(points, history)
  return Cell(method, condition or {}, CRITERION, None, measured)


def study(*cells, metric="test_accuracy"):
  return Study(cells, metric)


def said_of(compared):
  """method -> verdict, of a study of one condition; its sentence and limits."""
  found = verdicts.verdicts(compared)
  (sentence,) = verdicts.sentences(compared, found)
  limits = limits_of(compared, found)
  return {v.cell.method: v for v in found}, sentence, limits


def test_differences_pair_the_same_seeds_in_any_order():
  a = cell("A", {0: 0.9, 1: 0.8, 2: 0.7})
  b = cell("B", {2: 0.69, 0: 0.885, 1: 0.79})
  found, _, _ = said_of(study(a, b))
  wanted = fo.statistics.paired_difference([0.9, 0.8, 0.7], [0.885, 0.79, 0.69])
  np.testing.assert_allclose(found["B"].behind, wanted, atol=1e-12)
  assert found["B"].verdict == verdicts.WORSE


def test_lower_is_better():
  a = cell("A", {0: 0.9, 1: 0.8, 2: 0.7}, metric="test_loss")
  b = cell("B", {0: 0.6, 1: 0.51, 2: 0.4}, metric="test_loss")
  found, sentence, _ = said_of(study(a, b, metric="test_loss"))
  assert found["B"].verdict == verdicts.BEST
  assert found["A"].verdict == verdicts.WORSE
  assert found["A"].behind.estimate == pytest.approx(0.2966667, abs=1e-6)
  assert "lowest" in sentence


def test_the_best_is_not_told_by_the_luck_of_other_seeds():
  """A is better with every seed that both have; its fourth one is a bad one."""
  a = cell("A", {0: 0.9, 1: 0.8, 2: 0.7, 3: 0.5})
  b = cell("B", {0: 0.885, 1: 0.79, 2: 0.69})
  for cells in ((a, b), (b, a)):
    found, sentence, limits = said_of(study(*cells))
    assert found["A"].verdict == verdicts.BEST
    assert found["B"].verdict == verdicts.WORSE
    assert "over the seeds that all methods have" in sentence
    assert any("did not all run with the same seeds" in each for each in limits)


@pytest.mark.parametrize("seed", [2, 3])
def test_without_common_seeds_nothing_is_told(seed):
  a = cell("A", {0: 0.9, 1: 0.91, 2: 0.92})
  b = cell("B", {seed: 0.5, 4: 0.51, 5: 0.52})
  compared = study(a, b)
  found, _, limits = said_of(compared)
  assert found["B"].verdict == verdicts.TIED
  assert np.isnan(found["B"].behind.low)
  text = "B: it has fewer than two seeds in common with the best"
  assert any(each.startswith(text) for each in limits)
  notes = tables.main_table(compared, list(found.values())).notes
  assert not any("has 0 in it" in note for note in notes)


def test_conditions_may_have_seeds_of_their_own():
  cells = [
    cell(method, {first: 0.5, first + 1: 0.6}, {"alpha": alpha})
    for alpha, first in ((1.0, 0), (0.1, 5))
    for method in "AB"
  ]
  compared = study(*cells)
  limits = limits_of(compared, verdicts.verdicts(compared))
  assert not any("same seeds" in each for each in limits)


def test_a_few_wins_are_no_certainty():
  """Where every run of the best wins, the table has no interval of that."""
  a = cell("A", {0: 0.9, 1: 0.91, 2: 0.95})
  b = cell("B", {0: 0.5, 1: 0.53, 2: 0.52})
  compared = study(a, b)
  found, _, _ = said_of(compared)
  assert found["B"].probability.estimate == 1
  assert np.isnan(found["B"].probability[1:]).all()
  found = list(found.values())
  rows = csv.DictReader(io.StringIO(csv_table.csv_text(compared, found)))
  row = next(row for row in rows if row["method"] == "B")
  assert float(row["probability_best_is_better"]) == 1
  assert (row["probability_low"], row["probability_high"]) == ("", "")
  table = tables.differences(compared, found)
  assert not any("100 to 100" in str(entry) for entry in table.rows[0])


def test_an_interval_with_width_stays():
  a = cell("A", {0: 0.9, 1: 0.51, 2: 0.95, 3: 0.9})
  b = cell("B", {0: 0.5, 1: 0.53, 2: 0.52, 3: 0.6})
  found, _, _ = said_of(study(a, b))
  _, low, high = found["B"].probability
  assert 0 <= low < high <= 1


def test_equal_methods_are_both_best():
  values = {0: 0.9, 1: 0.8, 2: 0.7}
  found, sentence, _ = said_of(study(cell("A", values), cell("B", values)))
  assert {v.verdict for v in found.values()} == {verdicts.BEST}
  assert sentence == "A and B have the same highest mean test accuracy, 80.0 %."


def test_a_seed_that_diverged_is_never_left_out():
  a = cell("A", {0: 0.9, 1: np.nan, 2: 0.95})
  b = cell("B", {0: 0.5, 1: 0.53, 2: 0.52})
  found, sentence, limits = said_of(study(a, b))
  assert found["B"].verdict == verdicts.BEST
  assert found["A"].verdict == verdicts.DIVERGED
  assert np.isnan(found["A"].value.estimate)
  assert "A diverged" in sentence
  assert "A: 1 of 3 seeds of the report diverged." in limits


def test_a_method_that_is_missing_is_not_best_under_all():
  compared = study(
    cell("A", {0: 0.9, 1: 0.8}, {"alpha": 1.0}),
    cell("B", {0: 0.6, 1: 0.5}, {"alpha": 1.0}),
    cell("B", {0: 0.6, 1: 0.5}, {"alpha": 0.1}),
    cell("C", {0: 0.7, 1: 0.6}, {"alpha": 0.1}),
  )
  found = verdicts.verdicts(compared)
  assert "under 1 of 1" in verdicts.sentences(compared, found)[0]
  limits = limits_of(compared, found)
  assert "2 pairs of a method and a condition did not run." in limits
  assert set(verdicts.overall(compared)) == {"B"}


def test_a_study_that_measured_nothing_can_be_shown():
  empty = Cell("A", {}, CRITERION, None, None)
  found, sentence, limits = said_of(study(empty))
  assert found["A"].num_seeds == 0
  assert sentence == "A diverged."
  assert limits[0] == "A: every setting diverged."
  assert "every setting" in report.short_html(study(empty))
