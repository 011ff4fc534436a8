"""Text to tokens, by the package `tokenizers`."""

import os
import pathlib
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from fedjax_opt.checks import errors
from fedjax_opt.checks.fields import Count, Field, checked, integer
from fedjax_opt.checks.values import brief, check_instance
from fedjax_opt.files import json_files
from fedjax_opt.files.folders import user_path

__all__ = ["encode", "from_text", "read", "train"]

TOKENIZER, VOCABULARY = "tokenizer.json", "vocab.txt"
_SETTINGS = "tokenizer_config.json"
# Arguments of BertNormalizer -> their names in that file, and their defaults.
_NORMALIZATION = {
  "lowercase": ("do_lower_case", True),
  "strip_accents": ("strip_accents", None),
  "handle_chinese_chars": ("tokenize_chinese_chars", True),
}
# Those of BERT; the first has number 0 and fills sequences up.
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_PER_CALL = 10_000


@checked()
def read(folder: str | os.PathLike, vocab_size: Count) -> Any:
  """Reads the tokenizer of a folder in Hugging Face's layout.

  Args:
    folder: holds `tokenizer.json`, or `vocab.txt` of a BERT or DistilBERT model
      (then `tokenizer_config.json` may say how texts are normalized).
    vocab_size: of the model; all tokens must be below it.

  Returns:
    A `tokenizers.Tokenizer`.

  Raises:
    ValueError: naming the folder or the file, if there is none, it cannot be
      read or does not fit the model; if the package is missing.
  """
  tokenizers, folder = _import(), user_path(folder)
  files = (folder / TOKENIZER, folder / VOCABULARY)
  file = next(filter(pathlib.Path.is_file, files), None)
  if file is None:
    raise ValueError(f"{folder}: has neither {TOKENIZER} nor {VOCABULARY}")
  settings = {} if file.name == TOKENIZER else _settings(folder)
  try:
    if file.name == TOKENIZER:
      tokenizer = tokenizers.Tokenizer.from_file(str(file))
    else:
      # Not splitlines, which also splits at characters that are tokens.
      text = file.read_text(encoding="utf-8").removesuffix("\n")
      words = text.split("\n")
      vocabulary = {word: number for number, word in enumerate(words)}
      tokenizer = _word_piece(vocabulary, **settings)
  except Exception as error:  # The package raises no class of its own.
    reason = " ".join(str(error).split())
    raise ValueError(f"{file}: is not a vocabulary ({reason})") from None
  largest = max(tokenizer.get_vocab().values(), default=-1)
  if not 0 <= largest < vocab_size:
    raise ValueError(
      f"{file}: has tokens up to {largest}; must be below vocab_size="
      f"{vocab_size} of the model"
    )
  return tokenizer


def _settings(folder):
  """How texts are normalized; as BERT's without case if nothing is said."""
  file = folder / _SETTINGS
  content, settings = {}, {}
  if file.exists():
    with errors.while_reading(file, "must be a JSON object", ValueError):
      content = json_files.read_json(file)
  for name, (key, default) in _NORMALIZATION.items():
    value = content.get(key)
    if value is not None and not isinstance(value, bool):
      raise ValueError(
        f"{file}: {key} is {brief(value)}; must be true or false"
      )
    settings[name] = default if value is None else value
  return settings


@checked()
def train(texts: Sequence[str], vocab_size: Count) -> Any:
  """Makes a WordPiece tokenizer without case, as BERT's, from texts.

  Args:
    texts: from which words and their pieces are counted.
    vocab_size: at most so many tokens. [PAD], which fills up, is token 0.

  Returns:
    A `tokenizers.Tokenizer`, the same for the same texts.

  Raises:
    ValueError: if all characters do not fit; if the package is missing.
  """
  tokenizers = _import()
  normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
  text = "".join(sorted(set().union(*texts)))
  characters = sorted(set(normalizer.normalize_str(text)) - set(" "))
  least = len(_SPECIAL) + 2 * len(characters)
  if vocab_size < least:
    raise ValueError(
      f"vocab_size={vocab_size}: must be at least {least} for the characters "
      "of these texts"
    )
  tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece())
  tokenizer.normalizer = normalizer
  tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
  # The trainer numbers continued characters in the order of a hash table, which
  # then decides between pairs of one frequency: they get their numbers here.
  continued = [f"##{character}" for character in characters]
  trainer = tokenizers.trainers.WordPieceTrainer(
    vocab_size=vocab_size,
    special_tokens=[*_SPECIAL, *continued],
    show_progress=False,
  )
  tokenizer.train_from_iterator(texts, trainer)
  return _word_piece(tokenizer.get_vocab())


def _word_piece(
  vocabulary: dict[str, int], lowercase: bool = True, **normalization: Any
) -> Any:
  """BERT's tokenizer with a vocabulary."""
  tokenizers = _import()
  missing = [token for token in _SPECIAL[:4] if token not in vocabulary]
  if missing:
    raise ValueError(f"has no {missing[0]}")
  tokenizer = tokenizers.Tokenizer(
    tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]")
  )
  tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(
    lowercase=lowercase, **normalization
  )
  tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
  tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
    single="[CLS] $A [SEP]",
    special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
  )
  tokenizer.add_special_tokens([e for e in _SPECIAL if e in vocabulary])
  return tokenizer


@checked()
def from_text(text: str) -> Any:
  """The tokenizer that a `tokenizer.json` of this content describes.

  Args:
    text: the content.

  Returns:
    A `tokenizers.Tokenizer`.

  Raises:
    ValueError, TypeError: if it describes none.
  """
  try:
    return _import().Tokenizer.from_str(text)
  except Exception as error:  # The package raises no class of its own.
    raise errors.failed("text: is no tokenizer.json", error) from None


def _is_tokenizer(name: str, value: Any) -> None:
  check_instance(name, value, [_import().Tokenizer])


Tokenizer = Annotated[Any, Field(_is_tokenizer)]
# A sequence has a place for a token of its text.
Length = Annotated[int, integer(3)]


@checked()
def encode(
  tokenizer: Tokenizer,
  texts: Sequence[str],
  max_length: Length,
  pad_id: int = 0,
) -> np.ndarray:
  """The tokens of texts, with those that begin and end a sequence.

  Args:
    tokenizer: a `tokenizers.Tokenizer`; its truncation and padding are not
      used, but set.
    texts: N of them.
    max_length: longer sequences are cut to so many tokens; at least 3.
    pad_id: token that fills shorter ones up.

  Returns:
    [N, max_length] int32.

  Raises:
    ValueError: if `max_length` is out of range.
    TypeError: if it is no whole number.
  """
  tokenizer.no_padding()
  tokenizer.enable_truncation(max_length)
  tokens = np.full((len(texts), max_length), pad_id, np.int32)
  for start in range(0, len(texts), _PER_CALL):
    batch = list(texts[start : start + _PER_CALL])
    for row, encoding in enumerate(tokenizer.encode_batch_fast(batch), start):
      tokens[row, : len(encoding.ids)] = encoding.ids
  return tokens


def _import():
  return errors.imported("tokenizers", "tokens of texts", "fedjax_opt[text]")
