"""SARAH, SCAFFOLD and BVR-L-SGD against the loops, and what is proved of them.

As in test_against_reference.py, clients differ in size and one owns nothing,
three of five take part in a round, last batches are partial, and two clients
are computed side by side, so that a place is filled up with no client.
"""

import functools
import math
import types
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_opt import Algorithm, Simulator, simulate
from fedjax_opt.algorithms import (
  bvr_l_sgd,
  local_sgd,
  minibatch_sarah,
  minibatch_sgd,
  scaffold,
)
from fedjax_opt.algorithms.bvr_l_sgd import Output, _next_output
from fedjax_opt.data import synthetic
from fedjax_opt.data.clients import ClientData
from fedjax_opt.engine.cohort import MAX_PHASES
from fedjax_opt.engine.config import Config
from fedjax_opt.rules.sarah import sarah
from tests import jax_problems, reference
from tests import reference_variance_reduction as loops
from tests.jax_problems import assert_close, flat

SIZES = (40, 26, 3, 50, 0)
TASK = jax_problems.softmax(sizes=SIZES)
D = 15  # bias [3] and kernel [4, 3]
B = 4
SETTINGS = {
  "cohort_size": 3,
  "client_chunk": 2,
  "batch_size": B,
  "local_epochs": 0.2,  # 2, 2, 1, 3 and 0 steps
}
C = 3
ROUNDS = 7
# b~ of the sampled large gradient, and T with it and with the exact one, whose
# b~ is the mean size of a client, 23.8.
LARGE = 10
SAMPLED_STAGE, EXACT_STAGE = 2, 3
SERVER_RATE = 0.8


def rate(r):
  return 0.3 / (1 + 0.1 * r)


CASES = {
  "minibatch_sgd": minibatch_sgd,
  "local_sgd": local_sgd,
  "scaffold": functools.partial(scaffold, server_learning_rate=SERVER_RATE),
  "scaffold_exact": functools.partial(
    scaffold, server_learning_rate=SERVER_RATE, exact_control=True
  ),
  "minibatch_sarah": minibatch_sarah,
  "bvr_l_sgd": bvr_l_sgd,
  "bvr_l_sgd_sampled": functools.partial(bvr_l_sgd, large_batch=LARGE),
  "bvr_l_sgd_theory": functools.partial(bvr_l_sgd, practical=False),
}


# ------------------------------------------------------------ What was drawn


class Draws(NamedTuple):
  """What the package draws in ROUNDS rounds, as the referee takes it."""

  cohorts: list
  weights: list
  batches: list  # of each phase
  large: list  # rows of the sampled large gradient
  picks: list
  k_hats: list
  uniforms: np.ndarray  # [R, 2]


@functools.cache
def draws(x64, weighting="examples"):
  with jax.enable_x64(x64):  # Wider numbers are drawn otherwise.
    return _draws(weighting)


