"""Heat maps: a number in every cell."""

import numpy as np
import pytest

from fedjax_opt.results import plots


def test_a_heat_map_says_every_number(tmp_path, figure):
  values = np.array([[50.04, np.nan, 70.0], [10.0, 20.0, 30.06]])
  plots.heat_map(
    values,
    rows=("mu_s", ("0.9", "0.3")),
    columns=("mu_l", (0.1, 0.2, 0.3)),
    path=tmp_path / "a.png",
    label="Test accuracy (%)",
  )
  axes = figure().axes[0]
  texts = [text.get_text() for text in axes.texts]
  assert texts == ["50", "70", "10", "20", "30.1"]
  (box,) = axes.patches
  assert (box.get_hatch(), box.get_xy()) == ("////", (0.5, -0.5))
  assert (axes.get_xlabel(), axes.get_ylabel()) == ("μₗ", "μₛ")
  assert [t.get_text() for t in axes.get_yticklabels()] == ["0.9", "0.3"]
  with pytest.raises(ValueError, match=r"shape is \(2, 3\); must be \(1, 3"):
    plots.heat_map(
      values, ("a", [1]), ("b", [1, 2, 3]), tmp_path / "b.png", label=""
    )
