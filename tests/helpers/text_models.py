"""Small random BERT, DistilBERT, GPT-2, Llama, and plain NumPy in float64.

The leaves have the names of the checkpoints, and the computation reads them by
these names: nothing of it is shared with the package.
"""

import functools
import json
import math
import pathlib

import numpy as np
from safetensors.numpy import save_file

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PIECES = ("the", "game", "bank", "##s", "market", "rises", "team", "wins", ".")
VOCABULARY = (*WORDS, *PIECES)
NUM_CLASSES = 4
# Each model's config.json, of the sizes below.
CONFIGS = json.loads(pathlib.Path(__file__).with_suffix(".json").read_text())
HIDDEN, LAYERS, HEADS, INTERMEDIATE, POSITIONS = 8, 2, 2, 12, 10

# Of a layer: query, key, value, output; norm; the dense layers; norm.
_LAYERS = {
  "distilbert": (
    "transformer.layer.{}.",
    *("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    *("attention.out_lin", "sa_layer_norm"),
    *("ffn.lin1", "ffn.lin2", "output_layer_norm"),
  ),
  "bert": (
    "encoder.layer.{}.",
    *("attention.self.query", "attention.self.key", "attention.self.value"),
    *("attention.output.dense", "attention.output.LayerNorm"),
    *("intermediate.dense", "output.dense", "output.LayerNorm"),
  ),
}


def leaves(family: str, seed: int = 0, num_classes: int = NUM_CLASSES) -> dict:
  """{name: array}, float32, without a prefix; with DistilBERT's head."""
  rng = np.random.default_rng(seed)
  draw = lambda *shape: rng.normal(0, 0.5, shape).astype(np.float32)
  start, *parts = _LAYERS[family]
  arrays = {
    "embeddings.word_embeddings.weight": draw(len(VOCABULARY), HIDDEN),
    "embeddings.position_embeddings.weight": draw(POSITIONS, HIDDEN),
    "embeddings.LayerNorm.weight": 1 + draw(HIDDEN),
    "embeddings.LayerNorm.bias": draw(HIDDEN),
  }
  if family == "bert":
    arrays["embeddings.token_type_embeddings.weight"] = draw(2, HIDDEN)
    arrays["pooler.dense.weight"] = draw(HIDDEN, HIDDEN)
  wide = {5: (INTERMEDIATE, HIDDEN), 6: (HIDDEN, INTERMEDIATE)}
  for i in range(LAYERS):
    for number, part in enumerate(parts):
      shape = wide.get(number, (HIDDEN, HIDDEN))
      is_norm = number in (4, 7)
      name = start.format(i) + part
      kernel = 1 + draw(HIDDEN) if is_norm else draw(*shape)
      arrays |= {f"{name}.weight": kernel, f"{name}.bias": draw(shape[0])}
  for name, width in (("pre_classifier", HIDDEN), ("classifier", num_classes)):
    arrays |= {
      f"{name}.weight": draw(width, HIDDEN),
      f"{name}.bias": draw(width),
    }
  return arrays


def is_head(name: str) -> bool:
  return name.startswith(("pre_classifier", "classifier", "lm_head"))


def write(
  folder: pathlib.Path,
  family: str,
  arrays: dict | None = None,
  prefix: str = "",
  **config,
) -> pathlib.Path:
  """A folder in Hugging Face's layout; `config` replaces entries."""
  folder.mkdir(exist_ok=True)
  if arrays is None:
    decoders = {"gpt2": gpt2_leaves, "llama": llama_leaves}
    arrays = decoders[family]() if family in decoders else leaves(family)
  named = {n if is_head(n) else prefix + n: v for n, v in arrays.items()}
  save_file(named, folder / "model.safetensors")
  (folder / "config.json").write_text(json.dumps(CONFIGS[family] | config))
  (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
  return folder


def _norm(w, name, x, eps):
  x = x - x.mean(-1, keepdims=True)
  x = x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)
  return x * w[f"{name}.weight"] + w[f"{name}.bias"]


def _attention(q, k, v, heads, mask):
  """[T, hidden]; the mask, [T] or [T, T], says what is looked at."""
  mixed, size = np.zeros_like(q), q.shape[1] // heads
  for start in range(0, q.shape[1], size):
    head = slice(start, start + size)
    weights = np.exp(q[:, head] @ k[:, head].T / math.sqrt(size)) * mask
    mixed[:, head] = weights @ v[:, head] / weights.sum(-1, keepdims=True)
  return mixed


def hidden_states(family: str, arrays: dict, tokens: np.ndarray) -> np.ndarray:
  """[B, T, hidden] after the last layer; token 0 is padding."""
  w = {name: np.asarray(array, np.float64) for name, array in arrays.items()}
  eps = CONFIGS[family].get("layer_norm_eps", 1e-12)
  start, *parts = _LAYERS[family]
  norm = functools.partial(_norm, w, eps=eps)
  dense = lambda name, x: x @ w[f"{name}.weight"].T + w[f"{name}.bias"]
  states = []
  for row in tokens:  # One sequence after the other.
    x = w["embeddings.word_embeddings.weight"][row]
    x = x + w["embeddings.position_embeddings.weight"][: len(row)]
    if family == "bert":
      x = x + w["embeddings.token_type_embeddings.weight"][0]
    x = norm("embeddings.LayerNorm", x)
    for i in range(LAYERS):
      q, k, v, o, norm_1, up, down, norm_2 = (
        start.format(i) + part for part in parts
      )
      q, k, v = dense(q, x), dense(k, x), dense(v, x)
      mixed = _attention(q, k, v, HEADS, row != 0)
      x = norm(norm_1, x + dense(o, mixed))
      inner = dense(up, x)
      erf = np.vectorize(math.erf)
      inner = inner * (1 + erf(inner / math.sqrt(2))) / 2
      x = norm(norm_2, x + dense(down, inner))
    states.append(x)
  return np.stack(states)


def logits(family: str, arrays: dict, tokens: np.ndarray) -> np.ndarray:
  """[B, classes], by DistilBERT's head."""
  w = {name: np.asarray(array, np.float64) for name, array in arrays.items()}
  first = hidden_states(family, arrays, tokens)[:, 0]
  inner = first @ w["pre_classifier.weight"].T + w["pre_classifier.bias"]
  inner = np.maximum(inner, 0)
  return inner @ w["classifier.weight"].T + w["classifier.bias"]


# GPT-2. Its kernels are [in, out].


def gpt2_leaves() -> dict:
  """{name: array}, float32, without a prefix."""
  rng = np.random.default_rng(0)
  draw = lambda *shape: rng.normal(0, 0.5, shape).astype(np.float32)
  arrays = {
    "wte.weight": draw(len(VOCABULARY), HIDDEN),
    "wpe.weight": draw(POSITIONS, HIDDEN),
  }
  norms = ["ln_f"]
  for i in range(LAYERS):
    norms += [f"h.{i}.ln_1", f"h.{i}.ln_2"]
    for name, size_in, size_out in (
      ("attn.c_attn", HIDDEN, 3 * HIDDEN),
      ("attn.c_proj", HIDDEN, HIDDEN),
      ("mlp.c_fc", HIDDEN, 4 * HIDDEN),
      ("mlp.c_proj", 4 * HIDDEN, HIDDEN),
    ):
      arrays[f"h.{i}.{name}.weight"] = draw(size_in, size_out)
      arrays[f"h.{i}.{name}.bias"] = draw(size_out)
  for name in norms:
    arrays |= {f"{name}.weight": 1 + draw(HIDDEN), f"{name}.bias": draw(HIDDEN)}
  return arrays


def gpt2_logits(arrays: dict, row: np.ndarray) -> np.ndarray:
  """[T, vocabulary] of one sequence [T]."""
  w = {name: np.asarray(array, np.float64) for name, array in arrays.items()}
  norm = functools.partial(_norm, w, eps=1e-5)
  dense = lambda name, x: x @ w[f"{name}.weight"] + w[f"{name}.bias"]
  x = w["wte.weight"][row] + w["wpe.weight"][: len(row)]
  for i in range(LAYERS):
    h = f"h.{i}."
    q, k, v = np.split(dense(h + "attn.c_attn", norm(h + "ln_1", x)), 3, -1)
    mixed = _attention(q, k, v, HEADS, np.tri(len(row)))
    x = x + dense(h + "attn.c_proj", mixed)
    u = dense(h + "mlp.c_fc", norm(h + "ln_2", x))
    u = u * (1 + np.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3))) / 2
    x = x + dense(h + "mlp.c_proj", u)
  return norm("ln_f", x) @ w["wte.weight"].T


