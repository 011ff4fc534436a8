"""What a report says of a study's model, clients and examples."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_opt as fo
from fedjax_opt.study import setup

X = np.zeros((6, 2), np.float32)
LABELS = np.array([0, 2, 1, 1, 0, 2], np.int32)


def clients(y=LABELS, rows=((0, 1, 1), (2, 3))):
  examples = {"x": X} if y is None else {"x": X, "y": y}
  return fo.ClientData.from_partition(examples, rows, keep_pool=True)


def test_labels_of_clients():
  found = setup.clients_of(clients())
  np.testing.assert_array_equal(found.counts, [[1, 0, 2], [0, 2, 0]])
  assert found.num_different == 4


@pytest.mark.parametrize(
  "y",
  [
    None,
    LABELS.astype(np.float32),
    LABELS - 1,
    LABELS * 1000,
    np.stack([LABELS, LABELS], 1),
  ],
)
def test_without_labels_there_are_sizes(y):
  found = setup.clients_of(clients(y))
  np.testing.assert_array_equal(found.counts, [[3], [2]])


def test_sizes_of_clients():
  one, other = (setup.clients_of(clients(rows=rows)) for rows in (
    ((0, 1, 1), (2, 3)), ((0, 1, 2, 3), (4,), (5,))
  ))  # fmt: skip
  assert setup.sizes_of_clients([one]) == {
    "number of clients": "2",
    "training examples": "5, 4 different ones",
    "training examples of a client": "2 to 3, 2.5 on average",
  }
  assert setup.sizes_of_clients([one, other]) == {
    "number of clients": "2 to 3",
    "training examples": "5 to 6, 4 to 6 different ones",
    "training examples of a client": "1 to 4, 2.2 on average",
  }
  even = setup.clients_of(clients(rows=((0, 1), (2, 3))))
  assert setup.sizes_of_clients([even])["training examples"] == "4"
  assert setup.sizes_of_clients([even])["training examples of a client"] == "2"
  assert setup.sizes_of_clients([]) == {}


def test_sizes_of_the_model_and_of_held_out_examples():
  params = {"w": jnp.zeros((40, 50)), "b": jnp.zeros(5)}
  held = clients()
  assert setup.sizes(params, {"x": X}, held) == {
    "parameters of the model": "2,005",
    "validation examples": "6",
    "test examples": "5",
  }
  # A function from a key is not run.
  assert setup.sizes(lambda key: params, None, None) == {
    "parameters of the model": "2,005"
  }


@pytest.mark.parametrize(
  ("condition", "given", "expected"),
  [
    ({}, {}, {"cohort_size": "all", "batch_size": 32, "local_epochs": 1}),
    ({}, {"cohort_size": 3, "local_steps": 2},
     {"cohort_size": 3, "batch_size": 32, "local_steps": 2}),
    ({"cohort_size": 3, "local_steps": 2}, {}, {"batch_size": 32}),
    ({"local_epochs": 3, "alpha": 2}, {"batch_size": 1},
     {"cohort_size": "all", "batch_size": 1}),
  ],
)  # fmt: skip
def test_local_work_is_what_all_conditions_share(condition, given, expected):
  assert setup.local_work(condition, given) == expected
