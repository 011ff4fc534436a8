"""Holding examples out of a pool."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import train_test_split

from fedjax_opt.data import hold_out


@given(
  num_examples=st.integers(2, 60),
  num_classes=st.integers(1, 7),
  fraction=st.floats(0.01, 0.99),
  seed=st.integers(0, 1000),
)
def test_two_parts(num_examples, num_classes, fraction, seed):
  labels = np.random.default_rng(seed).integers(0, num_classes, num_examples)
  examples = {"x": np.arange(num_examples), "y": labels}
  rest, held_out = hold_out(examples, fraction, seed)
  together = np.concatenate([rest["x"], held_out["x"]])
  assert sorted(together) == list(range(num_examples))
  number = np.clip(round(fraction * num_examples), 1, num_examples - 1)
  assert len(held_out["x"]) == number
  np.testing.assert_array_equal(labels[held_out["x"]], held_out["y"])
  share = np.bincount(held_out["y"], minlength=num_classes)
  exact = np.bincount(labels, minlength=num_classes) * number / num_examples
  assert np.abs(share - exact).max() <= 1 + 1e-9
  again, _ = hold_out(examples, fraction, seed)
  np.testing.assert_array_equal(again["x"], rest["x"])


def test_as_scikit_learn_draws():
  labels = np.random.default_rng(0).integers(0, 4, 200)
  rows = np.arange(200)
  rest, held_out = hold_out({"x": rows, "y": labels}, 0.15, seed=3)
  theirs = train_test_split(rows, test_size=30, stratify=labels, random_state=3)
  np.testing.assert_array_equal(rest["x"], np.sort(theirs[0]))
  np.testing.assert_array_equal(held_out["x"], np.sort(theirs[1]))


def test_seeds_differ_and_targets_may_be_real():
  examples = {"x": np.arange(50), "y": np.linspace(0, 1, 50)}
  _, one = hold_out(examples, 0.2, seed=0)
  _, other = hold_out(examples, 0.2, seed=1)
  assert len(one["x"]) == len(other["x"]) == 10
  assert set(one["x"]) != set(other["x"])


@pytest.mark.parametrize(
  ("fraction", "seed", "message"),
  [
    (0, 0, r"fraction=0: must be in \(0, 1\)"),
    (1.0, 0, r"fraction=1: must be in \(0, 1\)"),
    (0.5, -1, "seed=-1: must not be negative"),
  ],
)
def test_bad_input(fraction, seed, message):
  with pytest.raises(ValueError, match=message):
    hold_out({"x": np.arange(4)}, fraction, seed)
  with pytest.raises(TypeError, match="fraction='a': must be a number"):
    hold_out({"x": np.arange(4)}, "a")
  with pytest.raises(ValueError, match="one alone cannot be divided"):
    hold_out({"x": np.arange(1)}, 0.5)


@pytest.mark.parametrize(
  ("examples", "kind", "message"),
  [
    (None, TypeError, "examples=None: must be a dict of arrays"),
    ({}, TypeError, "examples={}: must be a dict of arrays"),
    ({"x": 3.0}, TypeError, "examples={'x': 3.0}: must be a dict of arrays"),
    (
      {"x": np.zeros(3), "y": np.zeros(4, int)},
      ValueError,
      "examples: lengths differ (x 3, y 4); must be equal",
    ),
  ],
)
def test_what_is_no_pool(examples, kind, message):
  with pytest.raises(kind) as caught:
    hold_out(examples, 0.5)
  assert str(caught.value).startswith(message)
