"""The digits data."""

import sys

import numpy as np
import pytest

from fedjax_opt.datasets import embedded


def test_split_is_scikit_learns():
  datasets = pytest.importorskip("sklearn.datasets")
  from sklearn import model_selection

  x, y = datasets.load_digits(return_X_y=True)
  x_train, x_test, y_train, y_test = model_selection.train_test_split(
    x, y, test_size=360, stratify=y, random_state=0
  )
  train, test = embedded.digits()
  for part, inputs, labels in (
    (train, x_train, y_train),
    (test, x_test, y_test),
  ):
    assert part["x"].shape == (len(labels), 8, 8, 1)
    assert (part["x"].dtype, part["y"].dtype) == (np.uint8, np.int32)
    np.testing.assert_array_equal(part["x"].reshape(-1, 64), inputs)
    np.testing.assert_array_equal(part["y"], labels)


def test_missing_package(monkeypatch):
  monkeypatch.setitem(sys.modules, "sklearn", None)
  with pytest.raises(ValueError, match="pip install scikit-learn"):
    embedded.digits()
