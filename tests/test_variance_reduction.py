"""SARAH and BVR-L-SGD against the loops, and what is proved of them.

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

from fedjax_opt import Algorithm
from fedjax_opt.algorithms import bvr_l_sgd, minibatch_sarah, scaffold
from fedjax_opt.algorithms.bvr_l_sgd import Output, _next_output
from fedjax_opt.data import synthetic
from fedjax_opt.data.clients import ClientData
from fedjax_opt.engine.cohort import MAX_PHASES
from fedjax_opt.engine.config import Config
from fedjax_opt.rules.sarah import sarah
from tests import cases, jax_problems, reference
from tests import reference_variance_reduction as loops
from tests.jax_problems import assert_close, flat
from tests.refusals import refusal
from tests.rules import training

SIZES = (40, 26, 3, 50, 0)
TASK = jax_problems.softmax(sizes=SIZES)
SETTINGS = {
  "cohort_size": 3,
  "client_chunk": 2,
  "batch_size": 4,
  "local_epochs": 0.2,  # 2, 2, 1, 3 and 0 steps
}
C, ROUNDS = 3, 7
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
  config = Config.create(TASK.data, SETTINGS | {"weighting": weighting})
  phases = jax_problems.drawn_phases(config, TASK.data, 0, ROUNDS, 3)
  everything = np.arange(sum(SIZES))
  data = jax.device_put(
    ClientData({"x": np.eye(sum(SIZES))}, TASK.data.indices, TASK.data.sizes)
  )

  def counts(worker, zeros):
    """How often each example is in the client's sample."""
    reward = lambda params, batch, rng: batch["x"] @ params
    return LARGE * worker.sample_gradient(reward, zeros, LARGE)

  def k_hat(worker, _):
    return jax.random.randint(worker.key, (), 0, worker.num_steps) + 1

  @jax.jit
  def others(round):
    cohort = jax_problems.cohort_of(config, data, jax.random.key(0), round)
    sampled = cohort.each(counts, jnp.zeros(sum(SIZES))).value
    pick = cohort.pick(lambda worker, _: worker.client, (), phase=2).value
    k = cohort.each(k_hat, (), phase=2).value
    return sampled, pick, k, jax.random.uniform(cohort.key, (2,))

  sampled, picks, k_hats, uniforms = [], [], [], []
  for r, of_round in enumerate(phases[0]):
    times, pick, k, u = jax.device_get(others(jnp.int32(r)))
    rows = [[np.repeat(everything, np.round(t).astype(int))] for t in times]
    sampled.append(of_round._replace(batches=rows))
    picks.append(of_round.clients.index(pick))
    k_hats.append(k)
    uniforms.append(u)
  return Drawn(*phases, sampled, picks, k_hats, np.array(uniforms))


def test_what_was_drawn_reaches_every_case():
  rounds = drawn()
  assert len({client for r in rounds.first for client in r.clients}) == 5
  steps = {len(steps) for r in rounds.shared for steps in r.batches}
  assert steps == {0, 1, 2, 3}
  pairs = zip(rounds.first, rounds.picks, strict=True)
  assert len({r.clients[pick] for r, pick in pairs}) > 2
  # The large gradient is of as many examples as asked for, all the client's.
  seen = []
  for clients, batches, _ in rounds.sampled:
    for client, (rows,) in zip(clients, batches, strict=True):
      assert len(rows) == (LARGE if SIZES[client] else 0)
      assert set(rows) <= set(TASK.problem.client_rows[client])
      seen.extend(rows)
  assert len(set(seen)) > 0.4 * sum(SIZES)


# ----------------------------------------------------- Against the NumPy loops


def trajectory(algorithm, task, rounds=ROUNDS, **settings):
  """The states after each round, leaves [R + 1, ...].

  What clients keep is `controls` among them.
  """
  each = cases.run(algorithm, task, rounds, **settings)
  server, clients = jax.tree.map(lambda *leaves: np.stack(leaves), *each)
  return types.SimpleNamespace(**server._asdict(), controls=clients)


@functools.cache
def compiled(case, weighting="examples"):
  with jax.enable_x64(True):
    algorithm = CASES[case](TASK.loss_fn, rate)
    return trajectory(algorithm, TASK, **SETTINGS, weighting=weighting)


def whole(problem, rounds):
  """Rounds in which clients take the gradient of all that they have."""
  return [
    r._replace(batches=[[problem.client_rows[i]] for i in r.clients])
    for r in rounds
  ]


