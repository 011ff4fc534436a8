"""What a caller's functions return, checked where they are traced.

No check becomes part of the program: shapes and types are known in tracing.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_opt.checks import errors
from fedjax_opt.checks.values import (
  brief,
  check_function,
  checked_array,
  form,
)

LOSS_TAKES = "(params, batch, rng) -> [B]"
FEATURES_TAKES = "(params, batch, rng) -> [B, d]"
EVALUATE_TAKES = (
  "(params, data, test) -> {name: scalar}, such as "
  "evaluation.federated(per_example)"
)
ONE_CLIENT_TAKES = "(worker, broadcast) -> message"
# Columns of tables of metrics that are no metrics.
TABLE_COLUMNS = ("point", "round", "seed")
# Metrics that a run counts itself.
COUNTED_BY_RUN = (
  "time", "bytes_down", "bytes_up", "gradient_evaluations",
  "rejected_clients", "clipped_clients", "lost_rounds",
)  # fmt: skip
PER_EXAMPLE_TAKES = "(params, batch) -> {name: [B]}"
_LARGEST = float(np.finfo(np.float32).max)


def check_loss(name: str, value: Any) -> None:
  """Raises TypeError if it is no function of parameters, batch and key."""
  if isinstance(value, optax.GradientTransformation):
    raise TypeError(
      f"{name}: is an optimizer; must be a function {LOSS_TAKES}, given first"
    )
  check_function(name, value, LOSS_TAKES)


def checked_loss(loss_fn: Callable[..., Any]) -> Callable[..., Any]:
  """A loss that is checked whenever it is traced.

  Raises, when it is:
    ValueError: if it fails, or does not return one number per example.
    TypeError: if it takes other arguments, or returns no floating-point array.
  """

  @functools.wraps(loss_fn, updated=())
  def checked(params, batch, rng):
    losses = _of_batch("loss_fn", LOSS_TAKES, loss_fn, params, batch, rng)
    _check_per_example("loss_fn", losses, batch)
    if not jnp.issubdtype(losses.dtype, jnp.floating):
      raise TypeError(
        f"loss_fn: returned {form(losses)}; must be floating-point numbers, "
        f"else there is no gradient{_about_labels(batch)}"
      )
    return losses

  return checked


def checked_features(features_fn: Callable[..., Any]) -> Callable[..., Any]:
  """Features that are checked whenever they are traced, as `checked_loss`."""

  def checked(params, batch, rng):
    output = _of_batch(
      "features_fn", FEATURES_TAKES, features_fn, params, batch, rng
    )
    shape, size = getattr(output, "shape", ()), _size(batch)
    if len(shape) != 2 or shape[0] != size:
      raise ValueError(
        f"features_fn: returned {form_of(output)}; must be the features of "
        f"each example, [{size}, d]"
      )
    return output

  return checked


def _of_batch(name, takes, function, params, batch, *rng):
  """Calls a function of a batch; its errors then say what it was given."""
  where = f" on a batch {form_of(dict(batch))}{_about_labels(batch)}"
  # The form of a large model would push the error itself out of the line.
  if len(model := form_of(params)) < 60:
    where += f", params {model}"
  return errors.call_user(
    name, takes, function, params, batch, *rng, where=where
  )


def _check_per_example(name, output, batch):
  """Checks that `output` is an array with one number for each example."""
  size = _size(batch)
  want = f"must be one number per example, [B] = [{size}]"
  if output is None:
    raise TypeError(f"{name}: returned None; {want}")
  if isinstance(output, tuple | list | Mapping):
    raise TypeError(
      f"{name}: returned {form_of(output)}; {want}, and nothing else"
    )
  if not hasattr(output, "shape") and not isinstance(output, int | float):
    raise TypeError(f"{name}: returned {brief(output)}; {want}")
  shape = np.shape(output)
  if shape == (size,):
    return
  hint = _about_labels(batch)
  if not shape:
    raise ValueError(f"{name}: returned a scalar; {want}; drop the .mean()")
  if not hint and len(shape) > 1 and shape[0] == size:
    hint = "; take the mean, or the sum, over the other axes"
  raise ValueError(f"{name}: returned {form(output)}; {want}{hint}")


def _size(batch):
  return jax.tree.leaves(batch)[0].shape[0]


def form_of(value):
  """The types and shapes of a structure of arrays."""
  if isinstance(value, Mapping):
    inner = ", ".join(f"{k}: {form_of(v)}" for k, v in value.items())
    return f"{{{inner}}}"[:80]
  if isinstance(value, tuple | list):
    return f"({', '.join(map(form_of, value))})"[:80]
  is_array = hasattr(value, "shape") and hasattr(value, "dtype")
  return form(value) if is_array else brief(value)


def _about_labels(batch: Any) -> str:
  """The end of a message: what may be wrong with the labels."""
  y = batch.get("y") if isinstance(batch, Mapping) else None
  if y is None or not hasattr(y, "ndim"):
    return ""
  if y.ndim == 2 and y.shape[1] == 1:
    return f" (y is {form(y)}: give labels [N], y[:, 0])"
  if y.ndim == 2:
    return f" (y is {form(y)}: of one-hot labels give y.argmax(1))"
  if y.ndim == 1 and jnp.issubdtype(y.dtype, jnp.floating):
    return f" (y is {form(y)}: labels of classes must be integers)"
  return ""


def check_takes_validation(evaluate: Callable[..., Any]) -> None:
  """Raises TypeError if an evaluation does not take `validation=`."""
  try:
    signature = inspect.signature(evaluate)
  except (TypeError, ValueError):  # Its signature is not known.
    return
  try:
    signature.bind(None, None, None, validation=None)
  except TypeError:
    names = ", ".join(signature.parameters)
    raise TypeError(
      f"evaluate={brief(evaluate)}: takes ({names}); to be measured on "
      "validation= as well it must be a function (params, data, test, "
      "validation=None) -> {name: scalar}"
    ) from None


def checked_metrics(
  evaluate: Callable[..., Any],
  params: Any,
  data: Any,
  test: Any | None,
  validation: Any | None = None,
) -> dict[str, jax.Array]:
  """The result of an evaluation, checked: {name: scalar}.

  Raises:
    TypeError: if it takes other arguments, or returns no such dictionary.
    ValueError: if it fails, or a metric is no scalar.
  """
  if validation is not None:
    evaluate = functools.partial(evaluate, validation=validation)
  measured = errors.call_user(
    "evaluate", EVALUATE_TAKES, evaluate, params, data, test
  )
  measured = checked_scalars("evaluate", measured)
  check_columns("evaluate", measured, COUNTED_BY_RUN)
  return measured


def checked_extra_metrics(
  returned: Any,
  measured: Iterable[str],
  recorded: Iterable[str],
  num_points: int,
) -> dict[str, np.ndarray]:
  """What `extra_metrics` returned, checked: {name: [S]}.

  Args:
    returned: by the function.
    measured: names of the metrics that the run has without it.
    recorded: names of the metrics in the history so far; empty before the first
      evaluation.
    num_points: S.

  Raises:
    TypeError: if it is no dictionary of numbers.
    ValueError: if a name or a shape is not as it must be.
  """
  name = "extra_metrics"
  _check_dict(name, returned, f"{{name: [{num_points}]}}")
  if not returned:
    raise ValueError(f"{name}: returned no metric; must return one at least")
  check_columns(name, returned, COUNTED_BY_RUN)
  if both := sorted(returned.keys() & set(measured)):
    raise ValueError(
      f"{name}: a metric is named {both[0]!r}, as one of evaluate is; must "
      "have another name"
    )
  before = set(recorded) - set(measured)
  if before and before != returned.keys():
    raise ValueError(
      f"{name}: returned {sorted(returned)}; must return {sorted(before)}, as "
      "after earlier rounds"
    )
  return {
    key: checked_array(f"{name}[{key!r}]", value, f"[{num_points}]")
    for key, value in returned.items()
  }


def checked_scalars(name: str, output: Any) -> dict[str, jax.Array]:
  """A function's result as {name: scalar}.

  Raises:
    TypeError: if it is no dictionary of numbers.
    ValueError: if one is no scalar.
  """
  _check_dict(name, output, "{name: scalar}")
  for key, value in output.items():
    if not has_real_type(value):
      hint = " that float32 holds" * isinstance(value, int)
      raise TypeError(
        f"{name}: {key!r} is {form_of(value)}; must be a scalar number{hint}"
      )
    if np.shape(value):
      raise ValueError(
        f"{name}: {key!r} is {form(value)}; must be a scalar, such as its "
        ".mean()"
      )
  # A whole number may be more than int32 holds.
  number = lambda value: float(value) if type(value) is int else value
  return {key: jnp.asarray(number(value)) for key, value in output.items()}


def _check_dict(name, output, wanted):
  if not isinstance(output, Mapping):
    hint = "; was it not called?" if callable(output) else ""
    raise TypeError(
      f"{name}: returned {form_of(output)}; must return a dict {wanted}{hint}"
    )
  for key in output:
    if not isinstance(key, str):
      raise TypeError(f"{name}: the name {brief(key)} must be a string")


def check_columns(
  name: str, metric_names: Iterable[str], other_columns: Iterable[str]
) -> None:
  """Checks that no metric has the name of another column of its tables.

  Args:
    name: of the argument.
    metric_names: names of the metrics.
    other_columns: names of further columns, such as hyperparameters of a grid.

  Raises:
    ValueError: naming the first metric that has.
  """
  columns = (*TABLE_COLUMNS, *other_columns)
  for key in metric_names:
    if not key.strip() or key in columns:
      raise ValueError(
        f"{name}: a metric is named {key!r}; must have a name that is not "
        f"empty, and that no column of the tables has: {', '.join(columns)}"
      )


def has_real_type(value: Any) -> bool:
  """Whether a value is a real number, a truth value, or an array of such.

  JAX must be able to hold it: no type of 128 bits, no number of 400 digits.
  """
  if hasattr(value, "shape"):
    is_real = _is_of(value, jnp.floating, jnp.integer, jnp.bool_)
    return is_real and value.dtype.itemsize <= 8
  is_int = isinstance(value, int) and abs(value) <= _LARGEST
  return is_int or isinstance(value, float)


def _is_of(value, *kinds):
  """Whether a value is an array of numbers of one of these kinds."""
  dtype = getattr(value, "dtype", None)
  return dtype is not None and any(jnp.issubdtype(dtype, k) for k in kinds)


def checked_per_example(
  function: Callable[..., Any], params: Any, batch: Any
) -> dict[str, jax.Array]:
  """The metrics of each example, {name: [B]}.

  Raises:
    TypeError: if it takes other arguments, or returns no such dictionary.
    ValueError: if it fails, or a metric is not one number per example.
  """
  outputs = _of_batch("per_example", PER_EXAMPLE_TAKES, function, params, batch)
  _check_dict("per_example", outputs, f"{{name: [{_size(batch)}]}}")
  check_columns("per_example", outputs, COUNTED_BY_RUN)
  for key, value in outputs.items():
    name = f"per_example: {key!r}"
    _check_per_example(name, value, batch)
    if not has_real_type(value):
      raise TypeError(f"{name} is {form_of(value)}; must be numbers")
  return dict(outputs)


def check_arrays(name: str, tree: Any, *, with_keys: bool = True) -> None:
  """Raises TypeError if a leaf of a tree is neither an array nor a number."""
  for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
    is_key = _is_of(leaf, jax.dtypes.prng_key)
    is_number = has_real_type(leaf) or _is_of(leaf, jnp.complexfloating)
    if not (is_number or (is_key and with_keys)):
      raise TypeError(
        f"{name}{jax.tree_util.keystr(path)}: is {form_of(leaf)}; must be an "
        "array of numbers"
      )


def check_like(name: str, new: Any, old: Any, source: str) -> None:
  """Checks that a tree has the structure, shapes and types of another.

  Args:
    name: of what is checked.
    new: the tree.
    old: the other tree.
    source: what made the other tree, such as "init".

  Raises:
    ValueError: naming the leaf that differs.
  """
  check_arrays(name, new)
  is_reply = lambda node: type(node).__name__ == "Reply"
  if any(map(is_reply, jax.tree.leaves(new, is_leaf=is_reply))):
    raise ValueError(f"{name}: has a reply in it; use reply.value")
  paths = lambda tree: {
    jax.tree_util.keystr(path): leaf
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
  }
  old_leaves, new_leaves = paths(old), paths(new)
  for path in [p for p in old_leaves if p not in new_leaves]:
    raise ValueError(f"{name}: lacks the leaf {path or '()'} that {source} has")
  for path in [p for p in new_leaves if p not in old_leaves]:
    raise ValueError(
      f"{name}: has the leaf {path or '()'} that {source} does not have"
    )
  if jax.tree.structure(new) != jax.tree.structure(old):
    raise ValueError(
      f"{name}: is a {type(new).__name__} of another structure than the "
      f"{type(old).__name__} of {source}"
    )
  for path, leaf in old_leaves.items():
    new_leaf = new_leaves[path]
    if np.shape(leaf) != np.shape(new_leaf) or not _stays(leaf, new_leaf):
      raise ValueError(
        f"{name}{path}: is {form_of(jnp.asarray(new_leaf))}; must be "
        f"{form_of(jnp.asarray(leaf))}, as {source} has it"
      )


def _stays(leaf, after):
  """Whether a leaf keeps its type if another one replaces it."""
  types = [getattr(x, "dtype", jnp.result_type(x)) for x in (leaf, after)]
  if types[0] == types[1]:
    return True
  if _is_of(leaf, jax.dtypes.prng_key) or _is_of(after, jax.dtypes.prng_key):
    return False
  return jnp.result_type(leaf, after) == types[0]


def checked_state(state: Any) -> Any:
  """The state that a client keeps, which an algorithm must have declared.

  Raises:
    ValueError: if it is None, because the algorithm declares nothing.
  """
  if state is None:
    raise ValueError(
      "worker.state: the algorithm has no init_client; declare what one "
      "client keeps: Algorithm(..., init_client=...)"
    )
  return state
