"""ClientData, and pools of examples: construction, files, bad input."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.tasks import classification
from fedjax_opt.data import partition
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.pools import check_fits, hold_out
from fedjax_opt.engine import inputs
from tests.helpers import refusals
from tests.helpers.refusals import refusal
from tests.helpers.tables_of_calls import read_cases

pytestmark = pytest.mark.quick


def pool(num_examples=6):
  x = np.arange(2 * num_examples, dtype=np.float32).reshape(num_examples, 2)
  return {"x": x, "y": np.arange(num_examples) % 3}


def owned(data, client):
  """The examples of one client, in order."""
  rows = np.asarray(data.indices)[client, : data.sizes[client]]
  return {name: values[rows] for name, values in data.examples.items()}


def test_from_partition_keeps_what_is_used():
  examples = pool()
  rows = [np.array([5, 1, 5]), np.array([], int), np.array([3])]
  data = ClientData.from_partition(examples, rows, num_classes=3)
  assert (data.num_clients, data.num_examples, data.max_size) == (3, 3, 3)
  assert data.sizes.tolist() == [3, 0, 1]
  assert data.indices.dtype == data.sizes.dtype == np.int32
  assert data.examples["y"].dtype == np.int32
  for client, of_client in enumerate(rows):
    own_examples = owned(data, client)
    np.testing.assert_array_equal(own_examples["x"], examples["x"][of_client])
    np.testing.assert_array_equal(own_examples["y"], examples["y"][of_client])
  assert not data.indices[1:][:, 1:].any()  # Padding is 0.


def test_label_counts_ignore_padding():
  rows = [np.array([5, 1, 5]), np.array([], int), np.array([3])]
  data = ClientData.from_partition(pool(), rows)
  expected = [[0, 1, 2, 0], [0, 0, 0, 0], [1, 0, 0, 0]]
  np.testing.assert_array_equal(data.label_counts(4), expected)
  on_device = jax.device_put(data)
  np.testing.assert_array_equal(on_device.label_counts(4), expected)
  with pytest.raises(ValueError, match=r"labels y must be in \[0, 2\)"):
    data.label_counts(2)


def test_it_shows_sizes_and_no_arrays():
  data = ClientData.from_partition(pool(), [[5, 1, 5], [3]])
  assert repr(data) == (
    "ClientData(2 clients, a pool of 3 examples: x [2] float32, y [] int32)"
  )
  assert "2 clients" in jax.eval_shape(lambda d: d, data).__repr__()
  for other in (lambda _: None, np.ndim, np.sum):
    assert "ClientData object" in repr(jax.tree.map(other, data))


def test_numbers_of_the_data_of_several_seeds():
  rows = [[0, 1, 2], [3], [4, 5], []]
  of_seed = lambda seed: ClientData.from_partition(pool(), rows)
  data = inputs.data_of_seeds(of_seed, [0, 1])
  assert (data.num_clients, data.max_size, data.num_examples) == (4, 3, 6)


def test_is_a_pytree():
  data = ClientData.from_client_ids(pool(), [0, 0, 1, 1, 1, 2])
  total = jax.jit(lambda d: d.sizes.sum() + d.examples["y"].sum())(data)
  assert total == 6 + 6
  doubled = jax.tree.map(lambda leaf: 2 * leaf, data)
  assert isinstance(doubled, ClientData)
  assert doubled.sizes.tolist() == [4, 6, 2]


def test_npz_round_trip(tmp_path):
  rows = partition.dirichlet(pool(30)["y"], 4, 0.5, (2, 9), seed=0)
  data = ClientData.from_partition(pool(30), rows)
  path = tmp_path / "data"  # No suffix: the name is taken as it is.
  data.to_npz(path)
  loaded = ClientData.from_npz(path, num_classes=3)
  chex.assert_trees_all_equal(data, loaded)


def test_npz_with_client_ids(tmp_path):
  path = tmp_path / "data.npz"
  np.savez(path, **pool(), client_ids=["v", "u", "u", "v", "w", "w"])
  data = ClientData.from_npz(path)
  assert data.sizes.tolist() == [2, 2, 2]
  for client, rows in enumerate([[1, 2], [0, 3], [4, 5]]):  # Sorted by id.
    np.testing.assert_array_equal(owned(data, client)["y"], pool()["y"][rows])


def with_x(value):
  examples = pool()
  examples["x"][4, 1] = value
  return examples


ALL = [np.arange(6)]
test_is_refused = refusals.of_table(
  "clients.txt", pool, with_x, hold_out, ALL=ALL
)


def test_fields_of_any_name(tmp_path):
  """Also those that arguments of NumPy's functions have."""
  examples = pool() | {"file": np.arange(6), "allow_pickle": np.ones(6)}
  data = ClientData.from_partition(examples, ALL)
  data.to_npz(tmp_path / "data.npz")
  loaded = ClientData.from_npz(tmp_path / "data.npz").examples
  assert set(loaded) == {"x", "y", "file", "allow_pickle"}
  for name, values in examples.items():
    np.testing.assert_array_equal(loaded[name], values)


