"""ClientData: construction, files, what it refuses."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_opt.data import partition
from fedjax_opt.data.clients import ClientData
from tests.refusals import refusal


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
    got = owned(data, client)
    np.testing.assert_array_equal(got["x"], examples["x"][of_client])
    np.testing.assert_array_equal(got["y"], examples["y"][of_client])
  assert not data.indices[1:][:, 1:].any()  # Padding is 0.


def test_label_counts_ignore_padding():
  rows = [np.array([5, 1, 5]), np.array([], int), np.array([3])]
  data = ClientData.from_partition(pool(), rows)
  want = [[0, 1, 2, 0], [0, 0, 0, 0], [1, 0, 0, 0]]
  np.testing.assert_array_equal(data.label_counts(4), want)
  on_device = jax.device_put(data)
  np.testing.assert_array_equal(on_device.label_counts(4), want)
  with pytest.raises(ValueError, match=r"labels y must be in \[0, 2\)"):
    data.label_counts(2)


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
  again = ClientData.from_npz(path, num_classes=3)
  chex.assert_trees_all_equal(data, again)


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
BAD = {
  "differ (x 3, y 2); mu": ({"x": np.ones(3), "y": np.ones(2)}, ALL),
  "examples={}: must be a dict of arrays [N, ...]": ({}, ALL),
  "examples['x']=1.0: must be an array": ({"x": 1.0}, ALL),
  "at least one example": ({"x": np.ones((0, 2))}, ALL),
  "NaN in the data: examples['x'] must": (with_x(np.nan), ALL),
  "but row 4 is not (1 such rows)": (with_x(np.nan), ALL),
  "infinity in the data: examples['x'] must": (with_x(np.inf), ALL),
  "is <U1[6]; must be numbers": ({"x": np.array(["a"] * 6)}, ALL),
  "must be numbers of NumPy's own types, such as float32, got bfloat16": (
    {"x": np.asarray(jnp.ones(6, jnp.bfloat16))},
    ALL,
  ),
  "must not be named 'sizes'": ({"sizes": np.ones(6)}, ALL),
  "y must be in [0, 2), but row 2 has 2 (2 such rows)": (pool(), ALL, 2),
  "integers of shape [N], got none": ({"x": np.ones(6)}, ALL, 2),
  "rows: none of 0 clients has an example": (pool(), []),
  "rows: none of 2 clients has": (pool(), [[], []]),
  "rows: has 6; must be in [0, 5]": (pool(), [[0], [], [6, 7]]),
  "rows: has -1; must be in [0, 5]": (pool(), [[-1]]),
  "rows[1]=[0.5]: must be whole numbers of shape [n]": (pool(), [[0], [0.5]]),
  "rows[0]: is int64[1, 1]; must be whole num": (pool(), [[[0]]]),
  "must be a list of arrays of row": (pool(), {0: [0], 1: [1]}),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input(message):
  assert message in refusal(ClientData.from_partition, *BAD[message])


def test_ids_of_other_examples():
  assert refusal(ClientData.from_client_ids, pool(), [0, 1]) == (
    "client_ids: has 2 entries; must have one for each of the 6 examples"
  )


def test_fields_of_any_name(tmp_path):
  """Also those that arguments of NumPy's functions have."""
  examples = pool() | {"file": np.arange(6), "allow_pickle": np.ones(6)}
  data = ClientData.from_partition(examples, ALL)
  data.to_npz(tmp_path / "data.npz")
  found = ClientData.from_npz(tmp_path / "data.npz").examples
  assert set(found) == {"x", "y", "file", "allow_pickle"}
  for name, values in examples.items():
    np.testing.assert_array_equal(found[name], values)


def test_a_type_that_cannot_be_read_again(tmp_path):
  data = ClientData.from_partition(pool(), ALL)
  data.examples["x"] = jnp.ones((6, 2), jnp.bfloat16)
  with pytest.raises(ValueError, match=r"'x' is bfloat16, which a \.npz file"):
    data.to_npz(tmp_path / "data.npz")
  assert list(tmp_path.iterdir()) == []


INDICES = "indices must have shape [M, n_max] or [sum of sizes], got "
BAD_NPZ = {
  "must hold the arrays x, y and either client_ids": {"x": np.ones(2)},
  "it holds sizes, x, y": {**pool(), "sizes": [1]},
  "sizes: has 3; must be in [0, 2]": {"indices": [[0, 1]], "sizes": [3]},
  "sizes: has -1; must be in [0, inf)": {"indices": [0], "sizes": [-1, 2]},
  f"{INDICES}[2] of 1 sizes with sum 3": {"indices": [0, 1], "sizes": [3]},
  f"{INDICES}[2, 1] of 1 sizes": {"indices": [[0], [1]], "sizes": [1]},
  "must be whole numbers": {"indices": [0, 1], "sizes": [2.0]},
  "cannot be read (Object arrays cannot": {"client_ids": np.array([None] * 6)},
}


@pytest.mark.parametrize("message", BAD_NPZ)
def test_bad_npz(tmp_path, message):
  arrays = BAD_NPZ[message]
  path = tmp_path / "data.npz"
  np.savez(path, **({} if "x" in arrays else pool()), **arrays)
  assert message in refusal(ClientData.from_npz, path)


def test_unreadable_file(tmp_path):
  whole = tmp_path / "whole.npz"
  np.savez(whole, **pool(), client_ids=np.arange(6))
  np.save(tmp_path / "one.npy", np.ones(3))
  (tmp_path / "text.npz").write_text("hello")
  (tmp_path / "cut.npz").write_bytes(whole.read_bytes()[:300])
  for name in ("absent.npz", "text.npz", "one.npy", "cut.npz"):
    message = refusal(ClientData.from_npz, tmp_path / name)
    assert message.startswith(f"{tmp_path / name}: cannot be read (")
  message = refusal(ClientData.from_npz(whole).to_npz, tmp_path)
  assert message == f"{tmp_path} cannot be written: Is a directory"