# Llama. Two heads of queries share one of keys and values.


def llama_leaves() -> dict:
  """{name: array}, float32, without the prefix."""
  rng = np.random.default_rng(0)
  draw = lambda *shape: rng.normal(0, 0.5, shape).astype(np.float32)
  arrays = {
    "embed_tokens.weight": draw(len(VOCABULARY), HIDDEN),
    "norm.weight": 1 + draw(HIDDEN),
    "lm_head.weight": draw(len(VOCABULARY), HIDDEN),
  }
  for i in range(LAYERS):
    for name, size_out, size_in in (
      ("self_attn.q_proj", HIDDEN, HIDDEN),
      ("self_attn.k_proj", HIDDEN // 2, HIDDEN),
      ("self_attn.v_proj", HIDDEN // 2, HIDDEN),
      ("self_attn.o_proj", HIDDEN, HIDDEN),
      ("mlp.gate_proj", INTERMEDIATE, HIDDEN),
      ("mlp.up_proj", INTERMEDIATE, HIDDEN),
      ("mlp.down_proj", HIDDEN, INTERMEDIATE),
    ):
      arrays[f"layers.{i}.{name}.weight"] = draw(size_out, size_in)
    for name in ("input_layernorm", "post_attention_layernorm"):
      arrays[f"layers.{i}.{name}.weight"] = 1 + draw(HIDDEN)
  return arrays


def llama_logits(arrays: dict, row: np.ndarray) -> np.ndarray:
  """[T, vocabulary] of one sequence [T]."""
  w = {name: np.asarray(array, np.float64) for name, array in arrays.items()}
  dense = lambda name, x: x @ w[f"{name}.weight"].T

  config = CONFIGS["llama"]

  def norm(name, x):
    mean_square = (x**2).mean(-1, keepdims=True)
    root = np.sqrt(mean_square + config["rms_norm_eps"])
    return x / root * w[f"{name}.weight"]

  def turned(x):  # [T, size], pairs as complex numbers.
    half = x.shape[1] // 2
    rates = config["rope_theta"] ** (-np.arange(half) / half)
    angles = np.outer(np.arange(len(x)), rates)
    pairs = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * angles)
    return np.hstack([pairs.real, pairs.imag])

  x, heads = w["embed_tokens.weight"][row], config["num_attention_heads"]
  for i in range(LAYERS):
    h = f"layers.{i}."
    y = norm(h + "input_layernorm", x)
    q, k, v = (dense(f"{h}self_attn.{name}_proj", y) for name in "qkv")
    q = np.hstack([turned(part) for part in np.hsplit(q, heads)])
    k = [turned(part) for part in np.hsplit(k, heads // 2)]
    k, v = (np.repeat(part, 2, 0) for part in (k, np.hsplit(v, heads // 2)))
    mixed = _attention(q, np.hstack(k), np.hstack(v), heads, np.tri(len(row)))
    x = x + dense(h + "self_attn.o_proj", mixed)
    y = norm(h + "post_attention_layernorm", x)
    gate = dense(h + "mlp.gate_proj", y)
    gate = gate / (1 + np.exp(-gate)) * dense(h + "mlp.up_proj", y)
    x = x + dense(h + "mlp.down_proj", gate)
  return norm("norm", x) @ w["lm_head.weight"].T


def tokens(*lengths: int, width: int | None = None) -> np.ndarray:
  """Random tokens [len(lengths), width], filled up with 0."""
  width = width or max(lengths)
  ids = np.random.default_rng(1).integers(
    1, len(VOCABULARY), size=(len(lengths), width)
  )
  padding = np.arange(width) >= np.array(lengths)[:, None]
  return np.where(padding, 0, ids).astype(np.int32)
