"""The terms added to a client's loss, against their formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_opt import objectives
from tests.helpers import jax_problems

TASK = jax_problems.mlp()
ROWS = np.arange(6)
RNG = np.random.default_rng(0)


def other():
  return jax.tree.map(lambda leaf: RNG.normal(size=leaf.shape), TASK.params)


RECEIVED, PREVIOUS = other(), other()


def evaluated(loss_fn, params=TASK.params):
  """The loss of each example and the gradient of their mean, in float64."""
  with jax.enable_x64(True):
    batch = jax.tree.map(
      lambda leaf: jnp.asarray(leaf[ROWS]), TASK.problem.examples
    )
    params = jax.tree.map(jnp.asarray, params)

    def mean_loss(params):
      losses = loss_fn(params, batch, None)
      return jnp.mean(losses), losses

    grads, losses = jax.jit(jax.grad(mean_loss, has_aux=True))(params)
    return np.asarray(losses), jax_problems.flat(grads)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_cross_entropy_is_that_of_optax(dtype):
  logits = jnp.asarray(3 * RNG.normal(size=(2, 5, 4)), dtype)
  logits = logits.at[0, 0].set(jnp.array([1e30, -1e30, 0, 5], dtype))
  labels = jnp.asarray(RNG.integers(4, size=(2, 5)))
  theirs = optax.softmax_cross_entropy_with_integer_labels
  for of in (lambda f: f, lambda f: jax.grad(lambda *a: f(*a).sum())):
    actual, expected = (
      jax.jit(of(f))(logits, labels) for f in (objectives.cross_entropy, theirs)
    )
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(
      np.float32(actual), np.float32(expected), rtol=1e-6, atol=1e-7
    )


def test_the_next_token_is_averaged_over_what_is_no_padding():
  logits = RNG.normal(size=(3, 4, 5)).astype(np.float32)
  targets = np.array([[1, 4, 0, 2], [3, 9, 9, 9], [9, 9, 9, 9]])
  log_sums = np.log(np.exp(logits.astype(float)).sum(-1))
  first_loss = np.mean(
    [log_sums[0, t] - logits[0, t, targets[0, t]] for t in range(4)]
  )
  expected = [first_loss, log_sums[1, 0] - logits[1, 0, 3], 0]
  losses = objectives.next_token(logits, targets, padding=9)
  np.testing.assert_allclose(losses, expected, rtol=1e-5)
  padded = np.where(targets == 9, -1, targets)
  np.testing.assert_array_equal(objectives.next_token(logits, padded), losses)
  rights = objectives.token_mean(np.ones((3, 4)), targets, padding=9)
  np.testing.assert_array_equal(rights, [1, 1, 0])


def test_cross_entropy_of_no_class_is_nan():
  losses = objectives.cross_entropy(jnp.zeros((3, 4)), jnp.array([-1, 4, 3]))
  np.testing.assert_array_equal(np.isnan(losses), [True, True, False])


@pytest.mark.parametrize("center", [None, RECEIVED])
def test_l2_and_proximal(center):
  if center is None:
    diff, loss_fn = TASK.problem.x0, objectives.l2(TASK.loss_fn, 0.3)
  else:
    diff = TASK.problem.x0 - jax_problems.flat(center)
    loss_fn = objectives.proximal(TASK.loss_fn, center, 0.3)
  plain, plain_grad = evaluated(TASK.loss_fn)
  losses, grad = evaluated(loss_fn)
  np.testing.assert_allclose(losses, plain + 0.15 * np.sum(diff**2), rtol=1e-12)
  np.testing.assert_allclose(grad, plain_grad + 0.3 * diff, rtol=1e-10)


def contrastive(mu, temperature, features_fn=TASK.features_fn):
  return objectives.contrastive(
    TASK.loss_fn, features_fn, RECEIVED, PREVIOUS, mu, temperature
  )


def test_contrastive_does_not_overflow():
  losses, grad = evaluated(contrastive(1.0, 1e-6))  # e^(1e6) has no number
  assert np.isfinite(losses).all()
  assert np.isfinite(grad).all()
  dead = lambda params, batch, rng: 0 * TASK.features_fn(params, batch, rng)
  losses, grad = evaluated(contrastive(1.0, 0.5, dead))
  plain, _ = evaluated(TASK.loss_fn)
  np.testing.assert_allclose(losses, plain + np.log(2), rtol=1e-12)
  assert np.isfinite(grad).all()
