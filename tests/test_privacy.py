"""Differential privacy: what is clipped and added, and what it is worth."""

import functools
import importlib.util
import itertools
import json
import math
import os
import re
import shutil

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.experimental import multihost_utils
from scipy import optimize, stats

import fedjax_opt as fo
from fedjax_opt import multi_process, privacy
from fedjax_opt.arrays import trees
from fedjax_opt.engine import compilation
from tests.helpers import cases, refusals

LR = 0.3
SETTINGS = {"batch_size": 4, "local_epochs": 1.5}
POISSON = SETTINGS | {"cohort_size": 5, "sampler": fo.samplers.poisson(3.0)}
FIXED = SETTINGS | {"cohort_size": 5, "client_dropout": 0.3, "client_chunk": 2}
M = cases.M


def private(max_norm=0.2, noise_multiplier=0.0, client=None, noise_seed=None):
  algorithm = fo.fed_avg(cases.loss_fn, client or optax.sgd(LR))
  return privacy.with_privacy(algorithm, max_norm, noise_multiplier, noise_seed)


def seeded(max_norm=0.2, noise_multiplier=0.0, noise_seed=0):
  """Of numbers that are compared: the noise can be made again."""
  return private(max_norm, noise_multiplier, noise_seed=noise_seed)


def still(noise_multiplier=1.0, max_norm=0.5):
  """Clients that do not move: the model is a sum of the noise."""
  return private(max_norm, noise_multiplier, optax.sgd(0.0))


def run(algorithm, rounds, settings, **options):
  return cases.TASK.simulate(algorithm, rounds=rounds, **settings | options)


@pytest.mark.parametrize("settings", [POISSON, FIXED], ids=["poisson", "fixed"])
@pytest.mark.default_cases("poisson")
@pytest.mark.quick_cases("poisson")
def test_without_noise_it_is_the_loop(settings):
  """Sums of clipped differences, over the expected number, whoever came."""
  with jax.enable_x64(True):
    expected = 3.0 if settings is POISSON else 5
    rounds, x, max_norm = cases.draw(7, **settings), cases.PROBLEM.x0, 0.2
    assert len({len(clients) for clients, _, _ in rounds}) > 2
    is_clipped = []
    for _, batches, _ in rounds:
      total = 0
      for steps in batches:
        y = x
        for rows in steps:
          y = y - LR * cases.PROBLEM.gradient(y, rows)[1]
        norm = np.linalg.norm(y - x)
        is_clipped.append(norm > max_norm)
        total = total + (y - x) * min(1, max_norm / max(norm, 1e-30))
      x = x + total / expected
    assert {True, False} == set(is_clipped)
    params = run(private(max_norm), 7, settings).params
    np.testing.assert_allclose(cases.flat(params), x, rtol=1e-10)