FIELDS = "params", "direction"


def looped(case, given):
  """{field of the state: [R, ...]}, by the referee."""
  problem, large, stage = TASK.problem, given.sampled, SAMPLED_STAGE
  if "sampled" not in case:
    large, stage = whole(problem, given.first), EXACT_STAGE
  if case == "minibatch_sarah":
    looped = loops.minibatch_sarah(problem, given.shared, large, rate, stage)
    return dict(zip(FIELDS, zip(*looped, strict=True), strict=True))
  rounds = (problem, given.shared, given.own, large, given.picks)
  if "theory" not in case:
    looped = loops.bvr_l_sgd(*rounds, rate, stage)
    return dict(zip(FIELDS, zip(*looped, strict=True), strict=True))
  t_hats, s_hats = drawn_outputs(given.uniforms, stage)
  xs, outs = loops.bvr_l_sgd_theory(*rounds, given.k_hats, t_hats, rate, stage)
  outs = [problem.x0, *outs]
  run = [outs[s_hats[(r + 1) // stage]] for r in range(len(xs))]
  return {"params": xs, "output.run": run}


def drawn_outputs(uniforms, stage_length):
  """t^ of each stage, and s^ after each number of stages, of reservoirs.

  The t-th of a stage is kept with probability 1 / t, over what was kept.
  """
  t_hats, s_hats, num_stages = [], [0], len(uniforms) // stage_length
  for s in range(num_stages):
    own = uniforms[s * stage_length : (s + 1) * stage_length]
    kept = [t for t in range(1, stage_length + 1) if own[t - 1, 0] < 1 / t]
    t_hats.append(kept[-1])
    taken = own[-1, 1] < 1 / (s + 1)
    s_hats.append(s + 1 if taken else s_hats[-1])
  return t_hats, s_hats


@pytest.mark.parametrize("case", CASES)
def test_equals_the_loop_in_every_round(case):
  weighting = "uniform" if "sampled" in case else "examples"
  states = compiled(case, weighting)
  for field, values in looped(case, drawn(weighting)).items():
    where = states.output if field == "output.run" else states
    found = flat(getattr(where, field.removeprefix("output.")), 1)
    # The theory's loop ends with the last whole stage.
    found = found[1 : len(values) + 1]
    assert_close(found, np.array(values), 1e-10)
  assert np.linalg.norm(flat(states.params, 1)[-1] - TASK.problem.x0) > 0.1


@pytest.mark.parametrize(("large_batch", "stage"), [(9, 3), (40, 6)])
def test_a_stage_has_the_length_of_algorithm_4(large_batch, stage):
  """T = ceil(1 + b~ / (K B)), also with b~ above a client's mean size, 23.8."""
  algorithm = minibatch_sarah(TASK.loss_fn, 0.1, large_batch=large_batch)
  result = TASK.simulate(algorithm, rounds=12, batch_size=4, local_steps=2)
  sent = result.cost["stage_start_bytes_up_per_round"]
  model = 4 * len(TASK.problem.x0)
  assert sent == pytest.approx(model * math.ceil(12 / stage) / 12)


# -------------------------------------------------------------- BVR-L-SGD 3f


PROBLEM = synthetic.heterogeneous(
  0.4, dim=4, num_clients=4, examples_per_client=6, condition=4.0
)
POOL = {name: np.float64(leaf) for name, leaf in PROBLEM.data.examples.items()}


def mean_loss(rows, x):
  """Of some rows of the pool."""
  batch = {name: jnp.asarray(leaf)[rows] for name, leaf in POOL.items()}
  return jnp.mean(PROBLEM.loss_fn(x, batch))


gradient = jax.grad(mean_loss, argnums=1)
ROWS = PROBLEM.data.indices  # [4, 6]
full = functools.partial(gradient, ROWS.ravel())


def test_p1_bias_of_a_local_difference():
  """Lemma A.2: at most zeta ||x - y||."""
  points = np.random.default_rng(0).normal(size=(2, 50, 4))
  with jax.enable_x64(True):

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, None))
    @functools.partial(jax.vmap, in_axes=(None, 0))
    def bias(rows, points):
      x, y = points
      own = gradient(rows, x) - gradient(rows, y)
      return own - (full(x) - full(y))

    found = bias(ROWS, np.swapaxes(points, 0, 1))  # [4, 50, d]
  # Half of it is reached: a client is that far from the mean of all.
  reached = PROBLEM.zeta / 2 * np.linalg.norm(points[0] - points[1], axis=1)
  norms = np.linalg.norm(found, axis=-1)
  assert np.all(norms <= 2 * reached + 1e-12)
  np.testing.assert_allclose(norms[-1], reached, atol=1e-12)


def local_path(loss, x0, v0, rate, num_steps):
  """Points x_0 to x_K and v_1 to v_K, by the rule alone."""
  xs, states = training.path(sarah(rate, direction=v0), loss, x0, num_steps)
  return xs, states.direction


def test_p2_full_local_gradients_telescope():
  with jax.enable_x64(True):
    x0, own = jnp.array([0.4, -1.5, 0.2, 2.0]), ROWS[2]

    @jax.jit
    def path(x0):
      loss = lambda k, x: mean_loss(own, x)
      xs, vs = local_path(loss, x0, full(x0), 0.05, 12)
      telescoped = jax.vmap(lambda x: gradient(own, x) - gradient(own, x0))(xs)
      return xs, vs, telescoped + full(x0), jax.vmap(full)(xs)

    xs, vs, telescoped, grads = path(x0)
  np.testing.assert_allclose(vs, telescoped[:-1], atol=1e-13)
  errors = np.linalg.norm(vs - grads[:-1], axis=1)
  moved = np.linalg.norm(xs - x0, axis=1)
  assert np.all(errors <= PROBLEM.zeta * moved[:-1] + 1e-13)
  assert moved[-1] > 0.2


# Three clients of 12; all of a kind, in data of the same shapes.
EQUAL = jax_problems.softmax(sizes=(12, 12, 12))
ALL_ROWS = np.concatenate(EQUAL.problem.client_rows)
_first, *_others = EQUAL.problem.client_rows
_source = np.arange(36)
for _rows in _others:
  _source[_rows] = _first
IDENTICAL = jax_problems.softmax(sizes=(12, 12, 12))
IDENTICAL.problem.examples = {
  name: leaf[_source] for name, leaf in EQUAL.problem.examples.items()
}


def test_p3_p4_one_local_step():
  """P4: it is minibatch SARAH.

  P3: in the first round of a stage, here of four, first differences vanish:
  neither batches nor the pick matter.
  """
  settings = {"batch_size": 4, "local_steps": 1, "cohort_size": 2}
  with jax.enable_x64(True):
    states, other = (
      trajectory(algorithm(EQUAL.loss_fn, 0.3), EQUAL, 6, **settings)
      for algorithm in (CASES["bvr_l_sgd, theory"], minibatch_sarah)
    )
    config = Config.create(EQUAL.data, settings)
    rounds = jax_problems.drawn_rounds(config, EQUAL.data, 0, 6)
  xs, vs = flat(states.params, 1), flat(states.direction, 1)
  close = functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-13)
  close(xs, flat(other.params, 1))
  close(vs, flat(other.direction, 1))
  for r in (0, 4):
    rows = [EQUAL.problem.client_rows[i] for i in rounds[r].clients]
    close(vs[r + 1], EQUAL.problem.gradient(xs[r], np.concatenate(rows))[1])
    close(xs[r + 1], xs[r] - 0.3 * vs[r + 1])
    # The only local step is the random one.
    close(flat(states.output.stage, 1)[r + 1], xs[r + 1])


