"""FedOpt's Algorithm 2, against a plain loop that is read from the paper."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_opt import fed_avg, simulate
from fedjax_opt.rules import RULES, fedopt_adagrad, fedopt_adam, fedopt_yogi
from tests import jax_problems, reference

FACTORIES = {
  "adam": fedopt_adam,
  "yogi": fedopt_yogi,
  "adagrad": fedopt_adagrad,
}
SETTINGS = {"b1": 0.8, "b2": 0.95, "eps": 0.02}


def algorithm_2(kind, x, deltas, eta):
  """Server steps of the box; returns x after each."""
  server, xs = reference.FedOpt(kind, eta, *SETTINGS.values()), []
  for delta in deltas:
    x = server.step(x, None, -delta, None)
    xs.append(x)
  return np.array(xs)


def make(kind, eta=0.3, **settings):
  settings = SETTINGS | settings
  if kind == "adagrad":
    del settings["b2"]
  return FACTORIES[kind](eta, **settings)


def run(rule, x, deltas):
  """The rule's iterates; it takes -Delta for a gradient."""
  state, xs = rule.init(x), []
  for delta in deltas:
    updates, state = rule.update(-delta, state, x)
    x = optax.apply_updates(x, updates)
    xs.append(x)
  return np.array(xs)


@pytest.mark.parametrize("kind", FACTORIES)
@pytest.mark.parametrize(
  ("dtype", "rtol"), [("float32", 1e-5), ("float64", 1e-12)]
)
def test_server_steps_are_algorithm_2(kind, dtype, rtol):
  rng = np.random.default_rng(0)
  # Large, small and vanishing entries: both signs in Yogi's difference.
  deltas = rng.normal(size=(12, 5)) * np.array([1, 0.1, 0.01, 1e-4, 0])
  x = rng.normal(size=5)
  expected = algorithm_2(kind, x, deltas, 0.3)
  with jax.enable_x64(dtype == "float64"):
    actual = run(make(kind), jnp.asarray(x, dtype), jnp.asarray(deltas, dtype))
  np.testing.assert_allclose(actual, expected, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("kind", FACTORIES)
def test_the_first_step(kind):
  """By hand, b1 = 0: no bias correction, and v from tau^2."""
  delta, eps, b2 = 0.5, 0.1, 0.75
  square = delta**2
  v = {
    "adam": b2 * eps**2 + (1 - b2) * square,
    "yogi": eps**2 + (1 - b2) * square,
    "adagrad": eps**2 + square,
  }[kind]
  rule = make(kind, 1.0, b1=0.0, b2=b2, eps=eps)
  x = run(rule, jnp.zeros(1), [jnp.full(1, delta)])
  np.testing.assert_allclose(x, delta / (np.sqrt(v) + eps), rtol=1e-6)


def test_rounds_are_algorithm_2():
  """One local step on all examples: Delta is minus the rate times grad f."""
  task, rate, kind = jax_problems.softmax(), 0.5, "yogi"
  with jax.enable_x64(True):
    params = optax.tree.cast(task.params, jnp.float64)
    history = []
    for rounds in (1, 2, 3):
      result = simulate(
        fed_avg(task.loss_fn, optax.sgd(rate), make(kind, 0.1)),
        params, task.data, rounds=rounds, batch_size=20, local_steps=1,
      )  # fmt: skip
      history.append(jax_problems.flat(result.params))
  x = np.asarray(jax_problems.flat(params), float)
  starts = [x, *history]
  everything = np.concatenate(task.problem.client_rows)
  deltas = [
    -rate * task.problem.gradient(start, everything)[1] for start in starts[:3]
  ]
  expected = algorithm_2(kind, x, deltas, 0.1)
  np.testing.assert_allclose(history, expected, rtol=1e-9, atol=1e-12)


def test_defaults_are_the_paper_s():
  for name in FACTORIES:
    numbers = {
      p.name: p.default for p in RULES[f"fedopt_{name}"].hyperparameters
    }
    assert numbers["eps"] == 1e-3
    assert numbers["b1"] == (0.0 if name == "adagrad" else 0.9)
    assert numbers.get("b2", 0.99) == 0.99
