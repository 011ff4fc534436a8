"""Holding examples out of a pool."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_seeds_differ_and_targets_may_be_real():
  examples = {"x": np.arange(50), "y": np.linspace(0, 1, 50)}
  _, one = hold_out(examples, 0.2, seed=0)
  _, other = hold_out(examples, 0.2, seed=1)
  assert len(one["x"]) == len(other["x"]) == 10
  assert set(one["x"]) != set(other["x"])


# How each kind is refused is tested in checks/test_fields.py.
def test_bad_input():
  found = {name: field.interval for name, field in hold_out.fields.items()}
  assert found["fraction"] == "(0, 1)"
  assert found["seed"] == "[0, inf)"
  with pytest.raises(TypeError, match="must be a dict of arrays"):
    hold_out({}, 0.5)
  with pytest.raises(ValueError, match="one alone cannot be divided"):
    hold_out({"x": np.arange(1)}, 0.5)