def test_the_noise_has_the_deviation_that_it_says():
  """Of clients that do not move, the model is a sum of the noise."""
  C, z, rounds = 0.5, 0.8, 400

  def evaluate(params, data, test):
    return {f"x{i}": x for i, x in enumerate(jnp.ravel(params["kernel"]))}

  history = run(
    private(C, z, optax.sgd(0.0), noise_seed=0),
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
  drawn = cases.draw(60, **POISSON)
  empty = [r for r, of_round in enumerate(drawn) if not of_round.clients]
  assert empty
  assert np.all(steps[:, empty[0]] != 0)


def test_the_noise_is_new_in_each_run_of_the_same_program():
  compilation.clear()
  models, keys = [], []
  for _ in range(2):
    models.append(run(still(), 2, FIXED).params)
    keys.append(set(compilation._programs))
  assert np.all(cases.flat(models[0]) != cases.flat(models[1]))
  assert keys[0] == keys[1]  # Nothing of the noise is in a program.
  simulator = fo.Simulator(still(), cases.DATA, **FIXED)
  start = simulator.init(cases.PARAMS)
  # A state from which two runs go on, and one that goes on twice.
  first, second = (simulator.run(start, 1)[0] for _ in range(2))
  third, _ = simulator.run(first, 1)
  x0, a, b, c = (
    cases.flat(simulator.params(s)) for s in (start, first, second, third)
  )
  assert np.all(a != b)
  assert np.all(a - x0 != c - a)


@pytest.mark.slow
def test_each_point_of_a_grid_has_noise_of_its_own():
  scales = [1.0, 2.0, 4.0]
  result = cases.TASK.sweep(
    still,
    {"noise_multiplier": scales},
    rounds=1,
    seeds=[0, 1],
    grid_map="vmap",
    grid_chunk=2,
    **FIXED,
  )
  moved = cases.flat(result.params, lead=1) - cases.flat(cases.PARAMS)
  noise = moved / np.repeat(scales, 2)[:, None]  # [S, leaves]
  for i, j in itertools.combinations(range(len(noise)), 2):
    # A few of independent numbers may be close by chance.
    assert np.sum(np.isclose(noise[i], noise[j], rtol=1e-3)) < 5
  # 6 points of 13 numbers are a sample of one distribution.
  assert 0.5 < noise.std() / (0.5 / 5) < 1.5


@functools.cache
def noisy(seed=0, noise_seed=0):
  """The model of three rounds with noise that can be made again."""
  algorithm = seeded(0.5, 1.0, noise_seed)
  return cases.flat(run(algorithm, 3, FIXED, seed=seed).params)


@pytest.mark.slow
def test_seeded_noise_is_of_its_seed_and_the_run_s():
  assert np.all(noisy() != noisy(seed=1))
  assert np.all(noisy() != noisy(noise_seed=(1 << 32) - 1))


def in_a_grid(folder):
  grid = {"max_norm": [0.1, 0.5], "noise_multiplier": [0.0, 1.0]}
  result = cases.TASK.sweep(seeded, grid, rounds=3, **FIXED)
  return trees.take(result.params, 3)


def resumed(folder):
  part = lambda rounds, **options: run(
    seeded(0.5, 1.0),
    rounds,
    FIXED,
    checkpoints=fo.Checkpoints(folder / "run", every=1, **options),
  )
  part(1)
  return part(3, resume=True).params


@pytest.mark.slow
@pytest.mark.parametrize(
  "params_of",
  [
    lambda _: run(seeded(0.5, 1.0), 3, FIXED).params,
    lambda _: run(seeded(0.5, 1.0), 3, FIXED | {"client_chunk": 5}).params,
    in_a_grid,
    resumed,
  ],
  ids=["again", "in one chunk", "in a grid", "resumed"],
)
def test_seeded_noise_is_the_same(params_of, tmp_path):
  np.testing.assert_allclose(
    cases.flat(params_of(tmp_path)), noisy(), rtol=1e-5, atol=1e-6
  )


@pytest.mark.slow
def test_a_resumed_run_goes_on_with_new_noise(tmp_path):
  def part(folder, rounds, resume):
    checkpoints = fo.Checkpoints(tmp_path / folder, every=1, resume=resume)
    return cases.flat(
      run(still(), rounds, FIXED, checkpoints=checkpoints).params
    )

  halfway = part("one", 2, resume=False)
  shutil.copytree(tmp_path / "one", tmp_path / "two")
  first, second = (part(name, 4, resume=True) for name in ("one", "two"))
  assert np.all(first != halfway)
  assert np.all(first != second)


def test_a_checkpoint_holds_no_key(tmp_path, monkeypatch):
  keys = []

  def entropy(shape):
    keys.append(np.frombuffer(os.urandom(4 * math.prod(shape)), np.uint32))
    return keys[-1].reshape(shape)

  monkeypatch.setattr(multi_process, "random_words", entropy)
  saved_about = {}
  for name, algorithm in (("secret", still()), ("seeded", seeded())):
    folder = tmp_path / name
    checkpoints = fo.Checkpoints(folder, every=1)
    run(algorithm, 2, FIXED, checkpoints=checkpoints)
    with np.load(folder / "2.npz") as file:
      saved_about[name] = json.loads(file["about"].tobytes()), file.files
  assert len(keys) == 2  # One for each segment, none for seeded noise.
  (secret, names), (seeded_about, names_seeded) = saved_about.values()
  assert secret["shapes"] == seeded_about["shapes"]
  assert names == names_seeded
  files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
  for words in keys:
    assert not any(words.tobytes() in content for content in files)


def test_all_processes_have_the_same_noise(monkeypatch):
  of_first = np.arange(6, dtype=np.uint32).reshape(3, 2)
  words_given = []

  def from_first(words):
    words_given.append(words)
    return of_first

  monkeypatch.setattr(multihost_utils, "broadcast_one_to_all", from_first)
  monkeypatch.setattr(jax, "process_count", lambda: 2)
  np.testing.assert_array_equal(multi_process.random_words((3, 2)), of_first)
  assert words_given[0].shape == (3, 2)
  assert not np.array_equal(words_given[0], of_first)


def reading_key():
  """Adds a number of the secret key."""

  def round(state, cohort):
    one_client = lambda worker, x: optax.tree.zeros_like(x)
    reply = cohort.mean(one_client, state)
    bits = jax.random.key_data(cohort.secret_key)
    number = bits[0].astype(float) * 1e-9
    return jax.tree.map(lambda leaf: leaf + number, state), reply

  return fo.Algorithm(lambda params: params, round, lambda s: s)


@pytest.mark.slow
def test_how_many_came_is_not_used():
  """FedDyn's h, without noise: the mean over the population of all g_i."""
  inner = fo.fed_dyn(cases.loss_fn, optax.sgd(LR), alpha=0.1)
  algorithm = privacy.with_privacy(inner, 1e3, 0.0)
  result = run(algorithm, 6, POISSON, weighting="uniform")
  states = cases.flat(result.client_state, lead=1)
  assert np.any(states)
  np.testing.assert_allclose(
    cases.flat(result.state.h), states.sum(0) / M, rtol=1e-4, atol=1e-6
  )


# Epsilon.


@pytest.mark.parametrize("z", [0.8, 6.0])
def test_epsilon_of_all_clients_is_that_of_the_gaussian(z):
  delta = 1e-4

  def off(epsilon):  # Balle and Wang, ICML 2018, theorem 8.
    first = stats.norm.cdf(1 / (2 * z) - epsilon * z)
    second = stats.norm.cdf(-1 / (2 * z) - epsilon * z)
    return first - math.exp(epsilon) * second - delta

  expected = optimize.brentq(off, 0, 50)
  # R rounds are one of z / sqrt(R).
  actual = privacy.epsilon(z * 3, 9, 50, 50, delta)
  assert actual == pytest.approx(expected, rel=2e-3)
  # The Rényi bound is above, of a sum that changes twice as much.
  bound = privacy.epsilon(2 * z, 1, 50, 50, delta, sampling="uniform")
  assert expected < bound < 2.5 * expected


def test_epsilon_is_the_accountant_s():
  about = {"num_clients": 100, "cohort_size": 5, "delta": 1e-5}
  poisson = dp_accounting.PoissonSampledDpEvent(
    0.05, dp_accounting.GaussianDpEvent(4.0)
  )
  accountant = dp_accounting.pld.PLDAccountant().compose(poisson, 10)
  expected = accountant.get_epsilon(1e-5)
  assert privacy.epsilon(4.0, 10, **about) == pytest.approx(expected)
  # Places that are never full change little; few cost privacy.
  wide = privacy.epsilon(4.0, 10, **about, places=20)
  assert wide == pytest.approx(expected, rel=1e-4)
  assert privacy.epsilon(4.0, 10, **about, places=5) > 1.3 * expected

  replaced = dp_accounting.NeighboringRelation.REPLACE_ONE
  accountant = dp_accounting.rdp.RdpAccountant(neighboring_relation=replaced)
  event = dp_accounting.SampledWithoutReplacementDpEvent(
    100, 5, dp_accounting.GaussianDpEvent(4.0 / 2)
  )
  expected = accountant.compose(event, 10).get_epsilon(1e-5)
  actual = privacy.epsilon(4.0, 10, **about, sampling="uniform")
  assert actual == pytest.approx(expected)


@pytest.mark.parametrize("sampling", ["poisson", "uniform"])
def test_epsilon_without_noise_and_without_rounds(sampling):
  about = (100, 10, 1e-5)
  assert privacy.epsilon(0.0, 5, *about, sampling=sampling) == math.inf
  assert privacy.epsilon(1.0, 0, *about, sampling=sampling) == 0
  first, second = (privacy.epsilon(5.0, r, *about) for r in (1, np.int64(1)))
  assert 0 < first == second


@pytest.mark.slow
def test_epsilon_of_little_noise_is_that_of_small_steps():
  event = dp_accounting.PoissonSampledDpEvent(
    0.1, dp_accounting.GaussianDpEvent(0.5)
  )
  accountant = dp_accounting.pld.PLDAccountant().compose(event, 30)
  actual = privacy.epsilon(0.5, 30, 300, 30, 1e-5)
  assert actual == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-5)
  # And of next to none, without filling the memory.
  assert privacy.epsilon(0.01, 30, 300, 30, 1e-5) > 1e4


