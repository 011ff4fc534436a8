"""Differential privacy: what is clipped and added, and what it is worth."""

import itertools
import json
import math
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import optimize, stats

import fedjax_opt as fo
from fedjax_opt import privacy, processes
from fedjax_opt.engine import programs
from tests.user_algorithms import draws

LR = 0.3
SETTINGS = {"batch_size": 4, "local_epochs": 1.5}
POISSON = SETTINGS | {"cohort_size": 5, "sampler": fo.samplers.poisson(3.0)}
FIXED = SETTINGS | {"cohort_size": 5, "client_dropout": 0.3, "client_chunk": 2}
M = len(draws.SIZES)


def private(max_norm=0.2, noise_multiplier=0.0, client=None, noise_seed=None):
  inner = fo.fed_avg(draws.loss_fn, client or optax.sgd(LR))
  return privacy.with_privacy(inner, max_norm, noise_multiplier, noise_seed)


def seeded(max_norm=0.2, noise_multiplier=0.0, noise_seed=0):
  """Of numbers that are compared: the noise can be made again."""
  return private(max_norm, noise_multiplier, noise_seed=noise_seed)


def still(noise_multiplier=1.0, max_norm=0.5):
  """Clients that do not move: the model is a sum of the noise."""
  return private(max_norm, noise_multiplier, optax.sgd(0.0))


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
  empty = [r for r, c in enumerate(draws.draw(60, **POISSON).cohorts) if not c]
  assert empty
  assert np.all(steps[:, empty[0]] != 0)


def test_the_noise_is_new_in_each_run_of_the_same_program():
  programs.clear()
  found, known = [], []
  for _ in range(2):
    found.append(run(still(), 2, FIXED).params)
    known.append(set(programs._known))
  assert np.all(draws.flat(found[0]) != draws.flat(found[1]))
  assert known[0] == known[1]  # Nothing of the noise is in a program.
  simulator = fo.Simulator(still(), draws.client_data(), **FIXED)
  start = simulator.init(draws.PARAMS)
  # A state from which two runs go on, and one that goes on twice.
  first, second = (simulator.run(start, 1)[0] for _ in range(2))
  third, _ = simulator.run(first, 1)
  x0, a, b, c = (
    draws.flat(simulator.params(s)) for s in (start, first, second, third)
  )
  assert np.all(a != b)
  assert np.all(a - x0 != c - a)


@pytest.mark.parametrize(
  "how", [{"grid_map": "scan"}, {"grid_map": "vmap", "grid_chunk": 2}]
)
def test_each_point_of_a_grid_has_noise_of_its_own(how):
  scales = [1.0, 2.0, 4.0]
  result = fo.sweep(
    still,
    {"noise_multiplier": scales},
    draws.PARAMS,
    draws.client_data(),
    rounds=1,
    seeds=[0, 1],
    **FIXED | how,
  )
  moved = draws.flat(result.params, lead=1) - draws.flat(draws.PARAMS)
  noise = moved / np.repeat(scales, 2)[:, None]  # [S, leaves]
  for i, j in itertools.combinations(range(len(noise)), 2):
    # A few of independent numbers may be close by chance.
    assert np.sum(np.isclose(noise[i], noise[j], rtol=1e-3)) < 5
  # 6 points of 13 numbers are a sample of one distribution.
  assert 0.5 < noise.std() / (0.5 / 5) < 1.5


def test_seeded_noise_is_of_its_seed_the_run_s_and_the_round():
  of = lambda seed, noise_seed: draws.flat(
    run(seeded(0.5, 1.0, noise_seed), 2, FIXED, seed=seed).params
  )
  one = of(0, 0)
  np.testing.assert_array_equal(one, of(0, 0))
  assert np.all(one != of(1, 0))
  assert np.all(one != of(0, 1))
  assert np.all(one != of(0, (1 << 32) - 1))


@pytest.mark.parametrize(
  "other", [{"client_chunk": 5}, {"client_chunk": 1}, {"client_map": "scan"}]
)
def test_seeded_noise_does_not_depend_on_chunks(other):
  expected = run(seeded(0.5, 1.0), 3, FIXED).params
  settings = {n: v for n, v in FIXED.items() if n != "client_chunk"}
  found = run(seeded(0.5, 1.0), 3, settings, **other).params
  np.testing.assert_allclose(
    draws.flat(found), draws.flat(expected), rtol=1e-5, atol=1e-6
  )


def test_clients_on_disk_have_the_same_seeded_noise(tmp_path):
  fo.Population.of_client_data(tmp_path / "clients", draws.client_data())
  population = fo.Population.open(tmp_path / "clients")
  expected = run(seeded(0.5, 1.0), 3, FIXED).params
  found = fo.simulate(
    seeded(0.5, 1.0), draws.PARAMS, population, rounds=3, **FIXED
  )
  np.testing.assert_allclose(
    draws.flat(found.params), draws.flat(expected), rtol=1e-5, atol=1e-6
  )
  one, other = (
    fo.simulate(still(), draws.PARAMS, population, rounds=3, **FIXED).params
    for _ in range(2)
  )
  assert np.all(draws.flat(one) != draws.flat(other))


