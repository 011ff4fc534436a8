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
from scipy import optimize

import fedjax_opt as fo
from experiments.artefacts.artefact import Entries, Key, Records
from experiments.artefacts.blocks import Block, Claim, Picture, Quantity, Table
from experiments.artefacts.values import with_interval
from experiments.stored.records import Record
from fedjax_opt import plots, prox
from fedjax_opt.results.history import History
from fedjax_opt.study.plots import panels

DIM, CLIENTS, STEPS = 20, 8, 10
_CONDITION = 10.0
_LAMBDA, _RADIUS = 0.1, 1.5


class Problem(NamedTuple):
  """The problem, and the constants of it that the bounds need.

  Attributes:
    q: eigenvalues of Q, which is diagonal. [d]
    c: mean of the clients' linear terms. [d]
    spread: u, [M, d].
    sigma: norm of the gradient noise.
    psi: regularizer.
    minimizer: the minimizer of F + psi. [d]
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
    linear_norm = np.linalg.norm(self.c + self.spread, axis=1).max()
    return float(self.smoothness * _RADIUS + linear_norm + self.sigma)


def problem(kind: str, sigma: float, zeta: float) -> Problem:
  """Makes a problem.

  Args:
    kind: 'l1', or 'ball' for bounded gradients.
    sigma: the norm of the gradient noise.
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
  """The minimizer on the ball: -c / (q + mu), whose norm is the radius."""
  outside = lambda mu: np.linalg.norm(c / (q + mu)) - _RADIUS
  if outside(0.0) <= 0:
    return -c / q
  most = np.linalg.norm(c) / _RADIUS
  return -c / (q + optimize.brentq(outside, 0.0, most, xtol=1e-15))


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
    theorem: '4.1': small client rates, and the mean of the models after each
      round; '4.2' or '4.3': server rate 1, and the mean over all local steps
      (eq. 4.4).
    algorithm: 'fed_dual_avg'; for 4.1 also 'fed_mid'.
    rates: eta_c; for '4.1' the product eta_s eta_c, where eta_c is a thousandth
      of the product.
    rounds: R.
    seeds: the runs' seeds.
    sigma: the norm of the gradient noise.
    zeta: heterogeneity.
    kind: 'l1' or 'ball'.

  Returns:
    The metrics 'gap', Phi(output) less its minimum, and 'bound', that of the
    theorem; and the points.
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
  history = result.history
  points = fo.grid_points(grid, list(seeds))
  bounds = [
    [bound(theorem, of, point["rate"], r) for r in history.rounds[1:]]
    for point in points
  ]
  metrics = {"gap": history.metrics["gap"][:, 1:], "bound": np.array(bounds)}
  return History(history.rounds[1:], metrics), points


def _data(of: Problem) -> fo.ClientData:
  """A client has one example: its linear term."""
  rows = np.arange(CLIENTS)[:, None]
  return fo.ClientData.from_partition({"u": of.spread}, rows)


def _loss_fn(of: Problem, params, batch, rng):
  """The loss of each example; with a key, its gradient has noise."""
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
  """The setting of a theorem; only 4.1 has small rates, and both algorithms."""
  make = functools.partial(
    _ALGORITHMS[algorithm], functools.partial(_loss_fn, of), of.psi
  )
  if theorem == "4.1":
    return _mean_model(make(rate / 1000, 1000.0))
  return make(rate, averaged=True)


def _mean_model(algorithm: fo.Algorithm) -> fo.Algorithm:
  """The algorithm, whose output is the mean of its models after each round."""

  def init(params):
    inner = algorithm.init(params)
    return inner, jax.tree.map(jnp.zeros_like, params), jnp.zeros([])

  def round(state, cohort):
    inner, reply = algorithm.round(state[0], cohort)
    total = jax.tree.map(jnp.add, state[1], algorithm.params(inner))
    return (inner, total, state[2] + 1), reply

  def params(state):
    return jax.tree.map(lambda t: t / jnp.maximum(state[2], 1), state[1])

  return fo.Algorithm(init, round, params)


# What is shown.

_NAMES = ("FedDualAvg", "FedMiD")
_FALLS = 1 / 2  # The power of 1 / R in the slowest term of all three bounds.
_SHOWN = (32, 128, 512)
_FROM = 64  # The round from which on a slope is fitted.


def _of_rate(record: Record, metric: str, rate: float) -> np.ndarray:
  """The values of a metric at a rate, [seeds, E]."""
  return record.where(rate=rate).history.values(metric)


def _rates_of(record: Record) -> list[float]:
  return sorted({point["rate"] for point in record.points})


