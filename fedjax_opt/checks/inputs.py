"""What callers give, checked and brought into the form that the engine takes.

Each thing that cannot be is answered with one line that names the argument,
what came and what is accepted, before anything is compiled.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_opt.base import Algorithm, Batch, Params
from fedjax_opt.checks import values as checks
from fedjax_opt.checks.values import shown
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.population import Population
from fedjax_opt.engine.effort import run_once


def check_seeds(seeds: Sequence[int]) -> None:
  """That seeds are whole numbers of 32 bits, as JAX's random keys take them.

  Raises:
    TypeError: naming the one that is no whole number.
    ValueError: naming the one that is out of range, or is repeated.
  """
  for seed in seeds:
    checks.whole("seed", seed)
    if not 0 <= seed < 1 << 32:
      raise ValueError(f"seed={seed}: must be from 0 to {(1 << 32) - 1}")
  if len(set(seeds)) < len(seeds):
    raise ValueError(f"seeds={shown(seeds)}: a seed is repeated; give it once")


def check_seeds_of(
  grid: Mapping[str, Any] | None, seeds: Any
) -> tuple[int, ...] | None:
  """The seeds of a grid; None for a single run.

  Raises:
    ValueError: if there is none, one is repeated or out of range, or they are
      given for a single run.
    TypeError: if they are no list of whole numbers.
  """
  if grid is None:
    if seeds is not None:
      raise ValueError(
        f"seeds={shown(seeds)}: belongs to a grid; give init(params, seed=...)"
      )
    return None
  seeds = (0,) if seeds is None else seeds
  is_list = isinstance(seeds, list | tuple | range) or (
    isinstance(seeds, np.ndarray) and seeds.ndim == 1
  )
  if not is_list:
    raise TypeError(
      f"seeds={shown(seeds)}: must be a list of whole numbers, such as [0, 1]"
    )
  if len(seeds) == 0:
    raise ValueError("seeds: give at least one value")
  check_seeds(seeds)
  return tuple(int(seed) for seed in seeds)


def check_grid(
  algorithm: Any, grid: Mapping[str, Any] | None
) -> tuple[Callable[..., Algorithm], dict[str, list[Any]]]:
  """`(**hyperparameters) -> Algorithm`, and {name: values}; {} for one run.

  Raises:
    ValueError: if values are missing, repeated or not finite, or a name is
      reserved.
    TypeError: if the algorithm or the grid is of a wrong type.
  """
  if grid is None:
    _check_is_algorithm("algorithm", algorithm)
    return (lambda: algorithm), {}
  if isinstance(algorithm, Algorithm) or not callable(algorithm):
    raise TypeError(
      f"make={shown(algorithm)}: must be a function of the hyperparameters "
      "that returns an Algorithm, such as lambda lr: fed_avg(loss_fn, "
      "optax.sgd(lr))"
    )
  if not isinstance(grid, Mapping):
    raise TypeError(
      f"grid={shown(grid)}: must be a dict of values, such as "
      '{"learning_rate": [0.01, 0.1]}'
    )
  return algorithm, {
    name: _check_values(name, values) for name, values in grid.items()
  }


def _check_values(name, values):
  """The values of one hyperparameter of a grid, as a list."""
  if not isinstance(name, str):
    raise TypeError(f"grid: the name {shown(name)} must be a string")
  if name in ("seed", "seeds"):
    raise ValueError(
      f"grid[{name!r}]: seeds are not hyperparameters; give seeds=[...]"
    )
  is_list = isinstance(values, list | tuple | range) or (
    isinstance(values, np.ndarray | jax.Array) and values.ndim == 1
  )
  if not is_list:
    raise TypeError(
      f"grid[{name!r}]={shown(values)}: must be a list of numbers, such as "
      "[0.01, 0.1]"
    )
  values = [v.item() if hasattr(v, "item") else v for v in values]
  if not values:
    raise ValueError(f"{name}: give at least one value")
  for value in values:
    if isinstance(value, bool):
      raise TypeError(f"grid[{name!r}]: {value} is no number; must be numbers")
    checks.number(f"grid[{name!r}]: {name}", value)
    if np.isnan(value):
      raise ValueError(f"grid[{name!r}]: nan is no value; must be numbers")
  repeated = [value for value in values if values.count(value) > 1]
  if repeated:
    raise ValueError(f"grid[{name!r}]: {repeated[0]} is repeated; give it once")
  return values


def _check_is_algorithm(name, algorithm):
  if isinstance(algorithm, Algorithm):
    return
  if isinstance(algorithm, optax.GradientTransformation):
    raise TypeError(
      f"{name}: is an optimizer; must be an Algorithm, such as "
      "fed_avg(loss_fn, client=optimizer)"
    )
  called = " (it was not called)" if callable(algorithm) else ""
  raise TypeError(
    f"{name}={shown(algorithm)}: must be an Algorithm{called}, such as "
    "fed_avg(loss_fn, optax.sgd(0.1))"
  )


def data_of_seeds(data: Any, seeds: Sequence[int] | None) -> Any:
  """The clients of all seeds: `indices` and `sizes` may be [seeds, M, ...].

  Raises:
    ValueError: if the clients of the seeds do not fit together.
    TypeError: if the data are neither `ClientData` nor a `Population`.
  """
  if isinstance(data, ClientData | Population):
    return _check_data("data", data)
  is_function = callable(data) and not isinstance(data, type)
  if not is_function or seeds is None:
    raise TypeError(
      f"data={shown(data)}: must be clients, such as "
      "ClientData.from_client_ids({'x': x, 'y': y}, client_ids), or a "
      "Population"
    )
  each = [_check_data(f"data({seed})", data(seed)) for seed in seeds]
  first = each[0]
  if all(other is first for other in each):
    return first
  if any(isinstance(one, Population) for one in each):
    raise ValueError("data: a population on disk must be that of all seeds")
  if any(other.examples is not first.examples for other in each):
    raise ValueError("data: the clients of all seeds must share the examples")
  numbers = sorted({other.num_clients for other in each})
  if len(numbers) > 1:
    raise ValueError(
      f"data: has {numbers[0]} clients for one seed and {numbers[-1]} for "
      "another; must be as many for all"
    )
  width = max(other.indices.shape[-1] for other in each)
  pad = lambda rows: np.pad(rows, ((0, 0), (0, width - rows.shape[-1])))
  return ClientData(
    first.examples,
    indices=np.stack([pad(one.indices) for one in each]),
    sizes=np.stack([one.sizes for one in each]),
  )


def _check_data(name, data):
  """That clients are what they say, as far as their shapes tell."""
  if isinstance(data, Population):
    return data
  if not isinstance(data, ClientData):
    raise TypeError(f"{name}={shown(data)}: must be ClientData or a Population")
  if not isinstance(data.examples, Mapping) or not data.examples:
    raise TypeError(
      f"{name}.examples={shown(data.examples)}: must be a dict of arrays "
      "[N, ...], such as {'x': x, 'y': y}"
    )
  indices, sizes = np.shape(data.indices), np.shape(data.sizes)
  if len(indices) != 2 or len(sizes) != 1 or indices[0] != sizes[0]:
    raise ValueError(
      f"{name}: indices {list(indices)} and sizes {list(sizes)} must be "
      "[M, n_max] and [M]"
    )
  return data


def check_test(test: Any, evaluate: Any) -> Batch | None:
  """The test examples, or None.

  Raises:
    ValueError: if their lengths differ, or nothing is done with them.
    TypeError: if they are no dict of arrays.
  """
  if test is None:
    return None
  if isinstance(test, ClientData):
    raise TypeError(
      "test=ClientData: must be pooled examples; give test=data.examples"
    )
  if not isinstance(test, Mapping) or not test:
    raise TypeError(
      f"test={shown(test)}: must be a dict of arrays [N, ...], such as "
      "{'x': x_test, 'y': y_test}"
    )
  for name, values in test.items():
    if not hasattr(values, "shape") or not np.ndim(values):
      raise TypeError(
        f"test[{name!r}]={shown(values)}: must be an array [N, ...]"
      )
  lengths = {name: len(values) for name, values in test.items()}
  if len(set(lengths.values())) > 1:
    shown_lengths = ", ".join(f"{n} {length}" for n, length in lengths.items())
    raise ValueError(f"test: lengths differ ({shown_lengths}); must be equal")
  if 0 in lengths.values():
    raise ValueError(
      "test: has no examples; must have at least one, or be None"
    )
  if evaluate is None:
    raise ValueError(
      "test: nothing is measured on it; give evaluate=, such as "
      "evaluation.federated(per_example)"
    )
  return dict(test)


def check_params(params: Any, may_be_function: bool) -> Any:
  """The initial model, its leaves arrays of floating-point numbers.

  Args:
    params: as given.
    may_be_function: whether it may be a function from a random key.

  Raises:
    TypeError: naming the leaf that is none.
    ValueError: naming the leaf that is not finite.
  """
  is_tree = isinstance(params, dict | list | tuple) or hasattr(params, "shape")
  if callable(params) and not is_tree:
    if may_be_function and not isinstance(params, type):
      return _function_of_key(params)
    hint = ""
    if type(params).__module__.startswith("flax.nnx"):
      hint = "; of an nnx module give nnx.state(model, nnx.Param)"
    elif type(params).__module__.startswith("flax"):
      hint = '; give model.init(key, x)["params"]'
    raise TypeError(f"params={shown(params)}: must be a pytree of arrays{hint}")
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    _check_leaf(f"params{jax.tree_util.keystr(path)}", leaf)
  return jax.tree.map(jnp.asarray, params)


def _check_leaf(name, leaf):
  is_array = isinstance(leaf, np.ndarray | np.generic | jax.Array | float)
  if not is_array:
    raise TypeError(
      f"{name}={shown(leaf)}: must be an array of floating-point numbers"
    )
  dtype = jnp.result_type(leaf)
  if not jnp.issubdtype(dtype, jnp.floating):
    raise TypeError(
      f"{name}: is {dtype}; must be floating-point numbers, as local steps add "
      "fractions to it"
    )
  if not np.isfinite(np.asarray(leaf, np.float64)).all():
    raise ValueError(f"{name}: is not finite; the initial model must be")


def _function_of_key(params):
  """A function from a random key to a model, its shapes checked."""
  try:
    shapes = jax.eval_shape(params, jax.random.key(0))
  except Exception as error:
    line = " ".join(str(error).split())[:200]
    raise TypeError(
      f"params={shown(params)}: must be a pytree of arrays, or a function from "
      f"a random key to one; called with a key it failed: {line}"
    ) from error
  for path, leaf in jax.tree_util.tree_leaves_with_path(shapes):
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
      name = f"params(key){jax.tree_util.keystr(path)}"
      raise TypeError(
        f"{name}: is {leaf.dtype}; must be floating-point numbers"
      )
  return params


def models_of_seeds(
  params: Any, seeds: Sequence[int], has_points: bool
) -> Params:
  """The initial models, leaves [seeds, ...]; of a single run one model."""
  is_function = not isinstance(params, dict | list | tuple) and callable(params)
  if is_function:
    of_seed = lambda seed: params(jax.random.key(seed))
    numbers = np.asarray(seeds, np.uint32)
    if not has_points:
      return run_once(of_seed)(numbers[0])
    return run_once(jax.vmap(of_seed))(numbers)
  if not has_points:
    return params
  repeat = lambda leaf: jnp.repeat(jnp.asarray(leaf)[None], len(seeds), 0)
  return jax.tree.map(repeat, params)


def rows_of_all(algorithm: Algorithm, params: Params, num_clients: int) -> Any:
  """What all clients keep before the first round, leaves [M, ...], or None."""
  if algorithm.init_client is None:
    return None
  one = algorithm.init_client(params)
  expand = lambda leaf: jnp.broadcast_to(
    jnp.asarray(leaf), (num_clients, *jnp.shape(leaf))
  )
  return jax.tree.map(expand, one)


def check_algorithm(
  make: Callable[..., Any],
  hyperparameters: Mapping[str, Any],
  start: Callable[[], Any],
) -> tuple[Any, Any]:
  """The shapes of the state that an algorithm starts with.

  Args:
    make: `(**hyperparameters) -> Algorithm`.
    hyperparameters: of one setting.
    start: gives the state, and what clients keep.

  Raises:
    TypeError: if `make` does not take these, or returns no algorithm.
  """
  try:
    algorithm = make(**hyperparameters)
  except TypeError as error:
    names = ", ".join(hyperparameters) or "none"
    line = " ".join(str(error).split())[:200]
    raise TypeError(
      f"make: failed with the hyperparameters of the grid ({names}): {line}"
    ) from error
  _check_is_algorithm("make(...)", algorithm)
  return jax.eval_shape(start)


def check_state(state: Any, kind: type) -> None:
  """Raises TypeError if it is no state of a simulator."""
  if not isinstance(state, kind):
    raise TypeError(
      f"state={shown(state)}: must be what Simulator.init or run returned"
    )
