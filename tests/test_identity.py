"""Whether programs are taken again, and made anew where something changed.

Each case is a loss that reads a number in some way, and how that changes. Both
runs have the same code; the second one must see the new number.
"""

import collections
import dataclasses
import functools
import inspect
import types
from typing import NamedTuple

import jax
import numpy as np
import optax
import pytest

from fedjax_opt import fed_avg, models, simulate
from fedjax_opt.identity import key_of
from tests import jax_problems

TASK = jax_problems.least_squares()
GLOBAL = 1.0
MODULE = types.ModuleType("settings_of_a_test")
MODULE.__file__ = __file__


def scaled(scale, params, batch, rng):
  return scale * TASK.loss_fn(params, batch, rng)


class Callable:
  def __call__(self, *args):
    return scaled(GLOBAL, *args)


class Scaled:
  """A loss that is an object."""

  scale = 1.0

  def __call__(self, *args):
    return scaled(self.scale, *args)


class Frozen(NamedTuple):
  """Whose method reads a global number."""

  factor: float

  def loss(self, *args):
    return self.factor * scaled(GLOBAL, *args)


class Slots:
  __slots__ = ("scale",)


@dataclasses.dataclass(slots=True)
class SlottedData:
  scale: float = 1.0


@jax.custom_jvp
def times(loss):
  return GLOBAL * loss


@times.defjvp
def _times_jvp(primals, tangents):
  return GLOBAL * primals[0], GLOBAL * tangents[0]


def set_global():
  global GLOBAL
  GLOBAL = 3.0


def of_object(value):
  value.scale = 1.0
  change = lambda: setattr(value, "scale", 3.0)
  return lambda *args: scaled(value.scale, *args), change


def of_container(value, change):
  return lambda *args: scaled(1.0 + 2.0 * len(value), *args), change


def of_item(value, at):
  """Of an array, a list or a dict, that is changed in place."""
  change = lambda: value.__setitem__(at, 3.0)
  return lambda *args: scaled(value[at], *args), change


def of_called(called, name):
  """Of an object whose method is the loss."""
  return getattr(called, name), lambda: setattr(called, "scale", 3.0)


def of_nested():
  """Such as `argparse` gives."""
  config = types.SimpleNamespace(inner=types.SimpleNamespace(scale=1.0))
  change = lambda: setattr(config.inner, "scale", 3.0)
  return lambda *args: scaled(config.inner.scale, *args), change


def of_module():
  MODULE.scale = 1.0
  module = MODULE
  change = lambda: setattr(MODULE, "scale", 3.0)
  return lambda *args: scaled(module.scale, *args), change


def of_function():
  def loss(*args):
    return scaled(loss.scale, *args)

  loss.scale = 1.0
  return loss, lambda: setattr(loss, "scale", 3.0)


def of_set():
  some = set()
  return of_container(some, lambda: some.add("a"))


def of_deque():
  some = collections.deque()
  return of_container(some, lambda: some.append("a"))


CASES = {
  "a global": lambda: (lambda *args: scaled(GLOBAL, *args), set_global),
  "a global read by __call__": lambda: (Callable(), set_global),
  "a global read by a custom derivative": lambda: (
    lambda *args: times(TASK.loss_fn(*args)),
    set_global,
  ),
  "a global read by a method": lambda: (Frozen(1.0).loss, set_global),
  "an object that is called": lambda: (
    (loss := Scaled()),
    lambda: setattr(loss, "scale", 3.0),
  ),
  "a method": lambda: of_called(Scaled(), "__call__"),
  "a class": lambda: of_object(type("Holder", (), {})),
  "an attribute of an attribute": of_nested,
  "a list": lambda: of_item([1.0], 0),
  "a dict": lambda: of_item({"scale": 1.0}, "scale"),
  "an array": lambda: of_item(np.ones(2), 0),
  "a large array": lambda: of_item(np.ones(20_000), 0),
  "an attribute": lambda: of_object(types.SimpleNamespace()),
  "a slot": lambda: of_object(Slots()),
  "a slot of a dataclass": lambda: of_object(SlottedData()),
  "a set": of_set,
  "a deque": of_deque,
  "a module in a closure": of_module,
  "an attribute of a function": of_function,
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_loss_reads_may_change(name, monkeypatch):
  monkeypatch.setitem(globals(), "GLOBAL", 1.0)
  loss_fn, change = CASES[name]()
  key = lambda: key_of(fed_avg(loss_fn, optax.sgd(0.01)))[0]
  before = key()
  change()
  assert key() != before


@pytest.mark.parametrize(
  "name", ["a global read by a custom derivative", "a slot"]
)
def test_what_has_changed_is_in_the_next_run(name, monkeypatch):
  monkeypatch.setitem(globals(), "GLOBAL", 1.0)
  loss_fn, change = CASES[name]()
  before = trained(loss_fn)
  change()
  after = trained(loss_fn)
  expected = trained(lambda *args: scaled(3.0, *args))
  assert not np.allclose(before, expected)
  np.testing.assert_allclose(after, expected, rtol=1e-6)


MADE_ANEW = {
  "a closure": lambda scale: lambda *args: scaled(scale, *args),
  "a default": lambda scale: (
    lambda params, batch, rng, scale=scale: scaled(scale, params, batch, rng)
  ),
  "a keyword": lambda scale: (
    lambda params, batch, rng, *, scale=scale: scaled(scale, params, batch, rng)
  ),
  "a partial": lambda scale: functools.partial(scaled, scale),
  "a jitted function": lambda scale: jax.jit(
    lambda *args: scaled(scale, *args)
  ),
}


@pytest.mark.parametrize("make", MADE_ANEW.values(), ids=MADE_ANEW)
def test_a_changed_number_makes_another_key(make):
  key = lambda scale: key_of(fed_avg(make(scale), optax.sgd(0.01)))[0]
  assert key(1.0) == key(1.0) != key(3.0)


def trained(loss_fn):
  result = simulate(
    fed_avg(loss_fn, optax.sgd(0.01)),
    TASK.params,
    TASK.data,
    rounds=2,
    batch_size=4,
  )
  return jax_problems.flat(result.params)


def test_functions_made_anew_are_the_same():
  made = lambda rate: fed_avg(TASK.loss_fn, optax.sgd(rate))
  assert key_of(made(0.1))[0] == key_of(made(0.1))[0]
  assert key_of(made(0.1))[0] != key_of(made(0.2))[0]


class Kept(NamedTuple):
  total: float


def ruled(rate):
  update = lambda grads, state, params=None: (grads, Kept(state.total + rate))
  return optax.GradientTransformation(lambda params: Kept(0.0), update)


@pytest.mark.parametrize(
  "value",
  [ruled, models.MLP(hidden=(3,), num_classes=2), models.CNN(num_classes=2)],
  ids=["a rule with a tuple", "a perceptron", "a convolutional network"],
)
def test_what_users_have_is_the_same_at_each_time(value):
  function = lambda: value
  inspect.signature(jax.nn.relu)
  assert key_of(function)[0] == key_of(function)[0]


def test_functions_of_jax_are_themselves():
  # Such as the activation of `models.MLP`, which is wrapped twice.
  for function in (jax.nn.relu, jax.nn.softplus, jax.nn.log1mexp):
    assert key_of(function)[0] == key_of(function)[0]


def test_arguments_are_a_part_of_a_function():
  one, many = eval("lambda a: a"), eval("lambda *a: a")
  assert key_of(one)[0] != key_of(many)[0]
