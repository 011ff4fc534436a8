"""`Lists` stands for an array of indices, and changes no bit of a run."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedjax_opt as fo
from fedjax_opt.data import lists
from fedjax_opt.data.clients import ClientData
from tests.helpers import jax_problems
from tests.helpers.refusals import refusal

TASK = jax_problems.softmax(sizes=(13, 700, 20, 4))
POOL = 50


@pytest.fixture
def no_arrays(monkeypatch):
  """All clients are kept as `Lists`, also where an array would be small."""
  monkeypatch.setattr(lists, "_is_wasteful", lambda *given: True)


def as_lists(data):
  """The same clients."""
  indices = lists.as_lists(
    data.owned_rows(), np.asarray(data.sizes), data.max_size
  )
  return dataclasses.replace(data, indices=indices)


SIZES = st.lists(st.integers(0, 300), min_size=1, max_size=6).filter(any)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(sizes=SIZES, seed=st.integers(0, 100))
def test_it_stands_for_the_array(sizes, seed):
  rng, sizes = np.random.default_rng(seed), np.array(sizes, np.int32)
  rows = rng.integers(0, POOL, sizes.sum())
  dense = lists.of_clients(rows, sizes)
  ragged = lists.as_lists(rows, sizes, max(sizes))
  assert ragged.shape == dense.shape
  assert ragged.ndim == dense.ndim
  np.testing.assert_array_equal(ragged, dense)
  np.testing.assert_array_equal(lists.owned(dense, sizes), rows)
  np.testing.assert_array_equal(lists.owned(ragged, sizes), rows)
  for m in (0, -1, len(sizes) - 1):
    np.testing.assert_array_equal(ragged[m], dense[m])
  np.testing.assert_array_equal(ragged[1:, :3], dense[1:, :3])
  with pytest.raises(IndexError):
    ragged[len(sizes)]


def test_lists_of_several_seeds_are_no_array():
  ragged = lists.as_lists(np.arange(3), np.array([2, 1]), 2)
  sizes = np.array([2, 1])
  of_seeds = lists.stacked([(ragged, sizes), (ragged, sizes)])
  assert of_seeds.ndim == 3
  for call in (np.asarray, lambda value: value[0], lambda value: value[:1]):
    message = refusal(call, of_seeds, kind=TypeError)
    assert "lists of 2 seeds cannot be one array; take" in message


@pytest.mark.parametrize(
  "sizes", [(300, 0, 1, 128), (0, 129, 0), (5,), (1, 256, 0, 0, 3)]
)
def test_on_the_device(sizes):
  rng, sizes = np.random.default_rng(0), np.array(sizes, np.int32)
  rows = rng.integers(0, POOL, sizes.sum())
  layouts = (
    lists.of_clients(rows, sizes),
    lists.as_lists(rows, sizes, max(sizes)),
  )
  *layouts, sizes = jax.device_put((*layouts, sizes))
  values = jnp.asarray(rng.integers(0, 9, POOL).astype(np.float32))
  # Whoever is computed, and what stands for nobody.
  clients = jnp.array([*range(len(sizes)), len(sizes), len(sizes) + 3])

  @jax.jit
  def read(indices):
    return (
      lists.rows_of(indices, sizes, clients),
      lists.sums_of_clients(indices, sizes, values),
      lists.times_owned(indices, sizes, POOL),
    )

  expected, actual = map(read, layouts)
  chex.assert_trees_all_equal(actual, expected)


def test_unequal_clients_take_the_memory_of_their_examples():
  """20 clients of up to a million examples were 80 MB, 10,000 were 40 GB."""
  sizes = np.full(10_000, 100, np.int32)
  sizes[7] = 1_000_000
  indices = lists.of_clients(np.arange(sizes.sum()) % POOL, sizes)
  assert isinstance(indices, lists.Lists)
  assert indices.shape == (10_000, 1_000_000)
  assert sum(leaf.nbytes for leaf in jax.tree.leaves(indices)) < 16e6
  expected = (1_000_700 + np.arange(100)) % POOL
  np.testing.assert_array_equal(indices[8][:100], expected)
  # Equal clients are an array, however many they are.
  equal = lists.of_clients(np.zeros(5_000_000, int), np.full(5000, 1000))
  assert isinstance(equal, np.ndarray)


@pytest.mark.slow
def test_every_seed_may_have_lists_of_its_own(no_arrays):
  """Of other lengths: the shorter ones are filled up."""

  def data(seed, change=lambda data: data):
    rng = np.random.default_rng(seed)
    rows = [rng.integers(0, 737, n) for n in (5 + 200 * seed, 40, 3)]
    return change(
      ClientData.from_partition(TASK.data.examples, rows, keep_pool=True)
    )

  def dense(data):
    return dataclasses.replace(data, indices=np.asarray(data.indices))

  assert isinstance(data(0).indices, lists.Lists)
  make = lambda lr: fo.scaffold(TASK.loss_fn, lr)
  # In chunks, drawn with replacement, with states on the host.
  settings = {
    "rounds": 2, "batch_size": 3, "seeds": [0, 1], "client_chunk": 2,
    "replacement": True, "cohort_size": 3, "client_memory": "host",
    "local_epochs": 1.5, "eval_every": 1,
    "evaluate": fo.evaluation.grad_norm_sq(TASK.loss_fn),
  }  # fmt: skip
  # One seed's as `Lists`, the other's as an array; and both as arrays.
  actual, expected = (
    fo.sweep(make, {"lr": [0.1, 0.2]}, TASK.params, of_seed, **settings)
    for of_seed in (
      lambda seed: data(seed, dense) if seed else data(seed),
      lambda seed: data(seed, dense),
    )
  )
  for part in ("params", "client_state"):
    chex.assert_trees_all_equal(getattr(actual, part), getattr(expected, part))
  chex.assert_trees_all_equal(actual.history.metrics, expected.history.metrics)


def test_what_is_made_of_them(no_arrays, tmp_path):
  """Splits, files and populations have the rows that arrays have."""
  ragged = as_lists(TASK.data)
  path = tmp_path / "clients.npz"
  ragged.to_npz(path)
  loaded = ClientData.from_npz(path)
  np.testing.assert_array_equal(loaded.sizes, ragged.sizes)
  y = lambda data: np.asarray(data.examples["y"])[data.owned_rows()]
  np.testing.assert_array_equal(y(loaded), y(TASK.data))
  for part, dense in zip(
    ragged.split(0.3, seed=1), TASK.data.split(0.3, seed=1), strict=True
  ):
    assert isinstance(part.indices, lists.Lists)
    np.testing.assert_array_equal(part.indices, dense.indices)
  population = fo.Population.of_client_data(tmp_path / "p", ragged)
  np.testing.assert_array_equal(y(population.load()), y(TASK.data))
  np.testing.assert_array_equal(
    ragged.label_counts(3), TASK.data.label_counts(3)
  )
