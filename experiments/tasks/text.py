"""Tasks of classifying texts by a transformer encoder.

The encoder is trained, or frozen; then a linear model of its features is.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.tasks import classification
from experiments.tasks.base import Task, TaskEntry
from experiments.tasks.classification import Examples
from fedjax_opt.base import Params
from fedjax_opt.checks import fields
from fedjax_opt.checks.errors import reworded_errors
from fedjax_opt.data import digest
from fedjax_opt.datasets import files, texts, tokenization
from fedjax_opt.files.folders import user_path
from fedjax_opt.models import Encoder, EncoderConfig, LinearModel
from fedjax_opt.models import pretrained as weights
from fedjax_opt.registry import Hyperparameter, from_factory

# Small batches stay in the caches of a CPU.
_EVALUATION_BATCH = 32
_FOLDER = (
  f"a folder with {weights.CONFIG}, {weights.WEIGHTS} and "
  f"{tokenization.TOKENIZER}"
)


class Size(NamedTuple):
  """The size of an encoder with a random start."""

  layers: int
  hidden: int
  heads: int

  @property
  def help(self) -> str:
    """One line."""
    return f"{self.layers} layers, {self.hidden} wide, {self.heads} heads"


# Sizes below the base are from Turc et al., "Well-Read Students Learn Better",
# 2019.
SIZES = {
  "base": Size(6, 768, 12),
  "small": Size(4, 512, 8),
  "mini": Size(4, 256, 4),
  "tiny": Size(2, 128, 2),
}


def resolve(flag_values: Mapping[str, Any]) -> dict[str, Any]:
  """The flags that a folder of pretrained weights decides, all None.

  Args:
    flag_values: the values of all flags; None where not given.

  Raises:
    ValueError: for a flag that the folder decides.
  """
  folder = flag_values["pretrained"]
  if folder is None:
    return {}
  if not folder.strip():
    raise ValueError(f"pretrained={folder!r}: must be {_FOLDER}")
  for name in ("encoder", "vocab_size"):
    if flag_values[name] is not None:
      raise ValueError(
        f"{name}={flag_values[name]}: the folder of pretrained decides it; "
        f"leave {name} out"
      )
  return dict.fromkeys(("encoder", "vocab_size"))


@fields.checked(
  max_length=fields.integer(3),
  test_every=fields.integer(1),
  vocab_size=fields.integer(1),
  lora_rank=fields.integer(1),
  lora_alpha="(0, inf)",
)
def load(
  data_dir: str | None,
  pretrained: str | None,
  dataset: str,
  *,
  max_length: int = 64,
  test_every: int = 1,
  encoder: str | None = "base",
  vocab_size: int | None = 30522,
  lora_rank: int | None = None,
  lora_alpha: float | None = None,
) -> Task:
  """Loads a data set of `texts.DATASETS`, and makes an encoder for it.

  Args:
    data_dir: folder of the data.
    pretrained: folder from which the encoder starts; None for a random start.
    dataset: key of `texts.DATASETS`.
    max_length: tokens of a text (the paper of Δ-SGD has 512): longer ones
      are cut, shorter ones filled up.
    test_every: 1 in this many test examples is used, from the first on.
    encoder: key of `SIZES`, for a random start.
    vocab_size: most tokens of the vocabulary, which is made of the training
      texts; not with pretrained.
    lora_rank: columns of LoRA's adapters beside the queries and values of all
      layers; then they and the head alone are trained, unless trainable says
      otherwise (lora_b,base/head is FFA-LoRA).
    lora_alpha: numerator of the adapters' scale, over lora_rank, 16 by default.

  Raises:
    ValueError: if the data or the pretrained encoder cannot be read, or
      lora_alpha has no lora_rank.
  """
  num_classes = texts.DATASETS[dataset].num_classes
  if pretrained is None:
    start_params = {}
    tokenizer = texts.train_tokenizer(dataset, vocab_size, data_dir)
    size = SIZES[encoder]
    config = EncoderConfig(
      vocab_size=tokenizer.get_vocab_size(),
      intermediate=4 * size.hidden,
      max_positions=max(max_length, 512),
      **size._asdict(),
    )
  else:
    config, start_params, tokenizer = _read(pretrained, num_classes, max_length)
  train, test = _tokens(
    dataset, tokenizer, max_length, config.pad_id, data_dir, test_every
  )
  apply, init = classification.network(Encoder(config, num_classes), train)
  start = lambda key: init(key) | jax.tree.map(jnp.asarray, start_params)
  apply, start, paths = classification.adapted(
    apply, start, "head", lora_rank, lora_alpha
  )
  return classification.task(
    apply,
    start,
    train,
    test,
    num_classes,
    measures_train=False,
    evaluated={"batch_size": _EVALUATION_BATCH},
    trainable=paths,
  )


@fields.checked(max_length=fields.integer(3), test_every=fields.integer(1))
def load_features(
  data_dir: str | None,
  pretrained: str,
  dataset: str,
  *,
  max_length: int = 64,
  test_every: int = 1,
) -> Task:
  """Logistic regression of a frozen encoder's `Encoder.embed`.

  The embeddings are computed once, in minutes on a CPU. Later runs read them
  from the cache of `datasets.files`.

  Args:
    data_dir: see `load`.
    pretrained: folder of the encoder.
    dataset: see `load`.
    max_length: see `load`.
    test_every: see `load`.

  Raises:
    ValueError: if the data or the encoder cannot be read.
  """
  num_classes = texts.DATASETS[dataset].num_classes
  config, encoder_params, tokenizer = _read(pretrained, num_classes, max_length)
  train, test = (
    tokens | {"x": _embeddings(tokens, config, encoder_params, pretrained)}
    for tokens in _tokens(
      dataset, tokenizer, max_length, config.pad_id, data_dir, test_every
    )
  )
  apply, init = classification.network(LinearModel(num_classes), train)
  return classification.task(apply, init, train, test, num_classes)


def _embeddings(
  tokens: Examples, config: EncoderConfig, encoder_params: Params, folder: str
) -> np.ndarray:
  """The embedding of each text, [N, hidden] float32."""

  @jax.jit
  def embed(params, x):
    return Encoder(config).apply({"params": params}, x, method="embed")

  def make():
    starts = range(0, len(tokens["x"]), _EVALUATION_BATCH)
    part_of = lambda start: tokens["x"][start : start + _EVALUATION_BATCH]
    parts = [embed(encoder_params, part_of(start)) for start in starts]
    return {"x": np.concatenate(parts)}

  root = user_path(folder)
  sources = [root / name for name in (weights.CONFIG, weights.WEIGHTS)]
  of_tokens = digest.of_arrays(tokens)
  return files.cached_arrays("embeddings", sources, of_tokens, make)["x"]


def _read(
  folder: str, num_classes: int, max_length: int
) -> tuple[EncoderConfig, Params, Any]:
  """A pretrained encoder: its shape, its weights and its tokenizer."""
  with reworded_errors(f"pretrained={folder!r}"):
    config, encoder_params = weights.load(folder, num_classes)
    tokenizer = tokenization.read(folder, config.vocab_size)
  if max_length > config.max_positions:
    raise ValueError(
      f"max_length={max_length}: must be at most {config.max_positions}, the "
      f"positions of the encoder in {folder}"
    )
  return config, encoder_params, tokenizer


def _tokens(
  dataset: str,
  tokenizer: Any,
  max_length: int,
  pad_id: int,
  data_dir: str | None,
  test_every: int,
) -> tuple[Examples, Examples]:
  """The training and the test examples, without columns of only padding."""
  train, test = (
    texts.load_tokens(dataset, split, tokenizer, max_length, pad_id, data_dir)
    for split in ("train", "test")
  )
  test = {name: values[::test_every] for name, values in test.items()}
  used_columns = [(part["x"] != pad_id).any(axis=0) for part in (train, test)]
  length = 1 + max(np.flatnonzero(of_part)[-1] for of_part in used_columns)
  return tuple(part | {"x": part["x"][:, :length]} for part in (train, test))


# The entries of the registry.

_ENCODER = Hyperparameter(
  "encoder",
  "base",
  "size of the encoder of the ..._distilbert tasks, drawn at random; not with "
  "pretrained"
  + "".join(f"\n{name:5}  {size.help}" for name, size in SIZES.items()),
  fields.one_of(*SIZES),
)


def _choices(
  name: str, dataset: str, help: str, label: str, test_every: int = 1
) -> dict[str, TaskEntry]:
  """The tasks of a data set, by name."""
  length, interval, vocabulary, *of_lora = from_factory(
    load, "max_length", "test_every", "vocab_size", "lora_rank", "lora_alpha"
  )
  interval = interval._replace(default=test_every)
  takes = ("data_dir", "pretrained")
  return {
    f"{name}_distilbert": TaskEntry(
      functools.partial(load, dataset=dataset),
      f"{help}, DistilBERT or BERT",
      (length, interval, _ENCODER, vocabulary, *of_lora),
      takes=takes,
      resolve=resolve,
      splits=("validation", "test"),
      label=f"{label} DistilBERT",
    ),
    f"{name}_features": TaskEntry(
      functools.partial(load_features, dataset=dataset),
      f"{help}, logistic regression of a frozen encoder's features",
      (length, interval),
      takes=takes,
      needs={"pretrained": _FOLDER},
      is_convex=True,
      label=f"{label} features",
    ),
  }


TASKS: dict[str, TaskEntry] = {
  **_choices(
    "agnews", "ag_news", "AG News by title and description", "AG News"
  ),
  # The authors of the Δ-SGD paper test on every tenth of its texts.
  **_choices(
    "dbpedia", "dbpedia", "DBpedia's 14 classes by content", "DBpedia", 10
  ),
}
