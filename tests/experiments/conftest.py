"""What the tests of the runner share."""

import io
import pathlib

import numpy as np
import pytest
from matplotlib import image
from matplotlib.figure import Figure

from experiments.tasks import images
from tests.helpers.commands import call

_savefig = Figure.savefig


@pytest.fixture(scope="module", autouse=True)
def empty_pictures():
  """Pictures are made, and not drawn, which takes a second each."""
  pixel = io.BytesIO()
  image.imsave(pixel, np.zeros((1, 1)), format="png")

  def save(figure, file, **_):
    pathlib.Path(file).write_bytes(pixel.getvalue())

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(Figure, "savefig", save)
    yield


@pytest.fixture
def drawn(monkeypatch):
  """For a test that looks at pictures."""
  monkeypatch.setattr(Figure, "savefig", _savefig)


@pytest.fixture
def error_of(capsys):
  """`(*arguments, program) -> str`, the one line of a command's error."""

  def error_of(*arguments, **program):
    capsys.readouterr()
    assert call(*arguments, **program) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    return error.removeprefix("error: ").removesuffix("\n")

  return error_of


@pytest.fixture
def corrupt_test_examples(monkeypatch):
  """A function after whose call test examples of images are absurd."""
  load = images.Images.load

  def corrupted(self, data_dir):
    train, test = load(self, data_dir)
    # On these the model that has learned least is the best.
    x, y = test["x"] // 2 * 2, (test["y"] + 5) % 10
    return train, {"x": x, "y": y}

  return lambda: monkeypatch.setattr(images.Images, "load", corrupted)
