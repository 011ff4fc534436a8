"""What callers give, checked and brought into the form that the engine takes.

Each thing that cannot be is answered with one line that names the argument,
what came and what is accepted, before anything is compiled.
"""

import collections
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_opt import contract
from fedjax_opt import running_statistics as statistics
from fedjax_opt.base import Algorithm, Batch, Params
from fedjax_opt.checks import functions
from fedjax_opt.checks import values as checks
from fedjax_opt.checks.values import shown
from fedjax_opt.data import clients, lists
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.pools import check_pool, same_pool
from fedjax_opt.data.population import Population
from fedjax_opt.engine.plan import BatchPlan

# Of a grid: the arguments of each are checked, and each has a row in results.
_MOST_POINTS = 100_000


def check_seed(name: str, seed: Any) -> None:
  """That a seed is a whole number of 32 bits, as JAX's random keys take it.

  Raises:
    TypeError: if it is no whole number.
    ValueError: if it is out of range.
  """
  if isinstance(seed, list | tuple | range | np.ndarray):
    several = "; several seeds are for sweep(..., seeds=[0, 1])"
    raise TypeError(
      f"{name}={shown(seed)}: must be a whole number"
      f"{several if name == 'seed' else ''}"
    )
  checks.whole(name, seed)
  if not 0 <= seed < 1 << 32:
    raise ValueError(f"{name}={shown(seed)}: must be from 0 to {(1 << 32) - 1}")


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
  if not _is_list(seeds):
    raise TypeError(
      f"seeds={shown(seeds)}: must be a list of whole numbers, such as [0, 1]"
    )
  if len(seeds) == 0:
    raise ValueError("seeds: give at least one value")
  checks.plain("seeds", seeds)
  for i, seed in enumerate(seeds):
    check_seed(f"seeds[{i}]", seed)
  if len(set(seeds)) < len(seeds):
    raise ValueError(f"seeds={shown(seeds)}: a seed is repeated; give it once")
  return tuple(int(seed) for seed in seeds)


def _is_list(values, arrays=np.ndarray):
  """Whether values are listed, or stand in an array of one axis."""
  is_array = isinstance(values, arrays) and values.ndim == 1
  return is_array or isinstance(values, list | tuple | range)


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
    contract.check("algorithm", algorithm)
    return (lambda: algorithm), {}
  check_makes("algorithm", algorithm)
  check_is_grid(grid)
  grid = {name: _check_values(name, values) for name, values in grid.items()}
  contract.check_points(algorithm, grid)
  return algorithm, grid


def check_makes(name: str, make: Any) -> None:
  """Raises TypeError if it is no function that may make an algorithm."""
  if isinstance(make, Algorithm) or not callable(make):
    given = "an Algorithm" if isinstance(make, Algorithm) else shown(make)
    raise TypeError(
      f"{name}={given}: must be a function of the hyperparameters that returns "
      "an Algorithm, such as lambda lr: fed_avg(loss_fn, optax.sgd(lr))"
    )


def check_is_grid(grid: Any) -> None:
  """That it is a dictionary, and of no more points than a program can have.

  Raises:
    TypeError: if it is no dictionary.
    ValueError: if its lists have too many combinations.
  """
  if not isinstance(grid, Mapping):
    raise TypeError(
      f"grid={shown(grid)}: must be a dict of values, such as "
      '{"learning_rate": [0.01, 0.1]}; {} for one setting'
    )
  lengths = [len(each) for each in grid.values() if _is_list(each)]
  if math.prod(lengths) > _MOST_POINTS:
    raise ValueError(
      f"grid: has {math.prod(lengths)} points; must have at most {_MOST_POINTS}"
    )


def _check_values(name, values):
  """The values of one hyperparameter of a grid, as a list."""
  if not isinstance(name, str):
    raise TypeError(f"grid: the name {shown(name)} must be a string")
  if name in ("seed", "seeds"):
    raise ValueError(
      f"grid[{name!r}]: seeds are not hyperparameters; give seeds=[...]"
    )
  if not _is_list(values, np.ndarray | jax.Array):
    raise TypeError(
      f"grid[{name!r}]={shown(values)}: must be a list of numbers, such as "
      "[0.01, 0.1]"
    )
  checks.plain(f"grid[{name!r}]", values)
  values = [v.item() if hasattr(v, "item") else v for v in values]
  if not values:
    raise ValueError(f"{name}: give at least one value")
  for value in values:
    checks.number(f"grid[{name!r}]: {name}", value)
    if value != value:
      raise ValueError(f"grid[{name!r}]: nan is no value; must be numbers")
    if isinstance(value, float):
      checks.fits_float(f"grid[{name!r}]: {name}", value)
    if isinstance(value, int) and not abs(value) <= checks.LARGEST:
      raise ValueError(
        f"grid[{name!r}]: {shown(value)} does not fit into 32 bits; write "
        f"{float(value):g}"
        if abs(value) < 1e38
        else f"grid[{name!r}]: {shown(value)} is too large"
      )
  counted = collections.Counter(values)
  repeated = [value for value, count in counted.items() if count > 1]
  if repeated:
    raise ValueError(f"grid[{name!r}]: {repeated[0]} is repeated; give it once")
  return values


