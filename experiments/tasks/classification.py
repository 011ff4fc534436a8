"""Code that tasks share: outputs of a model, and their losses and metrics."""

import types
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from experiments.tasks.base import Task
from fedjax_opt import evaluation, lora, objectives
from fedjax_opt.base import Batch, Params
from fedjax_opt.data.pools import check_labels
from fedjax_opt.results.selection import Criterion

Examples = dict[str, np.ndarray]  # {"x": [N, ...], "y": [N]}


def network(
  model: nn.Module,
  examples: Examples,
  prepare: Callable[..., Any] = lambda x, rng: (x, rng),
) -> tuple[Callable[..., jax.Array], Callable[[jax.Array], Params]]:
  """The functions `apply` and `init` of `task`, of a flax module.

  Args:
    model: the module; its arguments are x, `train` and, if it has dropout, a
      key for it.
    examples: the first one has the shape of the model's input.
    prepare: `(x, rng) -> x, rng`, which makes the model's input; the rng is
      None in evaluations.
  """

  def apply(params: Params, batch: Batch, rng, **options: Any) -> jax.Array:
    x, rng = prepare(batch["x"], rng)
    return model.apply(
      {"params": params},
      x,
      train=rng is not None,
      rngs=None if rng is None else {"dropout": rng},
      **options,
    )

  @jax.jit  # It compiles once, instead of once for each layer's operations.
  def init(key):
    x, _ = prepare(jnp.asarray(examples["x"][:1]), None)
    return model.init(key, x)["params"]

  return apply, init


def adapted(
  apply: Callable[..., jax.Array],
  init: Callable[[jax.Array], Params],
  head: str,
  rank: int | None,
  alpha: float | None,
) -> tuple[Callable[..., Any], Callable[..., Any], tuple[str, ...]]:
  """A transformer with LoRA's adapters beside its queries and values.

  Args:
    apply: see `task`.
    init: see `task`.
    head: path of the last layer, which is trained with the adapters.
    rank: columns of the adapters; None for none of them.
    alpha: numerator of their scale; None for the usual one.

  Returns:
    The two functions, and the paths of the trained leaves; () for all.

  Raises:
    ValueError: for an alpha without a rank.
  """
  if rank is None:
    if alpha is not None:
      raise ValueError(
        f"lora_alpha={alpha:g}: needs lora_rank; give --lora_rank=8, or leave "
        "lora_alpha out"
      )
    return apply, init, ()

  def start(key):
    adapter_key, layers = jax.random.fold_in(key, 1), ("query", "value")
    scale = {} if alpha is None else {"alpha": alpha}
    return lora.adapt(init(key), layers, adapter_key, rank=rank, **scale)

  return lora.on_adapted(apply), start, (*lora.ADAPTERS, f"base/{head}")


def _is_right(logits: jax.Array, y: jax.Array) -> jax.Array:
  return jnp.argmax(logits, -1) == y


def task(
  apply: Callable[..., jax.Array],
  init: Callable[[jax.Array], Params],
  train: Examples,
  test: Examples,
  num_classes: int | None,
  *,
  loss: Callable[..., jax.Array] = objectives.cross_entropy,
  is_right: Callable[..., jax.Array] | None = _is_right,
  measures_train: bool = True,
  evaluated: Mapping[str, Any] = types.MappingProxyType({}),
  **fields: Any,
) -> Task:
  """The task of a model.

  Args:
    apply: `(params, batch, rng, **options) -> outputs [B, ...]`, such as the
      logits of classes; with the option `method='features'`, features [B, d].
      The rng is None in evaluations.
    init: random key -> initial model.
    train: see `Task`.
    test: see `Task`.
    num_classes: labels are below it; None if they need no check.
    loss: `(outputs, y) -> [B]`.
    is_right: `(outputs, y) -> [B]`, whether an example is classified correctly,
      or which part of it is; None if there is no accuracy.
    measures_train: whether metrics are also measured on training examples.
    evaluated: other arguments of `evaluation.federated`.
    **fields: other fields of `Task`; they replace those that are made here.
  """
  for examples in (train, test, fields.get("validation")):
    # A negative label would silently count as one of the last classes.
    if examples is not None and num_classes is not None:
      check_labels(examples, num_classes)

  def loss_fn(params, batch, rng):  # [B]
    return loss(apply(params, batch, rng), batch["y"])

  def features_fn(params, batch, rng):  # [B, d]
    return apply(params, batch, rng, method="features")

  def per_example(params, batch):  # {name: [B]}
    outputs, y = apply(params, batch, None), batch["y"]
    metrics = {"loss": loss(outputs, y)}
    if is_right is not None:
      metrics["accuracy"] = is_right(outputs, y).astype(jnp.float32)
    return metrics

  name, direction = ("loss", "min") if is_right is None else ("accuracy", "max")
  criteria = {
    "validation": Criterion(f"validation_{name}", direction, "last"),
    "test": Criterion(f"test_{name}", direction, "last"),
  }
  if measures_train:
    criteria["train"] = Criterion("train_loss", "min", "last")
  defaults = {
    "num_classes": num_classes,
    "features_fn": features_fn,
    "criteria": criteria,
  }
  return Task(
    train=train,
    test=test,
    init=init,
    loss_fn=loss_fn,
    per_example=per_example,
    evaluate=evaluation.federated(
      per_example, measures_train=measures_train, **evaluated
    ),
    **defaults | fields,
  )