@pytest.mark.slow
def test_calibrated_noise_has_that_epsilon():
  about = (10, 20, 2, 1e-3)
  z = privacy.calibrated_noise(0.2, *about)
  assert privacy.epsilon(z, *about) <= 0.2
  assert privacy.epsilon(z - 5e-3, *about) > 0.2


# Bad input.


def reading_each():
  def round(state, cohort):
    one_client = lambda worker, x: optax.tree.zeros_like(x)
    return state, cohort.each(one_client, state)

  return fo.Algorithm(
    lambda params: params, round, lambda s: s, sends=lambda params: [params]
  )


def epsilon_of(**options):
  about = {"noise_multiplier": 1.0, "rounds": 1, "num_clients": 10}
  return privacy.epsilon(**about | {"cohort_size": 5, "delta": 1e-5} | options)


test_is_refused = refusals.of_table(
  "privacy.txt", privacy, cases, private, seeded, run, reading_key,
  reading_each, epsilon_of, FIXED=FIXED,
)  # fmt: skip


@pytest.mark.parametrize(
  ("name", "make"),
  [
    ("jax_privacy", private),
    ("dp_accounting", lambda: privacy.epsilon(1.0, 1, 10, 5, 1e-5)),
  ],
)
def test_what_is_not_installed_is_named(name, make, monkeypatch):
  monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
  line = f"privacy needs {name}: pip install 'fedjax_opt[privacy]'"
  with pytest.raises(ImportError, match=re.escape(line)):
    make()
