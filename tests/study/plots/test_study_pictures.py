"""Pictures of a study: curves, values over something, and heat maps."""

import numpy as np
import pytest

from fedjax_opt.study import plots
from fedjax_opt.study.plots import panels

X = np.arange(10)
ACCURACY = {"metric": "test_accuracy"}
RATES = [0.01, 0.1, 1.0, 10.0]
VALUES = np.array([[0.6, 0.8, 0.7, 0.5], [0.6, 0.84, 0.72, np.nan]])


def marks(axes, marker):
  return [line for line in axes.lines if line.get_marker() == marker]


@pytest.mark.parametrize(
  ("conditions", "shape"), [(1, (1, 1)), (2, (1, 2)), (4, (2, 2)), (5, (2, 3))]
)
def test_a_panel_for_each_condition(conditions, shape, rises, texts_of):
  of_method = {"fed_avg": (X, rises(0.8, 0.78)), "mine": (X, rises(0.7, 0.68))}
  curves = {f"alpha {c}": of_method for c in range(conditions)}
  figure = plots.study_curves(
    curves, None, title="digits", interval="mean", **ACCURACY
  )
  first, last = figure.axes[0], figure.axes[-1]
  assert [axes.get_title() for axes in figure.axes] == list(curves)
  assert first.get_subplotspec().get_gridspec().get_geometry() == shape
  assert figure.get_size_inches()[0] <= 6.8
  assert len({axes.get_ylim() for axes in figure.axes}) == 1
  assert first.get_ylabel() == "Test accuracy (%)"
  assert texts_of(figure) == ["FedAvg", "mine"]
  assert figure.legends[0].get_title().get_text() == "Mean"
  mean = 100 * rises(0.7, 0.68).mean(0)
  np.testing.assert_allclose(last.lines[1].get_ydata(), mean)
  assert len(first.collections) == 2


@pytest.mark.parametrize(("factor", "scale"), [(19, "linear"), (21, "log")])
def test_lines_of_very_different_length_have_a_logarithmic_axis(
  factor, scale, rises
):
  curves = {
    "short": (X, rises(0.8, 0.7)),
    "long": (factor * X, rises(0.8, 0.7)),
  }
  figure = plots.study_curves(curves, None, **ACCURACY)
  (axes,) = figure.axes
  assert axes.get_xscale() == scale
  (_, end) = axes.get_xlim()
  assert end >= factor * X[-1]
  is_log = scale == "log"  # It has no place for the start, at zero.
  assert [len(line.get_xdata()) for line in axes.lines[:2]] == [10 - is_log] * 2


def test_panels_below_one_another(rises, texts_of):
  of_method = {f"method {i}": (X, rises(0.8, 0.7)) for i in range(5)}
  curves = {f"alpha {c}": of_method for c in range(3)}
  figure = plots.study_curves(curves, None, interval="mean", **ACCURACY)
  before = texts_of(figure)
  assert panels.stack(figure)
  assert not panels.stack(figure)  # It is narrow now.
  for i, axes in enumerate(figure.axes):
    assert axes.get_subplotspec().get_geometry() == (3, 1, i, i)
    assert axes.get_title() == f"alpha {i}"
    assert axes.get_ylabel() == "Test accuracy (%)"
    assert axes.get_xlabel() == figure.axes[-1].get_xlabel() != ""
    assert axes.yaxis.get_tick_params()["labelleft"]
  assert figure.get_size_inches()[0] == panels.PHONE_WIDTH
  assert texts_of(figure) == before
  assert figure.legends[0].get_title().get_text() == "Mean"


@pytest.mark.parametrize(("number", "is_changed"), [(1, False), (7, True)])
def test_what_stays_beside_one_another(number, is_changed, rises):
  curves = {f"α {c}": {"a": (X, rises(0.8, 0.7))} for c in range(number)}
  figure = plots.study_curves(curves, None, **ACCURACY)
  width = figure.get_size_inches()[0]
  places = [axes.get_subplotspec() for axes in figure.axes]
  assert panels.stack(figure) == is_changed
  assert [axes.get_subplotspec() for axes in figure.axes] == places
  assert (figure.get_size_inches()[0] < width) == is_changed


