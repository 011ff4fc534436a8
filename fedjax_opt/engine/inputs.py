"""What callers give, checked and brought into the form that the engine takes.

An invalid argument raises an error before anything is compiled. Its message is
one line that names the argument, the value and what would be accepted.
"""

import collections
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_opt import contract
from fedjax_opt.base import Algorithm, Batch, run_key
from fedjax_opt.checks import errors, fields, functions
from fedjax_opt.checks.values import (
  brief,
  check_fits_float,
  check_instance,
  check_tree,
)
from fedjax_opt.data import clients, lists
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.pools import check_finite, checked_pool_size, same_pool
from fedjax_opt.data.population import Population

# The most points of a grid: the arguments of each are checked, and each has a
# row in the results.
_MOST_POINTS = 100_000
SEED = fields.SEED_OF_RUN
_SEEDS = fields.sequence_of(SEED, "a list of seeds, such as [0, 1]", least=1)
_VALUES = fields.sequence_of(
  fields.Scalar(interval="[-inf, inf]"),
  "a list of numbers, such as [0.01, 0.1]",
  least=1,
)


def _are_seeds(name, values):
  _SEEDS.check(name, values)
  _check_differ(name, values)


SEEDS = fields.Field(_are_seeds)


def checked_seeds(
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
        f"seeds={brief(seeds)}: belongs to a grid; give init(params, seed=...)"
      )
    return None
  seeds = (0,) if seeds is None else seeds
  SEEDS.check("seeds", seeds)
  return tuple(int(seed) for seed in seeds)


def _check_differ(name, values):
  value, count = collections.Counter(values).most_common(1)[0]
  if count > 1:
    raise ValueError(f"{name}: {value} is repeated; give it once")


def checked_grid(
  algorithm: Any, grid: Mapping[str, Any] | None
) -> tuple[Callable[..., Algorithm], dict[str, list[Any]]]:
  """`(**hyperparameters) -> Algorithm`, and {name: values}; {} for one run.

  Raises:
    ValueError: if values are missing, repeated or not finite, or a name is
      reserved.
    TypeError: if the algorithm or the grid is of a wrong type.
  """
  if grid is None:
    contract.check_algorithm("algorithm", algorithm)
    return (lambda: algorithm), {}
  check_factory("algorithm", algorithm)
  check_is_grid("grid", grid)
  for name in ("seed", "seeds"):
    if name in grid:
      raise ValueError(
        f"grid[{name!r}]: seeds are not hyperparameters; give seeds=[...]"
      )
  for name in (*functions.TABLE_COLUMNS, *functions.COUNTED_BY_RUN):
    if name in grid:
      raise ValueError(
        f"grid[{name!r}]: tables have such a column; give the hyperparameter "
        "another name"
      )
  grid = {name: _numbers(name, values) for name, values in grid.items()}
  contract.check_points(algorithm, grid)
  return algorithm, grid


def check_factory(name: str, make: Any) -> None:
  """Raises TypeError if `make` is not a function that may make algorithms."""
  if isinstance(make, Algorithm) or not callable(make):
    text = "an Algorithm" if isinstance(make, Algorithm) else brief(make)
    raise TypeError(
      f"{name}={text}: must be a function of the hyperparameters that returns "
      "an Algorithm, such as lambda lr: fed_avg(loss_fn, optax.sgd(lr))"
    )


def check_is_grid(name: str, grid: Any) -> None:
  """Checks that a grid is a dictionary, with no more points than are allowed.

  Raises:
    TypeError: if it is no dictionary.
    ValueError: if its values have too many combinations.
  """
  _GRID.check(name, grid)
  # An array without axes has no length, and is refused with its name.
  is_sized = lambda v: hasattr(v, "__len__") and getattr(v, "ndim", 1) > 0
  points = math.prod(len(v) for v in grid.values() if is_sized(v))
  if points > _MOST_POINTS:
    raise ValueError(
      f"{name}: has {points} points; must have at most {_MOST_POINTS}"
    )


_GRID = fields.mapping_of(
  None,
  'a dict of values, such as {"learning_rate": [0.01, 0.1]}; {} for one '
  "setting",
)


