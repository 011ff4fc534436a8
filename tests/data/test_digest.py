"""Digests of data: other numbers have others, the same numbers the same."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_opt import Population
from fedjax_opt.data import digest, lists
from fedjax_opt.data.clients import ClientData
from fedjax_opt.engine import inputs

X = np.arange(24, dtype=np.float32).reshape(12, 2)
EXAMPLES = {"x": X, "y": np.arange(12, dtype=np.int32) % 3}
ROWS = [[0, 1, 2], [3, 4], [5, 6, 7, 8, 9, 10, 11]]

PUBLISHED = {
  "train_examples": "7d4511b93eabee7f74521e168e02a283",
  "partition": "6bdea523870c5998ecd5c79fbf219971",
  "validation": "7d4511b93eabee7f74521e168e02a283",
  "test": "2d756a9e9cc1b8367a3f3ba46077f592",
  "on disk": {
    "train_examples": "20f817de19795b896841eb2dee3a91f9",
    "partition": "c9d3fcb29ea12d2f481c42be412fdcac",
  },
}


def clients(rows=ROWS, **fields):
  rows = [np.array(of_client) for of_client in rows]
  return ClientData.from_partition(EXAMPLES | fields, rows, keep_pool=True)


def flipped(array, at=0):
  """With one bit of one number changed."""
  array = array.copy()
  array.view(np.uint8).reshape(-1)[at] ^= 1
  return array


@pytest.mark.parametrize(
  "other",
  [
    {"x": flipped(X)},
    {"x": flipped(X, -1)},
    {"x": X.astype(np.float64)},
    {"x": X.reshape(12, 1, 2)},
    {"x": X[::-1]},
    {"z": X},
  ],
)
def test_other_arrays(other):
  assert digest.of_arrays({"x": X}) != digest.of_arrays(other)


def test_the_same_arrays():
  columns = np.zeros((12, 4), np.float32)
  columns[:, ::2] = X
  arrays = [X.copy(), np.asfortranarray(X), columns[:, ::2], jnp.asarray(X)]
  for array in arrays:
    assert digest.of_arrays({"x": array}) == digest.of_arrays({"x": X})
  halves = {"x": jnp.asarray(X, jnp.bfloat16), "none": np.zeros((0, 3))}
  assert digest.of_arrays(halves) == digest.of_arrays(dict(halves))
  turned = dict(reversed(EXAMPLES.items()))
  assert digest.of_arrays(turned) == digest.of_arrays(EXAMPLES)


def test_every_part_of_a_large_array(monkeypatch):
  monkeypatch.setattr(digest, "_BYTES_AT_ONCE", 40)  # Five rows.
  of_all = digest.of_arrays({"x": X})
  for at in range(0, X.nbytes, 4):
    assert digest.of_arrays({"x": flipped(X, at)}) != of_all


@pytest.mark.parametrize(
  ("other", "names"),
  [
    (clients(), ""),
    (clients(x=flipped(X)), "train examples"),
    (clients([ROWS[1], ROWS[0], ROWS[2]]), "partition"),
    (clients([[0, 1, 2, 3], [4], ROWS[2]]), "partition"),
  ],
)
def test_which_set_differs(other, names):
  part = {"x": X[:2]}
  of_set = digest.of_data([clients()], part, part)
  words = f"other data ({names})" if names else ""
  of_other = digest.of_data([other], part, part)
  assert digest.changed(of_set, of_other) == words
  other_parts = {"validation": (EXAMPLES, part), "test": (part, EXAMPLES)}
  for name, (validation, test) in other_parts.items():
    of_other = digest.of_data([clients()], validation, test)
    assert digest.changed(of_set, of_other) == f"other data ({name})"
  of_train = digest.of_data([clients()])
  assert digest.changed(of_set, of_train) == "other data (validation, test)"


def test_how_lists_are_held_does_not_matter(monkeypatch):
  before = digest.of_data([clients()])
  data = clients()
  wider = np.pad(data.indices, ((0, 0), (0, 3)), constant_values=7)
  assert digest.of_data([dataclasses.replace(data, indices=wider)]) == before
  monkeypatch.setattr(lists, "_is_wasteful", lambda *_: True)
  assert isinstance(clients().indices, lists.Lists)
  assert digest.of_data([clients()]) == before


@pytest.mark.parametrize("is_wasteful", [True, False])
def test_seeds_with_their_own_partition(is_wasteful, monkeypatch):
  monkeypatch.setattr(lists, "_is_wasteful", lambda *_: is_wasteful)
  data_of_seeds = {0: clients(), 1: clients(ROWS[::-1])}
  of_data = digest.of_data(list(data_of_seeds.values()))
  assert len(of_data["partition"]) == 2
  assert isinstance(of_data["train_examples"], str)
  of_joined = inputs.data_of_seeds(data_of_seeds.get, [0, 1])
  assert digest.of_data([of_joined]) == of_data
  turned = digest.of_data(list(data_of_seeds.values())[::-1])
  assert digest.changed(of_data, turned) == "other data (partition)"
  of_equal = digest.of_data([clients(), clients()])
  assert of_equal == digest.of_data([clients()])


def test_clients_on_disk(tmp_path):
  digests = lambda name, data: digest.of_data(
    [Population.of_client_data(tmp_path / name, data)]
  )

  of_data = digests("one", clients())
  assert digests("two", clients()) == of_data
  of_flipped = digests("three", clients(x=flipped(X)))
  assert digest.changed(of_data, of_flipped) == "other data (train examples)"
  sizes = digests("four", clients([[0, 1], [2, 3, 4], ROWS[2]]))
  assert "partition" in digest.changed(of_data, sizes)


def test_records_of_earlier_versions_are_found(tmp_path):
  """Their folders are named by these digests."""
  data = clients()
  digests = digest.of_data([data], EXAMPLES, {"x": X[:2]})
  on_disk = Population.of_client_data(tmp_path / "one", data)
  assert digests | {"on disk": digest.of_data([on_disk])} == PUBLISHED