@pytest.mark.parametrize(("rows", "is_above"), [(4, False), (5, True)])
def test_the_legend_of_many_rows_stands_above_them(rows, is_above):
  with plots.figure(columns=2, rows=rows) as (figure, axes):
    (line,) = axes[0, 0].plot([0, 1])
    panels.add_legend(figure, {"a": line}, 6)
    assert panels.stack(figure)
    figure.canvas.draw()
    legend = figure.legends[0].get_window_extent()
    assert (legend.y0 > axes[0, 0].bbox.y1) == is_above


def test_panels_get_the_names_of_their_row_and_column():
  with plots.figure(columns=2, rows=2) as (figure, axes):
    for place, title in zip(axes[0], "ab", strict=True):
      place.set_title(title)
    for place, label in zip(axes[:, 0], "xy", strict=True):
      place.set_ylabel(label)
    axes[1, 1].set_xlabel("round")
    assert panels.stack(figure)
  assert [panel.get_title() for panel in figure.axes] == ["a", "b", "a", "b"]
  assert [panel.get_ylabel() for panel in figure.axes] == ["x", "x", "y", "y"]
  assert [panel.get_xlabel() for panel in axes[:, 1]] == ["round", "round"]


def test_intervals_that_are_given():
  mean = np.linspace(2, 1, 10)
  curve = plots.Curve(X, mean, mean - 0.1, mean + 0.3)
  figure = plots.study_curves({"a": curve}, None, metric="train_loss")
  heights = figure.axes[0].collections[0].get_paths()[0].vertices[:, 1]
  assert (heights.min(), heights.max()) == pytest.approx((0.9, 2.3))


def test_high_accuracies_are_errors_with_their_bands_in_order(rises):
  values = rises(0.99, 0.97)
  (axes,) = plots.study_curves({"a": (X, values)}, None, **ACCURACY).axes
  assert axes.get_ylabel() == "Test error (%)"
  errors = 100 - 100 * values
  np.testing.assert_allclose(axes.lines[0].get_ydata(), errors.mean(0))
  lowest = axes.collections[0].get_paths()[0].vertices[:, 1].min()
  assert lowest == pytest.approx(errors.min())


def test_what_diverged_or_leaves_the_axis_is_marked(rises, texts_of):
  lost = rises(0.7, 0.68)
  lost[1, 5:] = np.nan
  curves = {f"m{i}": (X, rises(0.8 + 0.01 * i)) for i in range(3)}
  curves |= {"lost": (X, lost), "low": (X, rises(0.12, 0.08))}
  figure = plots.study_curves(curves, None, **ACCURACY)
  (axes,) = figure.axes
  assert texts_of(figure) == [*curves, "diverged", "outside the axis"]
  assert marks(axes, "x")[0].get_xdata() == [4]
  assert marks(axes, "v")[-1].get_ydata() == axes.get_ylim()[0]
  assert [text.get_text() for text in axes.texts] == ["10"]


@pytest.mark.parametrize("metric", ["test_accuracy", "test_loss"])
def test_all_diverged_one_round_and_constant_values(tmp_path, metric):
  nothing = (X, np.full((2, 10), np.nan))
  curves = {
    "nothing": {"a": nothing},
    "one": {"a": ([3], [[0.5]])},
    "constant": {"a": (X, np.full((2, 10), 0.5)), "b": nothing},
  }
  plots.study_curves(curves, tmp_path / "all.png", metric=metric)
  for name in curves:
    plots.study_curves(curves[name], None, metric=metric)


def test_tuning_curves_show_all_values():
  n = np.arange(1, 7)
  value = 0.9 - 0.6 * 0.5**n
  curves = {"a": (n, value), "b": (n, value - 0.2)}
  (axes,) = plots.tuning_curves(curves, None, **ACCURACY).axes
  assert axes.get_xlabel() == "Settings tried (expected best of them)"
  np.testing.assert_allclose(axes.lines[0].get_ydata(), 100 * value)
  assert axes.get_ylim()[0] < 100 * (value - 0.2).min()
  assert plots.tuning_curves({"a": ([1], [0.5])}, None, **ACCURACY).axes