def test_a_type_that_cannot_be_read_again(tmp_path):
  data = ClientData.from_partition(pool(), ALL)
  data.examples["x"] = jnp.ones((6, 2), jnp.bfloat16)
  with pytest.raises(ValueError, match=r"'x' is bfloat16, which a \.npz file"):
    data.to_npz(tmp_path / "data.npz")
  assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
  ("arrays", "message"), read_cases("data/refused.txt", "npz")
)
def test_bad_npz(tmp_path, arrays, message):
  arrays = eval(arrays)
  path = tmp_path / "data.npz"
  np.savez(path, **({} if "x" in arrays else pool()), **arrays)
  assert message in refusal(ClientData.from_npz, path)


def test_unreadable_file(tmp_path):
  path = tmp_path / "whole.npz"
  np.savez(path, **pool(), client_ids=np.arange(6))
  np.save(tmp_path / "one.npy", np.ones(3))
  (tmp_path / "text.npz").write_text("hello")
  (tmp_path / "cut.npz").write_bytes(path.read_bytes()[:300])
  for name in ("absent.npz", "text.npz", "one.npy", "cut.npz"):
    message = refusal(ClientData.from_npz, tmp_path / name)
    assert message.startswith(f"{tmp_path / name}: cannot be read (")
  message = refusal(ClientData.from_npz(path).to_npz, tmp_path)
  assert message == f"{tmp_path} cannot be written: Is a directory"


# Pools of examples: what they may hold, and holding examples out.


OWNERS = np.array([0, 0, 1])


def make(x=(1.0, 2.0, 3.0), y=(0, 1, 0)):
  x = np.asarray(x)[:, None]
  return ClientData.from_client_ids({"x": x, "y": np.asarray(y)}, OWNERS)


@pytest.mark.parametrize(
  ("values", "message"), read_cases("data/refused.txt", "outside")
)
def test_what_does_not_fit_is_named(values, message):
  values = eval(values)
  name = "y" if "['y']" in message or values.dtype == np.uint32 else "x"
  actual = refusal(make, **{name: values})
  assert actual.startswith(f"examples['{name}']")
  assert message in actual
  # Test examples come without a constructor that checks them.
  of_test = refusal(inputs.checked_held_out, {name: values}, lambda *_: {})
  assert of_test == actual.replace("examples", "test")


@pytest.mark.parametrize("dtype", ["int64", "uint64", "uint32", "uint8"])
def test_what_fits_is_taken(dtype):
  data = make(y=np.array([0, 1, 7], dtype), x=np.array([0, 1, 255], dtype))
  assert data.examples["y"].dtype == np.int32
  np.testing.assert_array_equal(data.examples["y"], [0, 1, 7])


def test_with_64_bits_nothing_is_narrowed_but_labels():
  with jax.enable_x64(True):
    check_fits("x", np.array([2**40]))
    check_fits("x", np.array([1e300]))
    with pytest.raises(ValueError, match="become int32; row 0 has 10995"):
      check_fits("y", np.array([2**40]), is_label=True)


@pytest.mark.parametrize("label", [-1, 3])
@pytest.mark.parametrize("part", ["train", "test", "validation"])
def test_labels_outside_of_the_classes_of_a_task(part, label):
  """-1 counted as the last class, and 3 of 3 gave NaN."""
  good = {"x": np.zeros((2, 1), np.float32), "y": np.array([0, 2])}
  bad = good | {"y": np.array([0, label])}
  parts = {"train": good, "test": good, "validation": good} | {part: bad}
  with pytest.raises(ValueError, match=rf"in \[0, 3\), but row 1 has {label} "):
    classification.task(apply=None, init=None, num_classes=3, **parts)


# Holding out.


@given(
  num_examples=st.integers(2, 60),
  num_classes=st.integers(1, 7),
  fraction=st.floats(0.01, 0.99),
  seed=st.integers(0, 1000),
)
def test_two_parts(num_examples, num_classes, fraction, seed):
  labels = np.random.default_rng(seed).integers(0, num_classes, num_examples)
  examples = {"x": np.arange(num_examples), "y": labels}
  remaining, held_out = hold_out(examples, fraction, seed)
  all_rows = np.concatenate([remaining["x"], held_out["x"]])
  assert sorted(all_rows) == list(range(num_examples))
  number = np.clip(round(fraction * num_examples), 1, num_examples - 1)
  assert len(held_out["x"]) == number
  np.testing.assert_array_equal(labels[held_out["x"]], held_out["y"])
  share = np.bincount(held_out["y"], minlength=num_classes)
  expected = np.bincount(labels, minlength=num_classes) * number / num_examples
  assert np.abs(share - expected).max() <= 1 + 1e-9
  repeated, _ = hold_out(examples, fraction, seed)
  np.testing.assert_array_equal(repeated["x"], remaining["x"])


def test_seeds_differ_and_targets_may_be_real():
  examples = {"x": np.arange(50), "y": np.linspace(0, 1, 50)}
  _, held_out = hold_out(examples, 0.2, seed=0)
  _, other_held_out = hold_out(examples, 0.2, seed=1)
  assert len(held_out["x"]) == len(other_held_out["x"]) == 10
  assert set(held_out["x"]) != set(other_held_out["x"])
