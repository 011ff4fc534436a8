"""Pools of examples: what they must be, and dividing them in two.

A pool is a dictionary of arrays with the examples along their first axis, name
-> [N, ...], usually 'x' and 'y'.
"""

from collections.abc import Mapping

import jax
import numpy as np

from fedjax_opt.checks.fields import POOL, SeedOfRun, checked
from fedjax_opt.checks.values import (
  brief,
  check_at_least,
  check_plain_array,
  checked_length,
)

Array = np.ndarray | jax.Array
Examples = dict[str, np.ndarray]

# Arrays of a file that say which client has which example.
OWNERSHIP = ("client_ids", "indices", "sizes")


def same_pool(one: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
  """Whether two pools are the same, or have the same numbers."""
  if one is other:
    return True
  is_same = lambda name: (
    one[name] is other[name] or np.array_equal(one[name], other[name])
  )
  return set(one) == set(other) and all(map(is_same, one))


def checked_pool_size(name: str, examples: Mapping[str, Array]) -> int:
  """The number N of examples, arrays of numbers that JAX can hold.

  Raises:
    TypeError: naming the array that is none, or is not of numbers.
    ValueError: if lengths differ, or naming the row with a number too large.
  """
  num_examples = checked_length(name, examples)
  for key, values in examples.items():
    if not hasattr(values, "dtype"):
      raise TypeError(
        f"{name}[{key!r}]={brief(values)}: must be an array [N, ...]"
      )
    check_plain_array(f"{name}[{key!r}]", values)
    if isinstance(values, np.ndarray):
      check_fits(f"{name}[{key!r}]", values, is_label=key == "y")
  return num_examples


def checked_examples(
  examples: Mapping[str, np.ndarray], may_be_empty: bool = False
) -> Examples:
  """Checks examples, and converts integer labels 'y' to int32.

  Args:
    examples: name -> [N, ...].
    may_be_empty: whether N may be 0.

  Returns:
    The examples as NumPy arrays.

  Raises:
    ValueError: if leading axes differ, or an entry is not a finite number.
    TypeError: if they are no dictionary of arrays.
  """
  if not checked_length("examples", examples) and not may_be_empty:
    raise ValueError("examples must hold at least one example, got N = 0")
  examples = {name: np.asarray(values) for name, values in examples.items()}
  for name, values in examples.items():
    if not values.dtype.isnative:  # JAX would not read it.
      examples[name] = values.astype(values.dtype.newbyteorder("="))
    kind = values.dtype.kind
    if name in OWNERSHIP:
      raise ValueError(
        f"examples must not be named {name!r}: an array of this name says "
        "which client has which example"
      )
    if kind not in "biufc":
      # Numbers that NumPy lacks, such as bfloat16, are void to it.
      hint = " of NumPy's own types, such as float32" * (kind == "V")
      raise ValueError(
        f"examples[{name!r}] must be numbers{hint}, got {values.dtype}"
      )
    check_finite(f"examples[{name!r}]", values)
    check_fits(f"examples[{name!r}]", values, is_label=name == "y")
  if "y" in examples and examples["y"].dtype.kind in "iu":
    examples["y"] = examples["y"].astype(np.int32)
  return examples


def check_finite(name: str, values: np.ndarray) -> None:
  """Raises ValueError if one of the numbers [N, ...] is NaN or infinite."""
  if values.dtype.kind not in "fc" or np.isfinite(values).all():
    return
  row, num_rows = _first_row(~np.isfinite(values))
  kind = "NaN" if np.isnan(values).any() else "infinity"
  raise ValueError(
    f"{kind} in the data: {name} must be finite, but row {row} is not "
    f"({num_rows} such rows)"
  )


def _first_row(is_bad: np.ndarray) -> tuple[int, int]:
  """The first row [N, ...] with a bad number, and how many such there are."""
  rows = is_bad.reshape(len(is_bad), -1).any(axis=1)
  return int(np.argmax(rows)), int(rows.sum())


def check_fits(name: str, values: np.ndarray, is_label: bool = False) -> None:
  """Checks that numbers fit into the type in which JAX will hold them.

  Args:
    name: of the array, for the message.
    values: [N, ...] numbers; infinity and NaN are not looked at.
    is_label: whether whole numbers become int32.

  Raises:
    ValueError: if JAX has no such type, or naming the first row that has one
      which does not.
  """
  kind = values.dtype.kind
  if values.dtype.itemsize > (16 if kind == "c" else 8):
    raise ValueError(
      f"{name} must be of a type that JAX has, got {values.dtype}; convert it "
      f"to {'complex128' if kind == 'c' else 'float64'}"
    )
  if kind == "c":
    check_fits(f"{name}: real parts", values.real)
    check_fits(f"{name}: imaginary parts", values.imag)
  is_int32 = is_label and kind in "iu"
  dtype = jax.dtypes.canonicalize_dtype(np.int32 if is_int32 else values.dtype)
  if dtype == values.dtype or kind not in "iuf":
    return
  limits = np.finfo(dtype) if kind == "f" else np.iinfo(dtype)
  is_outside = (values < limits.min) | (values > limits.max)
  is_outside &= np.isfinite(values)
  if is_outside.any():
    row, num_rows = _first_row(is_outside)
    value = np.extract(is_outside[row], values[row])[0]
    raise ValueError(
      f"{name} must be from {limits.min} to {limits.max}, because they become "
      f"{dtype}; row {row} has {value} ({num_rows} such rows)"
    )


def check_labels(examples: Mapping[str, Array], num_classes: int) -> None:
  """Checks that labels 'y' are integers [N] in [0, num_classes).

  Raises:
    ValueError: naming the first that is not.
  """
  check_at_least("num_classes", num_classes, 1)
  labels = np.asarray(examples["y"]) if "y" in examples else None
  if labels is None or labels.ndim != 1 or labels.dtype.kind not in "iu":
    got = "none" if labels is None else f"{labels.dtype} {labels.shape}"
    hint = ""
    if labels is not None and labels.ndim == 2:
      hint = "; give y[:, 0]" if labels.shape[1] == 1 else "; give y.argmax(1)"
    raise ValueError(f"labels y must be integers of shape [N], got {got}{hint}")
  is_outside = (labels < 0) | (labels >= num_classes)
  if is_outside.any():
    row, num_rows = _first_row(is_outside)
    raise ValueError(
      f"labels y must be in [0, {num_classes}), but row {row} has "
      f"{labels[row]} ({num_rows} such rows)"
    )


# Dividing a pool at random, and always in the same way.


@checked(examples=POOL, fraction="(0, 1)")
def hold_out(
  examples: Mapping[str, np.ndarray], fraction: float, seed: SeedOfRun = 0
) -> tuple[Examples, Examples]:
  """Holds a part of a pool out, such as for validation.

  If `y` are integers [N], the same fraction of each class is held out, up to
  rounding.

  Args:
    examples: {name: [N, ...]}.
    fraction: of the N examples to hold out, in (0, 1). At least one example is
      held out, and at least one is left.
    seed: of the draw.

  Returns:
    (other examples, held-out examples), each {name: [n, ...]}; copies.

  Raises:
    ValueError: if the fraction is outside (0, 1), there is one example only, or
      lengths differ.
    TypeError: if the examples are no dict of arrays.
  """
  num_examples = len(next(iter(examples.values())))
  if num_examples < 2:
    raise ValueError("examples: one alone cannot be divided; give at least two")
  number = int(np.clip(round(fraction * num_examples), 1, num_examples - 1))
  labels = np.asarray(examples.get("y", ()))
  if labels.ndim != 1 or labels.dtype.kind not in "iu" or not labels.size:
    labels = np.zeros(num_examples, int)
  _, classes = np.unique(labels, return_inverse=True)
  other_rows, held_out = stratified_rows(classes, number, seed)
  # In the order of the pool, so that what is left is read in sequence.
  take = lambda rows: {n: np.asarray(v)[rows] for n, v in examples.items()}
  return take(np.sort(other_rows)), take(np.sort(held_out))


def stratified_rows(
  classes: np.ndarray, number: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
  """Rows in two parts of the same classes, as scikit-learn draws them.

  The parts are those of `sklearn.model_selection.train_test_split(rows,
  test_size=number, stratify=classes, random_state=seed)`.

  Args:
    classes: [N] integers from 0.
    number: rows of the second part.
    seed: of the draw.

  Returns:
    The rows of the first part and of the second, in random order.
  """
  rng = np.random.RandomState(seed)
  counts = np.bincount(classes)
  num_first = _shares(counts, len(classes) - number, rng)
  num_second = _shares(counts - num_first, number, rng)
  first, second = [], []
  for label, (n, m) in enumerate(zip(num_first, num_second, strict=True)):
    rows = np.flatnonzero(classes == label)[rng.permutation(counts[label])]
    first.extend(rows[:n])
    second.extend(rows[n : n + m])
  return rng.permutation(first), rng.permutation(second)


def _shares(counts, number, rng):
  """A number divided as the counts are, rounded; ties are drawn."""
  exact = counts / counts.sum() * number
  shares = np.floor(exact)
  missing = int(number - shares.sum())
  remainders = exact - shares
  for value in np.sort(np.unique(remainders))[::-1]:
    if not missing:
      break
    ties = np.flatnonzero(remainders == value)
    winners = rng.choice(ties, size=min(len(ties), missing), replace=False)
    shares[winners] += 1
    missing -= len(winners)
  return shares.astype(int)
