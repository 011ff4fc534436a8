"""Tokens of texts: BERT's rules, and vocabularies from folders and texts."""

import functools
import json
import sys

import numpy as np
import pytest

from fedjax_opt.datasets import tokenization
from tests.helpers import text_models as plain
from tests.helpers.refusals import refusal
from tests.helpers.tables_of_calls import read_cases

tokenizers = pytest.importorskip("tokenizers")

NUMBER = {word: number for number, word in enumerate(plain.VOCABULARY)}


@pytest.fixture
def folder(tmp_path):
  (tmp_path / "vocab.txt").write_text("\n".join(plain.VOCABULARY) + "\n")
  return tmp_path


def words(row):
  return [plain.VOCABULARY[number] for number in row]


def encode(folder, *texts, max_length=8):
  tokenizer = tokenization.read(folder, len(plain.VOCABULARY))
  return tokenization.encode(tokenizer, texts, max_length)


def test_a_line_of_a_vocabulary_may_be_any_character(tmp_path):
  tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2028", "a", "\x85", "b"]
  text = "\n".join(tokens) + "\n"
  (tmp_path / "vocab.txt").write_text(text, encoding="utf-8")
  vocabulary = tokenization.read(tmp_path, len(tokens)).get_vocab()
  assert vocabulary == {token: number for number, token in enumerate(tokens)}


def test_tokens_of_a_vocabulary(folder, monkeypatch):
  texts = ("The Bank's games.", "", "wins xyz")
  tokens = encode(folder, *texts)
  assert tokens.dtype == np.int32
  assert [" ".join(words(row)) for row in tokens] == [
    "[CLS] the bank [UNK] [UNK] game ##s [SEP]",
    "[CLS] [SEP]" + 6 * " [PAD]",
    "[CLS] wins [UNK] [SEP]" + 4 * " [PAD]",
  ]
  monkeypatch.setattr(tokenization, "_PER_CALL", 2)  # Several calls.
  np.testing.assert_array_equal(encode(folder, *texts), tokens)
  # Long ones keep the last token.
  (row,) = encode(folder, "the team wins the game", max_length=4)
  assert words(row) == ["[CLS]", "the", "team", "[SEP]"]


def test_the_token_that_fills_up(folder):
  tokenizer = tokenization.read(folder, 14)
  (row,) = tokenization.encode(tokenizer, ["the"], 5, pad_id=9)
  assert row.tolist() == [NUMBER["[CLS]"], NUMBER["the"], 3, 9, 9]


def test_a_tokenizer_file_comes_first_and_its_lengths_do_not_count(folder):
  tokenizer = tokenization.read(folder, 14)
  expected = encode(folder, "the game wins", max_length=7)
  tokenizer.enable_truncation(3)
  tokenizer.enable_padding(length=20)
  tokenizer.save(str(folder / "tokenizer.json"))
  (folder / "vocab.txt").write_text("not read")
  np.testing.assert_array_equal(
    encode(folder, "the game wins", max_length=7), expected
  )


@pytest.mark.parametrize(
  ("settings", "expected"),
  [({}, "[CLS] the [SEP]"), ({"do_lower_case": False}, "[CLS] [UNK] [SEP]")],
)
def test_case_is_as_the_settings_say(folder, settings, expected):
  (folder / "tokenizer_config.json").write_text(json.dumps(settings))
  (row,) = encode(folder, "The", max_length=3)
  assert " ".join(words(row)) == expected


def test_vocabulary_of_texts():
  texts = ["Low lower lowest", "new newer newest"] * 5
  tokenizer = tokenization.train(texts, 60)
  written = tokenizer.to_str()
  vocabulary = tokenizer.get_vocab()
  assert set(plain.WORDS) | {"low", "newest", "##t"} <= set(vocabulary)
  assert vocabulary["[PAD]"] == 0
  assert sorted(vocabulary.values()) == list(range(len(vocabulary)))
  (row,) = tokenization.encode(tokenizer, ["LOWEST"], 3)
  assert row.tolist() == [
    vocabulary[word] for word in ("[CLS]", "lowest", "[SEP]")
  ]
  # The same once more, and no larger than asked.
  assert tokenization.train(texts, 60).to_str() == written
  assert tokenization.train(texts, 30).get_vocab_size() == 30
  copy = tokenization.from_text(written)
  np.testing.assert_array_equal(tokenization.encode(copy, ["LOWEST"], 3), [row])


# Mistakes.


def test_vocabularies_that_cannot_be(folder):
  file = folder / "vocab.txt"

  read = functools.partial(refusal, tokenization.read, folder)
  assert read(13).startswith(f"{file}: has tokens up to 13; must be below voc")
  file.write_text("[PAD]\n[UNK]\n")
  assert read(14) == f"{file}: is not a vocabulary (has no [CLS])"
  file.write_bytes(b"\xff\xfe\n")
  assert read(14).startswith(f"{file}: is not a vocabulary (")
  (folder / "tokenizer.json").write_text("{}")
  assert read(14).startswith(f"{folder}/tokenizer.json: is not a vocabulary (")
  (folder / "tokenizer.json").unlink()
  file.unlink()
  assert read(14) == f"{folder}: has neither tokenizer.json nor vocab.txt"


@pytest.mark.parametrize(
  ("content", "message"), read_cases("datasets/bad_files.txt", "tokenizers")
)
def test_settings_that_cannot_be(folder, content, message):
  file = folder / "tokenizer_config.json"
  file.write_text(content)
  text = refusal(tokenization.read, folder, 14)
  assert text.startswith(f"{file}: {message}")


def test_a_vocabulary_too_small_for_the_characters():
  message = refusal(tokenization.train, ["abc cab"], 8)
  assert message.startswith("vocab_size=8: must be at least 11 for the charact")


def test_missing_package(folder, monkeypatch):
  monkeypatch.setitem(sys.modules, "tokenizers", None)
  message = refusal(tokenization.read, folder, 14)
  assert "pip install 'fedjax_opt[text]'" in message
