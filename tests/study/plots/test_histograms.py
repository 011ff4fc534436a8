"""Label histograms: a bar for each client, a box for each class."""

import numpy as np
import pytest

from fedjax_opt.study import plots


@pytest.mark.parametrize("classes", [2, 10, 15, 100])
def test_stacks_every_count(tmp_path, figure, classes):
  counts = np.random.default_rng(0).integers(0, 9, (12, classes))
  title = plots.partition_title("dirichlet", 0.1)
  plots.label_histogram(counts, tmp_path / "labels.png", title=title)
  axes = figure().axes[0]
  assert axes.get_title() == "Dirichlet, α = 0.1"
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


def test_says_when_clients_are_left_out(tmp_path, figure):
  counts = np.ones((150, 2), int)
  plots.label_histogram(counts, tmp_path / "labels.png")
  axes = figure().axes[0]
  assert axes.get_title() == "first 100 of 150 clients"
  assert len(axes.collections) == 100


@pytest.mark.parametrize("counts", [np.ones(3), np.ones((0, 3)), [[1, -1]]])
def test_refuses(tmp_path, counts):
  with pytest.raises(ValueError, match=r"counts: shape .* must be \[clients"):
    plots.label_histogram(counts, tmp_path / "labels.png")


def test_title_without_alpha():
  assert plots.partition_title("iid") == "IID"
