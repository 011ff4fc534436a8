"""Algorithms as users write them: each against a plain loop of its box.

They use the public package alone, in files of at most 40 lines.
"""

import pathlib

import numpy as np
import optax
import pytest

from tests import cases, reference, reference_methods, reference_uploads
from tests.cases import LR, PROBLEM, M
from tests.user_algorithms import fed_dyn, top_k, trimmed_mean

SGD = optax.sgd(LR)
K = 4


def fed_avg(rounds, **how):
  make_rule = lambda r, client: reference.Sgd(LR)
  return reference.fed_avg(PROBLEM, rounds, make_rule, **how)[0]


def of_fed_dyn(rounds, masses):
  xs, _, gs = reference_methods.fed_dyn(PROBLEM, rounds, LR, 0.1, masses)
  return xs, gs


def of_top_k(rounds, masses):
  compress = lambda u, r, client: reference_uploads.top_k(u, K)
  send = reference_uploads.ErrorFeedback(compress, M)
  return fed_avg(rounds, send=send), send.errors


def of_trimmed_mean(rounds, masses):
  def combine(sent, weights):  # Without a weight nobody counts.
    counted = [u for u, weight in zip(sent, weights, strict=True) if weight > 0]
    return reference_uploads.trimmed_mean(counted, 0.3)

  # With dropouts it is not always as many.
  assert len({int(0.3 * np.count_nonzero(r.weights)) for r in rounds}) > 1
  return fed_avg(rounds, combine=combine)


@pytest.mark.parametrize(
  ("algorithm", "fields", "loop"),
  [
    (fed_dyn.fed_dyn(cases.loss_fn, SGD, 0.1), "model kept", of_fed_dyn),
    (top_k.top_k(cases.loss_fn, SGD, K), "model kept", of_top_k),
    (
      trimmed_mean.trimmed_mean(cases.loss_fn, SGD, 0.3),
      "model",
      of_trimmed_mean,
    ),
  ],
)
def test_equals_the_loop(algorithm, fields, loop):
  cases.check_loop(algorithm, fields, loop)


def test_top_k_sends_k_values_and_k_indices():
  algorithm = top_k.top_k(cases.loss_fn, SGD, K)
  result = cases.TASK.simulate(algorithm, rounds=1, **cases.FAULTY)
  assert result.cost["bytes_up_per_round"] == K * (4 + 4)


def test_files_are_short():
  folder = pathlib.Path(__file__).parent
  for name in ("fed_dyn", "top_k", "trimmed_mean"):
    assert len((folder / f"{name}.py").read_text().splitlines()) <= 40
