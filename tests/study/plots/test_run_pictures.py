"""Pictures of a run: learning curves, step sizes, and its clients."""

import numpy as np
import pytest

from fedjax_opt import evaluation
from fedjax_opt.results.history import History
from fedjax_opt.study import plots
from fedjax_opt.study.plots import distributions
from tests.helpers.histories import random

TWO = [{"client_lr": lr} for lr in (0.1, 0.5)]
MANY = [{"client_lr": 1.0 * i} for i in range(30)]


def test_labels_scales_and_lines(texts_of):
  history = random(2)
  figure = plots.curves(history, TWO, None, title="digits")
  loss, accuracy = figure.axes
  assert loss.get_ylabel() == "Training loss"
  assert accuracy.get_ylabel() == "Test accuracy (%)"
  assert loss.get_xlabel() == "Communication round"
  assert (loss.get_yscale(), accuracy.get_yscale()) == ("log", "linear")
  assert texts_of(figure) == ["0.1", "0.5"]
  line = accuracy.lines[1]
  np.testing.assert_array_equal(line.get_xdata(), history.rounds)
  expected = 100 * history.metrics["test_accuracy"][1]
  np.testing.assert_allclose(line.get_ydata(), expected)


@pytest.mark.parametrize(
  ("x_axis", "label", "places"),
  [
    ("gradient_evaluations", "Gradient evaluations of a client", 50),
    ("bytes", "Exchanged with a client (MB)", 3),
  ],
)
def test_against_what_was_spent(x_axis, label, places):
  history = random(2, diverged=[(1, 4)])
  rounds = np.asarray(history.rounds, float)
  spent = {"gradient_evaluations": 50, "bytes_down": 1e6, "bytes_up": 2e6}
  for name, of_round in spent.items():
    history.metrics[name] = np.stack([of_round * rounds, 2 * of_round * rounds])
  axes = plots.curves(history, TWO, None, x_axis=x_axis).axes[1]
  first, last, cross = axes.lines
  assert axes.get_xlabel() == label
  np.testing.assert_allclose(first.get_xdata(), places * rounds)
  np.testing.assert_allclose(last.get_xdata(), 2 * places * rounds)
  # The second one ends, with a cross, where it diverges.
  assert np.isfinite(first.get_ydata()).all()
  np.testing.assert_array_equal(np.isfinite(last.get_ydata()), np.arange(8) < 4)
  end = 2 * places * rounds[3]
  assert (cross.get_marker(), *cross.get_xdata()) == ("x", end)


@pytest.mark.parametrize("rounds", [[0], [0, 1, 2]])
def test_rounds_are_whole(rounds):
  places = np.arange(len(rounds), dtype=float)
  history = History(rounds, {"test_loss": 2 - 0.1 * places[None]})
  (axes,) = plots.curves(history, [{}], None, panels=["test_loss"]).axes
  low, high = axes.get_xlim()
  ticks = axes.get_xticks()
  assert set(ticks[(ticks >= low) & (ticks <= high)]) == set(rounds)


def test_test_loss_where_there_is_no_accuracy():
  history = random(1)
  del history.metrics["test_accuracy"]
  labels = [ax.get_ylabel() for ax in plots.curves(history, [{}], None).axes]
  assert labels == ["Training loss", "Test loss"]


def test_seeds_become_a_mean_and_a_band(texts_of):
  points = [{"gamma": g, "seed": s} for g in (1.0, 2.0) for s in (0, 1, 2)]
  history = random(6, diverged=[(4, 3)])
  figure = plots.curves(history, points, None)
  accuracy = figure.axes[1]
  assert len(accuracy.collections) == 2
  mean = 100 * history.metrics["test_accuracy"][:3].mean(0)
  np.testing.assert_allclose(accuracy.lines[0].get_ydata(), mean)
  title = figure.legends[0].get_title().get_text()
  assert title == "γ (mean and range over 3 seeds)"
  assert texts_of(figure) == ["1", "2 (1 of 3 seeds diverged)"]


@pytest.mark.parametrize("column", [0, 1, 4])
def test_what_explodes_does_not_flatten_the_others(tmp_path, column, texts_of):
  history = random(3, diverged=[(0, 0), (2, column)])
  history.metrics["train_loss"][2, : column + 1] = 1e30
  points = [{"a": 1, "mu": 0.1}, {"a": 2, "mu": 0.1}, {"a": 2, "mu": 1.0}]
  figure = plots.curves(history, points, None)
  assert figure.axes[0].get_ylim()[1] < 10
  # Also one that never had a value is named.
  names = ["1, 0.1 (diverged)", "2, 0.1", "2, 1 (diverged)"]
  assert texts_of(figure) == names
  assert figure.legends[0].get_title().get_text() == "a, μ"
  lost = random(2, diverged=[(0, column), (1, column)])
  plots.curves(lost, TWO, tmp_path / "all.png")