def test_performance_profiles():
  x = np.linspace(0, 1, 5)
  profiles = {"a": plots.Curve(x, 1 - x)}
  (axes,) = plots.performance_profiles(profiles, None, **ACCURACY).axes
  line = axes.lines[0].get_xydata()
  np.testing.assert_allclose(line, 100 * np.stack([x, 1 - x], 1))
  assert axes.get_xlabel() == "Test accuracy (%)"
  assert axes.get_ylabel() == "Runs with more than this value (%)"


def test_high_accuracies_of_profiles_are_errors():
  levels = np.array([0.8, 0.9, 0.98])
  of_method = {"a": plots.Curve(levels, np.array([1.0, 0.9, 0.2]))}
  (axes,) = plots.performance_profiles(of_method, None, **ACCURACY).axes
  assert axes.get_xlabel() == "Test error (%)"
  assert axes.get_ylabel() == "Runs with less than this error (%)"
  assert axes.get_xscale() == "log"
  x, y = np.transpose(axes.lines[0].get_xydata())
  np.testing.assert_allclose(x, [20, 10, 2])
  np.testing.assert_allclose(y, [100, 90, 20])
  # Of one method at most half of the runs are above 90 %.
  of_method["b"] = plots.Curve(levels, np.array([1.0, 0.5, 0.2]))
  (axes,) = plots.performance_profiles(of_method, None, **ACCURACY).axes
  assert axes.get_xlabel() == "Test accuracy (%)"
  assert axes.get_xscale() == "linear"


def test_lines_and_rings_on_each_other_are_all_seen():
  x, same = np.array(RATES), np.array([0.5, 0.8, 0.7, 0.6])
  curves = {name: (x, same) for name in "abc"} | {"d": (x, same - 0.1)}
  chosen = dict.fromkeys("abc", 0.1) | {"d": 0.1}
  figure = plots.sensitivity(
    curves, None, metric="test_accuracy", x_name="client_lr", chosen=chosen
  )
  (axes,) = figure.axes
  lines = [x for x in axes.lines if x.get_linestyle() != "None"]
  widths = [line.get_linewidth() for line in lines]
  assert widths[0] > widths[1] > widths[2] == widths[3]
  # The larger marks of a and b.
  larger = [x for x in axes.lines if len(x.get_xdata()) == 4 and x not in lines]
  sizes = [line.get_markersize() for line in (*larger, lines[0])]
  assert sizes[0] > sizes[1] > sizes[2]
  rings = [x.get_markersize() for x in axes.lines if len(x.get_xdata()) == 1]
  assert rings[0] < rings[1] < rings[2]
  assert rings[3] == rings[0]
  # In the legend all are alike.
  handles = figure.legends[0].legend_handles[:4]
  assert len({line.get_linewidth() for line in handles}) == 1


def test_chosen_and_diverged_values():
  (axes,) = plots.sensitivity(
    {"a": (RATES, VALUES), "b": (RATES, VALUES - 0.1)},
    None,
    x_name="client_lr",
    chosen={"a": 0.1},
    **ACCURACY,
  ).axes
  assert axes.get_xlabel() == "Client learning rate"
  assert axes.get_xscale() == "log"
  mean = 100 * VALUES.mean(axis=0)
  np.testing.assert_allclose(axes.lines[0].get_ydata(), mean)
  (ring,) = (x for x in marks(axes, "o") if x.get_markersize() == 9)
  np.testing.assert_allclose(ring.get_xydata(), [[0.1, 82]])
  # Two crosses at the same value, one above the other.
  crosses = [mark.get_xydata()[0].tolist() for mark in marks(axes, "x")]
  assert crosses == [[10.0, 0.0], [10.0, 0.06]]


# Final values against a condition: places, intervals, and which end.


def interval(*mean):
  mean = np.array(mean)
  return mean, mean - 0.02, mean + 0.01


def draw(values, x_name, x_values):
  about = {"metric": "test_accuracy", "x_name": x_name, "x_values": x_values}
  figure = plots.study_values(values, None, **about)
  return figure, figure.axes[0]


