"""Digests of algorithms: equal for equal code in any process, else others."""

import inspect
import subprocess
import sys
import types
from typing import NamedTuple

import jax
import numpy as np
import optax
import pytest

from fedjax_opt import delta_sgd, fed_avg, models
from fedjax_opt.identity import digest_of
from tests import jax_problems

TASK = jax_problems.least_squares()
GLOBAL = 1.0
MODULE = types.ModuleType("settings_of_a_test")
MODULE.__file__ = __file__
SOME = set()


class Loss:
  scale = 1.0

  def __call__(self, params, batch, rng):
    return self.scale * TASK.loss_fn(params, batch, rng)


def helper():
  return GLOBAL


# What a loss reads -> how that is another.
CASES = {
  "a global": (
    lambda *args: GLOBAL * TASK.loss_fn(*args),
    lambda: globals().update(GLOBAL=3.0),
  ),
  "a global of a helper": (
    lambda *args: helper() * TASK.loss_fn(*args),
    lambda: globals().update(GLOBAL=3.0),
  ),
  "an attribute of a class": (Loss(), lambda: setattr(Loss, "scale", 3.0)),
  "a module of settings": (
    lambda *args: MODULE.scale * TASK.loss_fn(*args),
    lambda: setattr(MODULE, "scale", 3.0),
  ),
  "a set": (
    lambda *args: len(SOME) * TASK.loss_fn(*args),
    lambda: SOME.add("a"),
  ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_loss_reads_is_in_the_digest(name, monkeypatch):
  monkeypatch.setitem(globals(), "GLOBAL", 1.0)
  monkeypatch.setattr(Loss, "scale", 1.0)
  monkeypatch.setattr(MODULE, "scale", 1.0, raising=False)
  loss_fn, change = CASES[name]
  digest = lambda: digest_of(fed_avg(loss_fn, optax.sgd(0.01)))
  before = digest()
  assert digest() == before
  change()
  assert digest() != before


def test_functions_made_anew_are_the_same():
  made = lambda rate: fed_avg(TASK.loss_fn, optax.sgd(rate))
  assert digest_of(made(0.1)) == digest_of(made(0.1))
  assert digest_of(made(0.1)) != digest_of(made(0.2))
  arrays = lambda value: {"x": [np.full(3, value), jax.random.key(0)]}
  assert digest_of(arrays(1.0)) == digest_of(arrays(1.0))
  assert digest_of(arrays(1.0)) != digest_of(arrays(2.0))


class Kept(NamedTuple):
  total: float


def ruled(rate):
  update = lambda grads, state, params=None: (grads, Kept(state.total + rate))
  return optax.GradientTransformation(lambda params: Kept(0.0), update)


@pytest.mark.parametrize(
  "value",
  [
    ruled,
    models.MLP(hidden=(3,), num_classes=2),
    models.CNN(num_classes=2),
    jax.nn.relu,  # Wrapped twice.
    jax.nn.softplus,
  ],
  ids=["a rule", "a perceptron", "a convolutional network", "relu", "softplus"],
)
def test_what_users_have_is_the_same_at_each_time(value):
  before = digest_of(lambda: value)
  inspect.signature(jax.nn.relu)
  if hasattr(value, "init"):
    value.init(jax.random.key(0), np.ones((1, 28, 28, 1), np.float32))
  assert digest_of(lambda: value) != ""
  again = lambda: value
  assert digest_of(again) == digest_of(again)
  assert len(before) == 32


def test_arguments_are_a_part_of_a_function():
  one, many = eval("lambda a: a"), eval("lambda *a: a")
  assert digest_of(one) != digest_of(many)


def made():
  model = models.MLP(hidden=(3,), num_classes=2)
  loss_fn = lambda params, batch, rng: model.apply(params, batch["x"])
  return fed_avg(loss_fn, delta_sgd(), optax.adam(0.1))


def test_another_process_gives_the_same_digest():
  code = "from tests.test_identity import *; print(digest_of((made(), TASK)))"
  done = subprocess.run(
    [sys.executable, "-c", code], capture_output=True, text=True, check=True
  )
  assert done.stdout.strip() == digest_of((made(), TASK))
