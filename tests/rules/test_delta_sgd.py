"""Delta-SGD as an optax transformation, and what its paper proves of it."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_opt import delta_sgd, fed_avg
from tests import jax_problems, problems, reference
from tests.rules import training

SEEDS = range(20)


def quadratic(x, a, y):
  """Least squares, with its full gradient."""
  return jnp.mean((a @ x - y) ** 2) / 2


@functools.partial(jax.jit, static_argnums=(0, 1, 4))
def descend(make_rule, loss_fn, x0, loss_args, num_steps, settings):
  """A plain training loop; gives x [K + 1, d] and the rule's states [K]."""
  loss = lambda k, x: loss_fn(x, *loss_args)
  return training.path(make_rule(**settings), loss, x0, num_steps)


reusing = functools.partial(delta_sgd, reuse_gradients=True)


@functools.cache
def quadratics(shared):
  """Random problems with few examples: x0, (a, y), x*, L, stacked.

  Each has one client, or three that share a minimizer.
  """
  given = {"sizes": (12,) * 3, "noise": 0.0} if shared else {"sizes": (12,)}
  made = [
    (problem, rows)
    for problem in (problems.least_squares(s, dim=4, **given) for s in SEEDS)
    for rows in problem.client_rows
  ]
  stack = lambda of: np.stack([of(p, rows) for p, rows in made])
  return (
    stack(lambda p, rows: p.x0),
    (
      stack(lambda p, rows: p.examples["x"][rows]),
      stack(lambda p, rows: p.examples["y"][rows]),
    ),
    stack(lambda p, rows: p.minimiser(rows)),
    stack(lambda p, rows: np.linalg.norm(p.hessian(rows), 2)),
  )


def run_all(make_rule, num_steps=40, shared=False, **settings):
  """Trajectories on all quadratics: x [S, K + 1, d], eta [S, K], and more."""
  x0, loss_args, x_star, smoothness = quadratics(shared)
  with jax.enable_x64(True):
    settings = {name: jnp.float64(value) for name, value in settings.items()}
    run = lambda x0, args: descend(
      make_rule, quadratic, x0, args, num_steps, settings
    )
    xs, states = jax.device_get(jax.vmap(run)(x0, loss_args))
  return xs, states, x_star, smoothness


def gaps(xs, x_star, shared=False):
  """f(x) - f* of every point [S, K + 1]."""
  _, (a, y), _, _ = quadratics(shared)

  def f(points):
    residual = np.einsum("snd,skd->skn", a, points) - y[:, None]
    return np.mean(residual**2, -1) / 2

  return f(xs) - f(x_star[:, None])


# ---------------------------------------------------- The paper's properties


def test_p1_one_local_step_is_fed_avg_at_eta_0():
  task = jax_problems.softmax()
  run = lambda rule: task.simulate(
    fed_avg(task.loss_fn, rule),
    rounds=3,
    cohort_size=3,
    batch_size=4,
    local_steps=1,
  )
  actual, expected = run(delta_sgd(eta_0=0.3)), run(optax.sgd(0.3))
  np.testing.assert_allclose(
    jax_problems.flat(actual.params),
    jax_problems.flat(expected.params),
    rtol=1e-5,
  )


@pytest.mark.parametrize("make_rule", [delta_sgd, reusing])
@pytest.mark.parametrize("eps", [0.0, 1e-3])
def test_p2_isotropic_quadratic_settles_at_gamma_over_2l(make_rule, eps):
  curvature, center = 0.4, np.array([1.0, -2.0, 0.5])
  loss = lambda x: curvature / 2 * jnp.sum((x - center) ** 2)
  with jax.enable_x64(True):
    settings = {"gamma": 1.0, "delta": 1.0, "eta_0": 0.2, "eps": eps}
    _, states = descend(make_rule, loss, np.zeros(3), (), 8, settings)
    states = jax.device_get(states)
  np.testing.assert_allclose(states.smoothness_step[1:], 1.25, rtol=1e-6)
  np.testing.assert_allclose(states.step_size[0], 0.2)
  np.testing.assert_allclose(states.step_size[-1], 1.25 + eps, rtol=1e-6)


@pytest.mark.parametrize("make_rule", [delta_sgd, reusing])
def test_p2_p3_bounds_of_both_branches(make_rule):
  delta = 0.5
  _, states, _, smoothness = run_all(make_rule, delta=delta, eta_0=0.01)
  lowest = states.smoothness_step[:, 1:].min(1)
  assert np.all(lowest >= (1 - 1e-6) * 2 / (2 * smoothness))
  eta, theta = states.step_size, states.theta
  ratio = eta[:, 1:] / eta[:, :-1]
  assert np.all(ratio <= np.sqrt(1 + delta * theta[:, :-1]) * (1 + 1e-12))
  np.testing.assert_allclose(theta[:, 1:], ratio, rtol=1e-12)


