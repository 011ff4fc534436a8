"""The task of Shakespeare's next character; the clients are the speakers."""

import functools
from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp

from experiments.tasks import classification
from experiments.tasks.base import Task, TaskEntry
from fedjax_opt import evaluation, models, objectives
from fedjax_opt.checks import fields
from fedjax_opt.datasets import shakespeare
from fedjax_opt.registry import from_factory

NUM_TOKENS = shakespeare.UNKNOWN + 1

MODELS: dict[str, Callable[[int], nn.Module]] = {
  "lstm": lambda length: models.LSTM(NUM_TOKENS),
  "transformer": lambda length: models.Decoder(NUM_TOKENS, max_length=length),
}


@fields.checked(
  sequence_length=fields.integer(1),
  min_sequences=fields.integer(1),
  test_fraction="[0, 1)",
  lora_rank=fields.integer(1),
  lora_alpha="(0, inf)",
)
def load(
  data_dir: str | None,
  model: str,
  *,
  sequence_length: int = 80,
  min_sequences: int = 2,
  test_fraction: float = 0.2,
  lora_rank: int | None = None,
  lora_alpha: float | None = None,
) -> Task:
  """Reads the plays; the loss is of the token that follows each of a sequence.

  An example is a sequence. Its loss and its accuracy are means over its targets
  that are no padding; means over examples weight each sequence alike, also the
  last of a client, which is shorter. The perplexity is e to the mean loss.

  Args:
    data_dir: folder of the data.
    model: key of `MODELS`.
    sequence_length: characters of an example, which are cut one after the other
      from all that a speaker says.
    min_sequences: speakers with fewer sequences are left out.
    test_fraction: fraction of the sequences of each speaker, the last ones,
      that is for tests, or 0 for TFDS's test split, scenes of two plays whose
      speakers are mostly new.
    lora_rank: columns of LoRA's adapters beside the queries and values of all
      layers; then they and the last layer alone are trained, unless trainable
      says otherwise. For the transformer.
    lora_alpha: numerator of the adapters' scale, over lora_rank, 16 by default.

  Raises:
    ValueError: if the data cannot be read, no speaker says enough, or
      lora_alpha has no lora_rank.
  """
  train, test = shakespeare.load(
    data_dir, sequence_length, min_sequences, test_fraction
  )
  apply, init = classification.network(
    MODELS[model](sequence_length), train.examples
  )
  apply, init, paths = classification.adapted(
    apply, init, "output", lora_rank, lora_alpha
  )

  def is_right(logits, y):  # [B]
    return objectives.token_mean(jnp.argmax(logits, -1) == y, y)

  def features_fn(params, batch, rng):  # [B, d]
    features = apply(params, batch, rng, method="features")
    return objectives.token_mean(features, batch["y"])

  task = classification.task(
    apply,
    init,
    train.examples,
    test.examples,
    num_classes=None,
    loss=objectives.next_token,
    is_right=is_right,
    features_fn=features_fn,
    clients=train,
    trainable=paths,
  )
  return task._replace(evaluate=evaluation.with_perplexity(task.evaluate))


# The entries of the registry.

_OF_DATA = ("sequence_length", "min_sequences", "test_fraction")
TASKS: dict[str, TaskEntry] = {
  f"shakespeare_{model}": TaskEntry(
    functools.partial(load, model=model),
    f"Shakespeare's next character by speaker, {help}",
    from_factory(load, *_OF_DATA, *options),
    has_clients=True,
    label=f"Shakespeare {label}",
  )
  for model, label, help, options in (
    ("lstm", "LSTM", "two LSTM layers of 256", ()),
    (
      "transformer",
      "transformer",
      "transformer of 4 layers, 128 wide",
      ("lora_rank", "lora_alpha"),
    ),
  )
}