def _best(record: Record, metric: str) -> np.ndarray:
  """The smallest value over the rates at each round, [seeds, E]."""
  stacked = [_of_rate(record, metric, rate) for rate in _rates_of(record)]
  return np.min(stacked, axis=0)


def blocks(entries: Entries, records: Records) -> list[Block]:
  """Gaps and bounds as a table and a picture, and the claims of the theorem."""
  theorem = entries["calls"]["options"]["theorem"]
  by_name = {key: r for key, r in records.items() if key[0] in _NAMES}
  rows, heads = [], ["algorithm", "rate"]
  rounds = next(iter(records.values())).history.rounds
  at_rounds = [r for r in _SHOWN if r in rounds] or [rounds[-1]]
  for r in at_rounds:
    heads += [f"gap at {r}", f"bound at {r}"]
  for (name,), record in by_name.items():
    for rate in _rates_of(record):
      cells = []
      for r in at_rounds:
        index = record.history.rounds.index(r)
        gap = _of_rate(record, "gap", rate)[:, index]
        bound = _of_rate(record, "bound", rate)[0, index]
        cells += [with_interval(gap, "gap"), f"{bound:.3g}"]
      rows.append([name, f"{rate:g}", *cells])
  views: list[Block] = [Table(heads, rows)] if rows else []
  if by_name:
    alt = "Gap to the optimum over rounds, with the bound"
    views.append(Picture("gap", functools.partial(_draw, by_name), alt))
  if theorem == "4.3":
    views.append(_larger_rates(records))
  return [*views, *(c for k in by_name for c in _claims(theorem, records, k))]


def _claims(theorem: str, records: Records, key: Key) -> list[Claim]:
  record = records[key]
  margins = [
    Quantity(
      f"rate {rate:g}: least (bound - gap) / bound",
      tuple(_margin(record, rate)),
    )
    for rate in _rates_of(record)
  ]
  claims = [
    Claim(f"{key[0]}: the gap is below the bound of theorem {theorem}", margins)
  ]
  is_late = np.asarray(record.history.rounds) >= _FROM
  if is_late.sum() > 1:
    rounds = np.log(np.asarray(record.history.rounds, float)[is_late])
    gaps = np.log(_best(record, "gap")[:, is_late])
    slopes = np.polyfit(rounds, gaps.T, 1)[0]
    text = (
      f"{key[0]}: at the best rate the gap falls at least as fast as R^-"
      f"{_FALLS:g}, from round {_FROM}"
    )
    quantity = Quantity("exponent", tuple(-slopes), limit=_FALLS)
    claims.append(Claim(text, [quantity]))
  return claims


def _margin(record: Record, rate: float) -> np.ndarray:
  """The smallest relative distance to the bound over the rounds, [seeds]."""
  gap, bound = (_of_rate(record, m, rate) for m in ("gap", "bound"))
  return (1 - gap / bound).min(axis=1)


def _larger_rates(records: Records) -> Claim:
  """The claim that local steps help: LB/KR against LB/R."""
  text = (
    "Larger client rates than those of theorem 4.1 converge in fewer rounds"
  )
  pair = [records.get((name,)) for name in ("small rates", "FedDualAvg")]
  if None in pair:
    return Claim(text, [])
  small, large = (_best(record, "gap")[:, -1] for record in pair)
  name = "log10 of the last gap at the best rate, small rates over larger"
  return Claim(text, [Quantity(name, tuple(np.log10(small / large)))])


def _draw(records: Records) -> Any:
  entries = {}
  with plots.figure(len(records), 1, (1.2, 1.1)) as (figure, axes):
    for panel, ((name,), record) in zip(axes[0], records.items(), strict=True):
      for rate, color in zip(_rates_of(record), plots.COLORS, strict=False):
        rounds = record.history.rounds
        gap = _of_rate(record, "gap", rate).mean(axis=0)
        bound = _of_rate(record, "bound", rate)[0]
        (line,) = panel.plot(rounds, gap, color=color)
        panel.plot(rounds, bound, color=color, linestyle=":")
        entries[f"rate {rate:g}"] = line
      plots.log_scale(panel.xaxis, (rounds[0], rounds[-1]))
      plots.log_scale(panel.yaxis)
      panel.set(title=name, xlabel="Communication round")
    axes[0, 0].set_ylabel("Gap to the optimum")
    width = 2.8 * 1.2 * len(records)
    title = "Gap (mean over seeds); dotted: the bound"
    panels.add_legend(figure, entries, width, title)
    return figure
