"""SARAH and BVR-L-SGD against the reference.

As in cases.py, clients differ in size and one owns nothing, three of five take
part in a round, last batches are partial, and two clients are computed side by
side, so that a place is filled up with no client.
"""

import functools
import math
import types
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_opt.algorithms import bvr_l_sgd, minibatch_sarah, scaffold
from fedjax_opt.data.clients import ClientData
from fedjax_opt.engine.config import Config
from tests import reference
from tests.helpers import cases, jax_problems
from tests.helpers.jax_problems import assert_close, flat

SIZES = (40, 26, 3, 50, 0)
TASK = jax_problems.softmax(sizes=SIZES)
OPTIONS = {
  "cohort_size": 3,
  "client_chunk": 2,
  "batch_size": 4,
  "local_epochs": 0.2,  # 2, 2, 1, 3 and 0 steps
}
ROUNDS = 7
# b~ of the sampled large gradient, and T with it and with the exact one, whose
# b~ is the mean size of a client, 23.8.
LARGE, SAMPLED_STAGE, EXACT_STAGE = 10, 2, 3
rate = cases.rate

CASES = {
  "minibatch_sarah": minibatch_sarah,
  "bvr_l_sgd": bvr_l_sgd,
  "bvr_l_sgd, sampled": functools.partial(bvr_l_sgd, large_batch=LARGE),
  "bvr_l_sgd, theory": functools.partial(bvr_l_sgd, practical=False),
}


# ------------------------------------------------------------ What was drawn


class Drawn(NamedTuple):
  """What the package draws in ROUNDS rounds, as the referee takes it."""

  first: list  # the rounds of the first phase
  shared: list
  own: list
  sampled: list  # of the large gradient
  picks: list
  k_hats: list
  uniforms: np.ndarray  # [R, 2]


@functools.cache
@jax.enable_x64(True)
def drawn(weighting="examples"):
  config = Config.create(TASK.data, OPTIONS | {"weighting": weighting})
  phases = jax_problems.drawn_phases(config, TASK.data, 0, ROUNDS, 3)
  all_rows = np.arange(sum(SIZES))
  data = jax.device_put(
    ClientData({"x": np.eye(sum(SIZES))}, TASK.data.indices, TASK.data.sizes)
  )

  def counts(worker, zeros):
    """How often each example is in the client's sample."""
    reward = lambda params, batch, rng: batch["x"] @ params
    return LARGE * worker.sample_gradient(reward, zeros, LARGE)

  def k_hat(worker, _):
    most = worker.num_steps
    return jax.random.randint(worker.key, (), 0, most, jnp.int32) + 1

  @jax.jit
  def other_draws(round):
    cohort = jax_problems.cohort_of(config, data, jax.random.key(0), round)
    sampled = cohort.each(counts, jnp.zeros(sum(SIZES))).value
    pick = cohort.pick(lambda worker, _: worker.client, (), phase=2).value
    k = cohort.each(k_hat, (), phase=2).value
    return sampled, pick, k, jax.random.uniform(cohort.key, (2,), jnp.float32)

  sampled, picks, k_hats, uniforms = [], [], [], []
  for r, of_round in enumerate(phases[0]):
    times, pick, k, u = jax.device_get(other_draws(jnp.int32(r)))
    rows = [[np.repeat(all_rows, np.round(t).astype(int))] for t in times]
    sampled.append(of_round._replace(batches=rows))
    picks.append(of_round.clients.index(pick))
    k_hats.append(k)
    uniforms.append(u)
  return Drawn(*phases, sampled, picks, k_hats, np.array(uniforms))


@pytest.mark.slow
def test_what_was_drawn_reaches_every_case():
  rounds = drawn()
  assert len({client for r in rounds.first for client in r.clients}) == 5
  steps = {len(steps) for r in rounds.shared for steps in r.batches}
  assert steps == {0, 1, 2, 3}
  pairs = zip(rounds.first, rounds.picks, strict=True)
  assert len({r.clients[pick] for r, pick in pairs}) > 2
  # The large gradient is of as many examples as asked for, all the client's.
  sampled_rows = []
  for clients, batches, _ in rounds.sampled:
    for client, (rows,) in zip(clients, batches, strict=True):
      assert len(rows) == (LARGE if SIZES[client] else 0)
      assert set(rows) <= set(TASK.problem.client_rows[client])
      sampled_rows.extend(rows)
  assert len(set(sampled_rows)) > 0.4 * sum(SIZES)


# ----------------------------------------------------- Against the NumPy loops


