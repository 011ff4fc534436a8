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

CLIENTS = (
  "must be clients, such as ClientData.from_client_ids({'x': x, 'y': y}, "
  "client_ids), or a Population"
)
ALGORITHMS = "must be an Algorithm, such as fed_avg(loss_fn, optax.sgd(0.1))"
UNCALLED = (
  "must be an Algorithm (it was not called), such as fed_avg(loss_fn, "
  "optax.sgd(0.1))"
)
OPTIMIZER = (
  "is an optimizer; must be an Algorithm, such as fed_avg(loss_fn, "
  "client=optimizer)"
)
MAKE = (
  "must be a function of the hyperparameters that returns an Algorithm, such "
  "as lambda lr: fed_avg(loss_fn, optax.sgd(lr))"
)
FLOATS = "must be floating-point numbers, as local steps add fractions to it"
FLOAT = "must be an array of floating-point numbers"
EXAMPLES = "must be a dict of arrays [N, ...], such as {'x': x, 'y': y}"
KEY = jax.random.key(0)
ONLY_SHAPE = "params['w']: is only the shape of an array; must be one"
TRACED = (
  "it needs the value of a traced array; write jnp.where instead of if, and "
  "jax.numpy instead of float(), int() and NumPy"
)


ROWS, ONES = np.zeros((4, 3), int), np.ones(4, int)


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


def examples(value):
  inputs.check_test(value, evaluate)


def validation(value):
  inputs.check_test(value, evaluate, "validation")


def held_out(name):
  inputs.check_test(DATA, evaluate, name, DATA)


def model(value):
  inputs.check_params(value, may_be_function=False)


def models(value):
  inputs.check_params(value, may_be_function=True)


def of_model(leaf):
  model({"w": leaf})


def grid(values, make=make):
  inputs.check_is_grid(values)
  inputs.check_grid(make, values)


def made(function):
  grid({"lr": [0.1, 0.2]}, function)


def pooled(name, text):
  wanted = (
    "must be ClientData, such as a part of data.split(0.2), or a dict of "
    f"arrays [N, ...], such as {{'x': x_{name}, 'y': y_{name}}}"
  )
  return f"{name}={text}: {wanted}"


def share_nothing(seed):
  return ClientData.from_client_ids({"x": X + seed, "y": Y}, OWNERS)


def fewer(seed):
  return ClientData(TEST, np.zeros((4 - seed, 3), int), np.ones(4 - seed, int))


TREE = "must be a pytree of arrays"
NNX = f"{TREE}; of an nnx module give nnx.state(model, nnx.Param)"
FOR_SWEEP = f"{TREE}; a function from a random key to one is for sweep"


def values(text):
  return f"grid['lr']={text}: must be a list of numbers, such as [0.01, 0.1]"


def no_grid(text):
  wanted = 'must be a dict of values, such as {"learning_rate": [0.01, 0.1]}'
  return f"grid={text}: {wanted}; {{}} for one setting"


