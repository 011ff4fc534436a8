"""Every rule of the registry: its defaults, its limits, its number formats."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_opt import sps, step_decay
from fedjax_opt.registry import Hyperparameter
from fedjax_opt.rules import RULES
from tests import reference
from tests.helpers import rule_referees
from tests.helpers.refusals import refusal
from tests.helpers.rule_referees import REFEREES

pytestmark = pytest.mark.quick

CENTER = np.array([0.5, -1.0, 2.0])


def loss(x):
  return jnp.sum(jnp.array([1.0, 2.0, 4.0]) * (x - CENTER) ** 2) / 2


def defaults(name):
  return {p.name: p.default for p in RULES[name].hyperparameters}


def train(rule, num_steps=20, dtype="float32"):
  return rule_referees.train(rule, loss, np.zeros(3), num_steps, dtype)[0]


def test_every_rule_has_its_loop():
  names = {name.removesuffix("_reused") for name in REFEREES}
  assert names == set(RULES)


@pytest.mark.parametrize("name", REFEREES)
def test_a_rule_is_its_loop(name):
  def objective(x, rows):
    grad = np.array([1.0, 2.0, 4.0]) * (x - CENTER)
    return grad @ (x - CENTER) / 2, grad

  loop = reference.descend(
    np.zeros(3), objective, [None] * 20, rule_referees.referee(name)
  )
  with jax.enable_x64(True):
    x = train(rule_referees.rule(name), dtype="float64")
  np.testing.assert_allclose(x, loop.xs[-1], rtol=1e-9)


# PyTorch's optimizers as its documentation states them, and FedOpt's: b1, b2
# and tau of its section 5.
DEFAULTS = {
  "sgd": (0.1,),
  "sgdm": (0.1, 0.9),
  "adam": (1e-3, 0.9, 0.999, 1e-8),
  "adagrad": (1e-2, 0.0, 1e-10),
  "fedopt_adam": (0.01, 0.9, 0.99, 1e-3),
  "fedopt_yogi": (0.01, 0.9, 0.99, 1e-3),
  "fedopt_adagrad": (0.01, 0.0, 1e-3),
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_are_those_of_pytorch_and_of_fedopt(name):
  assert tuple(defaults(name).values()) == DEFAULTS[name]


@pytest.mark.parametrize("name", RULES)
def test_descends_and_keeps_the_type(name):
  x = train(RULES[name].factory(**defaults(name)), dtype="bfloat16")
  assert x.dtype == "bfloat16"
  assert loss(x) < loss(np.zeros(3))


@pytest.mark.parametrize("name", RULES)
def test_hyperparameters_may_be_traced(name):
  """As in a grid: every number but a switch is an array."""
  values = defaults(name)
  traced = {k: v for k, v in values.items() if not isinstance(v, bool)}
  x = train(RULES[name].factory(**values), 3)

  @jax.vmap
  def run(numbers):
    return train(RULES[name].factory(**values | numbers), 3)

  pairs = {k: jnp.array([v, v]) for k, v in traced.items()}
  np.testing.assert_allclose(run(pairs), [x, x], rtol=1e-5)


def test_a_value_outside_its_interval_is_one_line():
  parameter = Hyperparameter("mu", 0.5, "a strength", "[0, 1)")
  parameter.check("client_mu", 0.0)
  line = refusal(parameter.check, "client_mu", 1.0)
  assert line == "client_mu=1: must be in [0, 1)"


def test_step_decay_drops_after_half_and_three_quarters():
  factors = [float(step_decay(jnp.int32(r), num_rounds=8)) for r in range(8)]
  np.testing.assert_allclose(factors, [1] * 4 + [0.1] * 2 + [0.01] * 2)
  other = step_decay(3, num_rounds=10, milestones=[0.3], factor=0.5)
  assert float(other) == 0.5
  assert float(step_decay(0, num_rounds=1)) == 1


# Stochastic Polyak step sizes: the number itself.


PARAMS = {"a": np.array([1.0, 2.0]), "b": np.array([-2.0])}
GRADS = {"a": np.array([0.5, -1.0]), "b": np.array([2.0])}


def step_size(rule, value, scale=1.0):
  """By how much of the gradient the rule moves."""
  params = jax.tree.map(jnp.asarray, PARAMS)
  grads = jax.tree.map(lambda leaf: scale * jnp.asarray(leaf), GRADS)
  updates, _ = rule.update(grads, rule.init(params), params, value=value)
  ratios = jax.tree.map(lambda u, g: -u / g, updates, grads)
  ratios = np.concatenate(jax.tree.leaves(ratios))
  np.testing.assert_allclose(ratios, ratios[0], rtol=1e-6)
  return ratios[0]


@pytest.mark.parametrize("c", [0.5, 2.0])
@pytest.mark.parametrize(
  ("value", "f_min", "max_step", "scale"),
  [
    (3.0, 0.0, np.inf, 1.0),
    (3.0, 0.4, np.inf, 1.0),
    (3.0, 0.0, 0.01, 1.0),
    (3.0, 0.0, 10.0, 1.0),
    (3e-12, 0.0, np.inf, 1e-6),  # Here 1e-8 counts.
    # Below the bound the gap is negative, and so was the step.
    (0.99, 1.0, np.inf, 1.0),
    (-np.inf, 1.0, np.inf, 1.0),
  ],
)
def test_step_is_the_gap_over_c_times_the_squared_norm(
  c, value, f_min, max_step, scale
):
  gap, squares = max(value - f_min, 0), 5.25 * scale**2
  with jax.enable_x64(True):
    actual = step_size(sps(c, f_min, max_step), value, scale)
  expected = min(gap / (c * squares + 1e-8), max_step)
  np.testing.assert_allclose(actual, expected, rtol=1e-9)
