"""Algorithms as users write them: each against a plain loop of its box.

They use the public package alone, in files of at most 40 lines.
"""

import pathlib

import numpy as np
import optax
import pytest

import fedjax_opt as fo
from tests import methods_cases, reference_methods
from tests.methods_cases import CASES, LR, M
from tests.user_algorithms import draws, fed_dyn, top_k, trimmed_mean
from tests.user_algorithms import reference_user as reference

case = methods_cases.case
SGD = optax.sgd(LR)


def test_files_are_short():
  folder = pathlib.Path(__file__).parent
  for name in ("fed_dyn", "top_k", "trimmed_mean"):
    assert len((folder / f"{name}.py").read_text().splitlines()) <= 40


def test_fed_dyn(case):
  def loop(drawn, masses):
    xs, _, gs = reference_methods.fed_dyn(*drawn, LR, 0.1, masses)
    return xs, gs

  algorithm = fed_dyn.fed_dyn(draws.loss_fn, SGD, alpha=0.1)
  states, kept = methods_cases.check_matches(
    case, algorithm, "model kept", loop
  )
  # h is the mean of all g_i, at any time.
  masses = methods_cases.masses(case)
  means = [np.average(draws.flat(g, 1), 0, masses) for g in kept]
  methods_cases.assert_close([h for _, h in states], means, 1e-10)


def test_top_k(case):
  k = 4
  algorithm = top_k.top_k(draws.loss_fn, SGD, k)
  loop = lambda drawn, masses: reference.top_k(*drawn, LR, k, M)
  _, kept = methods_cases.check_matches(case, algorithm, "model kept", loop)
  kept = [draws.flat(errors, 1) for errors in kept]
  before = np.zeros_like(kept[0])
  for cohort, after in zip(methods_cases.drawn(case)[0], kept, strict=True):
    others = [i for i in range(M) if i not in cohort]
    np.testing.assert_array_equal(after[others], before[others])
    moved = [i for i in cohort if i != M - 1]
    assert (after[moved] != before[moved]).any(axis=1).all()
    before = after


@pytest.mark.parametrize("case", ["uniform in float32"], indirect=True)
def test_top_k_sends_k_values_and_k_indices(case):
  result = fo.simulate(
    top_k.top_k(draws.loss_fn, SGD, 4),
    draws.PARAMS,
    draws.client_data(),
    rounds=1,
    **CASES[case],
  )
  assert result.cost["bytes_up_per_round"] == 4 * (4 + 4)


def test_trimmed_mean(case):
  def loop(drawn, masses):
    xs, cuts = reference.trimmed_mean(*drawn, LR, 0.3)
    assert len(set(cuts)) > 1  # With dropouts it is not always as many.
    return xs

  algorithm = trimmed_mean.trimmed_mean(draws.loss_fn, SGD, 0.3)
  methods_cases.check_matches(case, algorithm, "model", loop)
