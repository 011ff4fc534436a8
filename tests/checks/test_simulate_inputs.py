"""Bad data, parameters and algorithms given to `simulate`."""

import jax
import numpy as np
import optax
import optax.contrib
import pytest
from flax import nnx

from fedjax_opt import (
  ClientData,
  fed_avg,
  simulate,
)
from tests.checks import given
from tests.checks.given import (
  ALGORITHM,
  DATA,
  DEFAULTS,
  OWNERS,
  PARAMS,
  SGD,
  TEST,
  N,
  X,
  Y,
  evaluate,
  late,
  loss_fn,
  run,
)


def data(**examples):
  return late(data=lambda: ClientData.from_client_ids(examples, OWNERS))


def raw(examples, indices, sizes):
  return run(data=ClientData(examples, indices, sizes))


class Module(nnx.Module):
  def __init__(self):
    self.w = nnx.Param(np.zeros((3, 2)))


class CallableModule(Module):
  def __call__(self, x):
    return x @ self.w


# id: (call, type of the error, the whole line). A line that ends in "..." is
# compared up to there: what follows is quoted from a library.
BAD = {
  "params=nnx module": (
    late(params=Module),
    TypeError,
    (
      "params=a Module: must be a pytree of arrays; of an nnx module give "
      "nnx.state(model, nnx.Param)"
    ),
  ),
  "params=callable nnx module": (
    late(params=CallableModule),
    TypeError,
    (
      "params=a CallableModule: must be a pytree of arrays; of an nnx "
      "module give nnx.state(model, nnx.Param)"
    ),
  ),
  "test=DATA": (
    run(test=DATA),
    ValueError,
    "test: 12 of its 12 examples are among those that clients train on; must "
    "have none of them, as the second part of data.split(0.2), of which the "
    "first one trains",
  ),
  "test=[X, Y]": (
    run(test=[X, Y]),
    TypeError,
    "test=a list: must be ClientData, such as a part of data.split(0.2), "
    "or a dict of arrays [N, ...], such as {'x': x_test, 'y': y_test}",
  ),
  "test=(X, Y)": (
    run(test=(X, Y)),
    TypeError,
    "test=a tuple: must be ClientData, such as a part of data.split(0.2), "
    "or a dict of arrays [N, ...], such as {'x': x_test, 'y': y_test}",
  ),
  "test=X": (
    run(test=X),
    TypeError,
    "test=an array float32[12, 3]: must be ClientData, such as a part of "
    "data.split(0.2), or a dict of arrays [N, ...], such as {'x': x_test, "
    "'y': y_test}",
  ),
  "test='test'": (
    run(test="test"),
    TypeError,
    "test='test': must be ClientData, such as a part of data.split(0.2), "
    "or a dict of arrays [N, ...], such as {'x': x_test, 'y': y_test}",
  ),
  "test={}": (
    run(test={}),
    TypeError,
    "test={}: must be ClientData, such as a part of data.split(0.2), "
    "or a dict of arrays [N, ...], such as {'x': x_test, 'y': y_test}",
  ),
  "test={'x': [1, 2]}": (
    run(test={"x": [1, 2]}),
    TypeError,
    "test['x']=[1, 2]: must be an array [N, ...]",
  ),
  "test={'x': np.float32(3)}": (
    run(test={"x": np.float32(3)}),
    TypeError,
    "test['x']=np.float32(3.0): must be an array [N, ...]",
  ),
  "algorithm=fed_avg": (
    run(algorithm=fed_avg),
    TypeError,
    (
      "algorithm=the function fedjax_opt.fed_avg: must be an Algorithm (it "
      "was not called), such as fed_avg(loss_fn, optax.sgd(0.1))"
    ),
  ),
  "algorithm=None": (
    run(algorithm=None),
    TypeError,
    (
      "algorithm=None: must be an Algorithm, such as fed_avg(loss_fn, "
      "optax.sgd(0.1))"
    ),
  ),
  "algorithm='fed_avg'": (
    run(algorithm="fed_avg"),
    TypeError,
    (
      "algorithm='fed_avg': must be an Algorithm, such as fed_avg(loss_fn, "
      "optax.sgd(0.1))"
    ),
  ),
  "algorithm=SGD": (
    run(algorithm=SGD),
    TypeError,
    (
      "algorithm: is an optimizer; must be an Algorithm, such as "
      "fed_avg(loss_fn, client=optimizer)"
    ),
  ),
  "algorithm=loss_fn": (
    run(algorithm=loss_fn),
    TypeError,
    (
      "algorithm=the function loss_fn: must be an Algorithm (it was not "
      "called), such as fed_avg(loss_fn, optax.sgd(0.1))"
    ),
  ),
  "algorithm=optax.sgd": (
    run(algorithm=optax.sgd),
    TypeError,
    (
      "algorithm=the function optax.sgd: must be an Algorithm (it was not "
      "called), such as fed_avg(loss_fn, optax.sgd(0.1))"
    ),
  ),
  "algorithm=lambda: ALGORITHM": (
    run(algorithm=lambda: ALGORITHM),
    TypeError,
    (
      "algorithm=the function <lambda>: must be an Algorithm (it was not "
      "called), such as fed_avg(loss_fn, optax.sgd(0.1))"
    ),
  ),
  "algorithm=(1, 2, 3)": (
    run(algorithm=(1, 2, 3)),
    TypeError,
    (
      "algorithm=(1, 2, 3): must be an Algorithm, such as fed_avg(loss_fn, "
      "optax.sgd(0.1))"
    ),
  ),
  "algorithm=3": (
    run(algorithm=3),
    TypeError,
    (
      "algorithm=3: must be an Algorithm, such as fed_avg(loss_fn, "
      "optax.sgd(0.1))"
    ),
  ),
  "data=None": (
    run(data=None),
    TypeError,
    (
      "data=None: must be clients, such as ClientData.from_client_ids({'x':"
      " x, 'y': y}, client_ids), or a Population"
    ),
  ),
  "data={'x': X, 'y': Y}": (
    run(data={"x": X, "y": Y}),
    TypeError,
    (
      "data=a dict: must be clients, such as "
      "ClientData.from_client_ids({'x': x, 'y': y}, client_ids), or a "
      "Population"
    ),
  ),
  "data=[TEST, TEST]": (
    run(data=[TEST, TEST]),
    TypeError,
    (
      "data=a list: must be clients, such as "
      "ClientData.from_client_ids({'x': x, 'y': y}, client_ids), or a "
      "Population"
    ),
  ),
  "data=(X, Y)": (
    run(data=(X, Y)),
    TypeError,
    (
      "data=a tuple: must be clients, such as "
      "ClientData.from_client_ids({'x': x, 'y': y}, client_ids), or a "
      "Population"
    ),
  ),
  "data=X": (
    run(data=X),
    TypeError,
    (
      "data=an array float32[12, 3]: must be clients, such as "
      "ClientData.from_client_ids({'x': x, 'y': y}, client_ids), or a "
      "Population"
    ),
  ),
  "data='mnist'": (
    run(data="mnist"),
    TypeError,
    (
      "data='mnist': must be clients, such as "
      "ClientData.from_client_ids({'x': x, 'y': y}, client_ids), or a "
      "Population"
    ),
  ),
  "data=ClientData": (
    run(data=ClientData),
    TypeError,
    (
      "data=the class ClientData: must be clients, such as "
      "ClientData.from_client_ids({'x': x, 'y': y}, client_ids), or a "
      "Population"
    ),
  ),
  "data=lambda seed: DATA": (
    run(data=lambda seed: DATA),
    TypeError,
    (
      "data=the function <lambda>: must be clients, such as "
      "ClientData.from_client_ids({'x': x, 'y': y}, client_ids), or a "
      "Population"
    ),
  ),
  "data=3": (
    run(data=3),
    TypeError,
    (
      "data=3: must be clients, such as ClientData.from_client_ids({'x': x,"
      " 'y': y}, client_ids), or a Population"
    ),
  ),
  "params=None": (
    run(params=None),
    TypeError,
    "params=None: must be a pytree of arrays",
  ),
  "params='w'": (
    run(params="w"),
    TypeError,
    "params='w': must be an array of floating-point numbers",
  ),
  "params=3": (
    run(params=3),
    TypeError,
    "params=3: must be an array of floating-point numbers",
  ),
  "params={'w': np.zeros((3, 2), int)}": (
    run(params={"w": np.zeros((3, 2), int)}),
    TypeError,
    (
      "params['w']: is int64; must be floating-point numbers, as local "
      "steps add fractions to it"
    ),
  ),
  "params={'w': 'a'}": (
    run(params={"w": "a"}),
    TypeError,
    "params['w']='a': must be an array of floating-point numbers",
  ),
  "params={'w': None, 'v': [1, 2]}": (
    run(params={"w": None, "v": [1, 2]}),
    TypeError,
    "params['v'][0]=1: must be an array of floating-point numbers",
  ),
  "params={'w': np.full((3, 2), np.nan)}": (
    run(params={"w": np.full((3, 2), np.nan)}),
    ValueError,
    "params['w']: is not finite; the initial model must be",
  ),
  "params={'w': np.zeros((3, 2), complex)}": (
    run(params={"w": np.zeros((3, 2), complex)}),
    TypeError,
    (
      "params['w']: is complex128; must be floating-point numbers, as local"
      " steps add fractions to it"
    ),
  ),
  "params={'w': np.array(['a'])}": (
    run(params={"w": np.array(["a"])}),
    TypeError,
    (
      "params['w']: is <U1; must be floating-point numbers, as local steps "
      "add fractions to it"
    ),
  ),
  "params={'w': np.zeros(2, bool)}": (
    run(params={"w": np.zeros(2, bool)}),
    TypeError,
    (
      "params['w']: is bool; must be floating-point numbers, as local steps"
      " add fractions to it"
    ),
  ),
  "params={'w': np.array([None])}": (
    run(params={"w": np.array([None])}),
    TypeError,
    (
      "params['w']: is object; must be floating-point numbers, as local "
      "steps add fractions to it"
    ),
  ),
  "params={'w': jax.ShapeDtypeStruct((3, 2), float)": (
    run(params={"w": jax.ShapeDtypeStruct((3, 2), float)}),
    TypeError,
    (
      "params['w']=an array float64[3, 2]: must be an array of floating-"
      "point numbers"
    ),
  ),
  "params=lambda key: PARAMS": (
    run(params=lambda key: PARAMS),
    TypeError,
    (
      "params=the function <lambda>: must be a pytree of arrays; a function"
      " from a random key to one is for sweep"
    ),
  ),
  "params={'w': jax.random.key(0)}": (
    run(params={"w": jax.random.key(0)}),
    TypeError,
    (
      "params['w']: is key<fry>; must be floating-point numbers, as local "
      "steps add fractions to it"
    ),
  ),
  "params={'a': {'b': [np.zeros(2), 3]}}": (
    run(params={"a": {"b": [np.zeros(2), 3]}}),
    TypeError,
    "params['a']['b'][1]=3: must be an array of floating-point numbers",
  ),
  "params=set('a')": (
    run(params=set("a")),
    TypeError,
    "params={'a'}: must be an array of floating-point numbers",
  ),
  "params=loss_fn": (
    run(params=loss_fn),
    TypeError,
    (
      "params=the function loss_fn: must be a pytree of arrays; a function "
      "from a random key to one is for sweep"
    ),
  ),
  "test lengths": (
    run(test={"x": X, "y": Y[:5]}, evaluate=evaluate),
    ValueError,
    "test: lengths differ (x 12, y 5); must be equal",
  ),
  "test empty": (
    run(test={"x": X[:0], "y": Y[:0]}, evaluate=evaluate),
    ValueError,
    "test: has no examples; must have at least one, or be None",
  ),
  "test no evaluate": (
    run(test=TEST),
    ValueError,
    (
      "test: nothing is measured on it; give evaluate=, such as "
      "evaluation.federated(per_example)"
    ),
  ),
  "validation=DATA": (
    run(validation=DATA, evaluate=evaluate),
    ValueError,
    "validation: 12 of its 12 examples are among those that clients train on; "
    "must have none of them, as the second part of data.split(0.2), of which "
    "the first one trains",
  ),
  "validation=[X, Y]": (
    run(validation=[X], evaluate=evaluate),
    TypeError,
    "validation=a list: must be ClientData, such as a part of data.split(0.2), "
    "or a dict of arrays [N, ...], such as {'x': x_validation, 'y': "
    "y_validation}",
  ),
  "validation lengths": (
    run(validation={"x": X, "y": Y[:5]}, evaluate=evaluate),
    ValueError,
    "validation: lengths differ (x 12, y 5); must be equal",
  ),
  "validation no evaluate": (
    run(validation=TEST),
    ValueError,
    (
      "validation: nothing is measured on it; give evaluate=, such as "
      "evaluation.federated(per_example)"
    ),
  ),
  "validation not taken": (
    run(validation=TEST, evaluate=lambda params, data, test: {}),
    TypeError,
    (
      "evaluate=the function <lambda>: takes (params, data, test); to be "
      "measured on validation= as well it must be a function (params, data, "
      "test, validation=None) -> {name: scalar}"
    ),
  ),
  "validation other width": (
    run(validation={"x": X[:, :2], "y": Y}, evaluate=evaluate),
    TypeError,
    "per_example: failed on a batch {x: float32[12, 2], y: int32[12]}:...",
  ),
  "test strings": (
    run(test={"x": np.array(["a"] * 3)}, evaluate=evaluate),
    TypeError,
    "test['x']: is <U1[3]; must be numbers",
  ),
  "test lacks y": (
    run(test={"x": X}, evaluate=evaluate),
    ValueError,
    "per_example: failed on a batch {x: float32[12, 3]}: KeyError: 'y'",
  ),
  "test other width": (
    run(test={"x": X[:, :2], "y": Y}, evaluate=evaluate),
    TypeError,
    "per_example: failed on a batch {x: float32[12, 2], y: int32[12]}:...",
  ),
  "no tracer": (
    lambda: jax.eval_shape(
      lambda params: simulate(**DEFAULTS | {"params": params}).params, PARAMS
    ),
    TypeError,
    "params['w']: is traced; a run compiles its own program: call it outside "
    "of jax.jit, jax.grad and jax.vmap",
  ),
  "y float": (
    data(x=X, y=Y.astype("f")),
    TypeError,
    (
      "loss_fn: failed on a batch {x: float32[2, 3], y: float32[2]} (y is "
      "float32[2]: labels of classes must be integers):..."
    ),
  ),
  "y one-hot": (
    data(x=X, y=np.eye(2, dtype="f")[Y]),
    TypeError,
    (
      "loss_fn: failed on a batch {x: float32[2, 3], y: float32[2, 2]} (y "
      "is float32[2, 2]: of one-hot labels give y.argmax(1)):..."
    ),
  ),
  "y [N,1]": (
    data(x=X, y=Y[:, None]),
    ValueError,
    (
      "loss_fn: failed on a batch {x: float32[2, 3], y: int32[2, 1]} (y is "
      "int32[2, 1]: give labels [N], y[:, 0]):..."
    ),
  ),
  "y strings": (
    data(x=X, y=np.array(["a"] * N)),
    ValueError,
    "examples['y'] must be numbers, got <U1",
  ),
  "x nan": (
    data(x=X * np.nan, y=Y),
    ValueError,
    (
      "NaN in the data: examples['x'] must be finite, but row 0 is not (12 "
      "such rows)"
    ),
  ),
  "lengths": (
    data(x=X, y=Y[:5]),
    ValueError,
    "examples must have equal leading axes [N], got x (12, 3), y (5,)",
  ),
  "not dict": (
    late(data=lambda: ClientData.from_client_ids(X, OWNERS)),
    TypeError,
    (
      "examples=an array float32[12, 3]: must be a dict of arrays [N, ...],"
      " such as {'x': x, 'y': y}"
    ),
  ),
  "ids short": (
    late(data=lambda: ClientData.from_client_ids(TEST, OWNERS[:5])),
    ValueError,
    "client_ids must hold one id per example, 12, got 5",
  ),
  "ids None": (
    late(data=lambda: ClientData.from_client_ids(TEST, None)),
    ValueError,
    (
      "client_ids must be one id per example, shape [N] with N >= 1, got "
      "shape ()"
    ),
  ),
  "examples None": (
    late(data=lambda: ClientData.from_client_ids(None, OWNERS)),
    TypeError,
    (
      "examples=None: must be a dict of arrays [N, ...], such as {'x': x, "
      "'y': y}"
    ),
  ),
  "num_classes": (
    late(
      data=lambda: ClientData.from_client_ids(
        {"x": X, "y": Y + 5}, OWNERS, num_classes=2
      )
    ),
    ValueError,
    "labels y must be in [0, 2), but row 0 has 5 (12 such rows)",
  ),
  "num_classes str": (
    late(
      data=lambda: ClientData.from_client_ids(TEST, OWNERS, num_classes="2")
    ),
    TypeError,
    "num_classes='2': must be a whole number",
  ),
  "rows int": (
    late(data=lambda: ClientData.from_partition(TEST, 3)),
    TypeError,
    "rows=3: must be a list of arrays of rows",
  ),
  "rows str": (
    late(data=lambda: ClientData.from_partition(TEST, ["a"])),
    ValueError,
    (
      "rows[0] must be a one-dimensional array of integers, got <U1 of shape ()"
    ),
  ),
  "raw sizes": (
    raw(TEST, np.zeros((4, 3), int), np.full(4, 9)),
    ValueError,
    "data: sizes must be in [0, 3], the n_max",
  ),
  "raw indices": (
    raw(TEST, np.full((4, 3), 99), np.full(4, 3)),
    ValueError,
    "data: indices must be rows of the 12 examples, from 0 to 11",
  ),
  "raw shapes": (
    raw(TEST, np.zeros(4, int), np.full(4, 1)),
    ValueError,
    "data: indices [4] and sizes [4] must be [M, n_max] and [M]",
  ),
  "raw float": (
    raw(TEST, np.zeros((4, 3)), np.full(4, 1)),
    TypeError,
    "data: indices float64[4, 3] and sizes int64[4] must be whole numbers",
  ),
  "raw none": (
    raw(TEST, np.zeros((0, 3), int), np.zeros(0, int)),
    ValueError,
    "data: has no client with an example",
  ),
  "raw examples": (
    raw({"x": X, "y": Y[:3]}, np.zeros((4, 3), int), np.full(4, 1)),
    ValueError,
    "data.examples: lengths differ (x 12, y 3); must be equal",
  ),
  "raw examples list": (
    raw([X], np.zeros((4, 3), int), np.full(4, 1)),
    TypeError,
    (
      "data.examples=a list: must be a dict of arrays [N, ...], such as "
      "{'x': x, 'y': y}"
    ),
  ),
  "raw empty": (
    raw(TEST, np.zeros((4, 3), int), np.zeros(4, int)),
    ValueError,
    "data: has no client with an example",
  ),
  "raw leaf": (
    raw({"x": "a"}, np.zeros((4, 3), int), np.ones(4, int)),
    TypeError,
    "data.examples['x']='a': must be an array [N, ...]",
  ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line(case):
  given.check(*BAD[case])