def test_more_heterogeneous_is_to_the_right():
  values = {"a": interval(0.6, 0.8, 0.85), "b": interval(0.5, 0.7, 0.8)}
  _, axes = draw(values, "alpha", [0.01, 0.1, 1.0])
  assert axes.get_xlabel() == "α (clients differ more →)"
  names = [tick.get_text() for tick in axes.get_xticklabels()]
  ticks = dict(zip(names, axes.get_xticks(), strict=True))
  assert ticks["1"] < ticks["0.1"] < ticks["0.01"]
  # Evenly spaced, because the axis is logarithmic.
  assert ticks["0.1"] - ticks["1"] == pytest.approx(1)
  a, b = axes.lines
  np.testing.assert_allclose(a.get_ydata(), [85, 80, 60])
  np.testing.assert_allclose(b.get_ydata(), [80, 70, 50])
  # The methods are side by side around the value.
  middle = (a.get_xdata() + b.get_xdata()) / 2
  np.testing.assert_allclose(middle, sorted(ticks.values()), atol=1e-12)
  assert (a.get_xdata() < b.get_xdata()).all()
  bars = axes.collections[0].get_segments()
  np.testing.assert_allclose(bars[2][:, 1], [58, 61])


@pytest.mark.parametrize(
  ("x_name", "x_values", "places"),
  [
    ("local_steps", [1, 4, 16], np.log10([1, 4, 16])),
    ("cohort_size", [10, 20, 50], [10, 20, 50]),
    ("cohort_size", [0.01, 0.011, 9], [0, 1, 2]),
    ("partition", ["iid", "dirichlet", "shards"], [0, 1, 2]),
    ("alpha", [float("inf"), 1.0, 0.1], [0, -1, -2]),
    ("zeta", [0.1, 0.2, 0.4], [0.1, 0.2, 0.4]),
    ("num_clients", [1, 2, 10**309], [0, 1, 2]),
  ],
)
def test_places(x_name, x_values, places):
  _, axes = draw({"a": interval(0.6, 0.7, 0.8)}, x_name, x_values)
  np.testing.assert_allclose(axes.get_xticks(), places)
  has_way = x_name in ("alpha", "zeta")
  assert ("differ more" in axes.get_xlabel()) == has_way


def test_diverged_methods_have_a_cross(texts_of):
  figure, axes = draw({"a": interval(0.6, np.nan)}, "alpha", [1.0, 0.1])
  cross = axes.lines[-1]
  assert cross.get_marker() == "x"
  # At the lower end of the axis.
  pixels = cross.get_transform().transform(cross.get_xydata())
  corner = axes.transAxes.inverted().transform(pixels)
  assert corner[0, 1] == pytest.approx(0)
  assert texts_of(figure) == ["a", "diverged"]


@pytest.mark.parametrize(
  ("mean", "up", "scale", "lowest", "highest"),
  [
    ([0.971, 0.97], [0.01, 0.029], "linear", (-1, 0.1), (5, 6)),
    # On a log axis those that end at no error are cut.
    ([0.93, 0.99], 0.01, "log", (0.2, 0.3), (9, 15)),
  ],
)
def test_intervals_of_errors_are_within_the_axis(
  mean, up, scale, lowest, highest
):
  mean = np.array(mean)
  _, axes = draw({"a": (mean, mean - 0.02, mean + up)}, "delta", [0.1, 1.0])
  assert axes.get_ylabel() == "Test error (%)"
  np.testing.assert_allclose(axes.lines[0].get_ydata(), 100 - 100 * mean)
  low, high = axes.get_ylim()
  assert axes.get_yscale() == scale
  assert lowest[0] < low < lowest[1]
  assert highest[0] < high < highest[1]


# Heat maps: a number in every cell.


def texts(artists) -> list[str]:
  return [artist.get_text() for artist in artists]


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
  has_label = [bool(axes.get_xlabel()) for axes in panels]
  assert has_label == [False, True, True]  # None below the second one.
  assert [bool(axes.get_ylabel()) for axes in panels] == [True, False, True]
  assert texts_of(figure) == ["chosen", "diverged"]


def test_grids_without_a_value(tmp_path):
  nothing = {"a": grid(np.full((2, 2), np.nan)), "b": grid(np.ones((1, 1)))}
  plots.heat_maps(nothing, tmp_path / "a.png", metric="test_loss")
