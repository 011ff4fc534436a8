"""Full-gradient baselines: all data in one place, one client alone, optimum.

References:
  Yuan et al., "Federated Composite Optimization", ICML 2021, section 5.

  Beck and Teboulle, "A Fast Iterative Shrinkage-Thresholding Algorithm for
  Linear Inverse Problems", SIAM J. Imaging Sci. 2009.

  O'Donoghue and Candes, "Adaptive Restart for Accelerated Gradient Schemes",
  Found. Comput. Math. 2015.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.typing import ArrayLike

from fedjax_opt.algorithms.fed_avg import ModelState
from fedjax_opt.base import Algorithm, LossFn, Params, run_key
from fedjax_opt.checks import fields, functions
from fedjax_opt.checks.fields import Count, NonNegative, PositiveFloat
from fedjax_opt.data.clients import ClientData
from fedjax_opt.prox import Regularizer
from fedjax_opt.rules.proximal import mirror_step


@fields.checked()
def centralized(
  loss_fn: LossFn,
  psi: Regularizer,
  learning_rate: NonNegative,
) -> Algorithm:
  r"""Proximal gradient on all data, one step in each round.

  .. math::

    w_{r+1} = \text{prox}_{\eta \psi}(w_r - \eta \nabla F(w_r))

  F is the mean loss over all clients' examples. With `weighting='uniform'` it
  is the mean over clients of each client's mean loss. All clients must be in
  the cohort.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    psi: the regularizer or constraint.
    learning_rate: eta; non-negative.

  Returns:
    The algorithm.
  """

  def gradient(params, cohort):
    cohort.check_everyone("centralized")
    one_client = lambda worker, params: worker.gradient(loss_fn, params)
    return cohort.mean(one_client, broadcast=params)

  return _proximal_gradient(gradient, psi, learning_rate)


@fields.checked(client=fields.integer(may_be_array=True))
def local(
  loss_fn: LossFn,
  psi: Regularizer,
  learning_rate: NonNegative,
  client: int = 0,
) -> Algorithm:
  """Proximal gradient on one client's data, one step in each round.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    psi: the regularizer or constraint.
    learning_rate: eta; non-negative.
    client: the number of the client.

  Returns:
    The algorithm.

  Raises:
    ValueError: in a round, if there is no such client.
  """

  def gradient(params, cohort):
    one_client = lambda worker, params: worker.gradient(loss_fn, params)
    return cohort.pick(one_client, broadcast=params, client=client)

  return _proximal_gradient(gradient, psi, learning_rate)


def _proximal_gradient(
  gradient: Callable,
  psi: Regularizer,
  learning_rate: ArrayLike,
) -> Algorithm:
  """A round is one `mirror_step`; `gradient` is `(params, cohort) -> Reply`."""
  rule = mirror_step(learning_rate, psi)

  def round(state, cohort):
    reply = gradient(state.params, cohort)
    start = rule.init(state.params)
    updates, _ = rule.update(reply.value, start, state.params)
    new_params = optax.apply_updates(state.params, updates)
    return ModelState(new_params), reply

  return Algorithm(ModelState, round, penalty=psi.value)


class Optimum(NamedTuple):
  """A minimizer, and how accurate it is.

  Attributes:
    params: float64 NumPy arrays.
    value: F + psi there.
    residual: the norm of a subgradient of F + psi there, 0 at a minimizer. For
      every eta it bounds the fixed-point residual
      ||w - prox(w - eta grad F(w), eta)|| / eta. The residual times the
      distance to a minimizer bounds the gap of `value`.
    iterations: proximal steps, including those that were rejected.
  """

  params: Params
  value: float
  residual: float
  iterations: int


@fields.checked()
def optimum(
  loss_fn: LossFn,
  psi: Regularizer,
  params: Params,
  data: ClientData,
  tolerance: PositiveFloat = 1e-6,
  *,
  max_iterations: Count = 10_000,
  batch_size: Count = 500,
) -> Optimum:
  r"""The minimizer of F + psi on the data of all clients, by FISTA.

  F is the mean loss over all clients' examples; it must be convex. The
  computation is in float64, without randomness. The step size is halved until
  it fits the curvature of F, and the momentum is reset when it points uphill.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example; must not
      depend on `rng`.
    psi: the regularizer or constraint.
    params: where to start.
    data: the clients' examples.
    tolerance: the residual at which to stop, see `Optimum`; positive.
    max_iterations: upper bound of the iterations.
    batch_size: examples computed at once.

  Returns:
    The optimum; if its `residual` is above the tolerance, the iterations did
    not suffice.

  Raises:
    ValueError: if psi is none or the tolerance is not positive.

  References:
    Beck and Teboulle, 2009, section 4, with the restart of O'Donoghue and
    Candes, 2015, section 3.2.
  """
  loss_fn = functions.checked_loss(loss_fn)
  with jax.enable_x64(True):
    start = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), params)
    # The weight of each pooled example in the mean loss, [N].
    shares = np.bincount(data.owned_rows(), minlength=data.num_examples)
    pool = (data.examples, shares / np.sum(np.asarray(data.sizes)))

    @jax.jit
    def solve(start, pool):
      objective = lambda params: _mean_loss(loss_fn, params, pool, batch_size)
      state = _fista(objective, psi, start, tolerance, max_iterations)
      value = objective(state.params) + psi.value(state.params)
      return Optimum(state.params, value, state.residual, state.iterations)

    solution = jax.device_get(solve(start, pool))
  return Optimum(
    solution.params,
    float(solution.value),
    float(solution.residual),
    int(solution.iterations),
  )


def _mean_loss(loss_fn, params, pool, batch_size):
  """The weighted sum of the losses of all examples, a batch at a time."""
  examples, shares = pool
  num_examples = len(shares)
  batch_size = min(batch_size, num_examples)
  key = run_key(0)

  @jax.checkpoint  # The gradient needs the memory of one batch.
  def add(total, first):
    rows = first + jnp.arange(batch_size)
    take = lambda leaf: jnp.take(leaf, rows, axis=0, mode="clip")
    losses = loss_fn(params, jax.tree.map(take, examples), key)
    share = jnp.where(rows < num_examples, take(shares), 0)
    return total + jnp.sum(share * losses), None

  starts = jnp.arange(0, num_examples, batch_size)
  return lax.scan(add, jnp.zeros([]), starts)[0]


class _Fista(NamedTuple):
  """State of the iteration; the next proximal step starts at `lookahead`."""

  params: Params
  lookahead: Params  # y, params plus momentum
  grads: Params  # of F at y
  momentum: jax.Array  # [] t
  step: jax.Array  # [] eta
  residual: jax.Array  # [] at params
  iterations: jax.Array  # []


def _fista(objective, psi, start, tolerance, max_iterations):
  gradient = jax.grad(objective)

  def try_step(state):
    back = optax.tree.add_scale(state.lookahead, -state.step, state.grads)
    new = psi.prox(back, state.step)
    new_grads = gradient(new)
    moved = optax.tree.sub(new, state.lookahead)
    change = optax.tree.sub(new_grads, state.grads)
    # F is convex, so this implies that its quadratic model bounds F. Comparing
    # values of F instead would fail near the minimum, by rounding.
    is_fit = 2 * state.step * optax.tree.vdot(moved, change) <= _squared(moved)
    accepted = _advance(state, new, moved, change, gradient)
    halved = state._replace(step=state.step / 2)
    state = optax.tree.where(is_fit, accepted, halved)
    return state._replace(iterations=state.iterations + 1)

  def is_unfinished(state):
    return (state.residual > tolerance) & (state.iterations < max_iterations)

  state = _Fista(
    params=start,
    lookahead=start,
    grads=gradient(start),
    momentum=jnp.ones([]),
    step=jnp.full([], 1024.0),  # Halved until it fits.
    residual=jnp.full([], jnp.inf),
    iterations=jnp.zeros([], jnp.int32),
  )
  return lax.while_loop(is_unfinished, try_step, state)


def _advance(state, new, moved, change, gradient):
  """The state after an accepted step, with momentum along `new - params`."""
  direction = optax.tree.sub(new, state.params)
  uphill = optax.tree.vdot(moved, direction) < 0
  t = jnp.where(uphill, 1.0, state.momentum)
  next_t = (1 + jnp.sqrt(1 + 4 * t**2)) / 2
  lookahead = optax.tree.add_scale(new, (t - 1) / next_t, direction)
  # By its definition, prox leaves -moved / step in grad F(y) + d psi(new).
  subgradient = optax.tree.add_scale(change, -1 / state.step, moved)
  return state._replace(
    params=new,
    lookahead=lookahead,
    grads=gradient(lookahead),
    momentum=next_t,
    residual=jnp.sqrt(_squared(subgradient)),
  )


def _squared(tree):
  return optax.tree.vdot(tree, tree)