@pytest.mark.parametrize("title", [None, "digits, FedAvg"])
def test_of_many_settings_the_best_are_named(title, texts_of):
  history = random(30, diverged=[(7, 3)])
  figure = plots.curves(history, MANY, None, title=title)
  ends = history.values("test_accuracy")[:, -1]
  best = np.argsort(np.where(np.isnan(ends), 1, -ends))[:6]
  label = "24 other settings (1 diverged)"
  assert texts_of(figure) == [*map(str, best), label]
  other_lines = [line.get_ydata() for line in figure.axes[0].lines[6:]]
  expected = np.delete(history.values("train_loss"), best, axis=0)
  order = lambda lines: sorted(map(tuple, np.nan_to_num(lines)))
  np.testing.assert_allclose(order(other_lines), order(expected))


# Step sizes: the minimum and its two branches.


def trace_of(shape) -> dict[str, np.ndarray]:
  """The first step of each round is 0.2; a client of several has one less."""
  smoothness, growth = np.random.default_rng(0).random((2, *shape)) + 0.1
  smoothness[..., 0] = growth[..., 0] = np.inf
  step_size = np.minimum(smoothness, growth)
  step_size[..., 0] = 0.2
  if len(shape) == 3:
    step_size[:, 0, -1] = np.nan
  return {"step_size": step_size, "smoothness": smoothness, "growth": growth}


@pytest.mark.parametrize("shape", [(8,), (5, 8)])
def test_draws_the_minimum_and_both_branches(shape):
  trace = trace_of(shape)
  axes, shares = plots.step_sizes(trace, None, title="client 3").axes
  lines = {line.get_label(): line for line in axes.lines}
  sizes = lines["step size (minimum)"].get_ydata()
  np.testing.assert_array_equal(sizes, trace["step_size"].ravel())
  # The first branch does not exist in the first step of a round.
  steps = lines["smoothness branch"].get_xdata()
  assert not (steps % 8 == 1).any()
  assert shares.get_xlabel() == "Local step"
  assert axes.get_yscale() == "log"


@pytest.mark.parametrize("num_rounds", [4, 30])
def test_many_steps_become_quantiles(num_rounds):
  trace = trace_of((num_rounds, 6, 8))
  axes, below = plots.step_sizes(trace, None).axes
  by_round = num_rounds == 30
  sizes = trace["step_size"]
  rows = sizes.reshape(30, -1) if by_round else np.swapaxes(sizes, 1, 2)
  pools = rows.reshape(-1, 48 if by_round else 6)
  middle = axes.lines[-1]
  np.testing.assert_allclose(middle.get_ydata(), np.nanmedian(pools, axis=1))
  places = 1 + np.arange(len(pools))
  np.testing.assert_allclose(middle.get_xdata(), places)
  name = "Communication round" if by_round else "Local step"
  assert below.get_xlabel() == name
  stairs = [patch.get_data() for patch in below.patches]
  shares = np.array([stair.values - stair.baseline for stair in stairs])
  np.testing.assert_allclose(shares.sum(axis=0), 100)
  if by_round:
    is_step = np.isfinite(sizes)
    smoother = (trace["smoothness"] < trace["growth"]) & is_step
    counted = smoother.sum(axis=(1, 2)) / is_step.sum(axis=(1, 2))
    np.testing.assert_allclose(shares[1], 100 * counted)
    np.testing.assert_allclose(shares[0], 100 * 6 / 47)
  else:
    np.testing.assert_allclose(shares[0], 100 * (np.arange(32) % 8 == 0))


def test_one_step_and_none(tmp_path):
  trace = trace_of((1, 2, 1))
  plots.step_sizes(trace, tmp_path / "one.png")
  nothing = {name: np.full_like(steps, np.nan) for name, steps in trace.items()}
  plots.step_sizes(nothing, tmp_path / "none.png")
  # Padding is left out.
  padded = dict.fromkeys(trace, np.array([0.1, 0.2, np.nan]))
  line = plots.step_sizes(padded, None).axes[0].lines[0]
  assert len(line.get_xdata()) == 2


# How classes and metrics are spread over the clients.


ACCURACY = {"metric": "client_test_accuracy"}