def _numbers(name, values):
  """The values of one hyperparameter of a grid, as a list."""
  name = f"grid[{name!r}]"
  _VALUES.check(name, values)
  values = [v.item() if hasattr(v, "item") else v for v in values]
  for value in values:
    if isinstance(value, float):
      check_fits_float(name, value)
  _check_differ(name, values)
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
      f"data={brief(data)}: must be clients, such as "
      "ClientData.from_client_ids({'x': x, 'y': y}, client_ids), or a "
      "Population"
    )
  takes = "(seed) -> ClientData"
  parts = [errors.call_user("data", takes, data, seed) for seed in seeds]
  for seed, part in zip(seeds, parts, strict=True):
    check_instance(f"data({seed})", part, (ClientData, Population))
  first = parts[0]
  if all(part is first for part in parts):
    return first
  if any(isinstance(part, Population) for part in parts):
    raise ValueError("data: all seeds must have the same population on disk")
  if not all(same_pool(first.examples, part.examples) for part in parts):
    raise ValueError(
      "data: the clients of all seeds must share the examples; give them as "
      "ClientData.from_partition(examples, rows, keep_pool=True) makes them"
    )
  numbers = sorted({part.num_clients for part in parts})
  if len(numbers) > 1:
    raise ValueError(
      f"data: has {numbers[0]} clients for one seed and {numbers[-1]} for "
      "another; must have the same number for all seeds"
    )
  return clients.unchecked(
    first.examples,
    indices=lists.stacked([(part.indices, part.sizes) for part in parts]),
    sizes=np.stack([part.sizes for part in parts]),
  )


def checked_held_out(
  examples: Any,
  evaluate: Any,
  name: str = "test",
  data: ClientData | Population | None = None,
) -> Batch | None:
  """The test or validation examples, pooled, or None.

  Args:
    examples: a dict of arrays, or clients in memory; not checked yet.
    evaluate: the function that measures metrics on them, or None.
    name: the argument's name.
    data: the clients that train, of all seeds, if they are known.

  Raises:
    ValueError: if their lengths differ, a number is not finite, `evaluate` is
      None, or clients in memory train on some of them, as on the whole pool.
    TypeError: if they are neither a dict of arrays nor clients.
  """
  if examples is None:
    return None
  if isinstance(examples, ClientData):
    check_not_trained(name, examples, data)
    examples = examples.pooled()
  elif isinstance(data, ClientData) and examples is data.examples:
    raise ValueError(
      f"{name}: is the whole pool, with the examples that clients train on; "
      "give clients, such as a part of data.split(0.2), without .examples"
    )
  if not isinstance(examples, Mapping) or not examples:
    raise TypeError(
      f"{name}={brief(examples)}: must be ClientData, such as a part of "
      "data.split(0.2), or a dict of arrays [N, ...], such as "
      f"{{'x': x_{name}, 'y': y_{name}}}"
    )
  if not checked_pool_size(name, examples):
    raise ValueError(
      f"{name}: has no examples; must have at least one, or be None"
    )
  for key, values in examples.items():
    check_finite(f"{name}[{key!r}]", np.asarray(values))
  if evaluate is None:
    raise ValueError(
      f"{name}: nothing is measured on it; give evaluate=, such as "
      "evaluation.federated(per_example)"
    )
  return dict(examples)


def check_not_trained(
  name: str, held_out: ClientData, data: ClientData | Population | None
) -> None:
  """Raises ValueError if clients in memory train on rows that are held out.

  Args:
    name: the argument of those that are held out.
    held_out: clients with the rows on which models are measured.
    data: the clients that train, of all seeds, if they are known.
  """
  if not isinstance(data, ClientData):
    return
  if not same_pool(held_out.examples, data.examples):
    return
  num_shared, total = num_shared_rows(held_out, data)
  if num_shared:
    raise ValueError(
      f"{name}: {num_shared} of its {total} examples are among those that "
      "clients train on; must have none of them; give clients the first part "
      f"of data.split(0.2), and {name}= the second"
    )


def num_shared_rows(one: ClientData, other: ClientData) -> tuple[int, int]:
  """How many rows of their pool both have, and how many the first one has."""
  rows = np.unique(one.owned_rows())
  return int(np.isin(rows, other.owned_rows()).sum()), len(rows)