def _draws(weighting):
  config = Config.create(TASK.data, SETTINGS | {"weighting": weighting})
  cohorts, batches, weights = jax_problems.drawn_phases(
    config, TASK.data, 0, ROUNDS, num_phases=3
  )
  unit_vectors = {"x": np.eye(sum(SIZES))}
  data = jax.device_put(
    ClientData(unit_vectors, TASK.data.indices, TASK.data.sizes)
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

  large, picks, k_hats, uniforms = [], [], [], []
  for r in range(ROUNDS):
    sampled, pick, k, u = jax.device_get(others(jnp.int32(r)))
    many = np.round(sampled).astype(int)
    large.append([np.repeat(np.arange(sum(SIZES)), times) for times in many])
    picks.append(cohorts[r].index(pick))
    k_hats.append(k)
    uniforms.append(u)
  return Draws(
    cohorts, weights, batches, large, picks, k_hats, np.array(uniforms)
  )


def test_what_was_drawn_reaches_every_case():
  drawn = draws(False)
  assert len({client for cohort in drawn.cohorts for client in cohort}) == 5
  steps = {len(steps) for of_round in drawn.batches[1] for steps in of_round}
  assert steps == {0, 1, 2, 3}
  picked = {c[p] for c, p in zip(drawn.cohorts, drawn.picks, strict=True)}
  assert len(picked) > 2
  # The large gradient is of as many examples as asked for, all the client's.
  for cohort, samples in zip(drawn.cohorts, drawn.large, strict=True):
    for client, rows in zip(cohort, samples, strict=True):
      assert len(rows) == (LARGE if SIZES[client] else 0)
      assert set(rows) <= set(TASK.problem.client_rows[client])
  seen = np.concatenate([s for samples in drawn.large for s in samples])
  assert len(set(seen)) > 0.4 * sum(SIZES)


# ------------------------------------------------------- Runs of both, cached


def nothing(params, data, test):
  """For `evaluate=`, so that what was spent is on record after each round."""
  return {"zero": jnp.float32(0)}


def trajectory(algorithm, task, rounds, data=None, **settings):
  """The states after each round, leaves [R + 1, ...].

  What clients keep is `controls` among them.
  """
  simulator = Simulator(algorithm, data or task.data, **settings)
  states = [simulator.init(task.params)]
  for _ in range(rounds):
    state, _ = simulator.run(states[-1], 1)
    states.append(state)
  each = [jax.device_get((s.server, s.client_state)) for s in states]
  server, clients = jax.tree.map(lambda *leaves: np.stack(leaves), *each)
  return types.SimpleNamespace(**server._asdict(), controls=clients)


@functools.cache
def compiled(case, x64, weighting="examples"):
  settings = SETTINGS | {"weighting": weighting}
  with jax.enable_x64(x64):
    return trajectory(CASES[case](TASK.loss_fn, rate), TASK, ROUNDS, **settings)


def looped(case, x64, weighting="examples"):
  """{field of the state: [R, ...]}, by the referee."""
  problem, drawn = TASK.problem, draws(x64, weighting)
  first, second, third = drawn.batches
  given = (problem.x0, problem.gradient, drawn.cohorts)
  name = case.removesuffix("_sampled")
  sampled = case.endswith("_sampled")
  stage = SAMPLED_STAGE if sampled else EXACT_STAGE
  large = drawn.large
  if not sampled:
    large = [[problem.client_rows[i] for i in c] for c in drawn.cohorts]
  if name == "minibatch_sgd":
    xs = loops.minibatch_sgd(*given, first, drawn.weights, rate)
    return {"params": xs}
  if name == "local_sgd":
    sgd = lambda r: reference.Sgd(rate(r))
    xs, _ = reference.fed_avg(*given, first, drawn.weights, sgd)
    return {"params": xs}
  if name.startswith("scaffold"):
    masses = SIZES if weighting == "examples" else [1] * 5
    rows = problem.client_rows if name == "scaffold_exact" else None
    xs, controls = loops.scaffold(
      *given, first, drawn.weights, rate, SERVER_RATE, masses, rows
    )
    return {"params": xs, "controls": controls}
  if name == "minibatch_sarah":
    xs, vs = loops.minibatch_sarah(
      *given, second, drawn.weights, large, rate, stage
    )
    return {"params": xs, "direction": vs}
  if name == "bvr_l_sgd":
    xs, vs = loops.bvr_l_sgd(
      *given, second, third, drawn.weights, large, drawn.picks, rate, stage
    )
    return {"params": xs, "direction": vs}
  t_hats, s_hats = drawn_outputs(drawn.uniforms, stage)
  xs, outs = loops.bvr_l_sgd_theory(
    *given, second, third, drawn.weights, large, drawn.picks, drawn.k_hats,
    t_hats, rate, stage,
  )  # fmt: skip
  outs = [problem.x0, *outs]
  run = [outs[s_hats[(r + 1) // stage]] for r in range(len(xs))]
  return {"params": xs, "run": run}


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


# ----------------------------------------------------- Against the NumPy loops


@pytest.mark.parametrize("case", CASES)
def test_equals_the_loop_in_every_round(case):
  check_against_loop(case, x64=True)


@pytest.mark.parametrize("case", ["scaffold", "bvr_l_sgd_sampled"])
def test_single_precision_and_equal_weights_are_near_the_loop(case):
  check_against_loop(case, x64=False, weighting="uniform")


def check_against_loop(case, x64, weighting="examples"):
  states = compiled(case, x64, weighting)
  expected = looped(case, x64, weighting)
  rtol = 1e-10 if x64 else 1e-5
  for field, values in expected.items():
    values = np.array(values)
    where = states.output if field == "run" else states
    actual = flat(getattr(where, field), values.ndim - 1)
    # The theory's loop ends with the last whole stage.
    assert_close(actual[1 : len(values) + 1], values, rtol)
  moved = np.linalg.norm(expected["params"][-1] - TASK.problem.x0)
  assert moved > 0.1


# --------------------------------------------------------------- What it costs


def hand_count(case, drawn):
  """[R] examples that all clients took gradients of, in each round."""
  examples = [
    [[sum(map(len, steps)) for steps in of_round] for of_round in phase]
    for phase in drawn.batches
  ]
  sizes = [[SIZES[client] for client in cohort] for cohort in drawn.cohorts]
  first, second, third = examples
  name = case.removesuffix("_sampled")
  if name in ("minibatch_sgd", "local_sgd", "scaffold"):
    return [sum(of_round) for of_round in first], [0] * ROUNDS
  if name == "scaffold_exact":
    pairs = zip(first, sizes, strict=True)
    return [sum(one) + sum(other) for one, other in pairs], [0] * ROUNDS
  # The same examples at two points.
  counts = [2 * sum(of_round) for of_round in second]
  if name == "bvr_l_sgd":
    picked = [third[r][drawn.picks[r]] for r in range(ROUNDS)]
    counts = [n + 2 * m for n, m in zip(counts, picked, strict=True)]
  if name == "bvr_l_sgd_theory":
    counts = [n + 2 * sum(m) for n, m in zip(counts, third, strict=True)]
  stage = EXACT_STAGE
  if case.endswith("_sampled"):
    stage = SAMPLED_STAGE
    sizes = [[LARGE * (n > 0) for n in of_round] for of_round in sizes]
  starts = [sum(n) if r % stage == 0 else 0 for r, n in enumerate(sizes)]
  return [n + m for n, m in zip(counts, starts, strict=True)], starts


# Vectors of D numbers that a client gets and sends in a round; and, in the
# fraction of rounds where a stage begins, those of the large gradient. Of the
# points of a recursive estimate a client has the older ones already.
SGD = (1, 1)
EXCHANGED = {
  "minibatch_sgd": SGD,
  "local_sgd": SGD,
  "scaffold": (2, 2),
  "scaffold_exact": (2, 2),
  "minibatch_sarah": (1, 1),
  # Only one client of three has the local routine.
  "bvr_l_sgd": (1 + 1 / C, 1 + 1 / C),
  "bvr_l_sgd_theory": (1 + 1, 1 + 2),
}


@pytest.mark.parametrize("case", CASES)
def test_cost_equals_a_count_by_hand(case):
  with jax.enable_x64(True):
    result = TASK.simulate(
      CASES[case](TASK.loss_fn, rate), rounds=ROUNDS,
      eval_every=1, evaluate=nothing, **SETTINGS,
    )  # fmt: skip
  states = compiled(case, True)
  same = lambda path, end: np.testing.assert_array_equal(path[-1], end)
  jax.tree.map(same, states.params, result.state.params)
  gradients, starts = hand_count(case, draws(True))
  expected = {"gradient_evaluations": sum(gradients) / (C * ROUNDS)}
  vector = 8 * D  # bytes
  down, up = EXCHANGED[case.removesuffix("_sampled")]
  expected |= {"bytes_down": down * vector, "bytes_up": up * vector}
  num_starts = 0
  if sum(starts):
    stage = SAMPLED_STAGE if "sampled" in case else EXACT_STAGE
    num_starts = math.ceil(ROUNDS / stage)
    of_starts = {
      "gradient_evaluations": sum(starts) / (C * ROUNDS),
      "bytes_down": vector * num_starts / ROUNDS,
      "bytes_up": vector * num_starts / ROUNDS,
    }
    expected["bytes_down"] += of_starts["bytes_down"]
    expected["bytes_up"] += of_starts["bytes_up"]
    expected |= {f"stage_start_{name}": of_starts[name] for name in of_starts}
    expected["communication_rounds"] = 1 + num_starts / ROUNDS
  cost = {n.removesuffix("_per_round"): v for n, v in result.cost.items()}
  assert cost == pytest.approx(expected)
  assert len(cost) == len(result.cost)

  # Along the run: what a client has spent so far.
  metrics = result.history.metrics
  so_far = np.cumsum([0, *gradients]) / C
  np.testing.assert_allclose(metrics["gradient_evaluations"][0], so_far)
  rounds = np.arange(ROUNDS + 1)
  begun = -(-rounds // stage) if num_starts else 0 * rounds
  np.testing.assert_allclose(
    metrics["bytes_down"][0], vector * (down * rounds + begun)
  )
  np.testing.assert_allclose(
    metrics["bytes_up"][0], vector * (up * rounds + begun)
  )


@pytest.mark.parametrize(("large_batch", "stage"), [(8, 2), (9, 3), (40, 6)])
def test_a_stage_has_the_length_of_algorithm_4(large_batch, stage):
  """T = ceil(1 + b~ / (K B)), also with b~ above a client's mean size, 23.8."""
  algorithm = minibatch_sarah(TASK.loss_fn, 0.1, large_batch=large_batch)
  result = TASK.simulate(algorithm, rounds=12, batch_size=4, local_steps=2)
  vector = result.cost["stage_start_bytes_up_per_round"]
  assert vector == pytest.approx(4 * D * math.ceil(12 / stage) / 12)


# -------------------------------------------------------------- BVR-L-SGD 3f


PROBLEM = synthetic.heterogeneous(
  0.4, dim=4, num_clients=4, examples_per_client=6, condition=4.0
)


def gradients_of(problem):
  """f, grad f, and for each client p grad f_p at x, `(p, x) -> [d]`."""
  examples, indices = problem.data.examples, problem.data.indices
  examples = {n: jnp.asarray(a, float) for n, a in examples.items()}

  def objective(x):
    return jnp.mean(problem.loss_fn(x, examples))

  def of_client(p, x):
    rows = jnp.asarray(indices)[p]
    own = {name: leaf[rows] for name, leaf in examples.items()}
    return jnp.mean(problem.loss_fn(x, own))

  return objective, jax.grad(objective), jax.grad(of_client, argnums=1)


@pytest.mark.parametrize("zeta", [0.0, 0.4])
def test_p1_bias_of_a_local_difference(zeta):
  """Lemma A.2: at most zeta ||x - y||."""
  with jax.enable_x64(True):
    problem = PROBLEM._replace(zeta=zeta)
    _, full, local = gradients_of(problem)
    x, y = np.random.default_rng(0).normal(size=(2, 50, 4))
    difference = lambda grad, x, y: grad(x) - grad(y)
    for p in range(4):
      own = functools.partial(local, p)
      bias = jax.vmap(
        lambda x, y, own=own: difference(own, x, y) - difference(full, x, y)
      )(x, y)
      bias = np.linalg.norm(bias, axis=1)
      assert np.all(bias <= zeta * np.linalg.norm(x - y, axis=1) + 1e-12)
    # Half of it is reached: a client is that far from the mean of all.
    np.testing.assert_allclose(
      bias, zeta / 2 * np.linalg.norm(x - y, axis=1), atol=1e-12
    )


def local_path(grad_fns, x0, v0, rate, num_steps):
  """Points x_0 to x_K [K + 1, d] and v_1 to v_K [K, d], by the rule alone.

  Args:
    grad_fns: `(k, x) -> gradient` of the loss of step k.
  """
  rule = sarah(rate, direction=v0)

  def step(carry, k):
    x, state = carry
    own = functools.partial(grad_fns, k)
    updates, state = rule.update(own(x), state, x, grad_fn=own)
    return (optax.apply_updates(x, updates), state), (x, state.direction)

  (last, _), (xs, vs) = jax.lax.scan(
    step, (x0, rule.init(x0)), jnp.arange(num_steps)
  )
  return jnp.concatenate([xs, last[None]]), vs


def test_p2_full_local_gradients_telescope():
  with jax.enable_x64(True):
    _, full, local = gradients_of(PROBLEM)
    x0, p = jnp.array([0.4, -1.5, 0.2, 2.0]), 2
    own = lambda k, x: local(p, x)
    xs, vs = jax.jit(
      lambda x0, v0: local_path(own, x0, v0, 0.05, num_steps=12)
    )(x0, full(x0))
    for x, v in zip(xs, vs, strict=False):
      expected = local(p, x) - local(p, x0) + full(x0)
      np.testing.assert_allclose(v, expected, atol=1e-13)
      error = np.linalg.norm(v - full(x))
      assert error <= PROBLEM.zeta * np.linalg.norm(x - x0) + 1e-13
  assert np.linalg.norm(xs[-1] - x0) > 0.2


EQUAL = jax_problems.softmax(sizes=(12, 9, 15))


def test_p3_the_first_step_of_a_stage_is_the_same_on_every_worker():
  """First differences vanish: batches and picks do not matter."""
  task, problem = EQUAL, EQUAL.problem
  rows = np.concatenate(problem.client_rows)
  v = problem.gradient(problem.x0, rows)[1]
  with jax.enable_x64(True):
    result = task.sweep(
      lambda: bvr_l_sgd(task.loss_fn, 0.3, practical=False),
      {},
      rounds=1,
      seeds=[0, 1, 2, 3],
      batch_size=4,
      local_steps=1,
    )
  x = problem.x0 - 0.3 * v
  for of_seeds, expected in (
    (result.state.direction, v),
    (result.state.params, x),
    (result.state.output.stage, x),  # The only local step is the random one.
  ):
    actual = flat(of_seeds, 1)
    np.testing.assert_allclose(actual, [expected] * 4, rtol=0, atol=1e-13)


def test_p4_one_local_step_is_minibatch_sarah():
  task, settings = EQUAL, {"batch_size": 4, "local_steps": 1, "cohort_size": 2}
  with jax.enable_x64(True):
    one, other = (
      trajectory(factory(task.loss_fn, 0.3, large_batch=5), task, 6, **settings)
      for factory in (bvr_l_sgd, minibatch_sarah)
    )
  for field in ("params", "direction"):
    actual = flat(getattr(one, field), 1)
    expected = flat(getattr(other, field), 1)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-13)


def test_p5_full_gradients_make_the_estimate_exact():
  task, problem = EQUAL, EQUAL.problem
  with jax.enable_x64(True):
    states = trajectory(
      bvr_l_sgd(task.loss_fn, 0.3), task, 5, batch_size=15, local_steps=2
    )
  rows = np.concatenate(problem.client_rows)
  points, directions = flat(states.params, 1), flat(states.direction, 1)
  for before, v in zip(points[:-1], directions[1:], strict=True):
    expected = problem.gradient(before, rows)[1]
    np.testing.assert_allclose(v, expected, rtol=0, atol=1e-13)


IDENTICAL = jax_problems.softmax(sizes=(12,))
IDENTICAL_DATA = ClientData.from_partition(
  IDENTICAL.problem.examples, IDENTICAL.problem.client_rows * 3
)
# Every batch is all that there is.
WHOLE = {"batch_size": 12, "local_steps": 3}


@pytest.mark.parametrize("algorithm", [bvr_l_sgd, scaffold])
def test_p5_on_identical_workers_it_is_gradient_descent(algorithm):
  """K steps a round; and so is SCAFFOLD."""
  problem = IDENTICAL.problem
  with jax.enable_x64(True):
    algorithm = algorithm(IDENTICAL.loss_fn, 0.3)
    states = trajectory(algorithm, IDENTICAL, 4, IDENTICAL_DATA, **WHOLE)
  rows = problem.client_rows[0]
  loop = reference.descend(
    0, problem.x0, problem.gradient, [rows] * 12, reference.Sgd(0.3)
  )
  actual = flat(states.params, 1)
  np.testing.assert_allclose(actual, loop.xs[::3], rtol=0, atol=1e-12)


def test_p6_descent_along_every_path():
  """Lemma 4.1, with eta = 1 / (4 L), whatever the batches and v_0."""
  with jax.enable_x64(True):
    objective, full, _ = gradients_of(PROBLEM)
    rng = np.random.default_rng(1)
    num_examples, num_steps = PROBLEM.data.num_examples, 20
    rows = rng.integers(0, num_examples, (num_steps, 2))
    examples = {
      name: jnp.asarray(leaf, float)[rows]
      for name, leaf in PROBLEM.data.examples.items()
    }

    def on_batch(k, x):
      batch = {name: leaf[k] for name, leaf in examples.items()}
      return jax.grad(lambda x: jnp.mean(PROBLEM.loss_fn(x, batch)))(x)

    eta = float(1 / (4 * PROBLEM.smoothness))
    starts = 1.5 * rng.normal(size=(30, 4))
    offsets = rng.normal(size=(30, 4)) * np.geomspace(0.01, 3, 30)[:, None]

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
  practical = compiled("bvr_l_sgd", True)
  theory = compiled("bvr_l_sgd_theory", True)
  for field in ("params", "direction"):
    actual = flat(getattr(practical, field), 1)
    expected = flat(getattr(theory, field), 1)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-13)


def test_p8_own_and_common_first_estimates_are_the_same():
  """Whether workers correct their own estimates or the mean of all."""
  task, problem, rounds = EQUAL, EQUAL.problem, 6
  settings = {"batch_size": 4, "local_steps": 2, "client_chunk": 2}
  with jax.enable_x64(True):
    algorithm = bvr_l_sgd(task.loss_fn, 0.3)
    states = trajectory(algorithm, task, rounds, **settings)
    config = Config.create(task.data, settings)
    cohorts, (_, shared, own), weights = jax_problems.drawn_phases(
      config, task.data, 0, rounds, num_phases=3
    )
    picks = drawn_picks(config, task.data, rounds)
  xs, vs = loops.bvr_l_sgd(
    problem.x0, problem.gradient, cohorts, shared, own, weights,
    [problem.client_rows] * rounds, picks, lambda r: 0.3, 3, keep_own=True,
  )  # fmt: skip
  assert_close(flat(states.params, 1)[1:], np.array(xs), 1e-10)
  assert_close(flat(states.direction, 1)[1:], np.array(vs), 1e-10)


def drawn_picks(config, data, rounds):
  """The client that is picked in the third phase of each round."""
  on_device = jax.device_put(data)

  @jax.jit
  def pick(round):
    cohort = jax_problems.cohort_of(config, on_device, jax.random.key(0), round)
    return cohort.pick(lambda worker, _: worker.client, (), phase=2).value

  return [int(pick(jnp.int32(r))) for r in range(rounds)]


def test_the_output_of_algorithm_2_is_uniform():
  """On the iterations of a stage, and on the stages that are over."""
  num_stages, stage_length, many = 3, 4, 4000

  @jax.jit
  @jax.vmap
  def final(key):
    output = Output(jnp.float32(-1), jnp.float32(-1))
    for r in range(num_stages * stage_length):
      t = r % stage_length
      output = _next_output(
        output, jnp.float32(r), jax.random.fold_in(key, r), t + 1,
        t == stage_length - 1, r // stage_length + 1,
      )  # fmt: skip
    return output.run

  last = np.asarray(final(jax.random.split(jax.random.key(0), many)), int)
  counts = np.bincount(last, minlength=12)
  expected = many / 12
  assert np.all(np.abs(counts - expected) < 4 * np.sqrt(expected))


# ------------------------------------------------------------------- SCAFFOLD


@pytest.mark.parametrize(
  ("x64", "weighting"), [(True, "examples"), (False, "uniform")]
)
def test_the_control_of_the_server_stays_the_mean_of_all(x64, weighting):
  states = compiled("scaffold", x64, weighting)
  masses = np.array(SIZES if weighting == "examples" else [1] * 5, float)
  controls, control = flat(states.controls, 2), flat(states.control, 1)
  mean = np.einsum("m,rmd->rd", masses / masses.sum(), controls)
  atol = 1e-13 if x64 else 1e-6
  np.testing.assert_allclose(control, mean, rtol=0, atol=atol)
  assert np.max(np.abs(control[-1])) > 1e-3


def test_without_a_rate_nothing_moves():
  """0 / 0 in option II."""
  algorithm = scaffold(EQUAL.loss_fn, lambda r: 0.1 * (r > 1))
  states = trajectory(algorithm, EQUAL, 3, batch_size=4)
  points, controls = flat(states.params, 1), flat(states.controls, 2)
  assert np.all(points[2] == points[0])
  assert np.all(controls[:3] == 0)
  assert np.isfinite(points).all()
  assert np.all(np.any(controls[3] != 0, axis=1))


# ------------------------------------------------------ The verbs of a cohort


def toy(round):
  """An algorithm whose state is what `round` gives, from zeros [2]."""
  init = lambda params, num_clients: jnp.zeros(2)
  return Algorithm(init, round, params=lambda state: state)


def test_cond_computes_the_verb_in_some_rounds_only():
  """And counts only that; what follows draws the same batches after either."""
  batch_mean = lambda worker, _: worker.batch_gradients(reward, jnp.zeros(2))[0]
  reward = lambda params, batch, rng: batch["x"][:, :2] @ params

  def round_of(choose):
    def round(state, cohort):
      even = cohort.round % 2 == 0
      verb = lambda: cohort.mean(batch_mean, state, label="even")
      first, value = choose(cohort, even, verb, -state)
      second = cohort.mean(batch_mean, (), phase=1)
      return value + second.value, (first, second)

    return round

  def with_cond(cohort, predicate, verb, otherwise):
    reply = cohort.cond(predicate, verb, otherwise)
    return reply, reply.value

  def by_hand(cohort, predicate, verb, otherwise):
    reply = verb()
    return reply, jnp.where(predicate, reply.value, otherwise)

  actual, expected = (
    simulate(toy(round_of(choose)), (), TASK.data, rounds=5, **SETTINGS)
    for choose in (with_cond, by_hand)
  )
  np.testing.assert_allclose(actual.params, expected.params, rtol=1e-6)
  drawn = draws(False)
  first, second = (
    [sum(len(b) for steps in of_round for b in steps) for of_round in phase]
    for phase in drawn.batches[:2]
  )
  of_even = sum(first[0:5:2]) / (C * 5)
  assert actual.cost == pytest.approx(
    {
      "gradient_evaluations_per_round": of_even + sum(second[:5]) / (C * 5),
      "even_gradient_evaluations_per_round": of_even,
      # Two numbers in three of five rounds, and in all of them.
      "bytes_down_per_round": 8 * 3 / 5,
      "even_bytes_down_per_round": 8 * 3 / 5,
      "bytes_up_per_round": 8 * 3 / 5 + 8,
      "even_bytes_up_per_round": 8 * 3 / 5,
      "communication_rounds": 1 + 3 / 5,
    }
  )


@pytest.mark.parametrize("phase", [-1, MAX_PHASES])
def test_a_phase_that_cannot_be_is_refused(phase):
  def round(state, cohort):
    sent = cohort.mean(lambda worker, state: state, state, phase=phase)
    return sent.value, sent

  with pytest.raises(ValueError) as error:  # noqa: PT011
    simulate(toy(round), (), TASK.data, rounds=1, **SETTINGS)
  assert str(error.value) == f"phase={phase}: must be in [0, {MAX_PHASES})"
