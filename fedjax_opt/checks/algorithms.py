"""An algorithm as its caller wrote it, traced before anything is compiled."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_opt.base import Algorithm, Batch, Params
from fedjax_opt.checks import functions
from fedjax_opt.checks import values as checks
from fedjax_opt.checks.values import shown
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.population import Population
from fedjax_opt.engine import feed, mapping, rounds
from fedjax_opt.engine.config import Config

_FUNCTIONS = {
  "init": "(params, num_clients) -> state",
  "round": "(state, cohort) -> (state, reply)",
  "params": "(state) -> params",
  "penalty": "(params) -> scalar",
  "init_client": "(params) -> tree",
}


def check(name: str, algorithm: Any) -> None:
  """That it is an algorithm, made of functions.

  Raises:
    TypeError: if it is not.
  """
  if isinstance(algorithm, optax.GradientTransformation):
    raise TypeError(
      f"{name}: is an optimizer; must be an Algorithm, such as "
      "fed_avg(loss_fn, client=optimizer)"
    )
  if not isinstance(algorithm, Algorithm):
    called = " (it was not called)" if callable(algorithm) else ""
    raise TypeError(
      f"{name}={shown(algorithm)}: must be an Algorithm{called}, such as "
      "fed_avg(loss_fn, optax.sgd(0.1))"
    )
  for field, takes in _FUNCTIONS.items():
    given = getattr(algorithm, field)
    if given is not None or field in ("init", "round", "params"):
      checks.function(f"Algorithm.{field}", given, takes)


def check_points(
  make: Callable[..., Any], grid: Mapping[str, Sequence[Any]]
) -> None:
  """That `make` gives an algorithm for each value of a grid.

  It is called with numbers, which its factories can check, and then with what
  the program gives it: traced numbers.

  Args:
    make: `(**hyperparameters) -> Algorithm`.
    grid: {name: values}; {} for a single run.

  Raises:
    ValueError: if a value cannot be.
    TypeError: if `make` does not take these, or returns no algorithm.
  """
  first = {name: values[0] for name, values in grid.items()}
  points = [first] + [
    first | {name: value} for name in grid for value in grid[name][1:]
  ]
  for point in points:
    check("make(...)", _made(make, point, "the hyperparameters of the grid"))
  if grid:
    traced = {name: _shape((), values.dtype) for name, values in _arrays(grid)}
    trace = lambda numbers: [_made(make, numbers, "traced numbers")][1:]
    jax.eval_shape(trace, traced)


def _arrays(grid):
  return [(name, np.asarray(values)) for name, values in grid.items()]


def _made(make, hyperparameters, kind):
  """The algorithm of one point; what `make` raises becomes one line."""
  try:
    return make(**hyperparameters)
  except Exception as error:
    if checks.is_own(error):
      raise
    names = ", ".join(hyperparameters) or "none"
    raise checks.failed(f"make: failed with {kind} ({names})", error) from error


def start(
  algorithm: Algorithm, params: Params, num_clients: int
) -> tuple[Any, Any]:
  """The state of the server, and what all clients keep, before round 0.

  Args:
    algorithm: any.
    params: the initial model.
    num_clients: M.

  Returns:
    The state, and leaves [M, ...], or None if clients keep nothing.

  Raises:
    ValueError: if one of its functions fails.
    TypeError: if one returns what is no array.
  """
  call = lambda name, *args: checks.call(
    f"Algorithm.{name}", _FUNCTIONS[name], getattr(algorithm, name), *args
  )
  server = call("init", params, num_clients)
  functions.arrays("Algorithm.init: state", server)
  if algorithm.init_client is None:
    return server, None
  one = call("init_client", params)
  functions.arrays("Algorithm.init_client", one, may_have_keys=False)
  expand = lambda leaf: jnp.broadcast_to(
    jnp.asarray(leaf), (num_clients, *jnp.shape(leaf))
  )
  return server, jax.tree.map(expand, one)


def trace(
  config: Config,
  make: Callable[..., Algorithm],
  grid: Mapping[str, Sequence[Any]],
  state: tuple[Any, Any],
  data: ClientData | Population,
  test: Batch | None,
) -> None:
  """Traces a round and an evaluation of one point; computes nothing.

  Args:
    config: static settings, all resolved.
    make: `(**hyperparameters) -> Algorithm`.
    grid: {name: values}; {} for a single run.
    state: shapes of the server's state and of what clients keep, at all points.
    data: the clients; in memory they may have an axis of seeds.
    test: pooled test examples, or None.

  Raises:
    ValueError: naming the function of the caller that cannot be.
    TypeError: naming one that takes or returns what is of a wrong type.
  """
  if config.has_points:
    state = _shapes_of(state, lambda leaf: leaf[0, 0])
  hyperparameters = _shapes_of(dict(_arrays(grid)), lambda leaf: leaf[0])
  clients, segment, evaluated = _data_shapes(config, data)
  if config.state_is_on_host:
    rows = jax.tree.map(
      lambda leaf: _shape((config.cohort_size, *leaf.shape[1:]), leaf.dtype),
      state[1],
    )
    state = state[0], rows

  def of_rounds(hyperparameters, state, key, clients, segment):
    algorithm = make(**hyperparameters)
    first = jnp.int32(0)
    return rounds.run_rounds(
      config, algorithm, state, key, clients, segment, first, first + 1
    )

  def of_model(hyperparameters, server, clients, test):
    algorithm = make(**hyperparameters)
    params = checks.call(
      "Algorithm.params", _FUNCTIONS["params"], algorithm.params, server
    )
    functions.arrays("Algorithm.params", params)
    return rounds.evaluate(config, algorithm, server, clients, test)

  key = jax.eval_shape(lambda: jax.random.key(0))
  inputs = (hyperparameters, state, key, clients, segment)
  _eval_shape("Algorithm.round", of_rounds, *inputs)
  test = jax.tree.map(lambda leaf: _shape(leaf.shape, leaf.dtype), test)
  inputs = (hyperparameters, state[0], evaluated, test)
  _eval_shape("evaluate", of_model, *inputs)


def _eval_shape(name, function, *inputs):
  try:
    jax.eval_shape(function, *inputs)
  except Exception as error:
    if checks.is_own(error):
      raise
    raise checks.failed(f"{name}: failed", error) from error


def _shapes_of(tree, function):
  """The shapes of what a function gives for each leaf."""
  return jax.eval_shape(lambda tree: jax.tree.map(function, tree), tree)


def _shape(shape, dtype):
  return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(dtype))


def _data_shapes(config, data):
  """The clients, the first segment, and what is evaluated, by their shapes."""
  of_all = _shape((config.num_clients,), np.int32)
  cohort = _shape((1, config.cohort_size), np.int32)
  segment = {"clients": cohort} if config.state_is_on_host else {}
  if isinstance(data, Population):
    pool = {
      name: _shape((config.max_size, *shape), dtype)
      for name, (dtype, shape) in data.fields.items()
    }
    computed = jax.eval_shape(
      lambda clients: mapping.pad_cohort(config, clients[0])[None], cohort
    )
    segment = {"clients": cohort, "examples": pool, "starts": computed}
    number = min(feed.SAMPLE, config.num_clients)
    lists = {"indices": _shape((number, config.max_size), np.int32)}
    sample = ClientData(pool, **lists, sizes=_shape((number,), np.int32))
    return ClientData({}, None, of_all), segment, sample
  pool = {
    name: _shape(np.shape(leaf), leaf.dtype)
    for name, leaf in data.examples.items()
  }
  indices = _shape((config.num_clients, config.max_size), np.int32)
  clients = ClientData(pool, indices, of_all)
  return clients, segment, clients
