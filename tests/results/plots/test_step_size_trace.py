"""Step sizes: the minimum and its two branches."""

import numpy as np
import pytest

from fedjax_opt.results import plots


@pytest.mark.parametrize("shape", [(8,), (5, 8)])
def test_draws_the_minimum_and_both_branches(tmp_path, figure, shape):
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


def test_padding_is_left_out(tmp_path, figure):
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
def test_refuses(tmp_path, trace, message):
  with pytest.raises(ValueError, match=message):
    plots.step_sizes(trace, tmp_path / "steps.png")
