"""Shakespeare by speaker: how speeches are joined, cut and held out.

Set FEDJAX_OPT_DATA_DIR to a TFDS folder to try the real text as well.
"""

import os

import numpy as np
import pytest

from fedjax_opt.datasets import shakespeare, tfds

TEXT = """First Citizen:
You are all resolved.

All:
Speak, speak.

A stage direction, of no speaker.

First Citizen:
Let us kill him,
and we'll have corn: so

ALL:

All:
No more
"""


def texts_of(sequences):
  """The characters of each sequence; '#' for unknown ones."""
  characters = shakespeare.VOCABULARY + "#"
  return ["".join(characters[i] for i in row) for row in sequences]


def test_speeches_are_joined_by_speaker():
  of_windows = shakespeare.speeches(TEXT.replace("\n", "\r\n"))
  assert (
    of_windows
    == shakespeare.speeches(TEXT)
    == {
      "First Citizen": "You are all resolved.\nLet us kill him,\n"
      "and we'll have corn: so",
      "All": "Speak, speak.\nNo more",
    }
  )


def test_speeches_are_cut_one_after_the_other():
  data = shakespeare.clients(TEXT, length=10, min_sequences=1)
  # In the order of the names: "All" has 21 characters, so 20 targets.
  assert data.sizes.tolist() == [2, 7]
  x, y = (data.examples[name] for name in ("x", "y"))
  assert x.dtype == y.dtype == np.int32
  assert x.shape == y.shape == (9, 10)
  assert texts_of(x[:2]) == ["Speak, spe", "ak.\nNo mor"]
  assert texts_of(y[:2]) == ["peak, spea", "k.\nNo more"]
  of_citizen = data.indices[1, :7]
  speech = shakespeare.speeches(TEXT)["First Citizen"]
  inputs, targets = x[of_citizen].reshape(-1), y[of_citizen].reshape(-1)
  number = len(speech) - 1
  assert texts_of([inputs[:number]]) == [speech[:-1]]
  assert texts_of([targets[:number]]) == [speech[1:]]
  # Only what is after the end is padding.
  assert (targets[number:] == shakespeare.PADDING).all()
  assert (targets[:number] != shakespeare.PADDING).all()
  assert ((inputs >= 0) & (inputs < shakespeare.UNKNOWN)).all()


def test_other_characters_have_one_number():
  data = shakespeare.clients("Hal:\nA é€ b", length=5, min_sequences=1)
  assert texts_of(data.examples["x"]) == ["A ## "]
  assert data.examples["x"].max() == shakespeare.UNKNOWN


def test_speakers_of_few_sequences_are_left_out():
  data = shakespeare.clients(TEXT, length=10, min_sequences=3)
  assert data.sizes.tolist() == [7]
  assert data.num_examples == 7
  # One character has no target.
  assert shakespeare.clients("A:\nx\n\nB:\nyz", 10, 1).sizes.tolist() == [1]


@pytest.fixture
def splits(monkeypatch):
  """Sets the text of the splits; gives what was asked for."""
  requests = []

  def load_text(name, split, data_dir):
    requests.append((name, split, data_dir))
    return [{"text": TEXT if split == "train" else "New:\nHow now? What, ho"}]

  monkeypatch.setattr(tfds, "load_text", load_text)
  return requests


@pytest.mark.parametrize(
  ("fraction", "trained", "held_out"),
  [
    (0.4, [1, 4], [1, 3]),
    (0.2, [2, 6], [0, 1]),  # One has nothing held out.
    (0.8, [1, 1], [1, 6]),  # One sequence at least is trained on.
  ],
)
def test_the_last_sequences_of_each_speaker_are_held_out(
  splits, fraction, trained, held_out
):
  train, test = shakespeare.load("folder", 10, 1, test_fraction=fraction)
  assert splits == [("tiny_shakespeare", "train", "folder")]
  assert train.sizes.tolist() == trained
  assert test.sizes.tolist() == held_out
  # Each pool has what is its own.
  assert (train.num_examples, test.num_examples) == (
    sum(trained),
    sum(held_out),
  )
  union = shakespeare.clients(TEXT, 10, 1)
  lists = lambda data: np.split(
    data.examples["y"][data.owned_rows()], np.cumsum(data.sizes)[:-1]
  )
  for of_client, *parts in zip(*map(lists, (union, train, test)), strict=True):
    np.testing.assert_array_equal(np.concatenate(parts), of_client)


def test_the_test_split_of_tfds(splits):
  train, test = shakespeare.load("folder", 10, 2, test_fraction=0)
  assert [split for _, split, _ in splits] == ["train", "test"]
  assert train.sizes.tolist() == [2, 7]
  assert texts_of(test.examples["x"][:1]) == ["How now? W"]


BAD = {
  "min_sequences=99: no speaker of the text has as many sequences of 10 "
  "characters; must be fewer": {"min_sequences": 99},
  "test_fraction=0.01: no speaker has enough sequences to hold one out; must "
  "be larger, or 0": {"test_fraction": 0.01},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_arguments(splits, message):
  with pytest.raises(ValueError, match=f"^{message}$"):
    shakespeare.load(**{"length": 10, "min_sequences": 1} | BAD[message])


@pytest.mark.skipif(
  "FEDJAX_OPT_DATA_DIR" not in os.environ,
  reason="set FEDJAX_OPT_DATA_DIR to a TFDS folder with tiny_shakespeare",
)
def test_the_real_text():
  folder = os.environ["FEDJAX_OPT_DATA_DIR"]
  text = tfds.load_text("tiny_shakespeare", "train", folder)[0]["text"]
  assert len(text) == 1_003_854
  assert "".join(sorted(set(text))) == shakespeare.VOCABULARY
  spoken = shakespeare.speeches(text)
  assert len(spoken) == 273
  assert spoken["ROMEO"].startswith("Is the day so young?\nAy me! sad hours")
  train, test = shakespeare.load(folder)
  assert train.num_clients == test.num_clients == 235
  assert train.num_examples == 9344
  assert test.num_examples == 2327
  assert not (train.examples["x"] == shakespeare.UNKNOWN).any()
  _, client_split = shakespeare.load(folder, test_fraction=0)
  assert (client_split.num_clients, client_split.num_examples) == (26, 640)
