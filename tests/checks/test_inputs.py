"""Data, test examples, initial models and grids: each checker by itself."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from fedjax_opt import ClientData, domo, fed_avg, scaffold
from fedjax_opt.checks import functions
from fedjax_opt.engine import inputs
from tests.checks import given
from tests.checks.given import (
  ALGORITHM,
  DATA,
  OWNERS,
  PARAMS,
  SGD,
  TEST,
  Each,
  X,
  Y,
  evaluate,
  loss_fn,
  refused,
)

KEY = jax.random.key(0)
ROWS, ONES = np.zeros((4, 3), int), np.ones(4, int)
NAN = float("nan")


class Module(nnx.Module):
  def __init__(self):
    self.w = nnx.Param(np.zeros((3, 2)))


class CallableModule(Module):
  def __call__(self, x):
    return x @ self.w


def make(lr):
  return fed_avg(loss_fn, optax.sgd(lr))


def algorithm(value):
  inputs.check_grid(value, None)


def data(value):
  inputs.data_of_seeds(value, None)


def data_of_seeds(value):
  inputs.data_of_seeds(value, [0, 1])


def raw(parts):
  ClientData(*parts)


def held_out(given, evaluate=evaluate):
  ((name, value),) = given.items()
  inputs.check_test(value, evaluate, name, DATA)


def unmeasured(given):
  held_out(given, None)


def model(value):
  inputs.check_params(value, may_be_function=False)


def models(value):
  inputs.check_params(value, may_be_function=True)


def of_model(leaf):
  model({"w": leaf})


def grid(values, make=make):
  inputs.check_grid(make, values)


def rates(values):
  grid({"lr": values})


def made(function):
  grid({"lr": [0.1, 0.2]}, function)


def share_nothing(seed):
  return ClientData.from_client_ids({"x": X + seed, "y": Y}, OWNERS)


def fewer(seed):
  return ClientData(TEST, np.zeros((4 - seed, 3), int), np.ones(4 - seed, int))


TABLES = {
  (algorithm, TypeError): {
    "algorithm=": Each(fed_avg, optax.sgd, lambda: ALGORITHM, None, "fed_avg"),
    "algorithm: is an optimizer; must be an Algorithm": SGD,
  },
  (data, TypeError): {
    "data=": Each(None, TEST, [TEST], X, ClientData, lambda seed: DATA),
  },
  (data_of_seeds, TypeError): {
    "data=": Each([DATA, DATA], lambda: DATA),
    "data(0)=": Each(lambda seed: None, lambda seed: TEST),
  },
  (data_of_seeds, ValueError): {
    "data: failed: KeyError: 0": lambda seed: {}[seed],
    "data: the clients of all seeds must share the examples": share_nothing,
    "data: has 3 clients for one seed and 4 for another": fewer,
  },
  (raw, ValueError): {
    "sizes: has 9; must be in [0, 3]": (TEST, ROWS, ONES + 8),
    "indices: has 99; must be in [0, 11]": (TEST, ROWS + 99, ONES + 2),
    "indices: is int64[4]; must be whole": (TEST, ONES - 1, ONES),
    "sizes: has no client with an example": Each(
      (TEST, ROWS, ONES - 1), (TEST, np.zeros((0, 3), int), np.zeros(0, int))
    ),
    "examples: lengths differ (x 12, y 3)": (TEST | {"y": Y[:3]}, ROWS, ONES),
  },
  (raw, TypeError): {
    "indices=an array float64[4, 3]: must be": (TEST, ROWS / 1, ONES),
    "examples=a list": ([X], ROWS, ONES),
    "examples['x']='a'": ({"x": "a"}, ROWS, ONES),
  },
  (held_out, TypeError): {
    "test=": Each({"test": [X, Y]}, {"test": X}, {"test": {}}),
    "validation=": {"validation": [X]},
    "test['x']=": Each({"test": {"x": [1, 2]}}, {"test": {"x": np.float32(3)}}),
    "test['x']: is <U1[3]": {"test": {"x": np.array(["a"] * 3)}},
  },
  (held_out, ValueError): {
    "test: lengths differ (x 12, y 5)": {"test": {"x": X, "y": Y[:5]}},
    "test: has no examples": {"test": {"x": X[:0]}},
    "test: 12 of its 12 examples are among those": {"test": DATA},
    "validation: 12 of its 12 examples are among": {"validation": DATA},
  },
  (unmeasured, ValueError): {
    "test: nothing is measured on it": {"test": TEST},
    "validation: nothing is measured on it": {"validation": TEST},
  },
  (functions.check_takes_validation, TypeError): {
    "evaluate=the function <lambda>": lambda params, data, test: {}
  },
  (lambda kind: model(kind()), TypeError): {
    "params=": Each(Module, CallableModule),
  },
  (model, TypeError): {
    "params=": Each(None, "w", 3, {"a"}, lambda key: PARAMS, loss_fn),
    "params['v'][0]=1: ": {"w": None, "v": [1, 2]},
    "params['a']['b'][1]=3: ": {"a": {"b": [np.zeros(2), 3]}},
  },
  (of_model, TypeError): {
    "params['w']=": Each("a", 3),
    "params['w']: is ": Each(
      np.zeros((3, 2), int),
      np.zeros((3, 2), complex),
      np.zeros(2, bool),
      KEY,
      jax.ShapeDtypeStruct((3, 2), float),
    ),
  },
  (functools.partial(jax.eval_shape, of_model), TypeError): {
    "params['w']: is traced": np.zeros(2, np.float32)
  },
  (of_model, ValueError): {"params['w']: is not finite": np.array(np.nan)},
  (models, TypeError): {
    "params=": Each(None, dict, lambda: PARAMS, lambda key, x: PARAMS),
    "params(key)['w']='a': ": lambda key: {"w": "a"},
    "params(key)['w']: is int32; ": lambda key: {"w": jnp.zeros(3, int)},
    "params(key): is key<fry>": lambda key: key,
    "params: failed with a random key": lambda key: key["a"],
  },
  (grid, TypeError): {
    "grid=": Each([0.1], 3),
    "grid: the name 3 must be a string": {3: [0.1]},
    "make: failed with the hyperparameters of the grid (": Each(
      {"rate": [0.1]}, {"lr": [0.1], "b": [1]}, {}
    ),
  },
  (grid, ValueError): {
    "grid['seed']: seeds are not hyperparameters": {"seed": [1, 2]},
    "grid['seeds']: seeds are not hyperparameters": {"seeds": [1, 2]},
  },
  (rates, TypeError): {
    "grid['lr']=": Each(0.1, "0.1"),
    "grid['lr'][0]=": Each(np.ones((2, 2)), ["0.1"], [None], [True]),
    "grid['lr']: is key<fry>": jax.random.split(KEY),
  },
  (rates, ValueError): {
    "grid['lr']=[]: must be a list of numbers": [],
    "grid['lr'][0]=nan: must be in [-inf, inf]": [NAN],
    "grid['lr']: 0.1 is repeated": [0.1, 0.2, 0.1],
    "grid['lr']: 1 is repeated": [1, 1.0],
    "grid['lr'][0]=1000000000000: does not fit into 32 bits": [10**12],
    "grid['lr']=1e+39: must be 0, or from": [1e39],
  },
  (made, TypeError): {
    "algorithm=": Each(ALGORITHM, SGD),
    "make(...): is an optimizer": lambda lr: optax.sgd(lr),
    "make(...)=": Each(lambda lr: None, lambda lr: fed_avg),
    "make: failed with traced numbers (lr)": Each(
      lambda lr: make(lr if lr > 0 else 0.1), lambda lr: make(float(lr))
    ),
    "client=the function optax.sgd": lambda lr: fed_avg(loss_fn, optax.sgd),
  },
  (made, ValueError): {
    "make: failed with the hyperparameters of the grid (lr): KeyError: 0.1": (
      lambda lr: {}[lr]
    ),
    "learning_rate=-0.1: ": lambda lr: scaffold(loss_fn, lr - 0.3 + 1 / 10),
    "mu_s=1: ": lambda lr: domo(loss_fn, 0.1, mu_s=lr * 5),
  },
}


@pytest.mark.parametrize(("call", "kind", "line"), refused(TABLES))
def test_is_refused(call, kind, line):
  given.check(call, kind, line)
