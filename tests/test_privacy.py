"""Differential privacy: what is clipped and added, and what it is worth."""

import math
import re

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import optimize, stats

import fedjax_opt as fo
from fedjax_opt import privacy
from tests.user_algorithms import draws

LR = 0.3
SETTINGS = {"batch_size": 4, "local_epochs": 1.5}
POISSON = SETTINGS | {"cohort_size": 5, "sampler": fo.samplers.poisson(3.0)}
FIXED = SETTINGS | {"cohort_size": 5, "client_dropout": 0.3, "client_chunk": 2}
M = len(draws.SIZES)


def private(max_norm=0.2, noise_multiplier=0.0, client=None):
  inner = fo.fed_avg(draws.loss_fn, client or optax.sgd(LR))
  return privacy.with_privacy(inner, max_norm, noise_multiplier)


def run(algorithm, rounds, settings, **others):
  return fo.simulate(
    algorithm,
    draws.PARAMS,
    draws.client_data(),
    rounds=rounds,
    **settings | others,
  )


@pytest.mark.parametrize("settings", [POISSON, FIXED], ids=["poisson", "fixed"])
def test_without_noise_it_is_the_loop(settings):
  """Sums of clipped differences, over the expected number, whoever came."""
  with jax.enable_x64(True):
    expected = 3.0 if settings is POISSON else 5
    rounds, x, max_norm = draws.draw(7, **settings), draws.PROBLEM.x0, 0.2
    assert len({len(cohort) for cohort in rounds.cohorts}) > 2
    is_clipped = []
    for batches in rounds.batches:
      total = 0
      for steps in batches:
        y = x
        for rows in steps:
          y = y - LR * draws.PROBLEM.gradient(y, rows)[1]
        norm = np.linalg.norm(y - x)
        is_clipped.append(norm > max_norm)
        total = total + (y - x) * min(1, max_norm / max(norm, 1e-30))
      x = x + total / expected
    assert {True, False} == set(is_clipped)
    found = run(private(max_norm), 7, settings).params
    np.testing.assert_allclose(draws.flat(found), x, rtol=1e-10)


def test_the_noise_has_the_deviation_that_it_says():
  """Of clients that do not move, the model is a sum of the noise."""
  C, z, rounds = 0.5, 0.8, 400

  def evaluate(params, data, test):
    return {f"x{i}": x for i, x in enumerate(jnp.ravel(params["kernel"]))}

  history = run(
    private(C, z, optax.sgd(0.0)),
    rounds,
    POISSON,
    evaluate=evaluate,
    eval_every=1,
  ).history
  names = [name for name in history.metrics if re.fullmatch(r"x\d+", name)]
  walk = np.array([history.values(name)[0] for name in names])
  steps = np.diff(walk, axis=1) / (z * C / 3.0)  # [12, rounds]
  number = steps.size
  assert abs(steps.mean()) < 4 / math.sqrt(number)
  assert abs(steps.var() - 1) < 4 * math.sqrt(2 / number)
  assert stats.kstest(steps.ravel(), "norm").pvalue > 1e-3
  # One round's says nothing of the next one's, nor one entry's of another's.
  in_time = np.mean(steps[:, 1:] * steps[:, :-1])
  across = np.mean(steps[1:] * steps[:-1])
  assert max(abs(in_time), abs(across)) < 4 / math.sqrt(number)
  # The first round whose cohort was empty has noise as well.
  empty = [r for r, c in enumerate(draws.draw(60, **POISSON).cohorts) if not c]
  assert empty
  assert np.all(steps[:, empty[0]] != 0)


def test_the_noise_is_of_the_seed_and_the_round():
  algorithm = private(0.5, 1.0)
  one, same, other = (
    draws.flat(run(algorithm, 2, FIXED, seed=seed).params) for seed in (0, 0, 1)
  )
  np.testing.assert_array_equal(one, same)
  assert np.all(one != other)


def test_a_grid_over_both_numbers_equals_its_points():
  whole = fo.sweep(
    private,
    {"max_norm": [0.1, 0.5], "noise_multiplier": [0.0, 1.0]},
    draws.PARAMS,
    draws.client_data(),
    rounds=3,
    **FIXED,
  )
  one = run(private(0.5, 1.0), 3, FIXED)
  np.testing.assert_allclose(
    whole.params["kernel"][3], one.params["kernel"], rtol=1e-5, atol=1e-6
  )


