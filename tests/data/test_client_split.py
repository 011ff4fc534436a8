"""Held-out examples and clients, for all partitions and any shared lists."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedjax_opt.data import partition
from fedjax_opt.data.clients import ClientData
from tests.helpers.schemes import LABELLED

SEED = st.integers(0, 2**31)
FRACTION = st.floats(0.01, 0.99)
quick = settings(max_examples=20, deadline=None)

# Of each scheme, for a small pool.
PARAMETERS = LABELLED | {"natural": {}}


def clients_of(scheme, seed, num_clients, num_examples=90):
  rng = np.random.default_rng(seed)
  y = rng.integers(5, size=num_examples)
  ids = rng.integers(num_clients, size=num_examples)
  is_natural = scheme == "natural"
  arguments = {"client_ids": ids} if is_natural else PARAMETERS[scheme]
  number = None if is_natural else num_clients
  rows = partition.split(scheme, y, number, seed, **arguments)
  x = np.arange(num_examples, dtype=np.float32)[:, None]
  return ClientData.from_partition({"x": x, "y": y}, rows)


def lists(data):
  """Each client's rows, in order."""
  return [
    row[:size].tolist()
    for row, size in zip(data.indices, data.sizes, strict=True)
  ]


def rows_of(data):
  return {row for rows in lists(data) for row in rows}


def parts_or_refusal(split, *arguments):
  """The two parts, or the message of the refusal."""
  try:
    return split(*arguments)
  except ValueError as error:
    return str(error)


def check_parts(data, train, test):
  """Whatever the lists: nothing is in both parts, nothing is lost."""
  assert train.examples is data.examples
  assert test.examples is data.examples
  assert not rows_of(train) & rows_of(test)
  assert rows_of(test)
  assert rows_of(train)
  # Each slot is in exactly one part, as often and in the order it was.
  held_out = rows_of(test)
  for rows, kept, held in zip(*map(lists, (data, train, test)), strict=True):
    assert kept == [row for row in rows if row not in held_out]
    assert held == [row for row in rows if row in held_out]
  for part in (train, test):
    assert part.max_size == part.sizes.max()
    assert part.indices.dtype == part.sizes.dtype == np.int32
    is_padding = np.arange(part.max_size) >= part.sizes[:, None]
    assert not part.indices[is_padding].any()


@pytest.mark.parametrize("scheme", PARAMETERS)
@quick
@given(seed=SEED, num_clients=st.integers(1, 5), fraction=FRACTION, draw=SEED)
def test_no_training_row_is_held_out(scheme, seed, num_clients, fraction, draw):
  if scheme == "class_q":
    num_clients = 5  # One for each class.
  data = clients_of(scheme, seed, num_clients)
  targets = np.minimum(np.round(fraction * data.sizes), data.sizes - 1)
  parts = parts_or_refusal(data.split, fraction, draw)
  if "holds out no example of any client" in parts:
    # Too few examples, or one row fills most of a client's list.
    assert scheme == "dirichlet" or not targets.any()
    return
  train, test = parts
  check_parts(data, train, test)  # None is empty.
  if scheme != "dirichlet":
    np.testing.assert_array_equal(test.sizes, targets)


# Lists in which rows are repeated and shared as it comes.
LISTS = st.lists(st.lists(st.integers(0, 12), max_size=12), min_size=1)


@settings(max_examples=200, deadline=None)
@example(rows=[[0], [0, 1, 1]], fraction=0.25, seed=0)
@given(rows=LISTS, fraction=FRACTION, seed=SEED)
def test_any_lists(rows, fraction, seed):
  if not any(rows):
    return
  arrays = [np.array(of_client, int) for of_client in rows]
  data = ClientData.from_partition({"x": np.arange(13.0)}, arrays)
  parts = parts_or_refusal(data.split, fraction, seed)
  if "holds out no example of any client" in parts:
    # Then no row could be: somebody has it more often than may be taken.
    row_lists = lists(data)
    targets = [min(np.round(fraction * len(o)), len(o) - 1) for o in row_lists]
    for row in {r for of_client in row_lists for r in of_client}:
      counts = [list(of_client).count(row) for of_client in row_lists]
      pairs = zip(counts, targets, strict=True)
      assert any(count > max(target, 0) for count, target in pairs)
    return
  check_parts(data, *parts)


