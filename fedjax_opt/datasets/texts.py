"""Data sets of labelled texts, and their tokens."""

import csv
import os
import pathlib
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np

from fedjax_opt.checks import errors
from fedjax_opt.checks.fields import checked, one_of
from fedjax_opt.checks.values import check_choice
from fedjax_opt.datasets import files, tfds, tokenization

_DBPEDIA = "https://s3.amazonaws.com/fast-ai-nlp/dbpedia_csv.tgz"
# A field of Wikipedia may be longer than csv allows by default.
_LONGEST_FIELD = 1 << 24


class Texts(NamedTuple):
  """A data set of labelled texts.

  Attributes:
    num_classes: labels are below it.
    find: `(split, data_dir) -> (stem, files, read)`: a name for the version and
      the split, the files that hold it, and a function that reads from
      them N pairs of a text and its label.
  """

  num_classes: int
  find: Callable[..., tuple[str, list[pathlib.Path], Callable[[], Any]]]


def _ag_news(split, data_dir):
  folder, files = tfds.split_files("ag_news_subset", split, data_dir)

  def take(record):
    parts = (record["title"].decode(), record["description"].decode())
    return " ".join(parts), int(record["label"])

  read = lambda: tfds.read(folder, split, take)
  return f"ag_news_subset-{folder.name}-{split}", files, read


def _dbpedia(split, data_dir):
  check_choice("split", split, ("train", "test"))
  root = tfds.root_folder(data_dir)
  path = root / "dbpedia_csv" / f"{split}.csv"
  if not path.is_file():
    raise ValueError(
      f"data_dir={str(root)!r}: has no dbpedia_csv/{split}.csv; unpack "
      f"{_DBPEDIA} there"
    )

  def read():
    old_limit = csv.field_size_limit(_LONGEST_FIELD)
    hint = "must have the columns class, title and content"
    try:
      with (
        errors.while_reading(path, hint, ValueError, csv.Error),
        open(path, encoding="utf-8-sig", newline="") as file,
      ):
        return [(c.strip(), int(label) - 1) for label, _, c in csv.reader(file)]
    finally:
      csv.field_size_limit(old_limit)

  return f"dbpedia-{split}", [path], read


# Of AG News the title and the description are one text; of DBpedia the text is
# the content. TFDS has no DBpedia: it is read from the CSV files of Zhang et
# al., "Character-level Convolutional Networks for Text Classification", 2015.
DATASETS = {
  "ag_news": Texts(4, _ag_news),
  "dbpedia": Texts(14, _dbpedia),
}
_Name = Annotated[str, one_of(*DATASETS)]


@checked()
def load(
  name: _Name, split: str, data_dir: str | os.PathLike | None = None
) -> dict[str, Any]:
  """Loads the texts and labels of one split.

  Args:
    name: a key of `DATASETS`.
    split: 'train' or 'test'.
    data_dir: folder that holds, for ag_news, ag_news_subset as TFDS prepares
      it; for dbpedia, dbpedia_csv/train.csv and test.csv. Default: as in
      `tfds.load`.

  Returns:
    {'x': N strings, 'y': [N] int32}.

  Raises:
    ValueError: if the name, the split or a file does not exist, or cannot be
      read; if a package is missing.
  """
  _, paths, read = DATASETS[name].find(split, data_dir)
  texts, labels = _texts_and_labels(name, paths, read())
  return {"x": texts, "y": labels}


@checked()
def load_tokens(
  name: _Name,
  split: str,
  tokenizer: tokenization.Tokenizer,
  max_length: tokenization.Length,
  pad_id: int = 0,
  data_dir: str | os.PathLike | None = None,
) -> dict[str, np.ndarray]:
  """Loads one split as tokens.

  The first call tokenizes (seconds) and caches the arrays beside those of
  `tfds.load`.

  Args:
    name: see `load`.
    split: see `load`.
    tokenizer: a `tokenizers.Tokenizer`, of `tokenization.read` or
      `train_tokenizer`.
    max_length: see `tokenization.encode`.
    pad_id: see `tokenization.encode`.
    data_dir: see `load`.

  Returns:
    {'x': [N, max_length] int32, 'y': [N] int32}.

  Raises:
    ValueError: as `load`, or if `max_length` is out of range.
    TypeError: if it is no whole number.
  """
  stem, paths, read = DATASETS[name].find(split, data_dir)
  tokenizer.no_padding()
  tokenizer.no_truncation()

  def make():
    texts, labels = _texts_and_labels(name, paths, read())
    tokens = tokenization.encode(tokenizer, texts, max_length, pad_id)
    return {"x": tokens, "y": labels}

  made_by = f"{max_length} {pad_id} {tokenizer.to_str()}"
  return files.cached_arrays(f"{stem}-{max_length}", paths, made_by, make)


@checked()
def train_tokenizer(
  name: _Name, vocab_size: int, data_dir: str | os.PathLike | None = None
) -> Any:
  """The tokenizer that `tokenization.train` makes of the training texts.

  It is cached beside the tokens.

  Args:
    name: see `load`.
    vocab_size: see `tokenization.train`.
    data_dir: see `load`.

  Raises:
    ValueError: as `load` and `tokenization.train`.
  """
  stem, paths, read = DATASETS[name].find("train", data_dir)

  def make():
    texts, _ = _texts_and_labels(name, paths, read())
    text = tokenization.train(texts, vocab_size).to_str()
    return {"tokenizer": np.array(text.encode())}

  cache = files.cached_arrays(f"{stem}-tokenizer", paths, str(vocab_size), make)
  return tokenization.from_text(cache["tokenizer"].item().decode())


def _texts_and_labels(name, files, pairs):
  """The texts and the labels, [N] int32, of which the range is checked."""
  texts, labels = [text for text, _ in pairs], [label for _, label in pairs]
  num_classes = DATASETS[name].num_classes
  if not labels or min(labels) < 0 or max(labels) >= num_classes:
    raise ValueError(
      f"{files[0]}: must have examples of {num_classes} classes, got "
      f"{len(labels)}, of classes {sorted(set(labels))[:20]}"
    )
  return texts, np.array(labels, np.int32)
