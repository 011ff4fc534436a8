r"""FedDualAvg and FedMiD on a small problem that meets a theorem's assumptions.

Client m has the loss :math:`F_m(w) = w^T Q w / 2 + \langle c + u_m, w
\rangle`, with :math:`\sum_m u_m = 0` and all :math:`\|u_m\| = \zeta`: the
heterogeneity of the gradients is :math:`\zeta` everywhere. Stochastic gradients
have independent noise of random signs, of norm :math:`\sigma`. To it comes
:math:`\psi = \lambda \|w\|_1`, or for bounded gradients the ball :math:`\|w\|
\le \rho`. The bounds are those of the detailed theorems, C.1, D.1 and E.1, with
h half the squared norm. D.1 measures gradients in the dual norm of
:math:`\|w\|_Q = (w^T Q w / L)^{1/2}`, E.1 and C.1 here in the Euclidean one.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fedjax_opt as fo
from fedjax_opt import prox
from fedjax_opt.metrics import History

DIM, CLIENTS, STEPS = 20, 8, 10
_CONDITION = 10.0
_LAMBDA, _RADIUS = 0.1, 1.5


class Problem(NamedTuple):
  """The problem, and what the bounds need of it.

  Attributes:
    q: eigenvalues of Q, which is diagonal. [d]
    c: mean of the clients' linear terms. [d]
    spread: u, [M, d].
    sigma: norm of the gradient noise.
    psi: regularizer.
    minimizer: of F + psi. [d]
    value: F + psi there.
  """

  q: np.ndarray
  c: np.ndarray
  spread: np.ndarray
  sigma: float
  psi: Any
  minimizer: np.ndarray
  value: float

  @property
  def smoothness(self) -> float:
    """L."""
    return float(self.q.max())

  @property
  def distance(self) -> float:
    """B, from the start at 0."""
    return float(np.sum(self.minimizer**2) / 2)

  @property
  def gradient_bound(self) -> float:
    """G on the ball, of the gradients with their noise."""
    own = np.linalg.norm(self.c + self.spread, axis=1).max()
    return float(self.smoothness * _RADIUS + own + self.sigma)


def problem(kind: str, sigma: float, zeta: float) -> Problem:
  """Makes a problem.

  Args:
    kind: 'l1', or 'ball' for bounded gradients.
    sigma: of the gradient noise.
    zeta: heterogeneity of the gradients.
  """
  rng = np.random.default_rng(0)
  q = np.geomspace(1, 1 / _CONDITION, DIM)
  c = rng.standard_normal(DIM) / 2
  directions = rng.standard_normal((CLIENTS // 2, DIM))
  directions /= np.linalg.norm(directions, axis=1, keepdims=True)
  spread = zeta * np.concatenate([directions, -directions])
  if kind == "l1":
    psi = prox.l1(_LAMBDA)
    minimizer = -np.sign(c) * np.maximum(np.abs(c) - _LAMBDA, 0) / q
  else:
    psi = prox.l2_ball(_RADIUS)
    minimizer = _in_ball(q, c)
  value = _smooth(q, c, minimizer)
  if kind == "l1":
    value += _LAMBDA * np.abs(minimizer).sum()
  return Problem(q, c, spread, sigma, psi, minimizer, float(value))


def _smooth(q, c, w):
  return (q * w**2).sum() / 2 + (c * w).sum()


def _in_ball(q: np.ndarray, c: np.ndarray) -> np.ndarray:
  """The minimizer on the ball: -c / (q + mu), with mu by bisection."""
  low, high = 0.0, np.linalg.norm(c) / _RADIUS
  if np.linalg.norm(c / q) <= _RADIUS:
    return -c / q
  for _ in range(100):
    middle = (low + high) / 2
    is_outside = np.linalg.norm(c / (q + middle)) > _RADIUS
    low, high = (middle, high) if is_outside else (low, middle)
  return -c / (q + high)


def bound(theorem: str, of: Problem, rate: float, rounds: int) -> float:
  """The right-hand side of a theorem.

  Args:
    theorem: '4.1' (eq. E.1), '4.2' (eq. C.2) or '4.3' (theorem D.1).
    of: the problem.
    rate: eta_c; for '4.1' it is eta_s eta_c.
    rounds: R.
  """
  first = of.distance / (rate * STEPS * rounds)
  noise = rate * of.sigma**2 / CLIENTS
  if theorem == "4.1":
    return first + 3 * noise
  square = rate**2 * of.smoothness
  if theorem == "4.2":
    return first + noise + 4 * square * (STEPS - 1) ** 2 * of.gradient_bound**2
  # The dual norm of |w|_Q is at most the Euclidean one over sqrt(min q / L).
  sharp = of.smoothness / of.q.min()
  sigma, zeta = of.sigma**2 * sharp, (of.spread**2).sum(axis=1).max() * sharp
  noise = rate * sigma / CLIENTS
  # h is 1-strongly convex in |.|_Q too: |w|_Q <= |w|.
  return first + noise + square * (7 * STEPS * sigma + 14 * STEPS**2 * zeta)


def gaps(
  theorem: str,
  algorithm: str,
  rates: Sequence[float],
  rounds: int,
  seeds: Sequence[int],
  sigma: float = 0.5,
  zeta: float = 0.5,
  kind: str = "l1",
) -> tuple[History, list[dict[str, Any]]]:
  """How far the output of an algorithm is from the optimum, by round.

  Args:
    theorem: '4.1': small client rates, the mean of the models after each round;
      '4.2' or '4.3': server rate 1, the mean over all local steps (eq. 4.4).
    algorithm: 'fed_dual_avg' or 'fed_mid', which 4.1 has too.
    rates: eta_c; for '4.1' eta_s eta_c, where eta_c is a thousandth of it.
    rounds: R.
    seeds: of the runs.
    sigma: of the gradient noise.
    zeta: heterogeneity.
    kind: 'l1' or 'ball'.

  Returns:
    'gap', Phi(output) less its minimum, and 'bound', that of the theorem. And
    the points.
  """
  of = problem(kind, sigma, zeta)
  with jax.enable_x64(True):
    make = functools.partial(_algorithm, of, theorem, algorithm)
    grid = {"rate": list(rates)}
    result = fo.sweep(
      make,
      grid,
      jnp.zeros(DIM),
      _data(of),
      rounds=rounds,
      seeds=list(seeds),
      batch_size=1,
      local_steps=STEPS,
      weighting="uniform",
      evaluate=functools.partial(_gap, of),
      eval_every=max(1, rounds // 32),
    )
  measured = result.history
  points = fo.grid_points(grid, list(seeds))
  bounds = [
    [bound(theorem, of, point["rate"], r) for r in measured.rounds[1:]]
    for point in points
  ]
  metrics = {"gap": measured.metrics["gap"][:, 1:], "bound": np.array(bounds)}
  return History(measured.rounds[1:], metrics), points


def _data(of: Problem) -> fo.ClientData:
  """A client has one example: its linear term."""
  rows = np.arange(CLIENTS)[:, None]
  return fo.ClientData.from_partition({"u": of.spread}, rows)


def _loss_fn(of: Problem, params, batch, rng):
  """The loss of each example, with noise of the gradient if there is a key."""
  signs = jax.random.rademacher(rng, (DIM,), params.dtype)
  noise = signs * (of.sigma / np.sqrt(DIM))
  linear = (of.c + batch["u"] + noise) @ params
  return (of.q * params**2).sum() / 2 + linear


def _gap(of: Problem, params, data, test):
  del data, test
  phi = _smooth(of.q, of.c, params) + of.psi.value(params)
  return {"gap": phi - of.value}


_ALGORITHMS = {"fed_dual_avg": fo.fed_dual_avg, "fed_mid": fo.fed_mid}


def _algorithm(of: Problem, theorem: str, algorithm: str, rate) -> fo.Algorithm:
  """What a theorem is about; only 4.1 has small rates, and both algorithms."""
  make = functools.partial(
    _ALGORITHMS[algorithm], functools.partial(_loss_fn, of), of.psi
  )
  if theorem == "4.1":
    return _mean_model(make(rate / 1000, 1000.0))
  return make(rate, averaged=True)


def _mean_model(algorithm: fo.Algorithm) -> fo.Algorithm:
  """The algorithm, whose output is the mean of its models after each round."""

  def init(params, num_clients):
    inner = algorithm.init(params, num_clients)
    return inner, jax.tree.map(jnp.zeros_like, params), jnp.zeros([])

  def round(state, cohort):
    inner, reply = algorithm.round(state[0], cohort)
    total = jax.tree.map(jnp.add, state[1], algorithm.params(inner))
    return (inner, total, state[2] + 1), reply

  def params(state):
    return jax.tree.map(lambda t: t / jnp.maximum(state[2], 1), state[1])

  return fo.Algorithm(init, round, params)