@pytest.mark.parametrize("classes", [2, 15, 100])
def test_stacks_every_count(classes):
  counts = np.random.default_rng(0).integers(0, 9, (12, classes))
  title = plots.partition_title("dirichlet", 0.1)
  figure = plots.label_histogram(counts, None, title=title)
  axes = figure.axes[0]
  assert axes.get_title() == "Dirichlet, α = 0.1"
  paths = [row.get_paths() for row in axes.collections]
  # [clients, classes, (left, bottom, width, height)]
  boxes = np.array([[p.get_extents().bounds for p in row] for row in paths])
  np.testing.assert_allclose(boxes[:, :, 2], counts)
  np.testing.assert_allclose(boxes[:, :, 0], np.cumsum(counts, 1) - counts)
  np.testing.assert_allclose(boxes[:, 0, 1] + boxes[:, 0, 3] / 2, range(12))
  assert bool(figure.legends) == (classes <= 20)
  assert len(figure.axes) == 1 + (classes > 20)


def test_says_when_clients_are_left_out():
  (axes,) = plots.label_histogram(np.ones((150, 2), int), None).axes
  assert axes.get_title() == "first 100 of 150 clients"
  assert len(axes.collections) == 100
  assert plots.partition_title("iid") == "IID"


@pytest.mark.parametrize("classes", [1, 2, 25])
def test_a_panel_of_labels_for_each_condition(classes, texts_of):
  counts = np.random.default_rng(0).integers(1, 9, (120, classes))
  panels = {"α = 1": counts, "α = 0.1": 2 * counts[:5]}
  names = {"α = 1": ["many"] * 120, "α = 0.1": list("abcde")}
  labels = [f"label {i}" for i in range(classes)]
  figure = distributions.client_labels(panels, None, names, labels)
  many, few = (axes.get_yticklabels() for axes in figure.axes)
  assert [tick.get_text() for tick in few] == names["α = 0.1"]
  assert many[0].get_text() != "many"  # There is no room for their names.
  assert bool(figure.legends) == (classes == 2)
  assert classes != 2 or texts_of(figure) == labels
  assert [axes.get_title() for axes in figure.axes] == list(panels)
  assert [len(axes.collections) for axes in figure.axes] == [100, 5]
  ends = [axes.get_xlim()[1] for axes in figure.axes]
  assert ends == [counts[:100].sum(1).max(), 2 * counts[:5].sum(1).max()]
  colors = {tuple(row.get_facecolor()[0]) for row in figure.axes[0].collections}
  assert len(colors) == 1  # Each client begins with the first label.
  assert figure.axes[0].collections[0].get_facecolor().shape[0] == classes


@pytest.fixture
def values():
  """method -> its clients, of which one has no value."""
  a, b = np.random.default_rng(0).random((2, 35))
  a[3] = b[5] = np.nan
  return {"a": a, "b": b}


def test_shares_of_clients_and_the_worst_ones(values, texts_of):
  figure = plots.client_distribution(values, None, **ACCURACY)
  (axes,) = figure.axes
  assert axes.get_xlabel() == "Client test accuracy (%)"
  line, mark = axes.lines[:2]
  ascending = np.sort(100 * values["a"])[:34]
  np.testing.assert_allclose(line.get_xdata()[1:-1], ascending)
  shares = 100 * np.arange(35) / 34
  np.testing.assert_allclose(line.get_ydata()[:-1], shares)
  sizes = np.isfinite(values["a"])
  worst = evaluation.worst_decile(np.nan_to_num(values["a"]), sizes)
  np.testing.assert_allclose(mark.get_xdata(), 100 * worst, rtol=1e-5)
  assert texts_of(figure) == ["a", "b", "mean of the worst 10 %"]


def test_of_a_loss_the_largest_are_the_worst():
  losses = dict.fromkeys("ab", np.arange(20.0))
  figure = plots.client_distribution(losses, None, metric="client_test_loss")
  mark = figure.axes[0].lines[1]
  assert (*mark.get_xdata(), mark.get_marker()) == (18.5, "v")


def test_clients_without_examples_are_left_out(values):
  one_method = {"a": values["a"]}
  (axes,) = plots.client_distribution(
    one_method, None, sizes=np.arange(35), **ACCURACY
  ).axes
  # One client has no value, another one no examples.
  expected = np.sort(100 * values["a"][1:])[:33]
  np.testing.assert_allclose(axes.lines[0].get_xdata()[1:-1], expected)


@pytest.mark.parametrize("methods", ["a", "ab"])
def test_clients_that_are_all_the_same(tmp_path, methods):
  ones = dict.fromkeys(methods, np.ones(3))
  plots.client_distribution(ones, tmp_path / "a.png", **ACCURACY)