@pytest.mark.parametrize("settings", [POISSON, FIXED], ids=["poisson", "fixed"])
def test_how_many_came_is_not_used(settings):
  """FedDyn's h, without noise: the mean over the population of all g_i."""
  inner = fo.fed_dyn(draws.loss_fn, optax.sgd(LR), alpha=0.1)
  algorithm = privacy.with_privacy(inner, 1e3, 0.0)
  result = run(algorithm, 6, settings, weighting="uniform")
  kept = draws.flat(result.client_state, lead=1)
  assert np.any(kept)
  np.testing.assert_allclose(
    draws.flat(result.state.h), kept.sum(0) / M, rtol=1e-4, atol=1e-6
  )


def test_some_trained_leaves():
  make = lambda loss_fn: privacy.with_privacy(
    fo.fed_avg(loss_fn, optax.sgd(LR)), 0.1, 1.0
  )
  algorithm = fo.train_only(make, ["bias"], draws.loss_fn)
  found = run(algorithm, 2, FIXED).params
  np.testing.assert_array_equal(
    found["kernel"], np.float32(draws.PARAMS["kernel"])
  )
  assert np.all(found["bias"] != np.float32(draws.PARAMS["bias"]))


# Epsilon.


def exact_epsilon(z, delta):
  """Of one Gaussian mechanism (Balle and Wang, ICML 2018, theorem 8)."""

  def off(epsilon):
    first = stats.norm.cdf(1 / (2 * z) - epsilon * z)
    second = stats.norm.cdf(-1 / (2 * z) - epsilon * z)
    return first - math.exp(epsilon) * second - delta

  return optimize.brentq(off, 0, 50)


@pytest.mark.parametrize("z", [0.8, 2.0, 6.0])
def test_epsilon_of_all_clients_is_that_of_the_gaussian(z):
  delta = 1e-4
  expected = exact_epsilon(z, delta)
  # R rounds are one of z / sqrt(R).
  found = privacy.epsilon(z * 3, 9, 50, 50, delta)
  assert found == pytest.approx(expected, rel=2e-3)
  # The Rényi bound is above, of a sum that changes twice as much.
  bound = privacy.epsilon(2 * z, 1, 50, 50, delta, sampling="uniform")
  assert expected < bound < 2.5 * expected


def test_epsilon_is_the_accountant_s():
  about = {"num_clients": 500, "cohort_size": 25, "delta": 1e-5}
  poisson = dp_accounting.PoissonSampledDpEvent(
    0.05, dp_accounting.GaussianDpEvent(1.1)
  )
  accountant = dp_accounting.pld.PLDAccountant()
  accountant.compose(poisson, 60)
  expected = accountant.get_epsilon(1e-5)
  assert privacy.epsilon(1.1, 60, **about) == pytest.approx(expected)
  # Places that are never full change little; few cost privacy.
  wide = privacy.epsilon(1.1, 60, **about, places=75)
  assert wide == pytest.approx(expected, rel=1e-6)
  assert privacy.epsilon(1.1, 60, **about, places=25) > 1.3 * expected

  replaced = dp_accounting.NeighboringRelation.REPLACE_ONE
  accountant = dp_accounting.rdp.RdpAccountant(neighboring_relation=replaced)
  event = dp_accounting.SampledWithoutReplacementDpEvent(
    500, 25, dp_accounting.GaussianDpEvent(1.1 / 2)
  )
  accountant.compose(event, 60)
  found = privacy.epsilon(1.1, 60, **about, sampling="uniform")
  assert found == pytest.approx(accountant.get_epsilon(1e-5))


@pytest.mark.parametrize("sampling", ["poisson", "uniform"])
@pytest.mark.parametrize("cohort_size", [10, 100])
def test_epsilon_without_noise_and_without_rounds(cohort_size, sampling):
  about = (100, cohort_size, 1e-5)
  assert privacy.epsilon(0.0, 5, *about, sampling=sampling) == math.inf
  assert privacy.epsilon(1.0, 0, *about, sampling=sampling) == 0


@pytest.mark.parametrize("z", [0.5, 0.9])
def test_epsilon_of_little_noise_is_that_of_small_steps(z):
  event = dp_accounting.PoissonSampledDpEvent(
    0.1, dp_accounting.GaussianDpEvent(z)
  )
  accountant = dp_accounting.pld.PLDAccountant()
  accountant.compose(event, 30)
  found = privacy.epsilon(z, 30, 300, 30, 1e-5)
  assert found == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-5)


