"""Tasks of classifying texts by a transformer encoder."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.tasks import classification
from experiments.tasks.base import Task
from fedjax_opt.base import Batch, Params
from fedjax_opt.datasets import texts, tokenization
from fedjax_opt.models import Encoder, EncoderConfig
from fedjax_opt.models import pretrained as weights

Examples = dict[str, np.ndarray]  # {"x": [N, T] int32, "y": [N] int32}

# Small batches stay in the caches of a CPU.
_EVALUATION_BATCH = 32


class Size(NamedTuple):
  """How large an encoder with a random start is."""

  layers: int
  hidden: int
  heads: int

  @property
  def help(self) -> str:
    """One line."""
    return f"{self.layers} layers, {self.hidden} wide, {self.heads} heads"


# Those below the base are of Turc et al., "Well-Read Students Learn Better",
# 2019.
SIZES = {
  "base": Size(6, 768, 12),
  "small": Size(4, 512, 8),
  "mini": Size(4, 256, 4),
  "tiny": Size(2, 128, 2),
}


def resolve(flags: Mapping[str, Any]) -> dict[str, Any]:
  """The flags that a folder of pretrained weights decides: none are left.

  Args:
    flags: values of all flags; None where not given.

  Raises:
    ValueError: for a flag that the folder decides.
  """
  folder = flags["pretrained"]
  if folder is None:
    return {}
  if not folder.strip():
    raise ValueError(
      f"pretrained={folder!r}: must be a folder with {weights.CONFIG}, "
      f"{weights.WEIGHTS} and {tokenization.TOKENIZER}"
    )
  for name in ("encoder", "vocab_size"):
    if flags[name] is not None:
      raise ValueError(
        f"{name}={flags[name]}: is what the folder of pretrained says; leave "
        f"{name} out"
      )
  return dict.fromkeys(("encoder", "vocab_size"))


def load(
  data_dir: str | None,
  pretrained: str | None,
  dataset: str,
  *,
  max_length: int,
  test_every: int,
  encoder: str | None,
  vocab_size: int | None,
) -> Task:
  """Loads a data set of `texts.DATASETS`, and makes an encoder for it.

  Args:
    data_dir: folder of the data.
    pretrained: folder from which the encoder starts; None for a random start.
    dataset: key of `texts.DATASETS`.
    max_length: tokens of a text.
    test_every: one test example of so many is used.
    encoder: key of `SIZES`, for a random start.
    vocab_size: most tokens of the vocabulary, for a random start.

  Raises:
    ValueError: if the data or the pretrained encoder cannot be read.
  """
  num_classes = texts.DATASETS[dataset].num_classes
  if pretrained is None:
    loaded = {}
    tokenizer = texts.train_tokenizer(dataset, vocab_size, data_dir)
    size = SIZES[encoder]
    config = EncoderConfig(
      vocab_size=tokenizer.get_vocab_size(),
      intermediate=4 * size.hidden,
      max_positions=max(max_length, 512),
      **size._asdict(),
    )
  else:
    try:
      config, loaded = weights.load(pretrained, num_classes)
      tokenizer = tokenization.read(pretrained, config.vocab_size)
    except ValueError as error:
      raise ValueError(f"pretrained={pretrained!r}: {error}") from None
    _check_length(max_length, config, pretrained)
  train, test = (
    texts.load_tokens(
      dataset, split, tokenizer, max_length, config.pad_id, data_dir
    )
    for split in ("train", "test")
  )
  every = slice(None, None, test_every)
  test = {name: values[every] for name, values in test.items()}
  train, test = _trimmed(train, test, config.pad_id)
  return _task(Encoder(config, num_classes), loaded, train, test)


def _check_length(length: int, config: EncoderConfig, folder: str) -> None:
  if length > config.max_positions:
    raise ValueError(
      f"max_length={length}: must be at most {config.max_positions}, the "
      f"positions of the encoder in {folder}"
    )


def _trimmed(
  train: Examples, test: Examples, pad_id: int
) -> tuple[Examples, Examples]:
  """The examples without columns of nothing but padding."""
  used = [(part["x"] != pad_id).any(axis=0) for part in (train, test)]
  length = 1 + max(np.flatnonzero(of_part)[-1] for of_part in used)
  return tuple(part | {"x": part["x"][:, :length]} for part in (train, test))


def _task(
  model: Encoder, loaded: Params, train: Examples, test: Examples
) -> Task:
  """Cross-entropy of an encoder.

  Args:
    model: the encoder.
    loaded: {name: leaves}, its parameters that are not drawn at random.
    train: training examples.
    test: test examples.
  """

  def apply(params: Params, batch: Batch, rng, **options: Any) -> jax.Array:
    return model.apply(
      {"params": params},
      batch["x"],
      train=rng is not None,
      rngs=None if rng is None else {"dropout": rng},
      **options,
    )

  @jax.jit
  def init(key):
    tokens = jnp.asarray(train["x"][:1])
    drawn = model.init(key, tokens)["params"]
    return drawn | jax.tree.map(jnp.asarray, loaded)

  return classification.task(
    apply,
    init,
    train,
    test,
    model.num_classes,
    measures_train=False,
    batch_size=_EVALUATION_BATCH,
  )
