"""The task of Shakespeare's next character; the clients are the speakers."""

from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.tasks.base import Task
from fedjax_opt import evaluation, models, objectives
from fedjax_opt.datasets import shakespeare
from fedjax_opt.metrics import Criterion

NUM_TOKENS = shakespeare.UNKNOWN + 1

MODELS: dict[str, Callable[[int], nn.Module]] = {
  "lstm": lambda length: models.LSTM(NUM_TOKENS),
  "transformer": lambda length: models.Decoder(NUM_TOKENS, max_length=length),
}


def load(
  data_dir: str | None,
  model: str,
  *,
  sequence_length: int,
  min_sequences: int,
  test_fraction: float,
) -> Task:
  """Reads the plays, and makes a model of `MODELS` for them.

  Args:
    data_dir: folder of the data.
    model: key of `MODELS`.
    sequence_length: characters of an example.
    min_sequences: speakers with fewer are left out.
    test_fraction: share of each speaker's sequences that is held out.

  Raises:
    ValueError: if the data cannot be read, or no speaker says enough.
  """
  train, test = shakespeare.load(
    data_dir, sequence_length, min_sequences, test_fraction
  )
  return next_token(MODELS[model](sequence_length), train, test)


def next_token(model: nn.Module, train: Any, test: Any) -> Task:
  """Cross-entropy of the token that follows each of a sequence.

  An example is a sequence. Its loss and its accuracy are means over its targets
  that are no padding; means over examples weight each sequence alike, also the
  last of a client, which is shorter.

  Args:
    model: its logits are [B, T, tokens].
    train: the clients.
    test: clients, whose examples are pooled.
  """

  def apply(params, batch, rng, **options):
    # Dropout, if the model has any, is for training.
    rngs = None if rng is None else {"dropout": rng}
    x, train = batch["x"], rng is not None
    return model.apply({"params": params}, x, train=train, rngs=rngs, **options)

  def of_logits(logits, batch):  # {name: [B]}
    targets = jnp.maximum(batch["y"], 0)
    return {
      "loss": _mean(objectives.cross_entropy(logits, targets), batch),
      "accuracy": _mean(jnp.argmax(logits, -1) == targets, batch),
    }

  def loss_fn(params, batch, rng):  # [B]
    return of_logits(apply(params, batch, rng), batch)["loss"]

  def features_fn(params, batch, rng):  # [B, d]
    return _mean(apply(params, batch, rng, method="features"), batch)

  def per_example(params, batch):  # {name: [B]}
    return of_logits(apply(params, batch, None), batch)

  @jax.jit
  def init(key):
    return model.init(key, jnp.asarray(train.examples["x"][:1]))["params"]

  return Task(
    train=train.examples,
    test=test.examples,
    init=init,
    loss_fn=loss_fn,
    features_fn=features_fn,
    per_example=per_example,
    evaluate=evaluation.federated(per_example),
    criteria={
      "validation": Criterion("validation_accuracy", "max", "last"),
      "test": Criterion("test_accuracy", "max", "last"),
      "train": Criterion("train_loss", "min", "last"),
    },
    clients=train,
  )


def _mean(values: jax.Array, batch: Mapping[str, jax.Array]) -> jax.Array:
  """The mean of [B, T, ...] over each example's targets, [B, ...]."""
  counts = (batch["y"] != shakespeare.PADDING).astype(jnp.float32)
  counts /= jnp.maximum(counts.sum(axis=1, keepdims=True), 1)
  return jnp.einsum("bt...,bt->b...", values.astype(jnp.float32), counts)