def test_epsilon_of_next_to_no_noise_takes_no_time():
  assert privacy.epsilon(0.01, 30, 300, 30, 1e-5) > 1e4


@pytest.mark.parametrize("sampling", ["poisson", "uniform"])
def test_calibrated_noise_has_that_epsilon(sampling):
  about = (40, 300, 30, 1e-5)
  z = privacy.calibrated_noise(2.0, *about, sampling=sampling)
  assert privacy.epsilon(z, *about, sampling=sampling) <= 2.0
  assert privacy.epsilon(z - 5e-3, *about, sampling=sampling) > 2.0


# Bad input.


@pytest.mark.parametrize(
  ("make", "message"),
  [
    (lambda: private(0.0), "max_norm=0: must be in (0, inf)"),
    (lambda: private(1.0, -1.0), "noise_multiplier=-1: must be in [0, inf)"),
    (
      lambda: privacy.with_privacy(fo.bvr_l_sgd(draws.loss_fn, 0.1), 1.0, 1.0),
      "privacy: the clients of this algorithm send no difference of models",
    ),
    (
      lambda: run(
        privacy.with_privacy(fo.scaffold(draws.loss_fn, 0.1), 1.0, 1.0),
        1,
        FIXED,
      ),
      "privacy: the clients of this algorithm send more than one difference, "
      "and the noise is for one; take another algorithm, such as fed_avg",
    ),
    (
      lambda: run(private(), 1, FIXED, sampler=fo.samplers.weighted()),
      "privacy: the sampler draws a client more than once, or by its weight, "
      "which nobody accounts for; must be samplers.poisson or samplers.uniform",
    ),
    (
      lambda: run(private(), 1, FIXED, fault=fo.faults.flip(0.5)),
      "fault: the clients of this algorithm send no difference of models, or "
      "in several phases, or none that may be changed",
    ),
    (
      lambda: privacy.epsilon(-1.0, 1, 10, 5, 1e-5),
      "noise_multiplier=-1: must be in [0, inf)",
    ),
    (
      lambda: privacy.epsilon(1.0, -1, 10, 5, 1e-5),
      "rounds=-1: must not be negative",
    ),
    (
      lambda: privacy.epsilon(1.0, 1, 10, 11, 1e-5),
      "cohort_size=11: must be at most num_clients=10",
    ),
    (
      lambda: privacy.epsilon(1.0, 1, 10, 5, 1.0),
      "delta=1: must be in (0, 1)",
    ),
    (
      lambda: privacy.epsilon(1.0, 1, 10, 5, 1e-5, sampling="all"),
      "sampling='all': must be one of poisson, uniform",
    ),
    (
      lambda: privacy.epsilon(
        1.0, 1, 10, 5, 1e-5, sampling="uniform", places=7
      ),
      "places=7: belongs to sampling 'poisson'",
    ),
    (
      lambda: privacy.epsilon(1.0, 1, 10, 5, 1e-5, places=0),
      "places=0: must be at least 1",
    ),
    (
      lambda: privacy.calibrated_noise(0.0, 1, 10, 5, 1e-5),
      "epsilon=0: must be in (0, inf)",
    ),
    (
      lambda: privacy.calibrated_noise(1.0, 0, 10, 5, 1e-5),
      "rounds=0: must be at least 1",
    ),
  ],
)
def test_bad_input(make, message):
  with pytest.raises(ValueError, match=re.escape(message)):
    make()


def test_messages_without_a_mean_would_have_no_noise():
  def round(state, cohort):
    one_client = lambda worker, x: optax.tree.zeros_like(x)
    return state, cohort.each(one_client, state)

  algorithm = fo.Algorithm(
    lambda params, _: params, round, lambda s: s, sends=lambda params: [params]
  )
  message = "privacy: this algorithm reads each message by itself, and the "
  with pytest.raises(ValueError, match=message):
    run(privacy.with_privacy(algorithm, 1.0, 1.0), 1, FIXED)


@pytest.mark.parametrize(
  ("name", "make"),
  [
    ("jax_privacy", private),
    ("dp_accounting", lambda: privacy.epsilon(1.0, 1, 10, 5, 1e-5)),
  ],
)
def test_what_is_not_installed_is_named(name, make, monkeypatch):
  monkeypatch.setattr(privacy.importlib.util, "find_spec", lambda name: None)
  line = f"privacy needs {name}: pip install 'fedjax_opt[privacy]'"
  with pytest.raises(ImportError, match=re.escape(line)):
    make()
