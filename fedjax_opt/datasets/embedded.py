"""Real data sets that need no download."""

import importlib.util
import pathlib

import numpy as np

from fedjax_opt.data.pools import stratified_rows


def digits() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
  """Handwritten digits, 8x8, from scikit-learn: 1,437 to train, 360 to test.

  The split is stratified by label, with a fixed seed, so it is always the same:
  that of scikit-learn's `train_test_split` with `test_size=360`, `stratify=y`
  and `random_state=0`. Beware: a writer may be in both parts.

  Returns:
    (train, test), each {'x': [N, 8, 8, 1] uint8 in 0..16, 'y': [N] int32}.

  Raises:
    ValueError: if scikit-learn is not installed.

  Source: Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits", UCI
  Machine Learning Repository, 1998 (its test part).
  """
  table = np.loadtxt(_digits_file(), delimiter=",", dtype=np.uint8)
  x, y = table[:, :-1].reshape(-1, 8, 8, 1), table[:, -1].astype(np.int32)
  train, test = stratified_rows(y, number=360, seed=0)
  return {"x": x[train], "y": y[train]}, {"x": x[test], "y": y[test]}


def _digits_file() -> pathlib.Path:
  """The file in the package, whose import would take half a second."""
  try:
    spec = importlib.util.find_spec("sklearn")
  except ValueError:  # Of a module that is there without a specification.
    spec = None
  if spec is None:
    raise ValueError(
      "the digits data needs scikit-learn: pip install scikit-learn"
    )
  folder = pathlib.Path(spec.submodule_search_locations[0])
  return folder / "datasets" / "data" / "digits.csv.gz"
