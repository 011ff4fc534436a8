"""Shakespeare's plays by speaker, for the prediction of the next character.

Source: the one million characters of Karpathy, "The Unreasonable Effectiveness
of Recurrent Neural Networks", 2015, which TensorFlow Datasets has as
`tiny_shakespeare`. A client is a speaker, as in Caldas et al., "LEAF: A
Benchmark for Federated Settings", 2018, and McMahan et al., AISTATS 2017.
"""

import os
import re

import numpy as np

from fedjax_opt.checks.fields import Count, checked
from fedjax_opt.data.clients import ClientData, joined
from fedjax_opt.datasets import tfds

# The characters of the training text, in order; the number of a character is
# its place here.
VOCABULARY = (
  "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)
UNKNOWN = len(VOCABULARY)  # The number of all other characters.
PADDING = -1  # The target after the end of a speaker's text.

_TOKENS = {character: i for i, character in enumerate(VOCABULARY)}


@checked(test_fraction="[0, 1)")
def load(
  data_dir: str | os.PathLike | None = None,
  length: Count = 80,
  min_sequences: Count = 2,
  test_fraction: float = 0.2,
) -> tuple[ClientData, ClientData]:
  """Loads the plays; a client is a speaker of TFDS's training split.

  The text of a client is its speeches in that split, without its name, in the
  order of the plays, joined by a newline. This text is cut into sequences of
  `length` characters, one after the other without overlap. The target of each
  character is the next character, even if that is in the next sequence. The
  last sequence is filled up with `PADDING`. So a text of n characters gives n -
  1 targets in `ceil((n - 1) / length)` sequences.

  The test part of a client is the end of its own text, as LEAF divides its
  users' examples in time: the last `round(test_fraction * sequences)`, but at
  least one sequence stays for training. If `test_fraction` is 0, TFDS's own
  test split is the test part. It has scenes of two plays, most of whose
  speakers are in no other split, so it measures a model on new speakers. TFDS's
  validation split is not used.

  Args:
    data_dir: see `tfds.load_text`.
    length: T, characters of a sequence; 80 in LEAF.
    min_sequences: speakers with fewer sequences are left out; 2 is the least
      with which one can be trained on and one held out.
    test_fraction: of each speaker's sequences that is held out, in [0, 1).

  Returns:
    (train, test), each with x [N, T] int32, characters as places in
    `VOCABULARY` or `UNKNOWN`, and y [N, T] int32, the characters that follow,
    or `PADDING`. Clients are in the order of the speakers' names. If
    `test_fraction` is positive client m is the same speaker in both, and a
    speaker of few sequences may have none in `test`.

  Raises:
    ValueError: if the data cannot be read, an argument is out of range, or no
      speaker has as many sequences.
  """
  text = lambda split: tfds.load_text("tiny_shakespeare", split, data_dir)
  train = clients(text("train")[0]["text"], length, min_sequences)
  if not test_fraction:
    return train, clients(text("test")[0]["text"], length, 1)
  held_out = np.round(test_fraction * train.sizes).astype(int)
  num_train = np.maximum(train.sizes - held_out, 1)
  if (num_train == train.sizes).all():
    raise ValueError(
      f"test_fraction={test_fraction:g}: no speaker has enough sequences to "
      "hold one out; must be larger, or 0"
    )
  per_client = list(zip(train.indices, num_train, train.sizes, strict=True))
  parts = (
    [rows[:count] for rows, count, _ in per_client],
    [rows[count:size] for rows, count, size in per_client],
  )
  return tuple(ClientData.from_partition(train.examples, p) for p in parts)


@checked()
def clients(
  text: str, length: Count = 80, min_sequences: Count = 2
) -> ClientData:
  """The speakers of a text as clients; see `load`.

  Args:
    text: paragraphs between empty lines. The first line of a speech is its
      speaker's name and a colon; a paragraph of another form is left out.
    length: T, characters of a sequence.
    min_sequences: speakers with fewer are left out.

  Returns:
    Their sequences, x and y [N, T] int32, in the order of the names.

  Raises:
    ValueError: if an argument is out of range, or no speaker has as many.
  """
  sequences = (
    _sequences(speech, length) for _, speech in sorted(speeches(text).items())
  )
  speakers = [part for part in sequences if len(part["x"]) >= min_sequences]
  if not speakers:
    raise ValueError(
      f"min_sequences={min_sequences}: no speaker of the text has as many "
      f"sequences of {length} characters; must be fewer"
    )
  return joined(speakers)


@checked()
def speeches(text: str) -> dict[str, str]:
  """What each speaker of a text says.

  Args:
    text: see `clients`.

  Returns:
    {name: its speeches in order, joined by a newline}; the name is as printed,
    such as 'First Citizen'.
  """
  by_name: dict[str, list[str]] = {}
  text = text.replace("\r\n", "\n").strip("\n")
  for paragraph in re.split(r"\n{2,}", text):
    name, _, speech = paragraph.partition("\n")
    if name.endswith(":") and speech.strip():
      by_name.setdefault(name[:-1], []).append(speech)
  return {name: "\n".join(parts) for name, parts in by_name.items()}


def _sequences(text: str, length: int) -> dict[str, np.ndarray]:
  """Inputs x and targets y of a text, both [n, length] int32."""
  numbers = [_TOKENS.get(character, UNKNOWN) for character in text]
  codes = np.array(numbers, np.int32)
  num_targets = max(len(codes) - 1, 0)
  shape = (-(-num_targets // length), length)
  x, y = np.zeros(shape, np.int32), np.full(shape, PADDING, np.int32)
  x.reshape(-1)[:num_targets] = codes[:-1]
  y.reshape(-1)[:num_targets] = codes[1:]
  return {"x": x, "y": y}
