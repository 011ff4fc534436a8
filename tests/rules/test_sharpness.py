"""Sharpness-aware steps against optax's own, and what a rule inside sees."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_opt import delta_sgd, sharpness_aware
from fedjax_opt import running_statistics as statistics
from tests.rules import training

CENTER = {"a": np.array([0.5, -1.0]), "b": np.array([2.0])}
X0 = {"a": np.array([1.0, 3.0]), "b": np.array([-1.0])}


def loss(params):
  error = optax.tree.sub(params, CENTER)
  curved = optax.tree.norm(error, squared=True)
  return curved + 0.1 * jnp.sum(error["a"]) ** 4


def train(rule, params=X0, num_steps=5, loss=loss):
  return training.train(rule, loss, params, num_steps)[0]


assert_close = functools.partial(chex.assert_trees_all_close, rtol=1e-12)


def test_a_rule_inside_has_the_gradient_uphill_at_any_point():
  """On the loss that the rule minimizes, Delta-SGD takes the same steps."""
  rho = 0.05

  def sharp(params):  # Its gradient is that of the loss, rho g ahead.
    error = optax.tree.sub(params, CENTER)
    return (1 + 2 * rho) * optax.tree.norm(error, squared=True)

  def quadratic(params):
    return optax.tree.norm(optax.tree.sub(params, CENTER), squared=True)

  with jax.enable_x64(True):
    inside = sharpness_aware(delta_sgd(), rho, normalized=False)
    actual = train(inside, loss=quadratic)
    assert_close(actual, train(delta_sgd(), loss=sharp))


def test_running_statistics_are_not_perturbed():
  params = {"w": np.ones(2), "running_mean": np.ones(2)}

  def loss(params):
    x = statistics.attach(params["w"], params["running_mean"], jnp.full(2, 3.0))
    return jnp.sum(x**2)

  with jax.enable_x64(True):
    rule = sharpness_aware(statistics.follow(optax.sgd(0.1)), 0.5)
    after = train(rule, params, 1, loss)
    np.testing.assert_allclose(after["running_mean"], 3.0)
    ahead = 1 + 0.5 / np.sqrt(2)  # w + e
    np.testing.assert_allclose(after["w"], 1 - 0.1 * 2 * ahead)
