"""Step sizes: the minimum and its two branches."""

import numpy as np
import pytest

from fedjax_opt.study import plots


@pytest.mark.parametrize("shape", [(8,), (5, 8)])
def test_draws_the_minimum_and_both_branches(shape):
  rng = np.random.default_rng(0)
  smoothness, growth = rng.random((2, *shape)) + 0.1
  smoothness[..., 0] = np.inf
  step_size = np.minimum(smoothness, growth)
  trace = {
    "step_size": step_size,
    "smoothness": smoothness,
    "growth": growth,
  }
  figure = plots.step_sizes(trace, None, title="client 3")
  axes, shares = figure.axes
  lines = {line.get_label(): line for line in axes.lines}
  drawn = lines["step size (minimum)"].get_ydata()
  np.testing.assert_array_equal(drawn, step_size.ravel())
  # The first branch does not exist in the first step of a round.
  steps = lines["smoothness branch"].get_xdata()
  assert not (steps % 8 == 0).any()
  assert shares.get_xlabel() == "Local step"
  assert axes.get_yscale() == "log"


def random_trace(shape) -> dict[str, np.ndarray]:
  """The first step of each round is 0.2; one client has a step less."""
  rng = np.random.default_rng(0)
  smoothness, growth = rng.random((2, *shape)) + 0.1
  smoothness[..., 0] = growth[..., 0] = np.inf
  step_size = np.minimum(smoothness, growth)
  step_size[..., 0] = 0.2
  step_size[:, 0, -1] = np.nan
  return {"step_size": step_size, "smoothness": smoothness, "growth": growth}


def shares_of(axes) -> np.ndarray:
  """[kinds, places], percent."""
  return np.array([s.get_data().values - s.get_data().baseline
                   for s in axes.patches])  # fmt: skip


@pytest.mark.parametrize("shape", [(4, 6, 8), (30, 6, 8)])
def test_many_steps_become_quantiles(shape):
  trace = random_trace(shape)
  figure = plots.step_sizes(trace, None)
  axes, below = figure.axes
  by_round = shape[0] == 30
  pools = trace["step_size"].reshape(shape[0], -1)
  smoother = trace["smoothness"] < trace["growth"]
  if not by_round:
    pools = trace["step_size"].transpose(0, 2, 1).reshape(-1, 6)
  median = np.nanmedian(pools, axis=1)
  np.testing.assert_allclose(axes.lines[-1].get_ydata(), median)
  x = axes.lines[-1].get_xdata()
  np.testing.assert_allclose(x, np.arange(len(pools)) + by_round)
  name = "Communication round" if by_round else "Local step"
  assert below.get_xlabel() == name
  shares = shares_of(below)
  np.testing.assert_allclose(shares.sum(axis=0), 100)
  is_step = np.isfinite(trace["step_size"])
  if by_round:
    counted = (smoother & is_step).sum(axis=(1, 2)) / is_step.sum(axis=(1, 2))
    np.testing.assert_allclose(shares[1], 100 * counted)
    np.testing.assert_allclose(shares[0], 100 * 6 / 47)
  else:
    np.testing.assert_allclose(shares[0], 100 * (np.arange(32) % 8 == 0))


def test_very_many_steps_are_pooled():
  trace = {name: each[0, 0] for name, each in random_trace((1, 2, 800)).items()}
  figure = plots.step_sizes(trace, None)
  median = figure.axes[0].lines[-1]
  assert len(median.get_xdata()) <= 150
  first = np.nanmedian(trace["step_size"][:6])
  assert median.get_ydata()[0] == pytest.approx(first)


def test_one_step_and_none(tmp_path):
  trace = random_trace((1, 2, 1))
  plots.step_sizes(trace, tmp_path / "one.png")
  nothing = {name: np.full_like(each, np.nan) for name, each in trace.items()}
  plots.step_sizes(nothing, tmp_path / "none.png")


def test_padding_is_left_out():
  values = np.array([0.1, 0.2, np.nan])
  trace = dict.fromkeys(("step_size", "smoothness", "growth"), values)
  figure = plots.step_sizes(trace, None)
  assert len(figure.axes[0].lines[0].get_xdata()) == 2
