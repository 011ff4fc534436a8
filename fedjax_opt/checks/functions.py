"""What a caller's functions return, checked where they are traced.

None of it is a part of the program: shapes and types are known while tracing.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_opt.checks import values as checks
from fedjax_opt.checks.values import form, shown

LOSS = "(params, batch, rng) -> [B]"
FEATURES = "(params, batch, rng) -> [B, d]"
EVALUATE = "(params, data, test) -> {name: scalar}"
ONE_CLIENT = "(worker, broadcast) -> message"
PER_EXAMPLE = "(params, batch) -> {name: [B]}"


def check_loss(loss_fn: Any) -> None:
  """Raises TypeError if it is no function of parameters, batch and key."""
  if isinstance(loss_fn, optax.GradientTransformation):
    raise TypeError(
      f"loss_fn: is an optimizer; must be a function {LOSS}, given first"
    )
  checks.function("loss_fn", loss_fn, LOSS)


def loss(loss_fn: Callable[..., Any]) -> Callable[..., Any]:
  """A loss that is checked whenever it is traced.

  Raises, when it is:
    ValueError: if it fails, or does not return one number per example.
    TypeError: if it takes other arguments, or returns no floating-point array.
  """

  @functools.wraps(loss_fn, updated=())
  def checked(params, batch, rng):
    found = _of_batch("loss_fn", LOSS, loss_fn, params, batch, rng)
    _check_per_example("loss_fn", found, batch)
    if not jnp.issubdtype(found.dtype, jnp.floating):
      raise TypeError(
        f"loss_fn: returned {form(found)}; must be floating-point numbers, "
        f"else there is no gradient{_about_labels(batch)}"
      )
    return found

  return checked


def features(features_fn: Callable[..., Any]) -> Callable[..., Any]:
  """Features that are checked whenever they are traced, as `loss`."""

  def checked(params, batch, rng):
    found = _of_batch("features_fn", FEATURES, features_fn, params, batch, rng)
    size = _size(batch)
    is_array = hasattr(found, "shape") and hasattr(found, "dtype")
    if not is_array or found.ndim != 2 or found.shape[0] != size:
      raise ValueError(
        f"features_fn: returned {form_of(found)}; must be the features of "
        f"each example, [{size}, d]"
      )
    return found

  return checked


def _of_batch(name, takes, function, params, batch, *rng):
  """Calls a function of a batch; what it raises names the batch."""
  checks.function(name, function, takes)
  try:
    return function(params, batch, *rng)
  except Exception as error:
    if checks.is_own(error):
      raise
    hint = _about_labels(batch)
    what = f"{name}: failed on a batch {_batch_form(batch)}{hint}"
    raise checks.failed(what, error) from error


def _check_per_example(name, found, batch):
  """That it is an array with one number for each example."""
  size = _size(batch)
  want = f"must be one number per example, [B] = [{size}]"
  if found is None:
    raise TypeError(f"{name}: returned None; {want}")
  if isinstance(found, tuple | list | Mapping):
    raise TypeError(
      f"{name}: returned {form_of(found)}; {want}, and nothing else"
    )
  if not hasattr(found, "shape") and not isinstance(found, int | float):
    raise TypeError(f"{name}: returned {shown(found)}; {want}")
  shape = np.shape(found)
  if shape == (size,):
    return
  hint = _about_labels(batch)
  if not shape:
    raise ValueError(f"{name}: returned a scalar; {want}; drop the .mean()")
  if not hint and len(shape) > 1 and shape[0] == size:
    hint = "; take the mean, or the sum, over the other axes"
  raise ValueError(f"{name}: returned {form(found)}; {want}{hint}")


def _size(batch):
  return jax.tree.leaves(batch)[0].shape[0]


def form_of(found):
  """The types and shapes of a structure of arrays."""
  if isinstance(found, Mapping):
    inner = ", ".join(f"{k}: {form_of(v)}" for k, v in found.items())
    return f"{{{inner}}}"[:80]
  if isinstance(found, tuple | list):
    return f"({', '.join(map(form_of, found))})"[:80]
  is_array = hasattr(found, "shape") and hasattr(found, "dtype")
  return form(found) if is_array else shown(found)


def _batch_form(batch):
  return form_of(dict(batch))


def _about_labels(batch: Any) -> str:
  """What may be wrong with labels, for the end of a message."""
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
  except (TypeError, ValueError):  # It does not tell.
    return
  try:
    signature.bind(None, None, None, validation=None)
  except TypeError:
    given = ", ".join(signature.parameters)
    raise TypeError(
      f"evaluate={shown(evaluate)}: takes ({given}); to be measured on "
      "validation= as well it must be a function (params, data, test, "
      "validation=None) -> {name: scalar}"
    ) from None


def metrics(
  evaluate: Callable[..., Any],
  params: Any,
  data: Any,
  test: Any | None,
  validation: Any | None = None,
) -> dict[str, jax.Array]:
  """What an evaluation returns, {name: scalar}.

  Raises:
    TypeError: if it takes other arguments, or returns no such dictionary.
    ValueError: if it fails, or a metric is no scalar.
  """
  if validation is not None:
    evaluate = functools.partial(evaluate, validation=validation)
  found = checks.call("evaluate", EVALUATE, evaluate, params, data, test)
  return scalars("evaluate", found)


def scalars(name: str, found: Any) -> dict[str, jax.Array]:
  """A function's result as {name: scalar}.

  Raises:
    TypeError: if it is no dictionary of numbers.
    ValueError: if one is no scalar.
  """
  if not isinstance(found, Mapping):
    hint = "; was it not called?" if callable(found) else ""
    raise TypeError(
      f"{name}: returned {form_of(found)}; must return a dict "
      f"{{name: scalar}}{hint}"
    )
  for key, value in found.items():
    if not isinstance(key, str):
      raise TypeError(f"{name}: the name {shown(key)} must be a string")
    if not is_real(value):
      raise TypeError(
        f"{name}: {key!r} is {form_of(value)}; must be a scalar number"
      )
    if np.shape(value):
      raise ValueError(
        f"{name}: {key!r} is {form(value)}; must be a scalar, such as its "
        ".mean()"
      )
  return {key: jnp.asarray(value) for key, value in found.items()}


def penalty(given: Callable[..., Any], params: Any) -> jax.Array:
  """What an algorithm adds to the losses, a scalar.

  Raises:
    ValueError: if it fails, or is no scalar.
    TypeError: if it is no number.
  """
  found = checks.call("Algorithm.penalty", "(params) -> scalar", given, params)
  return scalars("Algorithm.penalty", {"penalty": found})["penalty"]


def is_real(value):
  if isinstance(value, bool | int | float):
    return True
  if not hasattr(value, "shape") or not hasattr(value, "dtype"):
    return False
  kinds = (jnp.floating, jnp.integer, jnp.bool_)
  return any(jnp.issubdtype(value.dtype, kind) for kind in kinds)


def per_example(
  given: Callable[..., Any], params: Any, batch: Any
) -> dict[str, jax.Array]:
  """The metrics of each example, {name: [B]}.

  Raises:
    TypeError: if it takes other arguments, or returns no such dictionary.
    ValueError: if it fails, or a metric is not one number per example.
  """
  found = _of_batch("per_example", PER_EXAMPLE, given, params, batch)
  if not isinstance(found, Mapping):
    raise TypeError(
      f"per_example: returned {form_of(found)}; must return a dict of "
      f"arrays, {{name: [{_size(batch)}]}}"
    )
  for key, value in found.items():
    if not isinstance(key, str):
      raise TypeError(f"per_example: the name {shown(key)} must be a string")
    name = f"per_example: {key!r}"
    _check_per_example(name, value, batch)
    if not is_real(value):
      raise TypeError(f"{name} is {form_of(value)}; must be numbers")
  return dict(found)


def arrays(name: str, tree: Any, *, may_have_keys: bool = True) -> None:
  """Raises TypeError if a leaf of a tree is neither an array nor a number."""
  for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
    key = jax.tree_util.keystr(path)
    is_key = hasattr(leaf, "dtype") and jnp.issubdtype(
      leaf.dtype, jax.dtypes.prng_key
    )
    if is_key and may_have_keys:
      continue
    if is_key or not (is_real(leaf) or _is_complex(leaf)):
      raise TypeError(
        f"{name}{key}: is {form_of(leaf)}; must be an array of numbers"
      )


def _is_complex(leaf):
  return hasattr(leaf, "dtype") and jnp.issubdtype(
    leaf.dtype, jnp.complexfloating
  )


def like(name: str, new: Any, old: Any, source: str) -> None:
  """That a tree is of the structure, shapes and types of another.

  Args:
    name: of what is checked.
    new: the tree.
    old: the other one.
    source: what made that, such as "init".

  Raises:
    ValueError: naming the leaf that differs.
  """
  arrays(name, new)
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
    after = new_leaves[path]
    if np.shape(leaf) != np.shape(after) or not _stays(leaf, after):
      raise ValueError(
        f"{name}{path}: is {form_of(jnp.asarray(after))}; must be "
        f"{form_of(jnp.asarray(leaf))}, as {source} has it"
      )


def _stays(leaf, after):
  """Whether a leaf keeps its type if it becomes another one."""
  dtype = lambda x: x.dtype if hasattr(x, "dtype") else jnp.result_type(x)
  if dtype(leaf) == dtype(after):
    return True
  if any(jnp.issubdtype(dtype(x), jax.dtypes.prng_key) for x in (leaf, after)):
    return False
  return jnp.result_type(leaf, after) == dtype(leaf)


def kept(state: Any) -> Any:
  """What a client keeps, as its work reads it.

  Raises:
    ValueError: if it is None, for the algorithm declares nothing.
  """
  if state is None:
    raise ValueError(
      "worker.state: the algorithm has no init_client; declare what one "
      "client keeps: Algorithm(..., init_client=...)"
    )
  return state
