"""Cosines: losses of one variable that bounds of papers can be computed for.

Example z of client i has 1 - cos(x - phase) + slope x, nonconvex and 1-smooth.
Its phase is spread side_i + noise u_z, its slope spread tilt_i + noise w_z. All
clients have the same u and w. Tilts and w sum to zero, and sides and u are
symmetric, so the objective is 1 - wave cos(x), and its minimizer is 0.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fedjax_opt as fo

CLIENTS, EXAMPLES, START = 4, 16, 2.0
SIDE, TILT = np.array([[1.0, -1, 1, -1], [0.5, 0.5, -0.5, -0.5]])[..., None]
U, W = np.linspace(-1, 1, EXAMPLES), np.tile([-0.5, 0.5], EXAMPLES // 2)
EACH = np.broadcast_arrays(SIDE, TILT, U, W)  # [C, n]
DATA = fo.ClientData.from_partition(
  {name: a.ravel() for name, a in zip("stuw", EACH, strict=True)},
  np.split(np.arange(CLIENTS * EXAMPLES), CLIENTS),
)


class Constants(NamedTuple):
  """What the papers assume, for a spread and a noise."""

  wave: jax.Array
  zeta: jax.Array  # the most that the clients' second derivatives differ
  variance: jax.Array  # the most that a client's gradients vary, sigma^2
  divergence: jax.Array  # the most that the clients' gradients vary, G^2

  @property
  def gap(self):
    """f(x_0) - f*."""
    return self.wave * (1 - np.cos(START))


def constants(spread, noise) -> Constants:
  """The largest values over points are those over a fine grid of a period."""
  variance, divergence = variances(spread, noise, np.linspace(0, 6.3, 2000))
  waves = jnp.exp(1j * (spread * SIDE + noise * U)).mean(1)
  zeta = jnp.abs(waves[:, None] - waves).max()
  return Constants(waves.mean().real, zeta, variance.max(), divergence.max())


def variances(spread, noise, x=START):
  """Of gradients at x: each client's [..., C], and of the clients'."""
  x = jnp.asarray(x)[..., None, None]
  slope = spread * TILT + noise * W
  gradients = jnp.sin(x - spread * SIDE - noise * U) + slope
  return jnp.var(gradients, -1), jnp.var(gradients.mean(-1), -1)


def over(function, spreads, noises):
  """The function's values, with leaves [spreads, noises, ...]."""
  grid = [[function(s, n) for n in noises] for s in spreads]
  rows = [jax.tree.map(lambda *row: np.stack(row), *row) for row in grid]
  return jax.tree.map(lambda *rows: np.stack(rows), *rows)


def sweep(make, grid, **options) -> fo.Result:
  """Runs `make(loss_fn, **others)` for all spreads, noises and others."""

  def with_loss(spread, noise, **others):
    def loss_fn(x, batch, rng):
      phase = spread * batch["s"] + noise * batch["u"]
      slope = spread * batch["t"] + noise * batch["w"]
      return 1 - jnp.cos(x - phase) + slope * x

    return make(loss_fn, constants(spread, noise), **others)

  options |= {"batch_size": 1, "replacement": True}
  return fo.sweep(with_loss, grid, np.float64(START), DATA, **options)


def assert_below(left, right, tightness):
  """That E left <= E right, and not vacuously.

  Args:
    left: [..., S], by seeds.
    right: likewise.
    tightness: the least ratio of both that is not vacuous.
  """
  left, right = np.broadcast_arrays(left, right)
  error = np.std(left - right, axis=-1) / np.sqrt(left.shape[-1] - 1)
  # Four standard errors are left for the seeds.
  assert np.all(np.mean(left - right, -1) + 4 * error <= 0)
  assert np.all(np.mean(left, -1) >= tightness * np.mean(right, -1))
