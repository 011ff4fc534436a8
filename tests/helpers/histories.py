"""Small histories, written out or random, for the tests."""

import struct

import numpy as np

from fedjax_opt.results.history import History


def of_values(**values) -> History:
  """A history of these metrics, [S, E] each, at rounds 10, 20, ..."""
  rounds = 10 * (1 + np.arange(len(next(iter(values.values()))[0])))
  return History(list(rounds), {k: np.array(v) for k, v in values.items()})


def two_points() -> History:
  """The second point diverges in the second evaluated round."""
  return History(
    [10, 20],
    {
      "train_loss": np.array([[1.0, 0.5], [2.0, np.nan]]),
      "test_accuracy": np.array([[1 / 3, 2 / 3], [0.25, 0.1]]),
      "train_worst_decile_accuracy": np.array([[0.1, 0.2], [0.0, 0.0]]),
    },
  )


def random(num_points: int, num_rounds: int = 8, diverged=()) -> History:
  """Falling losses and any accuracies; `diverged` has (point, column)."""
  rng = np.random.default_rng(0)
  loss = np.exp(-np.arange(num_rounds) + rng.random((num_points, 1)))
  for point, column in diverged:
    loss[point, column:] = np.nan
  accuracy = rng.random((num_points, num_rounds))
  return History(
    list(range(5, 5 * num_rounds + 1, 5)),
    {"train_loss": loss, "test_loss": loss, "test_accuracy": accuracy},
  )


def events_of(folder):
  """{tag: (step, value)s} of the files of TensorBoard in a folder.

  They have records of length, checksum, event, checksum.
  """
  from tensorboardX.proto import event_pb2

  found = {}
  for path in sorted(folder.iterdir()):
    content, at = path.read_bytes(), 0
    while at < len(content):
      (length,) = struct.unpack_from("<Q", content, at)
      event = event_pb2.Event.FromString(content[at + 12 : at + 12 + length])
      at += 12 + length + 4
      for value in event.summary.value:
        step = event.step, value.simple_value
        found.setdefault(value.tag, []).append(step)
  return found
