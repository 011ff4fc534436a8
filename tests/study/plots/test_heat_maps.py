"""Heat maps: a number in every cell."""

import numpy as np

from fedjax_opt.study import plots


def test_a_heat_map_says_every_number():
  values = np.array([[50.04, np.nan, 70.0], [10.0, 20.0, 30.06]])
  figure = plots.heat_map(
    values,
    rows=("mu_s", ("0.9", "0.3")),
    columns=("mu_l", (0.1, 0.2, 0.3)),
    path=None,
    label="Test accuracy (%)",
  )
  axes = figure.axes[0]
  texts = [text.get_text() for text in axes.texts]
  assert texts == ["50", "70", "10", "20", "30.1"]
  (box,) = axes.patches
  assert (box.get_hatch(), box.get_xy()) == ("////", (0.5, -0.5))
  assert (axes.get_xlabel(), axes.get_ylabel()) == ("μₗ", "μₛ")
  assert [t.get_text() for t in axes.get_yticklabels()] == ["0.9", "0.3"]


def grid(values, chosen=None) -> plots.Grid:
  values = np.asarray(values, float)
  rows, columns = values.shape
  return plots.Grid(
    values,
    ("server_lr", [10.0**-i for i in range(rows)]),
    ("client_lr", [10.0**-i for i in range(columns)]),
    chosen,
  )


def test_grids_have_one_scale_and_mark_what_was_chosen():
  grids = {
    "α = 1": {
      "fed_avg": grid([[0.5, 0.6, 0.7, 0.7, 0.7]], chosen=(0, 2)),
      "domo": grid([[0.6, 0.8, 0.9, np.nan, 0.7]]),
    },
    "α = 0.1": {"fed_avg": grid([[0.6, 0.7, 0.7, 0.8, 0.7]])},
  }
  figure = plots.heat_maps(grids, None, metric="validation_accuracy")
  *panels, bar = figure.axes
  assert [axes.get_title() for axes in panels] == [
    "FedAvg, α = 1",
    "DOMO, α = 1",
    "FedAvg, α = 0.1",
  ]
  assert len({axes.images[0].get_clim() for axes in panels}) == 1
  assert panels[0].images[0].get_clim() == (50, 90)
  assert bar.get_ylabel() == "Validation accuracy (%)"
  (ring,) = panels[0].patches
  assert ring.get_xy() == (1.5, -0.5)
  assert not ring.get_fill()
  assert [box.get_hatch() for box in panels[1].patches] == ["////"]
  assert [text.get_text() for text in panels[0].texts][:2] == ["50.0", "60.0"]
  ticks = [tick.get_text() for tick in panels[2].get_xticklabels()]
  assert ticks == ["1", "0.1", "0.01", "0.001", "1e-4"]
  named = [bool(axes.get_xlabel()) for axes in panels]
  assert named == [False, True, True]  # None below the second one.
  assert [bool(axes.get_ylabel()) for axes in panels] == [True, False, True]
  texts = [text.get_text() for text in figure.legends[0].get_texts()]
  assert texts == ["chosen", "diverged"]


def test_one_bad_cell_does_not_take_all_colours():
  values = [[0.10, 0.80, 0.81, 0.82, 0.83]]
  figure = plots.heat_maps(
    {"a": grid(values)}, None, metric="validation_accuracy"
  )
  low, high = figure.axes[0].images[0].get_clim()
  assert (low > 50, high) == (True, 83)


def test_losses_over_decades_and_grids_without_a_value(tmp_path):
  figure = plots.heat_maps(
    {"a": grid([[1e-4, 1.0], [0.1, 10.0]])}, None, metric="test_loss"
  )
  assert type(figure.axes[0].images[0].norm).__name__ == "LogNorm"
  nothing = {"a": grid(np.full((2, 2), np.nan)), "b": grid(np.ones((1, 1)))}
  plots.heat_maps(nothing, tmp_path / "a.png", metric="test_loss")
