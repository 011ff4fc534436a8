"""What tasks of classification share: cross-entropy of a model's logits."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.tasks.base import Task
from fedjax_opt import evaluation, objectives
from fedjax_opt.base import Params
from fedjax_opt.data.clients import check_labels
from fedjax_opt.metrics import Criterion

_CRITERIA = {
  "validation": Criterion("validation_accuracy", "max", "last"),
  "test": Criterion("test_accuracy", "max", "last"),
  "train": Criterion("train_loss", "min", "last"),
}


def task(
  apply: Callable[..., jax.Array],
  init: Callable[[jax.Array], Params],
  train: dict[str, np.ndarray],
  test: dict[str, np.ndarray],
  num_classes: int,
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
    num_classes: see `Task`.
    measures_train: whether metrics are also measured on training examples.
    batch_size: examples that an evaluation computes at once.
    **fields: others of `Task`.
  """

  for examples in (train, test, fields.get("validation")):
    # A negative label would count as one of the last classes, unnoticed.
    if examples is not None:
      check_labels(examples, num_classes)

  def loss_fn(params, batch, rng):  # [B]
    logits = apply(params, batch, rng)
    return objectives.cross_entropy(logits, batch["y"])

  def features_fn(params, batch, rng):  # [B, d]
    return apply(params, batch, rng, method="features")

  def per_example(params, batch):  # {name: [B]}
    logits = apply(params, batch, None)
    right = jnp.argmax(logits, -1) == batch["y"]
    return {
      "loss": objectives.cross_entropy(logits, batch["y"]),
      "accuracy": right.astype(jnp.float32),
    }

  splits = {"validation", "test", *(["train"] if measures_train else [])}
  return Task(
    train=train,
    test=test,
    num_classes=num_classes,
    init=init,
    loss_fn=loss_fn,
    features_fn=features_fn,
    per_example=per_example,
    evaluate=evaluation.federated(
      per_example, batch_size, measures_train=measures_train
    ),
    criteria={name: _CRITERIA[name] for name in _CRITERIA if name in splits},
    **fields,
  )
