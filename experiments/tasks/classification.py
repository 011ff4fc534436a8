"""What tasks of classification share: a model's logits, and their losses."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from experiments.tasks.base import Task
from fedjax_opt import evaluation, objectives
from fedjax_opt.base import Batch, Params
from fedjax_opt.data.pools import check_labels
from fedjax_opt.metrics import Criterion

Examples = dict[str, np.ndarray]  # {"x": [N, ...], "y": [N]}

_CRITERIA = {
  "validation": Criterion("validation_accuracy", "max", "last"),
  "test": Criterion("test_accuracy", "max", "last"),
  "train": Criterion("train_loss", "min", "last"),
}


def network(
  model: nn.Module,
  examples: Examples,
  prepare: Callable[..., Any] = lambda x, rng: (x, rng),
) -> tuple[Callable[..., jax.Array], Callable[[jax.Array], Params]]:
  """The functions `apply` and `init` of `task`, of a flax module.

  Args:
    model: its arguments are x, `train` and, if it has dropout, a key for it.
    examples: the first one has the shape of the model's input.
    prepare: `(x, rng) -> x, rng`, what the model is given; the rng is None in
      evaluations.
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

  @jax.jit  # One compilation instead of one for each layer's operations.
  def init(key):
    x, _ = prepare(jnp.asarray(examples["x"][:1]), None)
    return model.init(key, x)["params"]

  return apply, init


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
  is_right: Callable[..., jax.Array] = _is_right,
  of_params: Callable[[Params], dict[str, jax.Array]] | None = None,
  measures_train: bool = True,
  batch_size: int = 500,
  **fields: Any,
) -> Task:
  """The task of a model.

  Args:
    apply: `(params, batch, rng, **options) -> logits [B, classes]`; with the
      option `method='features'`, features [B, d]. The rng is None in
      evaluations.
    init: random key -> initial model.
    train: see `Task`.
    test: see `Task`.
    num_classes: labels are below it; None if they need no check.
    loss: `(logits, y) -> [B]`.
    is_right: `(logits, y) -> [B]`, whether, or which part of, an example is
      classified as it should be.
    of_params: see `evaluation.federated`.
    measures_train: whether metrics are also measured on training examples.
    batch_size: examples that an evaluation computes at once.
    **fields: others of `Task`, also in place of those that are made here.
  """
  for examples in (train, test, fields.get("validation")):
    # A negative label would count as one of the last classes, unnoticed.
    if examples is not None and num_classes is not None:
      check_labels(examples, num_classes)

  def loss_fn(params, batch, rng):  # [B]
    return loss(apply(params, batch, rng), batch["y"])

  def features_fn(params, batch, rng):  # [B, d]
    return apply(params, batch, rng, method="features")

  def per_example(params, batch):  # {name: [B]}
    logits, y = apply(params, batch, None), batch["y"]
    right = is_right(logits, y).astype(jnp.float32)
    return {"loss": loss(logits, y), "accuracy": right}

  splits = {"validation", "test", *(["train"] if measures_train else [])}
  made = {
    "num_classes": num_classes,
    "features_fn": features_fn,
    "criteria": {n: each for n, each in _CRITERIA.items() if n in splits},
  }
  return Task(
    train=train,
    test=test,
    init=init,
    loss_fn=loss_fn,
    per_example=per_example,
    evaluate=evaluation.federated(
      per_example, batch_size, of_params, measures_train=measures_train
    ),
    **made | fields,
  )
