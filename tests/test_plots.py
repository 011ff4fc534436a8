import builtins
import subprocess
import sys

import numpy as np
import pytest

from fedjax_opt import metrics, plots

matplotlib = pytest.importorskip("matplotlib")


@pytest.fixture
def figure(monkeypatch):
  """The last figure that was written, for a look at its lines."""
  from matplotlib.figure import Figure

  written = []
  savefig = Figure.savefig

  def keep(self, *args, **kwargs):
    written.append(self)
    return savefig(self, *args, **kwargs)

  monkeypatch.setattr(Figure, "savefig", keep)
  return lambda: written[-1]


def history(num_points: int, num_rounds: int = 8, diverged=()):
  rng = np.random.default_rng(0)
  loss = np.exp(-np.arange(num_rounds) + rng.random((num_points, 1)))
  for point, column in diverged:
    loss[point, column:] = np.nan
  accuracy = rng.random((num_points, num_rounds))
  return metrics.History(
    list(range(5, 5 * num_rounds + 1, 5)),
    {"train_loss": loss, "test_loss": loss, "test_accuracy": accuracy},
  )


def legend_texts(figure) -> list[str]:
  return [text.get_text() for text in figure.legends[0].get_texts()]


class TestCurves:
  @pytest.mark.parametrize("ending", ["png", "pdf", "svg"])
  def test_writes_a_picture(self, tmp_path, ending):
    path = tmp_path / f"curves.{ending}"
    plots.curves(history(1), [{"seed": 0}], path)
    head = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}[ending]
    assert path.read_bytes().startswith(head)

  def test_labels_scales_and_lines(self, tmp_path, figure):
    points = [{"client_lr": lr} for lr in (0.1, 0.5)]
    h = history(2)
    plots.curves(h, points, tmp_path / "a.png", title="digits")
    loss, accuracy = figure().axes
    assert loss.get_ylabel() == "Training loss"
    assert accuracy.get_ylabel() == "Test accuracy (%)"
    assert loss.get_xlabel() == "Communication round"
    assert loss.get_yscale() == "log"
    assert accuracy.get_yscale() == "linear"
    assert legend_texts(figure()) == ["0.1", "0.5"]
    assert figure().legends[0].get_title().get_text() == "client_lr"
    line = accuracy.lines[1]
    np.testing.assert_array_equal(line.get_xdata(), h.rounds)
    np.testing.assert_allclose(
      line.get_ydata(), 100 * h.metrics["test_accuracy"][1]
    )

  @pytest.mark.parametrize(
    ("x_axis", "label", "places"),
    [
      ("gradient_evaluations", "Gradient evaluations of a client", 50),
      ("bytes", "Exchanged with a client (MB)", 3),
    ],
  )
  def test_against_what_was_spent(
    self, tmp_path, figure, x_axis, label, places
  ):
    points = [{"client_lr": lr} for lr in (0.1, 0.5)]
    h = history(2, diverged=[(1, 4)])
    rounds = np.asarray(h.rounds, float)
    for name, of_round in (
      ("gradient_evaluations", 50), ("bytes_down", 1e6), ("bytes_up", 2e6)
    ):  # fmt: skip
      h.metrics[name] = np.stack([of_round * rounds, 2 * of_round * rounds])
    plots.curves(h, points, tmp_path / "a.png", x_axis=x_axis)
    one, two, cross = figure().axes[1].lines
    assert figure().axes[1].get_xlabel() == label
    np.testing.assert_allclose(one.get_xdata(), places * rounds)
    np.testing.assert_allclose(two.get_xdata(), 2 * places * rounds)
    assert cross.get_xdata() == [2 * places * rounds[3]]

  def test_a_heat_map_says_every_number(self, tmp_path, figure):
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
    assert texts == ["50", "-", "70", "10", "20", "30.1"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("mu_l", "mu_s")
    assert [t.get_text() for t in axes.get_yticklabels()] == ["0.9", "0.3"]
    with pytest.raises(ValueError, match=r"shape is \(2, 3\); must be \(1, 3"):
      plots.heat_map(
        values, ("a", [1]), ("b", [1, 2, 3]), tmp_path / "b.png", label=""
      )

  def test_x_axes_that_cannot_be(self, tmp_path):
    with pytest.raises(ValueError, match="x_axis='time': must be one of"):
      plots.curves(history(1), [{}], tmp_path / "a.png", x_axis="time")
    with pytest.raises(ValueError, match="bytes_down was not measured"):
      plots.curves(history(1), [{}], tmp_path / "a.png", x_axis="bytes")

  def test_test_loss_where_there_is_no_accuracy(self, tmp_path, figure):
    h = history(1)
    del h.metrics["test_accuracy"]
    plots.curves(h, [{}], tmp_path / "a.png")
    assert [axes.get_ylabel() for axes in figure().axes] == [
      "Training loss",
      "Test loss",
    ]

  def test_seeds_become_a_mean_and_a_band(self, tmp_path, figure):
    points = [{"gamma": g, "seed": s} for g in (1.0, 2.0) for s in (0, 1, 2)]
    h = history(6)
    plots.curves(h, points, tmp_path / "a.png")
    accuracy = figure().axes[1]
    assert len(accuracy.lines) == len(accuracy.collections) == 2
    np.testing.assert_allclose(
      accuracy.lines[0].get_ydata(),
      100 * h.metrics["test_accuracy"][:3].mean(0),
    )
    title = figure().legends[0].get_title().get_text()
    assert title == "gamma (mean and range over 3 seeds)"

  def test_a_diverged_line_ends_with_a_cross(self, tmp_path, figure):
    points = [{"client_lr": lr} for lr in (0.1, 0.5)]
    h = history(2, diverged=[(1, 4)])
    plots.curves(h, points, tmp_path / "a.png")
    accuracy = figure().axes[1]
    ok, diverged, cross = accuracy.lines
    assert np.isfinite(ok.get_ydata()).all()
    np.testing.assert_array_equal(
      np.isfinite(diverged.get_ydata()), np.arange(8) < 4
    )
    assert cross.get_marker() == "x"
    assert cross.get_xdata() == [h.rounds[3]]
    assert legend_texts(figure()) == ["0.1", "0.5 (diverged)"]

  def test_an_exploding_point_does_not_flatten_the_others(
    self, tmp_path, figure
  ):
    h = history(2, diverged=[(1, 4)])
    h.metrics["train_loss"][1, 3] = 1e30
    plots.curves(h, [{"a": 1}, {"a": 2}], tmp_path / "a.png")
    assert figure().axes[0].get_ylim()[1] < 10

  @pytest.mark.parametrize("column", [0, 1])
  def test_every_point_may_diverge(self, tmp_path, column):
    h = history(2, diverged=[(0, column), (1, column)])
    plots.curves(h, [{"a": 1}, {"a": 2}], tmp_path / "a.png")

  def test_of_many_settings_the_best_are_named(self, tmp_path, figure):
    points = [{"client_lr": 1.0 * i} for i in range(30)]
    h = history(30)
    plots.curves(h, points, tmp_path / "a.png")
    texts = legend_texts(figure())
    best = np.argsort(-h.metrics["test_accuracy"][:, -1])[:6]
    assert texts == [*(str(i) for i in best), "24 other settings"]
    assert len(figure().axes[0].lines) == 30

  def test_one_evaluated_round_is_visible(self, tmp_path, figure):
    plots.curves(history(1, num_rounds=1), [{}], tmp_path / "a.png")
    assert figure().axes[0].lines[0].get_marker() == "o"

  def test_nothing_to_draw(self, tmp_path):
    with pytest.raises(ValueError, match="history: no round was evaluated"):
      plots.curves(metrics.History(), [{}], tmp_path / "a.png")

  def test_unknown_panel(self, tmp_path):
    with pytest.raises(ValueError, match="'f1' was not measured"):
      plots.curves(history(1), [{}], tmp_path / "a.png", panels=["f1"])


class TestLabelHistogram:
  @pytest.mark.parametrize("classes", [2, 10, 15, 100])
  def test_stacks_every_count(self, tmp_path, figure, classes):
    counts = np.random.default_rng(0).integers(0, 9, (12, classes))
    title = plots.partition_title("dirichlet", 0.1)
    plots.label_histogram(counts, tmp_path / "labels.png", title=title)
    axes = figure().axes[0]
    assert axes.get_title() == "dirichlet, α = 0.1"
    boxes = np.array(
      [
        [path.get_extents().bounds for path in row.get_paths()]
        for row in axes.collections
      ]
    )  # [clients, classes, (left, bottom, width, height)]
    np.testing.assert_allclose(boxes[:, :, 2], counts)
    np.testing.assert_allclose(boxes[:, :, 0], np.cumsum(counts, 1) - counts)
    np.testing.assert_allclose(boxes[:, 0, 1] + boxes[:, 0, 3] / 2, range(12))
    assert bool(figure().legends) == (classes <= 20)

  def test_says_when_clients_are_left_out(self, tmp_path, figure):
    counts = np.ones((150, 2), int)
    plots.label_histogram(counts, tmp_path / "labels.png")
    axes = figure().axes[0]
    assert axes.get_title() == "first 100 of 150 clients"
    assert len(axes.collections) == 100

  @pytest.mark.parametrize("counts", [np.ones(3), np.ones((0, 3)), [[1, -1]]])
  def test_refuses(self, tmp_path, counts):
    with pytest.raises(ValueError, match=r"counts: shape .* must be \[clients"):
      plots.label_histogram(counts, tmp_path / "labels.png")

  def test_title_without_alpha(self):
    assert plots.partition_title("iid") == "iid"


class TestStepSizes:
  @pytest.mark.parametrize("shape", [(8,), (5, 8)])
  def test_draws_the_minimum_and_both_branches(self, tmp_path, figure, shape):
    rng = np.random.default_rng(0)
    smoothness, growth = rng.random((2, *shape)) + 0.1
    smoothness[..., 0] = np.inf
    step_size = np.minimum(smoothness, growth)
    trace = {
      "step_size": step_size,
      "smoothness": smoothness,
      "growth": growth,
    }
    plots.step_sizes(trace, tmp_path / "steps.png", title="client 3")
    axes = figure().axes[0]
    lines = {line.get_label(): line for line in axes.lines}
    drawn = lines["step size (minimum)"].get_ydata()
    np.testing.assert_array_equal(drawn, step_size.ravel())
    # The first branch does not exist in the first step of a round.
    steps = lines["smoothness branch"].get_xdata()
    assert not (steps % 8 == 0).any()
    assert axes.get_xlabel() == "Local step"
    assert axes.get_yscale() == "log"

  def test_padding_is_left_out(self, tmp_path, figure):
    values = np.array([0.1, 0.2, np.nan])
    trace = dict.fromkeys(("step_size", "smoothness", "growth"), values)
    plots.step_sizes(trace, tmp_path / "steps.png")
    assert len(figure().axes[0].lines[0].get_xdata()) == 2

  @pytest.mark.parametrize(
    ("trace", "message"),
    [
      ({"step_size": [1.0], "growth": [1.0]}, "trace: has no 'smoothness'"),
      (
        {"step_size": [1.0], "growth": [1.0], "smoothness": [1.0, 2.0]},
        r"trace: shapes are .* must be \[steps\] or \[rounds, steps\]",
      ),
    ],
  )
  def test_refuses(self, tmp_path, trace, message):
    with pytest.raises(ValueError, match=message):
      plots.step_sizes(trace, tmp_path / "steps.png")


def test_without_matplotlib_one_line_says_what_to_install(
  tmp_path, monkeypatch
):
  real = builtins.__import__

  def without(name, *args, **kwargs):
    if name.startswith("matplotlib"):
      raise ImportError(name)
    return real(name, *args, **kwargs)

  monkeypatch.setattr(builtins, "__import__", without)
  with pytest.raises(ImportError, match=r"pip install 'fedjax_opt\[run\]'"):
    plots.curves(history(1), [{}], tmp_path / "a.png")


def test_import_and_drawing_leave_pyplot_alone(tmp_path):
  program = (
    "import sys; from fedjax_opt import plots;"
    "assert 'matplotlib' not in sys.modules;"
    f"plots.label_histogram([[1, 2]], {str(tmp_path / 'a.png')!r});"
    "assert 'matplotlib.pyplot' not in sys.modules"
  )
  subprocess.run([sys.executable, "-c", program], check=True)
