"""Federated composite optimization: a loss plus a regularizer or constraint.

FedMiD averages primal points, FedDualAvg dual ones. In both, h is a mirror map
(half the squared Euclidean norm by default) and psi a `prox.Regularizer`.

References:
  Yuan et al., "Federated Composite Optimization", ICML 2021.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_opt.algorithms.fed_avg import ModelState, fed_avg
from fedjax_opt.arrays import trees
from fedjax_opt.base import Algorithm, LossFn, Params, Rate
from fedjax_opt.checks.fields import NonNegative, checked
from fedjax_opt.optimizers import rate_at
from fedjax_opt.prox import Regularizer, zero
from fedjax_opt.prox.mirror import MirrorMap, euclidean
from fedjax_opt.rules.proximal import (
  DualAveragingState,
  check_is_penalty,
  dual_averaging,
  mirror_step,
  subgradient_step,
)


@checked()
def fed_mid(
  loss_fn: LossFn,
  psi: Regularizer,
  learning_rate: Rate,
  server_learning_rate: NonNegative = 1.0,
  *,
  mirror_map: MirrorMap | None = None,
  only_server_prox: bool = False,
) -> Algorithm:
  r"""Mirror descent whose server averages models (Yuan et al., 2021).

  .. math::

    w_{r,k+1}^m &= \nabla (h + \eta_c \psi)^*
                   (\nabla h(w_{r,k}^m) - \eta_c g_{r,k}^m) \\
    w_{r+1} &= \nabla (h + \eta_s \eta_c K \psi)^*
               (\nabla h(w_r) + \eta_s \Delta_r)

  If clients take different numbers of steps, :math:`\eta_c K` is the mean of
  :math:`\eta_c K_m` with the weights of :math:`\Delta_r`. An initial model
  outside a constraint is projected onto it first.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    psi: the regularizer or constraint.
    learning_rate: eta_c, or a function from the round to it; non-negative.
    server_learning_rate: eta_s; non-negative.
    mirror_map: h; half the squared Euclidean norm if None.
    only_server_prox: whether clients leave psi out (FedMiD-OSP).

  Returns:
    The algorithm.

  Raises:
    ValueError: if psi is no regularizer, or a rate is an optimizer or out of
      range.
    TypeError: if an argument is of a wrong type.

  References:
    Yuan et al., "Federated Composite Optimization", ICML 2021, Algorithm 2;
    Algorithm 4 with `only_server_prox`.
  """
  h = euclidean() if mirror_map is None else mirror_map
  client_psi = zero() if only_server_prox else psi

  def init(params):
    dual = h.grad_h(params)  # Refuses a start where h has no gradient.
    if psi.is_finite:
      return ModelState(params)
    # A projection onto the constraint.
    point = h.grad_h_plus_psi_conjugate(dual, 0.0, psi)
    return ModelState(optax.tree.cast_like(point, params))

  def round(state, cohort):
    rate = rate_at(learning_rate, cohort.round)

    def one_client(worker, params):
      rule = mirror_step(rate, client_psi, mirror_map)
      local_params = worker.descend(loss_fn, rule, params)
      return optax.tree.sub(local_params, params), rate * worker.num_steps

    reply = cohort.mean(one_client, broadcast=state.params)
    delta, elapsed = reply.value
    dual = optax.tree.add_scale(
      h.grad_h(state.params), server_learning_rate, delta
    )
    weight = server_learning_rate * elapsed
    point = h.grad_h_plus_psi_conjugate(dual, weight, psi)
    return ModelState(point), reply

  return Algorithm(
    init,
    round,
    penalty=psi.value,
    sends=lambda params: [params, None],
  )


class FedDualAvgState(NamedTuple):
  """The server between rounds."""

  dual: Params  # z_r
  elapsed: jax.Array  # [] eta_s eta_c K summed over rounds: the weight of psi
  average: "Average | None"  # with `averaged`


class Average(NamedTuple):
  """The primal images of the clients' mean duals, added up (eq. 4.4)."""

  total: Params  # the sum of the images
  count: jax.Array  # [] how many were added