def checked_params(
  params: Any, may_be_function: bool, argument: str = "params"
) -> Any:
  """The initial model, its leaves arrays of floating-point numbers.

  Args:
    params: what the caller gave.
    may_be_function: whether it may be a function from a random key to a model.
    argument: the argument's name, for messages.

  Raises:
    TypeError: naming the leaf that is no such array.
    ValueError: naming the leaf that is not finite.
  """
  if is_function_of_key(params) and not isinstance(params, type):
    if not may_be_function:
      raise TypeError(
        f"{argument}={brief(params)}: must be a pytree of arrays; a function "
        "from a random key to one is for sweep"
      )
    key = jax.eval_shape(run_key, 0)
    jax.eval_shape(lambda key: _model_of(params, key), key)
    return params
  check_tree(argument, params)
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    name = f"{argument}{jax.tree_util.keystr(path)}"
    if isinstance(leaf, jax.core.Tracer):
      raise TypeError(
        f"{name}: is traced; a run compiles its own program: call it outside "
        "of jax.jit, jax.grad and jax.vmap"
      )
    if not np.isfinite(np.asarray(leaf)).all():
      raise ValueError(
        f"{name}: has values that are not finite; the initial model must be "
        "finite"
      )
  return jax.tree.map(jnp.asarray, params)


def _model_of(params, key):
  """The model that a function makes from a random key, checked while traced."""
  takes = "(key) -> params, or a pytree of arrays"
  where = " with a random key"
  model = errors.call_user("params", takes, params, key, where=where)
  check_tree("params(key)", model)
  return model


def is_function_of_key(params: Any) -> bool:
  """Whether a model that was checked is a function from a random key to one."""
  # A model may be callable too, such as a module of equinox; it has leaves.
  is_leaf = jax.tree_util.all_leaves([params])
  is_tree = not is_leaf or hasattr(params, "shape")
  modules = [base.__module__ for base in type(params).__mro__]
  is_module = any(module.startswith("flax.") for module in modules)
  return callable(params) and not is_tree and not is_module


# What a state and its simulator must have in common.
_SAME = (
  "num_clients",
  "cohort_size",
  "max_size",
  "plan",
  "weights_by_examples",
  "client_dropout",
  "max_update_norm",
  "max_update_action",
  "eval_every",
  "trace",
  "precision",
)


def check_state_belongs(
  state: Any,
  state_type: type,
  own_config: Any,
  seeds: Sequence[int] | None,
  grid: Mapping[str, Sequence[float]],
  schedule: str | None,
) -> None:
  """Checks that a state belongs to a simulator with these options.

  Functions cannot be compared: those of the simulator apply.

  Args:
    state: given to `Simulator.run`.
    state_type: the class of a state.
    own_config: the simulator's `Config`, of any model.
    seeds: of the simulator's grid; None without one.
    grid: the simulator's; {} for a single run.
    schedule: words for the simulator's timetables if those depend on the seed
      or the model; then `own_config` has that of the state.

  Raises:
    TypeError: if it is no state.
    ValueError: if it belongs to a simulator with other options.
  """
  if not isinstance(state, state_type):
    hint = "; run returns (state, metrics)" if type(state) is tuple else ""
    raise TypeError(
      f"state={brief(state)}: must be what Simulator.init or run returned{hint}"
    )
  kinds = {False: "a single run", True: "a grid of several points"}
  actual, expected = state.config.has_axes, own_config.has_axes
  if actual != expected:
    raise ValueError(
      f"state: is of {kinds[actual]}; must be one of this simulator, of "
      f"{kinds[expected]}"
    )
  clocks = (state.config.clock, own_config.clock)
  actual, expected = (c and f"a timetable {c.digest[:8]}" for c in clocks)
  pairs = {"schedule": (actual, expected or schedule)}
  for name in _SAME:
    pairs[name] = getattr(state.config, name), getattr(own_config, name)
  pairs["sampler"] = (state.config.sampler.name, own_config.sampler.name)
  if seeds is not None:
    pairs["seeds"] = (tuple(state.seeds), tuple(seeds))
    pairs["hyperparameters"] = (tuple(state.grid), tuple(grid))
    pairs |= {f"grid[{n!r}]": (state.grid.get(n), v) for n, v in grid.items()}
  for name, (actual, expected) in pairs.items():
    if actual != expected:
      raise ValueError(
        f"state: was made with {name} {brief(actual)}; must be one of this "
        f"simulator, with {brief(expected)}"
      )