def trajectory(algorithm, task, rounds=ROUNDS, **options):
  """The states after each round, leaves [R + 1, ...].

  What clients keep is `controls` among them.
  """
  states = cases.run(algorithm, task, rounds, **options)
  server, clients = jax.tree.map(lambda *leaves: np.stack(leaves), *states)
  return types.SimpleNamespace(**server._asdict(), controls=clients)


def whole(problem, rounds):
  """Rounds in which clients take the gradient of all that they have."""
  return [
    r._replace(batches=[[problem.client_rows[i]] for i in r.clients])
    for r in rounds
  ]


FIELDS = "params", "direction"


def looped(case, draws):
  """{field of the state: [R, ...]}, by the referee."""
  problem, large, stage = TASK.problem, draws.sampled, SAMPLED_STAGE
  if "sampled" not in case:
    large, stage = whole(problem, draws.first), EXACT_STAGE
  rounds = (problem, draws.shared, draws.own, large, draws.picks)
  how = {"rate": rate, "stage_length": stage}
  if "theory" not in case:
    if case == "minibatch_sarah":
      looped = reference.minibatch_sarah(problem, draws.shared, large, **how)
    else:
      looped = reference.bvr_l_sgd(*rounds, **how)
    return dict(zip(FIELDS, zip(*looped, strict=True), strict=True))
  t_hats, s_hats = drawn_outputs(draws.uniforms, stage)
  xs, outs = reference.bvr_l_sgd_theory(*rounds, draws.k_hats, t_hats, **how)
  outs = [problem.x0, *outs]
  run = [outs[s_hats[(r + 1) // stage]] for r in range(len(xs))]
  return {"params": xs, "output.run": run}


def drawn_outputs(uniforms, stage_length):
  """t^ of each stage, and s^ after each number of stages, of reservoirs.

  The t-th of a stage is kept with probability 1 / t, over what was kept.
  """
  t_hats, s_hats, num_stages = [], [0], len(uniforms) // stage_length
  for s in range(num_stages):
    draws = uniforms[s * stage_length : (s + 1) * stage_length]
    rounds = [t for t in range(1, stage_length + 1) if draws[t - 1, 0] < 1 / t]
    t_hats.append(rounds[-1])
    is_taken = draws[-1, 1] < 1 / (s + 1)
    s_hats.append(s + 1 if is_taken else s_hats[-1])
  return t_hats, s_hats


@pytest.mark.parametrize("case", CASES)
@pytest.mark.default_cases("bvr_l_sgd, sampled")
def test_equals_the_loop_in_every_round(case):
  weighting = "uniform" if "theory" in case else "examples"
  with jax.enable_x64(True):
    algorithm = CASES[case](TASK.loss_fn, rate)
    states = trajectory(algorithm, TASK, **OPTIONS, weighting=weighting)
  for field, values in looped(case, drawn(weighting)).items():
    state = states.output if field == "output.run" else states
    actual = flat(getattr(state, field.removeprefix("output.")), 1)
    # The theory's loop ends with the last whole stage.
    actual = actual[1 : len(values) + 1]
    assert_close(actual, np.array(values), 1e-10)
  assert np.linalg.norm(flat(states.params, 1)[-1] - TASK.problem.x0) > 0.1


@pytest.mark.slow
@pytest.mark.parametrize(("large_batch", "stage"), [(9, 3), (40, 6)])
def test_a_stage_has_the_length_of_algorithm_4(large_batch, stage):
  """T = ceil(1 + b~ / (K B)), also with b~ above a client's mean size, 23.8."""
  algorithm = minibatch_sarah(TASK.loss_fn, 0.1, large_batch=large_batch)
  result = TASK.simulate(algorithm, rounds=12, batch_size=4, local_steps=2)
  bytes_up = result.cost["stage_start_bytes_up_per_round"]
  model = 4 * len(TASK.problem.x0)
  assert bytes_up == pytest.approx(model * math.ceil(12 / stage) / 12)


EQUAL = jax_problems.softmax(sizes=(12, 12, 12))


def test_without_a_rate_scaffold_does_not_move():
  """0 / 0 in option II."""
  algorithm = scaffold(EQUAL.loss_fn, lambda r: 0.1 * (r > 1))
  states = trajectory(algorithm, EQUAL, 3, batch_size=4)
  points, controls = flat(states.params, 1), flat(states.controls, 2)
  assert np.all(points[2] == points[0])
  assert np.all(controls[:3] == 0)
  assert np.isfinite(points).all()
  assert np.all(np.any(controls[3] != 0, axis=1))
