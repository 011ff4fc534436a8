"""Real data sets that need no download."""

import numpy as np


def digits() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
  """Handwritten digits, 8x8, from scikit-learn: 1,437 to train, 360 to test.

  The split is stratified by label, with a fixed seed, so it is always the same.
  Beware: a writer may be in both parts.

  Returns:
    (train, test), each {'x': [N, 8, 8, 1] uint8 in 0..16, 'y': [N] int32}.

  Raises:
    ValueError: if scikit-learn is not installed.

  Source: Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits", UCI
  Machine Learning Repository, 1998 (its test part).
  """
  try:
    from sklearn import datasets, model_selection
  except ImportError as error:
    raise ValueError(
      "the digits data needs scikit-learn: pip install scikit-learn"
    ) from error
  x, y = datasets.load_digits(return_X_y=True)
  x = x.reshape(-1, 8, 8, 1).astype(np.uint8)
  y = y.astype(np.int32)
  x_train, x_test, y_train, y_test = model_selection.train_test_split(
    x, y, test_size=360, stratify=y, random_state=0
  )
  return {"x": x_train, "y": y_train}, {"x": x_test, "y": y_test}
