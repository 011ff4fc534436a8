"""What the tests of figures share."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")


@pytest.fixture
def texts_of():
  """`figure -> texts of its legend`."""
  return lambda figure: [text.get_text() for text in figure.legends[0].texts]


@pytest.fixture
def rises():
  """`ends -> [seeds, 10]`: values that rise from 0.1 to each of these ends."""
  steps = 1 - np.exp(-np.arange(10))
  return lambda *ends: 0.1 + np.outer(np.array(ends) - 0.1, steps / steps[-1])