@pytest.mark.parametrize("noise_seed", [None, 0])
def test_a_resumed_run_goes_on_with_new_noise_unless_it_is_seeded(
  noise_seed, tmp_path
):
  algorithm = private(0.5, 1.0, optax.sgd(0.0), noise_seed)

  def part(folder, rounds, resume):
    checkpoints = fo.Checkpoints(folder, every=1, resume=resume)
    found = run(algorithm, rounds, FIXED, checkpoints=checkpoints)
    return draws.flat(found.params)

  half = part(tmp_path / "one", 2, resume=False)
  shutil.copytree(tmp_path / "one", tmp_path / "two")
  one, two = (part(tmp_path / n, 4, resume=True) for n in ("one", "two"))
  assert np.all(one != half)
  if noise_seed is None:
    assert np.all(one != two)
  else:
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(
      one, draws.flat(run(algorithm, 4, FIXED).params)
    )


def test_a_checkpoint_holds_no_key(tmp_path, monkeypatch):
  drawn = []

  def entropy(shape):
    drawn.append(np.frombuffer(os.urandom(4 * math.prod(shape)), np.uint32))
    return drawn[-1].reshape(shape)

  monkeypatch.setattr(processes, "entropy", entropy)
  saved = {}
  for name, algorithm in (("secret", still()), ("seeded", seeded())):
    folder = tmp_path / name
    checkpoints = fo.Checkpoints(folder, every=1)
    run(algorithm, 2, FIXED, checkpoints=checkpoints)
    (about,) = folder.glob("2/about.json")
    with np.load(about.with_name("record.npz")) as record:
      saved[name] = json.loads(about.read_text()), record.files
  assert len(drawn) == 2  # One for each segment, none for seeded noise.
  (secret, names), (seeded_about, names_seeded) = saved.values()
  assert secret["shapes"] == seeded_about["shapes"]
  assert names == names_seeded
  contents = [
    path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
  ]
  for words in drawn:
    assert not any(words.tobytes() in content for content in contents)


PROCESS = """
import sys
import jax
jax.distributed.initialize("localhost:" + sys.argv[1], 2, int(sys.argv[2]))
from tests import test_privacy as here
for algorithm in (here.still(), here.still()):
  found = here.run(algorithm, 3, here.FIXED, eval_every=2)
  print(here.draws.flat(found.params).tobytes().hex())
"""


@pytest.mark.slow
def test_all_processes_have_the_same_noise():
  with socket.socket() as free:
    free.bind(("localhost", 0))
    port = free.getsockname()[1]
  processes = [
    subprocess.Popen(
      [sys.executable, "-c", PROCESS, str(port), str(i)],
      cwd=pathlib.Path(__file__).parents[1],
      env=os.environ | {"JAX_PLATFORMS": "cpu"},
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )
    for i in range(2)
  ]
  outputs = [process.communicate(timeout=300) for process in processes]
  assert [p.returncode for p in processes] == [0, 0], outputs
  one, other = (out.split()[-2:] for out, _ in outputs)  # After Gloo's line.
  assert one == other
  assert one[0] != one[1]  # Two runs.


def test_an_algorithm_says_that_it_draws_secretly():
  def round(state, cohort):
    one_client = lambda worker, x: optax.tree.zeros_like(x)
    reply = cohort.mean(one_client, state)
    bits = jax.random.key_data(cohort.secret_key)
    number = bits[0].astype(float) * 1e-9
    return jax.tree.map(lambda leaf: leaf + number, state), reply

  make = lambda says: fo.Algorithm(
    lambda params, _: params, round, lambda s: s, has_secret_noise=says
  )
  one, other = (run(make(True), 1, FIXED).params for _ in range(2))
  assert np.all(draws.flat(one) != draws.flat(other))
  message = "round: reads cohort.secret_key; give the algorithm "
  with pytest.raises(ValueError, match=message):
    run(make(False), 1, FIXED)


def test_a_grid_over_both_numbers_equals_its_points():
  whole = fo.sweep(
    seeded,
    {"max_norm": [0.1, 0.5], "noise_multiplier": [0.0, 1.0]},
    draws.PARAMS,
    draws.client_data(),
    rounds=3,
    **FIXED,
  )
  one = run(seeded(0.5, 1.0), 3, FIXED)
  np.testing.assert_allclose(
    whole.params["kernel"][3], one.params["kernel"], rtol=1e-5, atol=1e-6
  )


def test_how_many_came_is_not_used():
  """FedDyn's h, without noise: the mean over the population of all g_i."""
  inner = fo.fed_dyn(draws.loss_fn, optax.sgd(LR), alpha=0.1)
  algorithm = privacy.with_privacy(inner, 1e3, 0.0)
  result = run(algorithm, 6, POISSON, weighting="uniform")
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


def test_epsilon_of_little_noise_is_that_of_small_steps():
  z = 0.5
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
