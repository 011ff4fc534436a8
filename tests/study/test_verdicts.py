"""The rule of verdicts, and what is said in words."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from fedjax_opt import statistics
from fedjax_opt.results.selection import Criterion
from fedjax_opt.study import tuning
from fedjax_opt.study.report import formats, sentences
from fedjax_opt.study.report import study_tables as tables
from fedjax_opt.study.verdicts import BEST, DIVERGED, TIED, WORSE
from tests.helpers import studies
from tests.helpers.studies import NAN, cell, study

pytestmark = pytest.mark.quick


def by_method(case):
  return {v.cell.method: v for v in case.verdicts}


def t_interval(a, b):
  """The mean of a - b over pairs, with its 95 % t interval."""
  ends = stats.ttest_rel(a, b).confidence_interval()
  return pytest.approx((np.mean(np.subtract(a, b)), *ends))


def test_best_worse_and_not_told_apart():
  all_verdicts = studies.plain().verdicts
  assert [v.kind for v in all_verdicts] == 2 * [WORSE, BEST, TIED]
  worse, best, tied = all_verdicts[:3]
  finals = [v.cell.final("test_accuracy") for v in (worse, best, tied)]
  assert best.value == statistics.mean_interval(finals[1])
  assert worse.behind == t_interval(finals[1], finals[0])
  assert tied.behind.low < 0 < tied.behind.high
  assert np.isnan(best.behind.estimate)
  assert worse.probability.estimate == 1
  assert 0.5 <= tied.probability.estimate < 1


def test_the_best_is_not_told_by_the_luck_of_other_seeds():
  """a is better with every seed that both have; its fourth one is a bad one."""
  a, b = cell("a", [0.9, 0.8, 0.7, 0.5]), cell("b", [0.885, 0.79, 0.69])
  for cells in ((a, b), (b, a)):
    verdict_of = by_method(study(*cells))
    assert [verdict_of[m].kind for m in "ab"] == [BEST, WORSE]
    over = "over the seeds that all methods have"
    assert f"{over}, a is best, with 72.5 %" in sentences.answer(study(*cells))
    assert over in str(study(*cells))


def test_a_few_wins_are_no_certainty():
  """Where every run of the best wins, there is no interval of that."""
  case = study(cell("a", [0.9, 0.91, 0.95]), cell("b", [0.5, 0.53, 0.52]))
  all_verdicts = case.verdicts
  assert all_verdicts[1].probability.estimate == 1
  assert np.isnan(all_verdicts[1].probability[1:]).all()
  assert tables.differences(case).rows[0][5][:2] == ("100", "")
  some = study(cell("a", [0.9, 0.51, 0.95, 0.9]), cell("b", [0.5, 0.53, 0.52]))
  _, low, high = by_method(some)["b"].probability
  assert 0 <= low < high <= 1


def test_a_method_that_diverged_is_not_the_best():
  case = study(
    cell("a", [0.9, NAN, 0.9, 0.9]), cell("b", [0.5] * 4), cell("c", [])
  )
  verdict_of = by_method(case)
  assert [verdict_of[m].kind for m in "abc"] == [DIVERGED, BEST, DIVERGED]
  assert [verdict_of[m].num_diverged for m in "abc"] == [1, 0, 0]
  assert [verdict_of[m].num_seeds for m in "abc"] == [4, 4, 0]
  assert np.isnan(verdict_of["a"].value.estimate)
  text = sentences.answer(case)
  assert text.startswith("By mean test accuracy, b is best with 50.0 %")
  assert text.endswith("; a and c diverged.")


def test_to_target_is_the_mean_over_seeds():
  case = studies.plain()
  _, best, _, *other_verdicts = case.verdicts
  # Evaluated at rounds 0, 10 and 20; half way to 0.8 it is 0.45.
  assert best.to_target == {
    "rounds": 20,
    "bytes": 20000,
    "gradient_evaluations": 100,
  }
  assert all(np.isnan(v.to_target["rounds"]) for v in other_verdicts)
  without = dataclasses.replace(case, target=None)
  assert without.verdicts[0].to_target == {}


def test_to_target_of_costs_that_were_not_measured():
  case = study(cell("a", [0.9, 0.9]), target=0.5)
  del case.cells[0].report_runs.history.metrics["bytes_up"]
  (verdict,) = case.verdicts
  assert verdict.to_target["rounds"] == 10
  assert np.isnan(verdict.to_target["bytes"])


def test_missing_cells():
  case = study(*studies.plain().cells[:-1])
  assert set(case.matrices) == {"FedAvg", "SCAFFOLD"}
  fewer = study(case.cells[1], *case.cells[3:])  # Only SCAFFOLD has both.
  assert set(fewer.matrices) == {"SCAFFOLD"}
  assert study(*case.cells[:3]).matrices == {}
  case = studies.plain()
  shapes = {method: values.shape for method, values in case.matrices.items()}
  assert shapes == dict.fromkeys(case.methods, (5, 2))


def test_a_difference_without_a_width_needs_six_seeds():
  """Of two equal methods all of five seeds favour one with 6 %."""
  for num_seeds, verdict in ((2, TIED), (5, TIED), (6, WORSE)):
    values = 0.97 - np.arange(num_seeds) / 360
    case = study(cell("a", values), cell("b", values - 2 / 360))
    result = by_method(case)["b"]
    assert result.kind == verdict
    assert result.behind.estimate == pytest.approx(2 / 360)
    assert result.pair.adjusted == 2.0 ** (1 - num_seeds)
    assert np.isnan(result.behind.low)


def test_a_width_by_rounding_is_none():
  ends = np.float32([0.3, np.nextafter(np.float32(0.3), np.float32(1))])
  case = study(cell("a", ends), cell("b", [0.2, 0.2]))
  verdict = by_method(case)["b"]
  assert verdict.kind == TIED
  assert np.isnan(verdict.behind.low)


def test_differences_by_rounding_are_none():
  values = np.array([0.9, 0.8, 0.7, 0.75, 0.85, 0.6])
  case = study(cell("a", values), cell("b", values - 6e-8))
  assert [v.kind for v in case.verdicts] == [BEST, BEST]


def test_methods_with_the_same_mean_are_all_best():
  """A third is worse only if it is told apart from each of them."""
  steady, loose = [0.8, 0.81, 0.79, 0.8], [0.9, 0.7, 0.95, 0.65]
  third = [0.75, 0.77, 0.74, 0.76]
  for first, second in (("a", "b"), ("b", "a")):
    cells = {"a": cell("a", steady), "b": cell("b", loose)}
    case = study(cells[first], cells[second], cell("c", third))
    verdict_of = by_method(case)
    assert [verdict_of[m].kind for m in "abc"] == [BEST, BEST, TIED]
    assert verdict_of["c"].behind == t_interval(loose, third)
    assert sentences.answer(case) == (
      f"By mean test accuracy, {first} and {second} are best, not told apart "
      "from c."
    )
  alone = by_method(study(cells["a"], cell("c", third)))
  assert alone["c"].kind == WORSE


@pytest.mark.parametrize(
  "criterion",
  [studies.CRITERION, Criterion("train_loss", "min")],  # 1 minus the accuracy.
  ids=str,
)
def test_choices_that_are_nearly_tied_are_told(criterion):
  """Of which the paired difference over the seeds of tuning is not clear."""
  tried = {
    0.01: [0.60, 0.70, 0.65],
    0.1: [0.81, 0.79, 0.80],
    1.0: [0.80, 0.81, 0.78],
    10.0: [NAN, 0.9, 0.9],
  }
  tuned_cell = cell("a", [0.5] * 4, tried=tried, criterion=criterion)
  assert tuning.num_near_ties(tuned_cell) == 1
  assert formats.cell_records(study(tuned_cell))[0]["near_ties"] == 1
  of_one_seed = cell("a", [0.5] * 4, tried={0.1: [0.8], 1.0: [0.8]})
  assert tuning.num_near_ties(of_one_seed) is None
