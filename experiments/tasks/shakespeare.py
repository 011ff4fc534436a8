"""The task of Shakespeare's next character; the clients are the speakers."""

import functools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.tasks import classification
from experiments.tasks.base import Task, TaskChoice
from fedjax_opt import models, objectives
from fedjax_opt.datasets import shakespeare
from fedjax_opt.registry import Hyperparameter

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
  """Reads the plays; the loss is of the token that follows each of a sequence.

  An example is a sequence. Its loss and its accuracy are means over its targets
  that are no padding; means over examples weight each sequence alike, also the
  last of a client, which is shorter.

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
  apply, init = classification.network(
    MODELS[model](sequence_length), train.examples
  )

  def loss(logits, y):  # [B]
    targets = jnp.maximum(y, 0)
    return _mean(objectives.cross_entropy(logits, targets), y)

  def features_fn(params, batch, rng):  # [B, d]
    return _mean(apply(params, batch, rng, method="features"), batch["y"])

  return classification.task(
    apply,
    init,
    train.examples,
    test.examples,
    num_classes=None,
    loss=loss,
    is_right=lambda logits, y: _mean(jnp.argmax(logits, -1) == y, y),
    features_fn=features_fn,
    clients=train,
  )


def _mean(values: jax.Array, y: jax.Array) -> jax.Array:
  """The mean of [B, T, ...] over each example's targets, [B, ...]."""
  counts = (y != shakespeare.PADDING).astype(jnp.float32)
  counts /= jnp.maximum(counts.sum(axis=1, keepdims=True), 1)
  return jnp.einsum("bt...,bt->b...", values.astype(jnp.float32), counts)


# The entries of the registry.

_HYPERPARAMETERS = (
  Hyperparameter(
    "sequence_length",
    80,
    "characters of an example, which are cut one after the other from all that "
    "a speaker says",
    "[1, inf)",
    is_static=True,
  ),
  Hyperparameter(
    "min_sequences",
    2,
    "speakers with fewer sequences are left out",
    "[1, inf)",
    is_static=True,
  ),
  Hyperparameter(
    "test_fraction",
    0.2,
    "fraction of the sequences of each speaker, the last ones, that is held "
    "out of training as the test part; 0 for TFDS's test split, scenes of two "
    "plays whose speakers are mostly new",
    "[0, 1)",
  ),
)
TASKS: dict[str, TaskChoice] = {
  f"shakespeare_{model}": TaskChoice(
    functools.partial(load, model=model),
    f"Shakespeare's next character by speaker, {help}",
    _HYPERPARAMETERS,
    has_clients=True,
    label=f"Shakespeare {label}",
  )
  for model, label, help in (
    ("lstm", "LSTM", "two LSTM layers of 256"),
    ("transformer", "transformer", "transformer of 4 layers, 128 wide"),
  )
}
