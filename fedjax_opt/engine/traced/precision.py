"""The floating-point types in which clients compute.

The server's model and state, messages and evaluations have the types of the
initial parameters, the master types. A client computes

- with `float32`, everything in the master types;
- with `mixed`, losses and gradients in bfloat16, at parameters and features
  that are rounded to it; gradients, and the rest of a local step, are in the
  master types;
- with `bfloat16`, also its local steps in bfloat16, with the rule's state.

Running statistics of a model are never rounded, nor the targets, "y".
"""

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_opt.arrays import running_statistics
from fedjax_opt.arrays.trees import at_least_float32, is_float
from fedjax_opt.base import Batch, LossFn, Params
from fedjax_opt.checks import functions
from fedjax_opt.objectives import RegularizedLoss

PRECISIONS = ("float32", "mixed", "bfloat16")


def computed_loss(precision: str, loss_fn: LossFn) -> LossFn:
  """The loss as a client computes it.

  Args:
    precision: one of `PRECISIONS`.
    loss_fn: `(params, batch, rng) -> [B]`. Terms that `objectives.l2` and
      `objectives.proximal` have added are computed in the types of the
      parameters: rounding them would pull the model in a wrong direction.

  Returns:
    `(params, batch, rng) -> [B]`, at least float32. Its gradients have the
    types of the parameters.
  """
  if isinstance(loss_fn, RegularizedLoss):
    inner = computed_loss(precision, loss_fn.loss_fn)
    return loss_fn._replace(loss_fn=inner)
  loss_fn = functions.checked_loss(loss_fn)
  if precision == "float32":
    return loss_fn

  def rounded(params: Params, batch: Batch, rng: jax.Array) -> jax.Array:
    features = {
      name: leaf if name == "y" else _rounded(leaf)
      for name, leaf in batch.items()
    }
    params = running_statistics.map_weights(_rounded, params)
    return at_least_float32(loss_fn(params, features, rng))

  return rounded


def local_model(precision: str, params: Params) -> Params:
  """The model that local steps start from, given the one received."""
  if precision != "bfloat16":
    return params

  def rounded(leaf):
    if not is_float(leaf):
      return leaf
    # XLA takes away a conversion there and back, as it did on an H100: the
    # rounding would be in the end of the local steps but not in their start,
    # and look like a movement. It keeps this operation.
    leaf = lax.reduce_precision(leaf, exponent_bits=8, mantissa_bits=7)
    return leaf.astype(jnp.bfloat16)

  return running_statistics.map_weights(rounded, params)


def master_model(params: Params, start: Params, end: Params) -> Params:
  """The model after local steps, in the types of the one received.

  The local movement is added to the received model. Otherwise the rounding at
  the start would look like a movement to the server's rule, or to a control
  variate.

  Args:
    params: received.
    start: `local_model` of it.
    end: where the local steps ended.
  """
  if start is params:
    return end

  def move(leaf, start, end):
    if end.dtype == leaf.dtype:
      return end
    return leaf + (end.astype(leaf.dtype) - start.astype(leaf.dtype))

  return jax.tree.map(move, params, start, end)


def _rounded(leaf):
  return leaf.astype(jnp.bfloat16) if is_float(leaf) else leaf
