"""Transformer encoder of text: BERT and DistilBERT by configuration.

References:
  Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for
  Language Understanding", NAACL 2019.
  Sanh et al., "DistilBERT, a distilled version of BERT", 2019.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_opt.arrays.trees import at_least_float32
from fedjax_opt.checks import fields
from fedjax_opt.models import layers

__all__ = ["ACTIVATIONS", "Encoder", "EncoderConfig"]

# Name in Hugging Face's config.json -> function.
ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
  "gelu": functools.partial(nn.gelu, approximate=False),
  "gelu_new": functools.partial(nn.gelu, approximate=True),
  "relu": nn.relu,
}

# Fields of `EncoderConfig` that every checkpoint gives.
SIZES = (
  "vocab_size",
  "hidden",
  "layers",
  "heads",
  "intermediate",
  "max_positions",
  "type_vocab",
)
_RATES = ("dropout", "attention_dropout", "head_dropout", "layer_norm_eps")


@fields.checked(
  **dict.fromkeys(SIZES, fields.integer(1, most=1_000_000)),
  **dict.fromkeys(_RATES, "[0, 1)"),
  activation=fields.one_of(*ACTIVATIONS),
)
@dataclasses.dataclass(frozen=True)
class EncoderConfig:
  """The sizes and rates of an encoder; the defaults are DistilBERT's.

  BERT (base) is `EncoderConfig(layers=12, type_vocab=2)`.

  Attributes:
    vocab_size: tokens are below it.
    hidden: width of the hidden states; the heads share it.
    layers: number of layers.
    heads: attention heads of a layer.
    intermediate: width of the dense layer inside a layer.
    max_positions: longest sequence, in tokens.
    type_vocab: number of segment types, of which all tokens have the first;
      None for a model without, such as DistilBERT.
    layer_norm_eps: added to the variance by the layer norms.
    dropout: rate for embeddings and the output of each sublayer.
    attention_dropout: rate for attention weights.
    head_dropout: rate before the last layer.
    activation: key of `ACTIVATIONS`; 'gelu' is the exact one.
    pad_id: the token that fills a sequence up; it is not attended to.

  Raises:
    ValueError, TypeError: for a value that cannot be.
  """

  vocab_size: int = 30522
  hidden: int = 768
  layers: int = 6
  heads: int = 12
  intermediate: int = 3072
  max_positions: int = 512
  type_vocab: int | None = None
  layer_norm_eps: float = 1e-12
  dropout: float = 0.1
  attention_dropout: float = 0.1
  head_dropout: float = 0.2
  activation: str = "gelu"
  pad_id: int = 0

  def __post_init__(self):
    if self.hidden % self.heads:
      raise ValueError(f"heads={self.heads}: must divide hidden={self.hidden}")
    if self.pad_id >= self.vocab_size:
      raise ValueError(
        f"pad_id={self.pad_id}: must be a token in [0, {self.vocab_size})"
      )


_Dense = functools.partial(layers.Dense, initialization=layers.bert_normal)


def _layer_norm(config: EncoderConfig, name: str) -> nn.LayerNorm:
  # Computes in float32 or wider, whatever the types of its input.
  epsilon = config.layer_norm_eps
  return nn.LayerNorm(epsilon=epsilon, use_fast_variance=False, name=name)


class Encoder(layers.Network):
  """Token embeddings, transformer layers, and a classifier of the first token.

  The head is that of DistilBERT for both families: dense, ReLU, dropout,
  dense. Dropout is active where `train=True`. Matrix products are in the dtype
  of the parameters; layer norms and the softmax of attention in float32 or
  wider.

  Attributes:
    config: sizes, rates, activation.
    num_classes: width of the output.
    remat: whether gradients compute each layer again, see `Decoder`.
  """

  config: EncoderConfig = EncoderConfig()
  num_classes: int = 2
  remat: bool = False

  def setup(self):
    self.embeddings = _Embeddings(self.config)
    # `train` is no array.
    layer = nn.remat(_Layer, static_argnums=(4,)) if self.remat else _Layer
    self.layers = [layer(self.config) for _ in range(self.config.layers)]
    self.head = _Head(self.config, self.num_classes)

  def __call__(self, tokens: jax.Array, *, train: bool = False) -> jax.Array:
    """Logits [B, num_classes] of tokens [B, T] of a whole-number type.

    Raises:
      ValueError: if T exceeds the positions.
    """
    features = self.features(tokens, train=train)
    return self.head.logits(features, train=train)

  def features(self, tokens: jax.Array, *, train: bool = False) -> jax.Array:
    """Activations [B, hidden] before the last layer and its dropout."""
    # Of the last layer the head needs nothing but the first token.
    first = self.encode(tokens, train=train, last=1)[:, 0]
    return self.head.features(first)

  def encode(
    self, tokens: jax.Array, *, train: bool = False, last: int | None = None
  ) -> jax.Array:
    """Hidden states [B, T, hidden] after the last layer.

    At padding they have no meaning.

    Args:
      tokens: [B, T].
      train: whether dropout is active.
      last: number of first tokens for which the last layer is computed, [B,
        last, hidden]; all if None.
    """
    mask = tokens != self.config.pad_id
    x = self.embeddings(tokens, train=train)
    for layer in self.layers[:-1]:
      x = layer(x, x, mask, train)
    return self.layers[-1](x[:, :last], x, mask, train)

  def embed(self, tokens: jax.Array) -> jax.Array:
    """The mean hidden state of each text's tokens, of unit length.

    It is the embedding of sentence-transformers (Reimers and Gurevych,
    "Sentence-BERT", EMNLP 2019), in evaluation.

    Args:
      tokens: [B, T].

    Returns:
      [B, hidden]; zeros for a text of padding alone.
    """
    mask = (tokens != self.config.pad_id)[..., None]
    x = at_least_float32(self.encode(tokens))
    total = jnp.where(mask, x, 0).sum(1)
    length = jnp.linalg.norm(total, axis=-1, keepdims=True)
    return total / jnp.where(length == 0, 1, length)


class _Embeddings(nn.Module):
  """The sum of the embeddings of token, position and type, normalized."""

  config: EncoderConfig

  @nn.compact
  def __call__(self, tokens: jax.Array, *, train: bool) -> jax.Array:
    config, length = self.config, tokens.shape[1]
    if length > config.max_positions:
      raise ValueError(
        f"tokens: {length} in a sequence; must be at most "
        f"max_positions={config.max_positions}"
      )
    init = nn.initializers.normal(0.02)
    table = lambda name, rows: self.param(name, init, (rows, config.hidden))
    word = table("word", config.vocab_size)
    x = jnp.take(word, tokens.astype(jnp.int32), axis=0, mode="clip")
    x += table("position", config.max_positions)[:length]
    if config.type_vocab is not None:
      x += table("type", config.type_vocab)[0]
    drop = nn.Dropout(config.dropout, deterministic=not train, name="dropout")
    return drop(_layer_norm(config, "norm")(x))


class _Layer(nn.Module):
  """Attention, then two dense layers; each added to its input, normalized."""

  config: EncoderConfig

  @nn.compact
  def __call__(
    self, x: jax.Array, context: jax.Array, mask: jax.Array, train: bool
  ) -> jax.Array:
    """The new x [B, t, hidden], which attends to context [B, T, hidden]."""
    config = self.config
    drop = nn.Dropout(config.dropout, deterministic=not train, name="dropout")
    mixed = _Attention(config, name="attention")(x, context, mask, train=train)
    x = _layer_norm(config, "attention_norm")(x + drop(mixed))
    y = _Dense(config.intermediate, name="intermediate")(x)
    y = _Dense(config.hidden, name="output")(ACTIVATIONS[config.activation](y))
    return _layer_norm(config, "output_norm")(x + drop(y))


class _Attention(nn.Module):
  """Scaled dot-product attention of several heads to tokens of the mask."""

  config: EncoderConfig

  @nn.compact
  def __call__(
    self, x: jax.Array, context: jax.Array, mask: jax.Array, *, train: bool
  ) -> jax.Array:
    config = self.config

    def heads_of(name, y):  # [B, T, heads, d]
      y = _Dense(config.hidden, name=name)(y)
      return y.reshape(*y.shape[:2], config.heads, -1)

    query = heads_of("query", x)
    key, value = heads_of("key", context), heads_of("value", context)
    query /= math.sqrt(query.shape[-1])
    scores = at_least_float32(jnp.einsum("bqhd,bkhd->bhqk", query, key))
    # Not -inf: a row of padding alone would be NaN.
    lowest = jnp.finfo(scores.dtype).min
    scores = jnp.where(mask[:, None, None, :], scores, lowest)
    weights = jax.nn.softmax(scores).astype(value.dtype)
    rate = config.attention_dropout
    weights = nn.Dropout(rate, deterministic=not train, name="dropout")(weights)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, value)
    return _Dense(config.hidden, name="output")(mixed.reshape(x.shape))


class _Head(nn.Module):
  """The classifier of the first token's hidden state."""

  config: EncoderConfig
  num_classes: int

  def setup(self):
    self.dense = _Dense(self.config.hidden)
    self.dropout = nn.Dropout(self.config.head_dropout)
    self.output = layers.Logits(
      self.num_classes, initialization=layers.bert_normal
    )

  def features(self, x: jax.Array) -> jax.Array:
    return nn.relu(self.dense(x))

  def logits(self, x: jax.Array, *, train: bool) -> jax.Array:
    return self.output(self.dropout(x, deterministic=not train))