@checked()
def fed_dual_avg(
  loss_fn: LossFn,
  psi: Regularizer,
  learning_rate: Rate,
  server_learning_rate: NonNegative = 1.0,
  *,
  mirror_map: MirrorMap | None = None,
  only_server_prox: bool = False,
  averaged: bool = False,
) -> Algorithm:
  r"""Dual averaging whose server averages dual states (Yuan et al., 2021).

  .. math::

    \tilde\eta_{r,k} &= \eta_s \eta_c r K + \eta_c k \\
    w_{r,k}^m &= \nabla (h + \tilde\eta_{r,k} \psi)^* (z_{r,k}^m) \\
    z_{r,k+1}^m &= z_{r,k}^m - \eta_c g(w_{r,k}^m), \qquad
    z_{r+1} = z_r + \eta_s \Delta_r

  The server keeps the dual state; the evaluated model is its image :math:`w_r =
  \nabla (h + \eta_s \eta_c r K \psi)^* (z_r)`. If clients take different
  numbers of steps, :math:`\eta_c K` is the mean of :math:`\eta_c K_m` with the
  weights of :math:`\Delta_r`.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    psi: the regularizer or constraint.
    learning_rate: eta_c, or a function from the round to it; non-negative.
    server_learning_rate: eta_s; non-negative.
    mirror_map: h; half the squared Euclidean norm if None.
    only_server_prox: whether clients leave psi out (FedDualAvg-OSP).
    averaged: whether the evaluated model is the mean, over all rounds and
      local steps, of the images of the clients' mean dual (eq. 4.4). Each
      client then also sends its dual after every step: K + 1 messages instead
      of one.

  Returns:
    The algorithm.

  Raises:
    ValueError: if psi is no regularizer, or a rate is an optimizer or out of
      range; in a round, if `averaged` and clients take different numbers of
      steps.
    TypeError: if an argument is of a wrong type.

  References:
    Yuan et al., "Federated Composite Optimization", ICML 2021, Algorithm 3;
    Algorithm 5 with `only_server_prox`.
  """
  h = euclidean() if mirror_map is None else mirror_map
  client_psi = zero() if only_server_prox else psi

  def init(params):
    zeros = optax.tree.zeros_like(params)
    average = Average(zeros, count=jnp.zeros([])) if averaged else None
    return FedDualAvgState(h.grad_h(params), jnp.zeros([]), average)

  def image(dual, elapsed):  # w_r
    return h.grad_h_plus_psi_conjugate(dual, elapsed, psi)

  def round(state, cohort):
    rate = rate_at(learning_rate, cohort.round)
    num_steps = _common_steps(cohort) if averaged else None

    def one_client(worker, broadcast):
      start = DualAveragingState(*broadcast)
      params = h.grad_h_plus_psi_conjugate(*broadcast, client_psi)
      rule = dual_averaging(rate, client_psi, mirror_map)
      delta, path = _descend(worker, loss_fn, rule, params, start, num_steps)
      # Not the difference of two elapsed weights, which rounding would spoil.
      return delta, rate * worker.num_steps, path

    reply = cohort.mean(one_client, broadcast=(state.dual, state.elapsed))
    delta, elapsed, path = reply.value
    average = state.average
    if averaged:
      path = cohort.average(reply, path)
      average = _add_images(average, image, path, state.elapsed, rate)
    dual = optax.tree.add_scale(state.dual, server_learning_rate, delta)
    elapsed = state.elapsed + server_learning_rate * elapsed
    return FedDualAvgState(dual, elapsed, average), reply

  def params(state):
    model = image(state.dual, state.elapsed)
    return _mean_image(state.average, model) if averaged else model

  return Algorithm(
    init,
    round,
    params,
    penalty=psi.value,
    sends=lambda params: [params, None, None],
  )


def _common_steps(cohort):
  """The number of local steps that all clients take."""
  num_steps = cohort.config.plan.common_steps
  if num_steps is None:
    raise ValueError(
      "averaged=True: all clients must take the same number of local steps"
    )
  return num_steps


def _descend(worker, loss_fn, rule, params, start, num_steps):
  """How far a client's steps move its dual, and the dual after every step.

  The latter has leaves [K, ...]; without `num_steps` it is None.
  """
  path = None
  if num_steps is None:
    _, end = worker.descend_from(loss_fn, rule, params, start)
  else:
    rule = _with_path(rule, start, num_steps)
    _, (end, path, _) = worker.descend_from(
      loss_fn, rule, params, rule.init(params)
    )
  return optax.tree.sub(end.dual, start.dual), path


def _with_path(rule, start, num_steps):
  """A rule from this state that also records its dual after every step."""
  blank = lambda leaf: jnp.zeros((num_steps, *leaf.shape), leaf.dtype)
  initial = (start, jax.tree.map(blank, start.dual), jnp.zeros([], jnp.int32))

  def update(grads, state, params=None):
    state, path, count = state
    updates, state = rule.update(grads, state, params)
    put = lambda path, dual: path.at[count].set(dual)
    return updates, (state, jax.tree.map(put, path, state.dual), count + 1)

  return optax.GradientTransformation(lambda params: initial, update)


def _add_images(average, image, path, elapsed, rate):
  """Adds the images of a round's mean duals, `path`, leaves [K, ...]."""

  def add(k, average):
    dual = trees.take(path, k)
    point = image(dual, elapsed + rate * (k + 1))
    return Average(optax.tree.add(average.total, point), average.count + 1)

  num_steps = len(jax.tree.leaves(path)[0])
  return jax.lax.fori_loop(0, num_steps, add, average)


def _mean_image(average, model):
  """The mean of the images; the model itself before the first round."""
  mean = optax.tree.scale(1 / jnp.maximum(average.count, 1), average.total)
  mean = optax.tree.cast_like(mean, average.total)
  return optax.tree.where(average.count > 0, mean, model)


@checked()
def fed_avg_subgradient(
  loss_fn: LossFn,
  psi: Regularizer,
  learning_rate: Rate,
  server_learning_rate: NonNegative = 1.0,
) -> Algorithm:
  """FedAvg with subgradient steps of the regularizer.

  The paper calls this algorithm FedAvg(∂).

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    psi: a regularizer that is finite everywhere, no constraint.
    learning_rate: eta_c, or a function from the round to it; non-negative.
    server_learning_rate: eta_s; non-negative.

  Returns:
    The algorithm.

  Raises:
    ValueError: if psi is no regularizer or not finite everywhere, or a rate is
      an optimizer or out of range.
    TypeError: if an argument is of a wrong type.

  References:
    Yuan et al., "Federated Composite Optimization", ICML 2021, section 5.
  """
  check_is_penalty(psi)
  algorithm = fed_avg(
    loss_fn,
    lambda round: subgradient_step(rate_at(learning_rate, round), psi),
    optax.sgd(server_learning_rate),
  )
  # The objective counts psi of all leaves, also of running statistics.
  return algorithm._replace(penalty=psi.value, averages_statistics=False)
