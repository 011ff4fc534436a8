"""Heat maps: a number in every cell."""

import numpy as np
import pytest

from fedjax_opt.study import plots


def texts(artists) -> list[str]:
  return [each.get_text() for each in artists]


def test_a_heat_map_says_every_number():
  axes, _ = plots.heat_map(
    np.array([[50.04, np.nan, 70.0], [10.0, 20.0, 30.06]]),
    rows=("mu_s", ("0.9", "0.3")),
    columns=("mu_l", (0.1, 0.2, 0.3)),
    path=None,
    label="Test accuracy (%)",
  ).axes
  assert texts(axes.texts) == ["50", "70", "10", "20", "30.1"]
  (box,) = axes.patches
  assert (box.get_hatch(), box.get_xy()) == ("////", (0.5, -0.5))
  assert (axes.get_xlabel(), axes.get_ylabel()) == ("μₗ", "μₛ")
  assert texts(axes.get_yticklabels()) == ["0.9", "0.3"]


def grid(values, chosen=None) -> plots.Grid:
  values = np.asarray(values, float)
  rows, columns = ([10.0**-i for i in range(size)] for size in values.shape)
  return plots.Grid(values, ("server_lr", rows), ("client_lr", columns), chosen)


def test_grids_have_one_scale_and_mark_what_was_chosen(texts_of):
  grids = {
    "α = 1": {
      "fed_avg": grid([[0.5, 0.6, 0.7, 0.7, 0.7]], chosen=(0, 2)),
      "domo": grid([[0.6, 0.8, 0.9, np.nan, 0.7]]),
    },
    "α = 0.1": {"fed_avg": grid([[0.6, 0.7, 0.7, 0.8, 0.7]])},
  }
  figure = plots.heat_maps(grids, None, metric="validation_accuracy")
  *panels, bar = figure.axes
  first, second, third = panels
  titles = [axes.get_title() for axes in panels]
  assert titles == ["FedAvg, α = 1", "DOMO, α = 1", "FedAvg, α = 0.1"]
  assert {axes.images[0].get_clim() for axes in panels} == {(50, 90)}
  assert bar.get_ylabel() == "Validation accuracy (%)"
  (ring,) = first.patches
  assert (ring.get_xy(), ring.get_fill()) == ((1.5, -0.5), False)
  assert [box.get_hatch() for box in second.patches] == ["////"]
  assert texts(first.texts)[:2] == ["50.0", "60.0"]
  ticks = ["1", "0.1", "0.01", "0.001", "1e-4"]
  assert texts(third.get_xticklabels()) == ticks
  named = [bool(axes.get_xlabel()) for axes in panels]
  assert named == [False, True, True]  # None below the second one.
  assert [bool(axes.get_ylabel()) for axes in panels] == [True, False, True]
  assert texts_of(figure) == ["chosen", "diverged"]


@pytest.mark.parametrize(
  ("metric", "cells", "norm", "ends"),
  [
    # One bad cell does not take all colours.
    ("validation_accuracy", [[0.10, 0.80, 0.81, 0.82, 0.83]], "", (75, 83)),
    ("test_loss", [[0.1, 0.2, 0.1, 5.0]], "", (0.1, 0.3)),
    ("test_loss", [[1e-4, 1.0], [0.1, 10.0]], "Log", (1e-4, 10)),
  ],
)
def test_colours(metric, cells, norm, ends):
  axes, _ = plots.heat_maps({"a": grid(cells)}, None, metric=metric).axes
  assert type(axes.images[0].norm).__name__ == f"{norm}Norm" or not norm
  assert axes.images[0].get_clim() == pytest.approx(ends)


def test_grids_without_a_value(tmp_path):
  nothing = {"a": grid(np.full((2, 2), np.nan)), "b": grid(np.ones((1, 1)))}
  plots.heat_maps(nothing, tmp_path / "a.png", metric="test_loss")