# Every batch is all that a client has.
EXACT = {"batch_size": 12, "local_steps": 3}


def test_p5_full_gradients():
  """They make the estimate exact.

  And on identical workers it is gradient descent, K steps a round.
  """
  with jax.enable_x64(True):
    algorithm = bvr_l_sgd(EQUAL.loss_fn, 0.3)
    states = trajectory(algorithm, EQUAL, 4, **EXACT)
    identical = trajectory(algorithm, IDENTICAL, 4, **EXACT)
  xs, vs = flat(states.params, 1), flat(states.direction, 1)
  grads = [EQUAL.problem.gradient(x, ALL_ROWS)[1] for x in xs[:-1]]
  np.testing.assert_allclose(vs[1:], grads, rtol=0, atol=1e-13)
  problem, rule = IDENTICAL.problem, reference.Sgd(0.3)
  rows = [ALL_ROWS] * 12
  descent = reference.descend(problem.x0, problem.gradient, rows, rule)
  actual = flat(identical.params, 1)
  np.testing.assert_allclose(actual, descent.xs[::3], rtol=0, atol=1e-12)


def test_p6_descent_along_every_path():
  """Lemma 4.1, with eta = 1 / (4 L), whatever the batches and v_0."""
  rng = np.random.default_rng(1)
  num_steps = 20
  rows = rng.integers(0, PROBLEM.data.num_examples, (num_steps, 2))
  eta = float(1 / (4 * PROBLEM.smoothness))
  starts = 1.5 * rng.normal(size=(30, 4))
  offsets = rng.normal(size=(30, 4)) * np.geomspace(0.01, 3, 30)[:, None]
  with jax.enable_x64(True):
    on_batch = lambda k, x: mean_loss(jnp.asarray(rows)[k], x)
    objective = functools.partial(mean_loss, ROWS.ravel())

    @jax.jit
    @jax.vmap
    def sides(x0, offset):
      xs, vs = local_path(on_batch, x0, full(x0) + offset, eta, num_steps)
      values = jax.vmap(objective)(xs)
      grads = jax.vmap(full)(xs[:-1])
      left = jnp.sum(grads**2, axis=1)
      errors = jnp.sum((vs - grads) ** 2, axis=1)
      return left, 2 / eta * (values[:-1] - values[1:]) + 2.5 * errors

    left, right = jax.device_get(sides(starts, offsets))
  assert np.all(left <= right + 1e-10)