def data_of_seeds(data: Any, seeds: Sequence[int] | None) -> Any:
  """The clients of all seeds: `indices` and `sizes` may be [seeds, M, ...].

  Raises:
    ValueError: if the clients of the seeds do not fit together.
    TypeError: if the data are neither `ClientData` nor a `Population`.
  """
  if isinstance(data, ClientData | Population):
    return data
  is_function = callable(data) and not isinstance(data, type)
  if not is_function or seeds is None:
    raise TypeError(
      f"data={shown(data)}: must be clients, such as "
      "ClientData.from_client_ids({'x': x, 'y': y}, client_ids), or a "
      "Population"
    )
  takes = "(seed) -> ClientData"
  each = [checks.call("data", takes, data, seed) for seed in seeds]
  for seed, one in zip(seeds, each, strict=True):
    checks.instance(f"data({seed})", one, (ClientData, Population))
  first = each[0]
  if all(other is first for other in each):
    return first
  if any(isinstance(one, Population) for one in each):
    raise ValueError("data: a population on disk must be that of all seeds")
  if not all(same_pool(first.examples, other.examples) for other in each):
    raise ValueError(
      "data: the clients of all seeds must share the examples; give them as "
      "ClientData.from_partition(examples, rows, keep_pool=True) makes them"
    )
  numbers = sorted({other.num_clients for other in each})
  if len(numbers) > 1:
    raise ValueError(
      f"data: has {numbers[0]} clients for one seed and {numbers[-1]} for "
      "another; must be as many for all"
    )
  return clients.unchecked(
    first.examples,
    indices=lists.stacked([(one.indices, one.sizes) for one in each]),
    sizes=np.stack([one.sizes for one in each]),
  )


def check_test(
  test: Any,
  evaluate: Any,
  name: str = "test",
  data: ClientData | Population | None = None,
) -> Batch | None:
  """The test or validation examples, pooled, or None.

  Args:
    test: as given, a dict of arrays, or clients in memory.
    evaluate: what is done with them.
    name: of the argument.
    data: the clients that train, of all seeds, if they are known.

  Raises:
    ValueError: if their lengths differ, nothing is done with them, or clients
      in memory train on some of them.
    TypeError: if they are neither a dict of arrays nor clients.
  """
  if test is None:
    return None
  if isinstance(test, ClientData):
    _check_not_trained(name, test, data)
    test = test.pooled()
  if not isinstance(test, Mapping) or not test:
    raise TypeError(
      f"{name}={shown(test)}: must be ClientData, such as a part of "
      "data.split(0.2), or a dict of arrays [N, ...], such as "
      f"{{'x': x_{name}, 'y': y_{name}}}"
    )
  if not check_pool(name, test):
    raise ValueError(
      f"{name}: has no examples; must have at least one, or be None"
    )
  if evaluate is None:
    raise ValueError(
      f"{name}: nothing is measured on it; give evaluate=, such as "
      "evaluation.federated(per_example)"
    )
  return dict(test)


def _check_not_trained(name, held, data):
  """That clients train on none of the rows that others have held out."""
  if not isinstance(data, ClientData):
    return
  if not same_pool(held.examples, data.examples):
    return
  rows = np.unique(held.owned_rows())
  number = int(np.isin(rows, data.owned_rows()).sum())
  if number:
    raise ValueError(
      f"{name}: {number} of its {len(rows)} examples are among those that "
      "clients train on; must have none of them, as the second part of "
      "data.split(0.2), of which the first one trains"
    )


def check_params(
  params: Any, may_be_function: bool, argument: str = "params"
) -> Any:
  """The initial model, its leaves arrays of floating-point numbers.

  Args:
    params: as given.
    may_be_function: whether it may be a function from a random key.
    argument: its name.

  Raises:
    TypeError: naming the leaf that is none.
    ValueError: naming the leaf that is not finite.
  """
  if is_function_of_key(params) and not isinstance(params, type):
    if not may_be_function:
      raise TypeError(
        f"{argument}={shown(params)}: must be a pytree of arrays; a function "
        "from a random key to one is for sweep"
      )
    return _function_of_key(params)
  checks.tree(argument, params)
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    name = f"{argument}{jax.tree_util.keystr(path)}"
    if isinstance(leaf, jax.core.Tracer):
      raise TypeError(
        f"{name}: is traced; a run compiles its own program: call it outside "
        "of jax.jit, jax.grad and jax.vmap"
      )
    if not np.isfinite(np.asarray(leaf)).all():
      raise ValueError(f"{name}: is not finite; the initial model must be")
  return jax.tree.map(jnp.asarray, params)


