"""Dividing a pool of examples in two, at random and always in the same way."""

from collections.abc import Mapping

import numpy as np

from fedjax_opt.checks import values as checks

Examples = dict[str, np.ndarray]


def hold_out(
  examples: Mapping[str, np.ndarray], fraction: float, seed: int = 0
) -> tuple[Examples, Examples]:
  """Holds a part of a pool out, such as for validation.

  Where `y` are integers [N], each class gives its share, up to rounding.

  Args:
    examples: {name: [N, ...]}.
    fraction: of the N examples to hold out, in (0, 1). At least one example is
      held out, and at least one is left.
    seed: of the draw.

  Returns:
    (the others, those held out), each {name: [n, ...]}; copies.

  Raises:
    ValueError: if the fraction is outside (0, 1), there is one example only, or
      lengths differ.
    TypeError: if the examples are no dict of arrays.
  """
  checks.in_interval("fraction", fraction, "(0, 1)")
  checks.at_least("seed", seed, 0)
  num_examples = _num_examples(examples)
  if num_examples < 2:
    raise ValueError("examples: one alone cannot be divided; give at least two")
  number = int(np.clip(round(fraction * num_examples), 1, num_examples - 1))
  labels = np.asarray(examples.get("y", ()))
  if labels.ndim != 1 or labels.dtype.kind not in "iu" or not labels.size:
    labels = np.zeros(num_examples, int)
  _, classes = np.unique(labels, return_inverse=True)
  rest, held_out = stratified_rows(classes, number, seed)
  # In the order of the pool, so that what is left is read in sequence.
  take = lambda rows: {n: np.asarray(v)[rows] for n, v in examples.items()}
  return take(np.sort(rest)), take(np.sort(held_out))


def _num_examples(examples):
  """N, after a check that the examples are a pool."""
  is_pool = isinstance(examples, Mapping) and len(examples)
  if not is_pool or not all(map(np.ndim, examples.values())):
    raise TypeError(
      f"examples={checks.shown(examples)}: must be a dict of arrays [N, ...], "
      "such as {'x': x, 'y': y}"
    )
  lengths = {name: len(values) for name, values in examples.items()}
  if len(set(lengths.values())) > 1:
    listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
    raise ValueError(f"examples: lengths differ ({listed}); must be equal")
  return next(iter(lengths.values()))


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
  rest = exact - shares
  for value in np.sort(np.unique(rest))[::-1]:
    if not missing:
      break
    tied = np.flatnonzero(rest == value)
    drawn = rng.choice(tied, size=min(len(tied), missing), replace=False)
    shares[drawn] += 1
    missing -= len(drawn)
  return shares.astype(int)
