"""What an algorithm must be and return, checked before it is compiled."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_opt.arrays import running_statistics
from fedjax_opt.base import FUNCTIONS, Algorithm, Params
from fedjax_opt.checks import errors, fields, functions
from fedjax_opt.checks.values import brief


def check_algorithm(name: str, algorithm: Any) -> None:
  """Checks that a value is an algorithm, made of functions.

  Raises:
    TypeError: if it is not.
  """
  if isinstance(algorithm, optax.GradientTransformation):
    raise TypeError(
      f"{name}: is an optimizer; must be an Algorithm, such as "
      "fed_avg(loss_fn, client=optimizer)"
    )
  if not isinstance(algorithm, Algorithm):
    hint = " (it was not called)" if callable(algorithm) else ""
    raise TypeError(
      f"{name}={brief(algorithm)}: must be an Algorithm{hint}, such as "
      "fed_avg(loss_fn, optax.sgd(0.1))"
    )
  if algorithm.client_params is not None and algorithm.init_client is None:
    raise TypeError(
      "Algorithm.client_params: is made of what a client keeps, but clients "
      "keep nothing; declare what one keeps: Algorithm(..., init_client=...)"
    )


def check_statistics(
  algorithm: Algorithm, params: Params, has_full_batches: bool = True
) -> None:
  """Checks that an algorithm can train the running statistics of a model.

  Args:
    algorithm: any.
    params: the model, or its shapes.
    has_full_batches: whether all batches of clients are full.

  Raises:
    ValueError: if it would do anything but average them, or a client has a
      batch that is not full.
  """
  parts = running_statistics.part_paths(params)
  if parts and not algorithm.averages_statistics:
    raise ValueError(
      f"params: {parts[0]!r} has running statistics, which this algorithm does "
      "not average (Algorithm.averages_statistics); must be a model without "
      "them, or another algorithm, such as fed_avg"
    )
  if parts and not has_full_batches:
    raise ValueError(
      f"params: {parts[0]!r} has running statistics, and a batch that is not "
      "full would be normalized by its padding too; give drop_remainder, or "
      "draw with replacement, or a model without them"
    )


ALGORITHM = fields.Field(check_algorithm)


def check_points(
  make: Callable[..., Any], grid: Mapping[str, Sequence[Any]]
) -> None:
  """Checks that `make` gives an algorithm for each value of a grid.

  It is called with numbers, which its factories can check, and then with what
  the program gives it: traced numbers.

  Args:
    make: `(**hyperparameters) -> Algorithm`.
    grid: {name: values}; {} for a single run.

  Raises:
    ValueError: if a value cannot be.
    TypeError: if `make` does not take these, or returns no algorithm.
  """
  _check_names(make, grid)
  first = {name: values[0] for name, values in grid.items()}
  points = [first] + [
    first | {name: value} for name in grid for value in grid[name][1:]
  ]
  for point in points:
    check_algorithm(
      "make(...)", _algorithm_of(make, point, "the hyperparameters of the grid")
    )
  if grid:
    numbers = {name: np.asarray(values)[0] for name, values in grid.items()}

    def trace(numbers):
      _algorithm_of(make, numbers, "traced numbers")
      return ()  # An algorithm is no array.

    jax.eval_shape(trace, numbers)


def _check_names(make, grid):
  """Checks that the names of a grid are arguments of `make`."""
  try:
    parameters = inspect.signature(make).parameters
  except (TypeError, ValueError):  # Of some functions nobody can know.
    return
  if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
    return
  for name in grid:
    if name not in parameters:
      takes = ", ".join(parameters) or "nothing"
      raise TypeError(
        f"grid[{name!r}]: is no argument of make, which takes {takes}"
      )


def _algorithm_of(make, hyperparameters, given):
  """The algorithm of one point; what `make` raises becomes one line."""
  names = ", ".join(hyperparameters) or "none"
  with errors.in_one_line(f"make: failed with {given} ({names})"):
    return make(**hyperparameters)


def call_function(name: str, algorithm: Algorithm, *args: Any) -> Any:
  """What a function of an algorithm returns.

  Args:
    name: of the function, such as "round".
    algorithm: any.
    *args: of the function.

  Raises:
    ValueError: if it fails with what is no clear line already.
    TypeError: if it takes other arguments, or returns no state or no model.
  """
  function = getattr(algorithm, name)
  returned = errors.call_user(
    f"Algorithm.{name}", FUNCTIONS[name], function, *args
  )
  if returned is None and name in ("init", "params"):  # A tree without leaves.
    raise TypeError(
      f"Algorithm.{name}: returned None; must be a tree of arrays"
    )
  return returned


def evaluated_params(algorithm: Algorithm, server: Any) -> Params:
  """The model that is evaluated.

  Raises:
    ValueError: if the function fails.
    TypeError: if it returns what is no tree of arrays.
  """
  params = call_function("params", algorithm, server)
  functions.check_arrays("Algorithm.params", params)
  return params


def initial_states(
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
  server = call_function("init", algorithm, params)
  functions.check_arrays("Algorithm.init: state", server)
  if algorithm.init_client is None:
    return server, None
  client_state = call_function("init_client", algorithm, params)
  functions.check_arrays("Algorithm.init_client", client_state, with_keys=False)
  expand = lambda leaf: jnp.broadcast_to(
    jnp.asarray(leaf), (num_clients, *jnp.shape(leaf))
  )
  return server, jax.tree.map(expand, client_state)