@pytest.mark.parametrize(
  ("delta", "factor"), [(1.0, 1.618), (0.1, 1.0512), (0.02, 1.01)]
)
def test_p3_sustained_growth(delta, factor):
  with jax.enable_x64(True):  # A linear loss: the gradient never changes.
    linear = lambda x: jnp.sum(x)
    settings = {"delta": delta, "eta_0": 1e-8}
    _, states = descend(delta_sgd, linear, np.zeros(2), (), 40, settings)
  eta = np.asarray(states.step_size)
  ratio = eta[1:] / eta[:-1]
  np.testing.assert_allclose(ratio[-1], factor, atol=5e-5)
  assert ratio.max() <= (delta + np.sqrt(delta**2 + 4)) / 2 * (1 + 1e-12)


def potentials(gamma, shared=False):
  """Both sides of eq. 5 for t = 1, ..., K - 1, [S, K - 1] each."""
  xs, states, x_star, _ = run_all(
    reusing, shared=shared, gamma=gamma, delta=1.0
  )
  eta, theta = states.step_size, states.theta
  gap = gaps(xs, x_star, shared)
  away = np.sum((xs - x_star[:, None]) ** 2, -1)
  moved = np.sum(np.diff(xs, axis=1) ** 2, -1)
  eta, theta = eta[:, 1:], theta[:, 1:]
  after = away[:, 2:] + moved[:, 1:] / 2 + 2 * eta * (1 + theta) * gap[:, 1:-1]
  before = away[:, 1:-1] + moved[:, :-1] / 2 + 2 * eta * theta * gap[:, :-2]
  return after, before


@pytest.mark.parametrize("shared", [False, True])
def test_p4_p5_potential_decreases_with_gamma_1(shared):
  """P5: of clients that share a minimizer it is the mean of theirs."""
  after, before = potentials(1.0, shared)
  if shared:
    after, before = (
      side.reshape(-1, 3, side.shape[1]).mean(1) for side in (after, before)
    )
  slack = 1e-12 * before[:, :1]
  assert np.all(after <= before + slack)  # eq. 5
  assert np.all(before[:, 1:] <= after[:, :-1] + slack)  # by line 9
  assert np.all(before[:, -1] < before[:, 0])


def test_p4_fails_with_gamma_2():
  after, before = potentials(2.0)
  assert np.any(after > before + 1e-9 * before[:, :1])


@pytest.mark.parametrize("eta_0", [1e-3, 0.2, 1.0])
def test_p6_average_meets_the_rate_of_theorem_5(eta_0):
  xs, states, x_star, smoothness = run_all(
    reusing, gamma=1.0, delta=1.0, theta_0=np.inf, eta_0=eta_0
  )
  eta, theta, gap = states.step_size, states.theta, gaps(xs, x_star)
  distance = (
    np.sum((xs[:, 1] - x_star) ** 2, -1)
    + np.sum((xs[:, 1] - xs[:, 0]) ** 2, -1) / 2
    + 2 * eta[:, 1] * theta[:, 1] * gap[:, 0]
  )
  alpha = eta[:, 1:-1] * (1 + theta[:, 1:-1]) - eta[:, 2:] * theta[:, 2:]
  assert np.all(alpha >= -1e-12 * eta[:, 1:-1])
  for t in range(1, eta.shape[1]):
    total = np.sum(eta[:, 1 : t + 1], 1) + eta[:, 1] * theta[:, 1]
    average = (eta[:, t] * (1 + theta[:, t]))[:, None] * xs[:, t]
    average += np.einsum("sk,skd->sd", alpha[:, : t - 1], xs[:, 1:t])
    bound = distance / (2 * total)
    rate = 2 * distance * smoothness**2 / (2 * smoothness * t + 1)
    assert np.all(bound <= rate * (1 + 1e-9))
    average_gap = gaps((average / total[:, None])[:, None], x_star)[:, 0]
    assert np.all(average_gap <= bound * (1 + 1e-9))


# ------------------------------------------- An ordinary optax transformation


PARAMS = {"a": np.array([1.0, -2.0, 3.0]), "b": np.array([[0.5], [4.0]])}


def bowl(params):
  """Curvatures 1 to 5."""
  a, b = params["a"], params["b"]
  weights = jnp.arange(1.0, 6.0)
  return jnp.sum(weights * jnp.concatenate([a, b[:, 0]]) ** 2) / 2


def train(rule, params=PARAMS, loss=bowl, num_steps=6, dtype="float32"):
  return training.train(rule, loss, params, num_steps, dtype)


assert_close = functools.partial(
  chex.assert_trees_all_close, rtol=1e-5, atol=1e-6
)


def test_chain_with_what_changes_updates():
  rule = delta_sgd(eta_0=1e-3, reuse_gradients=True)
  params, state = train(optax.chain(optax.add_decayed_weights(0.1), rule))
  decayed = lambda p: bowl(p) + 0.05 * optax.tree.norm(p, squared=True)
  expected, _ = train(rule, loss=decayed)
  assert_close(params, expected)
  assert optax.tree.get(state, "step_size") > 1e-3


def test_a_plain_step_has_the_length_that_is_measured():
  measured = functools.partial(reusing, measure_movement=True)
  xs, states, _, _ = run_all(reusing)
  expected, expected_states, _, _ = run_all(measured)
  assert states.params is None
  assert expected_states.params is not None
  np.testing.assert_allclose(xs, expected, rtol=1e-10)
  np.testing.assert_allclose(
    states.step_size, expected_states.step_size, rtol=1e-10
  )


