"""Delta-SGD as an optax transformation.

test_rules_registry.py and test_loops.py have it against its loop.
"""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_opt import delta_sgd, fed_avg
from tests import reference
from tests.helpers import jax_problems, rule_referees

reusing = functools.partial(delta_sgd, reuse_gradients=True)
PARAMS = {"a": np.array([1.0, -2.0, 3.0]), "b": np.array([[0.5], [4.0]])}


def bowl(params):
  """Curvatures 1 to 5."""
  a, b = params["a"], params["b"]
  weights = jnp.arange(1.0, 6.0)
  return jnp.sum(weights * jnp.concatenate([a, b[:, 0]]) ** 2) / 2


def train(rule, params=PARAMS, loss=bowl, num_steps=6, dtype="float32"):
  return rule_referees.train(rule, loss, params, num_steps, dtype)


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
  with jax.enable_x64(True):
    (x, plain), (measured_x, measured) = (
      train(reusing(measure_movement=measures), num_steps=40, dtype="float64")
      for measures in (False, True)
    )
  assert plain.params is None
  assert measured.params is not None
  chex.assert_trees_all_close(x, measured_x, rtol=1e-10)
  np.testing.assert_allclose(plain.step_size, measured.step_size, rtol=1e-10)


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
  rule = make_rule(delta=delta, theta_0=np.inf, eta_0=0.01)
  params, state = train(rule, loss=lambda p: 0.0 * bowl(p), num_steps=5)
  chex.assert_trees_all_equal(params, jax.tree.map(np.float32, PARAMS))
  assert np.isfinite(state.step_size)


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

    for first, second in noise:
      params, state = step(params, state, jnp.array([first, second]))
      before = lambda y, second=second: (None, curvature * y + second)
      x = loop.step(x, None, curvature * x + first, before)
      assert float(state.step_size) == pytest.approx(loop.eta, rel=1e-10)
  np.testing.assert_allclose(params, x, rtol=1e-10)


@pytest.mark.slow
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
