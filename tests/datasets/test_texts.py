"""Texts and their tokens: from the files that they come in to the cache.

Set FEDJAX_OPT_DATA_DIR to a TFDS folder to try the real AG News as well.
"""

import os
import sys

import numpy as np
import pytest

from fedjax_opt.datasets import files, texts, tokenization
from tests.helpers import text_data
from tests.helpers.refusals import refusal
from tests.helpers.tables_of_calls import read_cases


@pytest.fixture
def dbpedia(tmp_path):
  text_data.write_csv(tmp_path / "data" / "dbpedia_csv", "dbpedia")
  return tmp_path / "data"


@pytest.fixture
def tokenizer():
  pytest.importorskip("tokenizers")
  return tokenization.train(["the team wins a bank game"], 40)


def test_texts_are_read(tmp_path, dbpedia):
  text_data.prepare_ag_news(dbpedia)
  for split in ("train", "test"):
    for name, text_of in (
      ("ag_news", lambda title, content: f"{title} {content}"),
      ("dbpedia", lambda title, content: content.strip()),
    ):
      examples = texts.load(name, split, dbpedia)
      rows = text_data.rows(name, split)
      assert examples["x"] == [text_of(*words) for _, *words in rows]
      assert examples["y"].tolist() == [number - 1 for number, *_ in rows]
      assert examples["y"].dtype == np.int32
  assert "tensorflow" not in sys.modules


def test_tokens_and_their_cache(dbpedia, tokenizer, own_cache, monkeypatch):
  load = lambda length: texts.load_tokens(
    "dbpedia", "test", tokenizer, length, data_dir=dbpedia
  )
  tokens = load(6)
  assert tokens["x"].shape == (28, 6)
  np.testing.assert_array_equal(
    tokens["x"],
    tokenization.encode(
      tokenizer, texts.load("dbpedia", "test", dbpedia)["x"], 6
    ),
  )
  checked = texts._texts_and_labels
  # Must not be needed now.
  monkeypatch.setattr(texts, "_texts_and_labels", None)
  cached = load(6)
  for name in ("x", "y"):
    np.testing.assert_array_equal(tokens[name], cached[name])
    assert cached[name].dtype == np.int32

  monkeypatch.setattr(texts, "_texts_and_labels", checked)
  load(5)  # Another length, vocabulary or file: another cache file.
  other_tokenizer = tokenization.train(["the market rises"], 40)
  texts.load_tokens("dbpedia", "test", other_tokenizer, 6, data_dir=dbpedia)
  os.utime(dbpedia / "dbpedia_csv" / "test.csv", (1, 1))
  load(6)
  assert len(list(own_cache.iterdir())) == 4


def test_the_vocabulary_of_the_training_texts(dbpedia, own_cache, monkeypatch):
  pytest.importorskip("tokenizers")
  train = lambda size: texts.train_tokenizer("dbpedia", size, dbpedia).to_str()
  by_hand = tokenization.train(texts.load("dbpedia", "train", dbpedia)["x"], 90)
  assert train(90) == by_hand.to_str()
  assert train(70) != train(90)
  monkeypatch.setattr(texts, "_texts_and_labels", None)
  assert train(90) == by_hand.to_str()
  assert len(list(own_cache.iterdir())) == 2


# Mistakes.


@pytest.mark.parametrize("token", [b"[UNK]", b""], ids=["changed", "cut"])
def test_a_damaged_cache_is_made_again(dbpedia, own_cache, token):
  pytest.importorskip("tokenizers")
  train = lambda: texts.train_tokenizer("dbpedia", 90, dbpedia).to_str()
  expected = train()
  (file,) = own_cache.iterdir()
  data = file.read_bytes()
  file.write_bytes(data.replace(token, b"[UNX]") if token else data[:200])
  assert train() == expected
  assert file.read_bytes() == data


def test_a_cache_of_several_writers(own_cache):
  """Threads, and processes of one number in containers, do not meet."""
  path = own_cache / "file"
  with files.atomic_write(path) as file_1, files.atomic_write(path) as file_2:
    assert file_1 != file_2
    file_1.write_text("one")
    file_2.write_text("other")
  assert path.read_text() == "one"
  assert list(own_cache.iterdir()) == [path]


def test_what_is_not_there(tmp_path, dbpedia):
  absent = str(tmp_path / "absent")
  for arguments, message in (
    (("dbpedi", "train", dbpedia), "name='dbpedi': must be one of ag_news, "),
    (("dbpedia", "validation", dbpedia), "split='validation': must be one of"),
    (
      ("dbpedia", "train", tmp_path),
      "has no dbpedia_csv/train.csv; unpack http",
    ),
    (("dbpedia", "train", absent), f"data_dir={absent!r}: must be an existing"),
  ):
    assert message in refusal(texts.load, *arguments)


@pytest.mark.parametrize(
  ("content", "message"), read_cases("datasets/bad_files.txt", "texts")
)
def test_files_that_cannot_be_read(dbpedia, content, message):
  file = dbpedia / "dbpedia_csv" / "train.csv"
  file.write_text(eval(content))
  text = refusal(texts.load, "dbpedia", "train", dbpedia)
  assert text.startswith(str(file))
  assert message in text


@pytest.mark.skipif(
  "FEDJAX_OPT_DATA_DIR" not in os.environ,
  reason="set FEDJAX_OPT_DATA_DIR to a TFDS folder that holds ag_news_subset",
)
def test_real_ag_news():
  test = texts.load("ag_news", "test", os.environ["FEDJAX_OPT_DATA_DIR"])
  # Of about one size each; some folders hold a part of the 7,600.
  counts = np.bincount(test["y"], minlength=4)
  assert len(counts) == 4
  assert counts.min() > 0.2 * counts.sum()
  assert all(len(text) > 20 for text in test["x"])
