"""Step sizes: the minimum and its two branches."""

import numpy as np
import pytest

from fedjax_opt.study import plots


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
  drawn = lines["step size (minimum)"].get_ydata()
  np.testing.assert_array_equal(drawn, trace["step_size"].ravel())
  # The first branch does not exist in the first step of a round.
  steps = lines["smoothness branch"].get_xdata()
  assert not (steps % 8 == 0).any()
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
  places = np.arange(len(pools)) + by_round
  np.testing.assert_allclose(middle.get_xdata(), places)
  name = "Communication round" if by_round else "Local step"
  assert below.get_xlabel() == name
  drawn = [patch.get_data() for patch in below.patches]
  shares = np.array([each.values - each.baseline for each in drawn])
  np.testing.assert_allclose(shares.sum(axis=0), 100)
  if by_round:
    is_step = np.isfinite(sizes)
    smoother = (trace["smoothness"] < trace["growth"]) & is_step
    counted = smoother.sum(axis=(1, 2)) / is_step.sum(axis=(1, 2))
    np.testing.assert_allclose(shares[1], 100 * counted)
    np.testing.assert_allclose(shares[0], 100 * 6 / 47)
  else:
    np.testing.assert_allclose(shares[0], 100 * (np.arange(32) % 8 == 0))


def test_very_many_steps_are_pooled():
  trace = trace_of((800,))
  median = plots.step_sizes(trace, None).axes[0].lines[-1]
  # 6 by 6: the last one has two.
  places = trace["step_size"][:798].reshape(133, 6)
  expected = [*np.median(places, axis=1), np.median(trace["step_size"][798:])]
  np.testing.assert_allclose(median.get_ydata(), expected)


def test_one_step_and_none(tmp_path):
  trace = trace_of((1, 2, 1))
  plots.step_sizes(trace, tmp_path / "one.png")
  nothing = {name: np.full_like(each, np.nan) for name, each in trace.items()}
  plots.step_sizes(nothing, tmp_path / "none.png")
  # Padding is left out.
  padded = dict.fromkeys(trace, np.array([0.1, 0.2, np.nan]))
  line = plots.step_sizes(padded, None).axes[0].lines[0]
  assert len(line.get_xdata()) == 2
