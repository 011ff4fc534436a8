"""Pools of examples: what they may hold, and holding examples out."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.tasks import classification
from fedjax_opt import ClientData
from fedjax_opt.data.pools import check_fits, hold_out
from fedjax_opt.engine import inputs
from tests.refusals import refusal

OWNERS = np.array([0, 0, 1])


def make(x=(1.0, 2.0, 3.0), y=(0, 1, 0)):
  x = np.asarray(x)[:, None]
  return ClientData.from_client_ids({"x": x, "y": np.asarray(y)}, OWNERS)


OUTSIDE = {
  # It became the label 1.
  "['y'] must be from -2147483648 to 2147483647, because they become int32; "
  "row 1 has 4294967297 (1 such rows)": np.array([0, 2**32 + 1, 1]),
  "int32; row 2 has 2147483648 ": np.array([0, 1, 2**31], np.uint32),
  "int32; row 0 has 2147483648 (2": np.array([2**31, 0, -(2**40)]),
  "['x'] must be from 0 to 4294967295, because they become uint32; row 1 has "
  "4294967296 ": np.array([0, 2**32, 0], np.uint64),
  "float32; row 2 has -1e+39 ": np.array([0.0, 1.0, -1e39]),
  "['x']: real parts must be from ": np.array([0.0, 1e39, 1.0]) + 1j,
  "['x']: imaginary parts must be from ": np.array([0.0, 1.0, 1e39]) * 1j,
  "convert it to float64": np.zeros(3, np.longdouble),
  "convert it to complex128": np.zeros(3, np.clongdouble),
}


@pytest.mark.parametrize("message", OUTSIDE)
def test_what_does_not_fit_is_named(message):
  values = OUTSIDE[message]
  name = "y" if "['y']" in message or values.dtype == np.uint32 else "x"
  found = refusal(make, **{name: values})
  assert found.startswith(f"examples['{name}']")
  assert message in found
  # Test examples come without a constructor that checks them.
  of_test = refusal(inputs.check_test, {name: values}, lambda *_: {})
  assert of_test == found.replace("examples", "test")


@pytest.mark.parametrize("dtype", ["int64", "uint64", "uint32", "uint8"])
def test_what_fits_is_taken(dtype):
  found = make(y=np.array([0, 1, 7], dtype), x=np.array([0, 1, 255], dtype))
  assert found.examples["y"].dtype == np.int32
  np.testing.assert_array_equal(found.examples["y"], [0, 1, 7])


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


def test_pools_that_cannot_be_divided():
  with pytest.raises(TypeError, match="must be a dict of arrays"):
    hold_out({}, 0.5)
  with pytest.raises(ValueError, match="one alone cannot be divided"):
    hold_out({"x": np.arange(1)}, 0.5)