def check_statistics(
  params: Params, plan: BatchPlan, algorithm: Algorithm, name: str = "params"
) -> None:
  """That running statistics of a model are what clients compute, if it has any.

  Args:
    params: the model, or its shapes.
    plan: of the local steps.
    algorithm: of a point.
    name: of the argument that decides on the model.

  Raises:
    ValueError: if the algorithm does anything but average them, or a client has
      a batch that is not full.
  """
  contract.check_statistics(algorithm, params, name)
  parts = statistics.parents(params)
  if parts and not plan.is_full:
    raise ValueError(
      f"{name}: {parts[0]!r} has running statistics, and a batch that is not "
      "full would be normalized by its padding too; give drop_remainder, or "
      "draw with replacement, or a model without them"
    )


def _function_of_key(params):
  """A function from a random key to a model, its shapes checked."""
  checks.function("params", params, "(key) -> params, or a pytree of arrays")

  def trace(key):
    model = params(key)
    functions.arrays("params(key)", model)
    return model

  try:
    shapes = jax.eval_shape(trace, jax.eval_shape(lambda: jax.random.key(0)))
  except Exception as error:
    if checks.is_own(error):
      raise
    raise checks.failed("params: failed with a random key", error) from error
  for path, leaf in jax.tree_util.tree_leaves_with_path(shapes):
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
      name = f"params(key){jax.tree_util.keystr(path)}"
      raise TypeError(
        f"{name}: is {leaf.dtype}; must be floating-point numbers"
      )
  return params


def is_function_of_key(params: Any) -> bool:
  """Whether a model that was checked is a function from a random key to one."""
  # What is called may have leaves, such as a module of equinox.
  is_leaf = jax.tree_util.all_leaves([params])
  is_tree = not is_leaf or hasattr(params, "shape")
  modules = [base.__module__ for base in type(params).__mro__]
  is_module = any(module.startswith("flax.") for module in modules)
  return callable(params) and not is_tree and not is_module


def models(params: Any, has_points: bool) -> Callable[[jax.Array], Params]:
  """The function that makes the initial models of seeds.

  Args:
    params: as `check_params` gave them.
    has_points: whether there is a grid.

  Returns:
    `seeds -> models`, leaves [seeds, ...]; of a single run `seed -> model`.
  """
  if not is_function_of_key(params):
    repeat = lambda seeds, leaf: jnp.repeat(leaf[None], len(seeds), 0)
    of_seeds = lambda seeds: jax.tree.map(
      functools.partial(repeat, seeds), params
    )
    return of_seeds if has_points else lambda seed: params
  of_seed = lambda seed: params(jax.random.key(seed))
  # One seed after the other: on CPU, jaxlib 0.10 can wait forever in batches
  # of QR decompositions, by which orthogonal matrices are drawn.
  return (lambda seeds: lax.map(of_seed, seeds)) if has_points else of_seed


def check_state(
  state: Any, kind: type, own: Any, seeds: Sequence[int] | None
) -> None:
  """That a state is one of a simulator with such settings.

  Args:
    state: given to `Simulator.run`.
    kind: of a state.
    own: the simulator's `Config`, of any model.
    seeds: of its grid; None without one.

  Raises:
    TypeError: if it is no state.
    ValueError: if it is one of other settings.
  """
  if not isinstance(state, kind):
    hint = "; run returns (state, metrics)" if type(state) is tuple else ""
    raise TypeError(
      f"state={shown(state)}: must be what Simulator.init or run returned{hint}"
    )
  theirs = state.config
  if theirs.has_points != own.has_points:
    raise ValueError(
      "state: is of a grid; this simulator has none"
      if theirs.has_points
      else "state: is of a single run; this simulator has a grid"
    )
  pairs = {n: (getattr(theirs, n), getattr(own, n)) for n in _SAME}
  if seeds is not None:
    pairs["seeds"] = (tuple(state.seeds), tuple(seeds))
  for name, (given, wanted) in pairs.items():
    if given != wanted:
      raise ValueError(
        f"state: was made with {name} {shown(given)}; must be one of this "
        f"simulator, with {shown(wanted)}"
      )


# What a state and its simulator must have in common.
_SAME = (
  "num_clients",
  "cohort_size",
  "max_size",
  "plan",
  "by_examples",
  "client_dropout",
  "max_update_norm",
  "max_update_action",
  "eval_every",
  "trace",
  "precision",
)
