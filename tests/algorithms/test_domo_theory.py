"""Theorem 1 of the DOMO paper, and the bounds of divergence and inconsistency.

The theorem is for local momenta that are averaged or reset, but if they are
reset, the sequence z of its proof jumps between rounds. So the inconsistency,
equation (21), is tested for the average only.
"""

import functools
from typing import NamedTuple

import jax
import numpy as np
import optax
import pytest

import fedjax_opt as fo
from fedjax_opt import optimizers
from tests.helpers import cosines
from tests.helpers.cosines import CLIENTS, assert_below

P, ROUNDS, SEEDS = 4, 200, 16
MU_S, MU_L = 0.9, 0.6  # L = 1.
LIMIT = (1 - MU_L) / (6 * P)  # the largest rate of the theorem
RATES = np.array([LIMIT, LIMIT / 10000, 200 * LIMIT])
SPREADS, NOISES = (0.0, 0.5), (0.0, 1.0)
BETAS, FUSED, UNFUSED = (MU_S, 0.0), 0, 1
RESET, AVERAGED, INTRA = {}, {"average_local": True}, {"intra": True}


class Point(NamedTuple):
  point: jax.Array


def recorded(make_rule):
  """A rule whose state also has the point at which the gradient was."""
  take = lambda updates, state, point=None: (updates, Point(point))
  record = optax.GradientTransformation(Point, take)
  return lambda *args: optax.chain(make_rule(*args), record)


@functools.cache
@jax.enable_x64(True)
def run(**options):
  """The clients' points x_{r,p} and their momenta m_{r,p+1}; the constants.

  Axes: betas, spreads, noises, rates [2, 2, 2, 3]; then rounds, P, clients and
  seeds. Those of the constants are spreads, noises and 1.
  """
  make = lambda loss_fn, constants, beta, rate: fo.domo(
    loss_fn, rate, 1 - MU_S, mu_s=MU_S, mu_l=MU_L, beta=beta, **options
  )
  grid = {"beta": BETAS, "spread": SPREADS, "noise": NOISES, "rate": RATES}
  settings = {"rounds": ROUNDS, "seeds": range(SEEDS), "local_steps": P}
  with pytest.MonkeyPatch.context() as patch:
    rule = recorded(optimizers.momentum_sgd)
    patch.setattr(optimizers, "momentum_sgd", rule)
    result = cosines.sweep(make, grid, trace=("point", "trace"), **settings)
  axes = (2, 2, 2, len(RATES), SEEDS, ROUNDS, CLIENTS, P)
  split = lambda a: np.moveaxis(a.reshape(axes), (-1, 4), (-3, -1))
  constants = cosines.over(cosines.constants, SPREADS, NOISES)
  constants = jax.tree.map(lambda leaf: leaf[..., None], constants)
  return split(result.traces["point"]), split(result.traces["trace"]), constants


@pytest.mark.parametrize("options", [RESET, AVERAGED, INTRA])
@pytest.mark.default_cases("options2")
def test_divergence(options):
  """The mean square of a client's distance from the mean point."""
  x, _, of = run(**options)
  distances = (x - x.mean(-2, keepdims=True))[FUSED, :, :, :2]
  left, eta = (distances**2).mean((-2, -3, -4)), RATES[:2]
  noise, bias = 3 * P * of.variance, 9 * P**2 * of.divergence
  right = eta**2 * (noise + bias) / (1 - MU_L) ** 2
  assert_below(left, right[..., None], 1e-3)
  assert np.all(left[0, 0] < 1e-25)  # Equal clients stay equal.
  # With a small rate gradients are those at the start, and p steps have moved
  # by sums of them, weighted with powers of the momentum.
  powers = [(1 - MU_L ** np.arange(p, 0, -1)) / (1 - MU_L) for p in range(P)]
  of_noise = np.mean([np.sum(w**2) for w in powers]) * (1 - 1 / CLIENTS)
  of_bias = np.mean([np.sum(w) ** 2 for w in powers])
  variance, divergence = cosines.over(cosines.variances, SPREADS, NOISES)
  expected = of_noise * variance.mean(-1) + of_bias * divergence
  actual = left[:, :, 1].mean(-1) / eta[1] ** 2
  np.testing.assert_allclose(actual, expected, rtol=0.05, atol=1e-9)


@pytest.mark.parametrize("options", [RESET, AVERAGED])
@pytest.mark.default_cases("options0")
def test_theorem_1(options):
  x, _, of = run(**options)
  eta, damping = RATES, 1 - MU_L
  right = 2 * damping * of.gap / (eta * ROUNDS * P)
  right += 9 * (eta * P) ** 2 * of.divergence / damping**2
  of_noise = 1 / CLIENTS + 3 * eta * P / (2 * damping)
  of_noise += 2 * MU_L**2 * eta / (damping**4 * CLIENTS)
  right += eta * of.variance / damping * of_noise
  slope = of.wave[..., None, None, None] * np.sin(x.mean(-2))
  left = (slope**2).mean((-2, -3))
  assert 1 - 2 * LIMIT - (2 * MU_L * LIMIT / damping**2) ** 2 >= 0
  assert_below(left[FUSED, :, :, 0], right[:, :, 0, None], 0.2)
  # Too large a rate, of equal clients without noise.
  assert np.all(left[FUSED, 0, 0, 2] > 40 * right[0, 0, 2])
  if options == RESET:  # Without the fusion it does not hold.
    assert np.all(left[UNFUSED, 0, 0, 0] > 1.1 * right[0, 0, 0])


def test_inconsistency():
  """Of the mean point and z, which takes plain steps along all gradients."""
  x, m, _ = run(**AVERAGED)
  flat = lambda a: a.mean(-2).reshape(*a.shape[:4], ROUNDS * P, SEEDS)
  eta, gradient = RATES[:, None], flat(m)
  gradient[..., 1:, :] -= MU_L * flat(m)[..., :-1, :]
  earlier_sum = np.cumsum(gradient, axis=-2) - gradient
  z = cosines.START - eta[..., None] / (1 - MU_L) * earlier_sum
  left = np.sum((z - flat(x)) ** 2, axis=-2)
  right = (eta * MU_L) ** 2 / (1 - MU_L) ** 4 * np.sum(gradient**2, axis=-2)
  # It holds in each run, at any rate; almost with equality at small ones.
  assert np.all(left[FUSED] <= right[FUSED])
  assert np.all(left[FUSED, :, :, 1] > 0.5 * right[FUSED, :, :, 1])
  assert np.all(left[UNFUSED, :, :, :2] > 50 * right[UNFUSED, :, :, :2])