def test_shared_rows_come_near_the_fraction():
  y = np.repeat(np.arange(10), 180)
  rows = partition.dirichlet(y, 100, 0.1, 500, seed=0)
  data = ClientData.from_partition({"x": np.zeros(1800), "y": y}, rows)
  train, test = data.split(0.2, seed=1)
  check_parts(data, train, test)
  share = test.sizes / data.sizes
  np.testing.assert_allclose(share.mean(), 0.2, atol=0.01)
  # Of a client with few classes in a small pool the share is what its rows
  # were given by others.
  assert np.abs(share - 0.2).max() < 0.15
  assert (train.sizes > 0).all()


def test_one_distinct_row_stays_in_training():
  rows = [np.array([0, 0, 0]), np.array([1, 2, 3, 4])]
  data = ClientData.from_partition({"x": np.arange(5.0)}, rows)
  for fraction in (0.5, 0.99):
    train, test = data.split(fraction)
    assert train.sizes.tolist() == [3, 2 if fraction == 0.5 else 1]
    assert test.sizes.tolist() == [0, 2 if fraction == 0.5 else 3]


def test_a_function_of_lists_fraction_and_seed():
  data = clients_of("dirichlet", 0, 5)
  np.random.seed(0)  # noqa: NPY002
  parts = data.split(0.3, seed=1)
  np.random.seed(1)  # noqa: NPY002
  repeated, of_other_seed = data.split(0.3, seed=1), data.split(0.3, seed=2)
  for part, part_again in zip(parts, repeated, strict=True):
    np.testing.assert_array_equal(part.indices, part_again.indices)
  assert lists(parts[1]) != lists(of_other_seed[1])


@pytest.mark.parametrize("scheme", PARAMETERS)
@quick
@given(seed=SEED, fraction=FRACTION, draw=SEED)
def test_held_out_clients(scheme, seed, fraction, draw):
  data = clients_of(scheme, seed, 5)
  number = round(fraction * data.num_clients)
  if not 0 < number < data.num_clients:
    word = "none" if number == 0 else "all"
    with pytest.raises(ValueError, match=f"holds {word} of the"):
      data.split_clients(fraction, draw)
    return
  parts = parts_or_refusal(data.split_clients, fraction, draw)
  if "divide the pool without repetition" in parts:
    assert scheme == "dirichlet"
    return
  train, test = parts
  assert train.examples is test.examples is data.examples
  assert test.num_clients == number
  assert train.num_clients == data.num_clients - number
  assert not rows_of(train) & rows_of(test)
  assert (test.sizes > 0).all()
  trained = rows_of(train)
  all_rows = lists(data)
  train_rows = [rows for rows in all_rows if rows in lists(train)]
  assert lists(train) == train_rows
  own_rows = [[r for r in rows if r not in trained] for rows in all_rows]
  assert all(rows in own_rows for rows in lists(test))
  if scheme != "dirichlet":
    assert sorted(lists(train) + lists(test)) == sorted(all_rows)


def test_clients_without_examples_train():
  rows = [np.array([], int), np.array([0]), np.array([1, 2]), np.array([3])]
  data = ClientData.from_partition({"x": np.arange(4.0)}, rows)
  for seed in range(5):
    train, test = data.split_clients(0.5, seed)
    assert train.sizes[0] == 0
    assert test.num_clients == 2


def test_a_held_out_client_without_rows_of_its_own():
  rows = [np.array([0, 1]), np.array([1, 0]), np.array([0, 1, 0])]
  data = ClientData.from_partition({"x": np.arange(2.0)}, rows)
  text = "held out, are also those of clients that train (1 of 1 such clients)"
  assert text in parts_or_refusal(data.split_clients, 0.4)