def test_in_half_precision_the_movement_is_measured():
  # Steps so short that rounding keeps the point where it is: so they grow.
  rule = reusing(eta_0=1e-5, delta=1.0)
  _, state = train(rule, num_steps=4, dtype="bfloat16")
  assert state.params is not None
  assert np.isinf(state.smoothness_step)
  assert state.step_size > 3e-5


def test_movement_behind_which_something_clips_is_measured():
  """Against the referee, whose steps are clipped too."""
  limit, eta = 0.05, 0.1
  rule = reusing(eta_0=eta, measure_movement=True)
  rule = optax.chain(rule, optax.clip_by_global_norm(limit))
  with jax.enable_x64(True):
    params, state = train(rule, num_steps=6, dtype="float64")
  x = np.concatenate([PARAMS["a"], PARAMS["b"][:, 0]])
  loop = reference.DeltaSgd(eta_0=eta, reuse_gradients=True)
  for _ in range(6):
    moved = loop.step(x, None, np.arange(1.0, 6.0) * x, None) - x
    x = x + moved * min(1, limit / np.linalg.norm(moved))
  flat = np.concatenate([params["a"], params["b"][:, 0]])
  np.testing.assert_allclose(flat, x, rtol=1e-10)
  np.testing.assert_allclose(state[0].step_size, loop.eta, rtol=1e-10)


@pytest.mark.parametrize("make_rule", [delta_sgd, reusing])
@pytest.mark.parametrize("delta", [0.0, 0.1])
def test_an_infinite_first_ratio_where_nothing_moves(make_rule, delta):
  still = lambda x: 0.0 * jnp.sum(x)
  settings = {"delta": delta, "theta_0": np.inf, "eta_0": 0.01}
  xs, states = descend(make_rule, still, np.ones(2), (), 5, settings)
  np.testing.assert_array_equal(xs, 1.0)
  assert np.all(np.isfinite(states.step_size))


@pytest.mark.parametrize("reuse", [False, True])
def test_masked_is_the_rule_on_the_visible_leaves_alone(reuse):
  mask = {"a": True, "b": False}
  rule = delta_sgd(delta=0.3, reuse_gradients=reuse)
  freeze = optax.masked(optax.set_to_zero(), {"a": False, "b": True})
  params, _ = train(optax.chain(optax.masked(rule, mask), freeze))
  np.testing.assert_array_equal(params["b"], PARAMS["b"])
  alone = lambda p: bowl({"a": p["a"], "b": jnp.asarray(PARAMS["b"])})
  expected, _ = train(rule, {"a": PARAMS["a"]}, alone)
  assert_close(params["a"], expected["a"])


# ----------------------------------------------- Dropout as in their program


def test_two_draws_are_the_referee_s():
  """Two gradients on one batch, each with its own noise."""
  curvature = np.arange(1.0, 4.0)
  noise = np.random.default_rng(0).normal(0, 0.5, size=(6, 2, 3))
  rule = delta_sgd(eta_0=0.1, independent_dropout=True)
  loop, x = reference.DeltaSgd(eta_0=0.1), np.ones(3)
  with jax.enable_x64(True):
    params = jnp.ones(3)
    state = rule.init(params)

    @jax.jit
    def step(params, state, drawn):
      grad_fn = lambda p, draw: curvature * p + drawn[draw]
      grads = grad_fn(params, 0)
      updates, state = rule.update(grads, state, params, grad_fn=grad_fn)
      return optax.apply_updates(params, updates), state

    for own, other in noise:
      params, state = step(params, state, jnp.array([own, other]))
      before = lambda y, other=other: (None, curvature * y + other)
      x = loop.step(x, None, curvature * x + own, before)
      assert float(state.step_size) == pytest.approx(loop.eta, rel=1e-10)
  np.testing.assert_allclose(params, x, rtol=1e-10)


@pytest.mark.parametrize("independent", [False, True])
def test_clients_draw_dropout_once_or_twice(independent):
  """A linear loss whose slope is noise: only another draw changes it."""
  task = jax_problems.softmax()

  def loss_fn(params, batch, rng):
    leaves = jax.tree.leaves(params)
    slope = sum(
      jnp.sum(leaf * jax.random.normal(jax.random.fold_in(rng, i), leaf.shape))
      for i, leaf in enumerate(leaves)
    )
    return slope * jnp.ones(len(batch["y"]))

  result = task.simulate(
    fed_avg(loss_fn, delta_sgd(independent_dropout=independent)),
    rounds=2,
    cohort_size=2,
    batch_size=4,
    local_steps=3,
    trace=["smoothness_step"],
  )
  later = result.traces["smoothness_step"][..., 1:]
  later = later[~np.isnan(later)]  # A client without examples has no steps.
  assert later.size
  if independent:  # Each step draws anew.
    assert later.max() < 10
    assert len(np.unique(later)) == later.size
  else:  # The gradients differ by rounding at most.
    assert later.min() > 1e4