TABLES = {
  (algorithm, TypeError): {
    f"algorithm=the function fedjax_opt.fed_avg: {UNCALLED}": fed_avg,
    f"algorithm=the function optax.sgd: {UNCALLED}": optax.sgd,
    f"algorithm=the function <lambda>: {UNCALLED}": lambda: ALGORITHM,
    f"algorithm=None: {ALGORITHMS}": None,
    f"algorithm='fed_avg': {ALGORITHMS}": "fed_avg",
    f"algorithm: {OPTIMIZER}": SGD,
  },
  (data, TypeError): {
    f"data=None: {CLIENTS}": None,
    f"data=a dict: {CLIENTS}": TEST,
    f"data=a list: {CLIENTS}": [TEST, TEST],
    f"data=an array float32[12, 3]: {CLIENTS}": X,
    f"data=the class ClientData: {CLIENTS}": ClientData,
    f"data=the function <lambda>: {CLIENTS}": lambda seed: DATA,
  },
  (data_of_seeds, TypeError): {
    f"data=a list: {CLIENTS}": [DATA, DATA],
    "data=the function <lambda>: takes (); must be a function (seed) -> "
    "ClientData": lambda: DATA,
    "data(0)=None: must be a ClientData or a Population": lambda seed: None,
    "data(0)=a dict: must be a ClientData or a Population": lambda seed: TEST,
  },
  (data_of_seeds, ValueError): {
    "data: failed: KeyError: 0": lambda seed: {}[seed],
    "data: the clients of all seeds must share the examples; give them as "
    "ClientData.from_partition(examples, rows, keep_pool=True) makes them": (
      share_nothing
    ),
    "data: has 3 clients for one seed and 4 for another; must be as many for "
    "all": fewer,
  },
  (raw, ValueError): {
    "sizes: must be in [0, 3], the n_max of indices": (TEST, ROWS, ONES + 8),
    "indices: must be rows of the 12 examples, from 0 to 11": (
      TEST,
      ROWS + 99,
      ONES + 2,
    ),
    "indices [4] and sizes [4] must be [M, n_max] and [M]": (
      TEST,
      ONES - 1,
      ONES,
    ),
    "sizes: has no client with an example": Each(
      (TEST, ROWS, ONES - 1), (TEST, np.zeros((0, 3), int), np.zeros(0, int))
    ),
    "examples: lengths differ (x 12, y 3); must be equal": (
      {"x": X, "y": Y[:3]},
      ROWS,
      ONES,
    ),
  },
  (raw, TypeError): {
    "indices float64[4, 3] and sizes int64[4] must be whole numbers": (
      TEST,
      ROWS / 1,
      ONES,
    ),
    f"examples=a list: {EXAMPLES}": ([X], ROWS, ONES),
    "examples['x']='a': must be an array [N, ...]": (
      {"x": "a"},
      ROWS,
      ONES,
    ),
  },
  (examples, TypeError): {
    pooled("test", "a list"): [X, Y],
    pooled("test", "an array float32[12, 3]"): X,
    pooled("test", "{}"): {},
    "test['x']=[1, 2]: must be an array [N, ...]": {"x": [1, 2]},
    "test['x']=np.float32(3.0): must be an array [N, ...]": {
      "x": np.float32(3)
    },
    "test['x']: is <U1[3]; must be numbers": {"x": np.array(["a"] * 3)},
  },
  (examples, ValueError): {
    "test: lengths differ (x 12, y 5); must be equal": {"x": X, "y": Y[:5]},
    "test: has no examples; must have at least one, or be None": {
      "x": X[:0],
      "y": Y[:0],
    },
  },
  (held_out, ValueError): {
    f"{name}: 12 of its 12 examples are among those that clients train on; "
    "must have none of them, as the second part of data.split(0.2), of which "
    "the first one trains": name
    for name in ("test", "validation")
  },
  (validation, TypeError): {
    pooled("validation", "a list"): [X],
  },
  (validation, ValueError): {
    "validation: lengths differ (x 12, y 5); must be equal": {
      "x": X,
      "y": Y[:5],
    }
  },
  (lambda name: inputs.check_test(TEST, None, name), ValueError): {
    **{
      f"{name}: nothing is measured on it; give evaluate=, such as "
      "evaluation.federated(per_example)": name
      for name in ("test", "validation")
    }
  },
  (functions.check_takes_validation, TypeError): {
    "evaluate=the function <lambda>: takes (params, data, test); to be "
    "measured on validation= as well it must be a function (params, data, "
    "test, validation=None) -> {name: scalar}": lambda params, data, test: {}
  },
  (lambda kind: model(kind()), TypeError): {
    f"params=a Module: {NNX}": Module,
    f"params=a CallableModule: {NNX}": CallableModule,
  },
  (model, TypeError): {
    "params=None: must be a pytree of arrays": None,
    "params='w': must be a pytree of arrays": "w",
    "params=3: must be a pytree of arrays": 3,
    "params={'a'}: must be a pytree of arrays": {"a"},
    f"params['v'][0]=1: {FLOAT}": {"w": None, "v": [1, 2]},
    f"params['a']['b'][1]=3: {FLOAT}": {"a": {"b": [np.zeros(2), 3]}},
    f"params=the function <lambda>: {FOR_SWEEP}": lambda key: PARAMS,
    f"params=the function loss_fn: {FOR_SWEEP}": loss_fn,
  },
  (of_model, TypeError): {
    f"params['w']: is int64; {FLOATS}": np.zeros((3, 2), int),
    f"params['w']: is complex128; {FLOATS}": np.zeros((3, 2), complex),
    f"params['w']: is bool; {FLOATS}": np.zeros(2, bool),
    "params['w']: is key<fry>; must be numbers": KEY,
    f"params['w']='a': {FLOAT}": "a",
    f"params['w']=3: {FLOAT}": 3,
    ONLY_SHAPE: jax.ShapeDtypeStruct((3, 2), float),
  },
  (functools.partial(jax.eval_shape, of_model), TypeError): {
    "params['w']: is traced; a run compiles its own program: call it outside "
    "of jax.jit, jax.grad and jax.vmap": np.zeros(2, np.float32)
  },
  (of_model, ValueError): {
    "params['w']: is not finite; the initial model must be": np.array(np.nan)
  },
  (models, TypeError): {
    "params=None: must be a pytree of arrays": None,
    "params=the class dict: must be a pytree of arrays": dict,
    "params=the function <lambda>: takes (); must be a function (key) -> "
    "params, or a pytree of arrays": lambda: PARAMS,
    "params=the function <lambda>: takes (key, x); must be a function (key) "
    "-> params, or a pytree of arrays": lambda key, x: PARAMS,
    "params(key)['w']: is 'a'; must be an array of numbers": lambda key: {
      "w": "a"
    },
    "params(key)['w']: is int32; must be floating-point numbers": lambda key: {
      "w": jnp.zeros(3, int)
    },
    "params(key): is key<fry>; must be floating-point numbers": lambda key: key,
    "params: failed with a random key:...": lambda key: key["a"],
  },
  (grid, TypeError): {
    no_grid("None"): None,
    no_grid("[0.1]"): [0.1],
    "grid: the name 3 must be a string": {3: [0.1]},
    "make: failed with the hyperparameters of the grid (rate): TypeError: "
    "make() got an unexpected keyword argument 'rate'": {"rate": [0.1]},
    "make: failed with the hyperparameters of the grid (lr, b): TypeError: "
    "make() got an unexpected keyword argument 'b'": {"lr": [0.1], "b": [1]},
    "make: failed with the hyperparameters of the grid (none): TypeError: "
    "make() missing 1 required positional argument: 'lr'": {},
  },
  (lambda values: grid({"lr": values}), TypeError): {
    values("0.1"): 0.1,
    values("'0.1'"): "0.1",
    values("an array float64[2, 2]"): np.ones((2, 2)),
    "grid['lr']: is key<fry>; must be numbers": jax.random.split(
      jax.random.key(0)
    ),
    "grid['lr']: lr='0.1': must be a number": ["0.1"],
    "grid['lr']: lr=None: must be a number": [None],
    "grid['lr']: lr=True: must be a number": [True],
  },
  (lambda values: grid({"lr": values}), ValueError): {
    "grid['lr']: nan is no value; must be numbers": [float("nan")],
    "lr: give at least one value": [],
    "grid['lr']: 0.1 is repeated; give it once": [0.1, 0.2, 0.1],
    "grid['lr']: 1 is repeated; give it once": [1, 1.0],
    "grid['lr']: 1000000000000 does not fit into 32 bits; write 1e+12": [
      10**12
    ],
    f"grid['lr']: {10**50} is too large": [10**50],
  },
  (lambda name: grid({name: [1, 2]}), ValueError): {
    **{
      f"grid[{name!r}]: seeds are not hyperparameters; give seeds=[...]": name
      for name in ("seed", "seeds")
    }
  },
  (made, TypeError): {
    f"algorithm=an Algorithm: {MAKE}": ALGORITHM,
    f"algorithm=an optimizer: {MAKE}": SGD,
    f"make(...): {OPTIMIZER}": lambda lr: optax.sgd(lr),
    f"make(...)=None: {ALGORITHMS}": lambda lr: None,
    f"make(...)=the function fedjax_opt.fed_avg: {UNCALLED}": lambda lr: (
      fed_avg
    ),
    f"make: failed with traced numbers (lr): {TRACED}": Each(
      (lambda lr: make(lr if lr > 0 else 0.1)), lambda lr: make(float(lr))
    ),
    "client=the function optax.sgd: was not called; write optax.sgd(...)": (
      lambda lr: fed_avg(loss_fn, optax.sgd)
    ),
  },
  (made, ValueError): {
    "make: failed with the hyperparameters of the grid (lr): KeyError: 0.1": (
      lambda lr: {}[lr]
    ),
    "learning_rate=-0.1: must be in [0, inf)": (
      lambda lr: scaffold(loss_fn, lr - 0.3 + 1 / 10)
    ),
    "mu_s=1: must be in [0, 1)": (lambda lr: domo(loss_fn, 0.1, mu_s=lr * 5)),
  },
}
CASES = refused(TABLES)


@pytest.mark.parametrize(("call", "kind", "line"), CASES)
def test_is_refused(call, kind, line):
  given.check(call, kind, line)