def test_p7_both_versions_take_the_same_points():
  practical, theory = compiled("bvr_l_sgd"), compiled("bvr_l_sgd, theory")
  for field in FIELDS:
    actual = flat(getattr(practical, field), 1)
    expected = flat(getattr(theory, field), 1)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-13)


def test_p8_own_and_common_first_estimates_are_the_same():
  """Whether workers correct their own estimates or the mean of all."""
  problem, rng = TASK.problem, np.random.default_rng(0)
  batches = lambda: [
    [rng.choice(rows, 4) for _ in range(2)] if len(rows) else []
    for rows in problem.client_rows
  ]
  rounds = [reference.Round(range(5), batches(), SIZES) for _ in range(6)]
  common, own = (
    list(loops.bvr_l_sgd(
      problem, rounds, rounds, whole(problem, rounds), [0, 3, 1, 0, 2, 3],
      rate, 3, keep_own=keep_own,
    ))
    for keep_own in (False, True)
  )  # fmt: skip
  np.testing.assert_allclose(own, common, rtol=0, atol=1e-13)


def test_the_output_of_algorithm_2_is_uniform():
  """On the iterations of a stage, and on the stages that are over."""
  num_stages, stage_length, many = 3, 4, 4000

  @jax.jit
  @jax.vmap
  def final(key):
    def step(output, r):
      t = r % stage_length
      output = _next_output(
        output, jnp.float32(r), jax.random.fold_in(key, r), t + 1,
        t == stage_length - 1, r // stage_length + 1,
      )  # fmt: skip
      return output, None

    first = Output(jnp.float32(-1), jnp.float32(-1))
    rounds = jnp.arange(num_stages * stage_length)
    return jax.lax.scan(step, first, rounds)[0].run

  last = np.asarray(final(jax.random.split(jax.random.key(0), many)), int)
  counts = np.bincount(last, minlength=12)
  expected = many / 12
  assert np.all(np.abs(counts - expected) < 4 * np.sqrt(expected))


def test_without_a_rate_scaffold_does_not_move():
  """0 / 0 in option II."""
  algorithm = scaffold(EQUAL.loss_fn, lambda r: 0.1 * (r > 1))
  states = trajectory(algorithm, EQUAL, 3, batch_size=4)
  points, controls = flat(states.params, 1), flat(states.controls, 2)
  assert np.all(points[2] == points[0])
  assert np.all(controls[:3] == 0)
  assert np.isfinite(points).all()
  assert np.all(np.any(controls[3] != 0, axis=1))


@pytest.mark.parametrize("phase", [-1, MAX_PHASES])
def test_a_phase_that_cannot_be_is_refused(phase):
  def round(state, cohort):
    sent = cohort.mean(lambda worker, state: state, state, phase=phase)
    return sent.value, sent

  same = lambda params: params
  algorithm = Algorithm(lambda params, _: params, round, params=same)
  run = lambda: TASK.simulate(algorithm, rounds=1, **SETTINGS)
  assert refusal(run) == f"phase={phase}: must be in [0, {MAX_PHASES})"
