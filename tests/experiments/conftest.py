"""What the tests of the runner share."""

import numpy as np
import pytest

from experiments.flags import command_line
from experiments.tasks import images


@pytest.fixture
def flags_of():
  """`(*arguments) -> {flag: value}`, each call from the defaults."""

  def flags_of(*arguments):
    return command_line.parse(["run", *arguments], "")

  return flags_of


@pytest.fixture
def corrupt_test_examples(monkeypatch):
  """A function after whose call test examples of images are absurd."""
  load = images.Images.load

  def corrupted(self, data_dir):
    train, test = load(self, data_dir)
    rng = np.random.default_rng(0)
    return train, {"x": rng.permuted(test["x"]), "y": (test["y"] + 5) % 10}

  return lambda: monkeypatch.setattr(images.Images, "load", corrupted)
