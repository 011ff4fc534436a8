"""FedLESAM: gradients taken back along the server's last moves.

References:
  Fan et al., "Locally Estimated Global Perturbations are Better than Local
  Perturbations for Federated Sharpness-aware Minimization", ICML 2024.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_opt import optimizers
from fedjax_opt.algorithms.fed_avg import server_step
from fedjax_opt.arrays import norms, running_statistics
from fedjax_opt.base import Algorithm, ClientOutput, ClientRule, LossFn, Params
from fedjax_opt.checks.fields import NonNegative, checked
from fedjax_opt.rules.sharpness import perturbation


class FedLesamState(NamedTuple):
  """The server between rounds; each client keeps w_i, if all do not share e."""

  params: Params  # w_t
  server: optax.OptState
  step: Params | None  # w_t - w_{t-1}, with `last_step`; 0 at first


@checked()
def fed_lesam(
  loss_fn: LossFn,
  client: ClientRule,
  server: optax.GradientTransformation | None = None,
  *,
  rho: NonNegative = 0.1,
  last_step: bool = False,
) -> Algorithm:
  r"""FedAvg along gradients taken towards an earlier model (Fan et al., 2024).

  A step takes one gradient. The direction uphill is estimated by the movement
  of the server's model since the client's last round:

  .. math::

    e = \rho \frac{w_i - w_t}{\|w_i - w_t\|}, \qquad
    x \leftarrow x - \eta g_i(x + e), \qquad w_i \leftarrow w_t

  Here :math:`w_i` is the model that client i received last; before its first
  round it is the initial model. If the norm is 0, e is 0. The authors' program
  uses the server's last step as :math:`w_t - w_i` for all clients, and divides
  by the sum of the norms of its leaves.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    client: the rule of the local steps, on the loss at x + e; the paper's is
      `optax.sgd`.
    server: the rule of the server; `optax.sgd(1.0)` if None.
    rho: how far back a gradient is taken; the length of e, non-negative. At 0
      this is `fed_avg`.
    last_step: whether all clients look back along the server's last step (the
      authors' program), not along what each has missed (the paper).

  Returns:
    The algorithm. Each client keeps one model, the one that it received. With
    `last_step` clients keep nothing, and the server also sends its step, so
    twice the bytes.

  Raises:
    ValueError: if `rho` is negative.
    TypeError: see `fed_avg`.

  References:
    Fan et al., ICML 2024, FedLESAM.
  """
  server = optax.sgd(1.0) if server is None else server

  def init(params):
    step = optax.tree.zeros_like(params) if last_step else None
    server_state = optimizers.init("server", server, params)
    return FedLesamState(params, server_state, step)

  def round(state, cohort):
    def one_client(worker, broadcast):
      received, step = broadcast
      if last_step:
        ahead = _by_leaves(optax.tree.scale(-1, step), rho)
      else:
        ahead = perturbation(optax.tree.sub(worker.state, received), rho)
      # Steps start, and stay, at x + e: none has to go there and back.
      start = optax.tree.cast_like(optax.tree.add(received, ahead), received)
      rule = _behind(optimizers.rule_at(client, worker.round), ahead)
      delta = optax.tree.sub(worker.descend(loss_fn, rule, start), start)
      return ClientOutput(delta, state=None if last_step else received)

    reply = cohort.mean(one_client, broadcast=(state.params, state.step))
    new = server_step(server, state.params, state.server, reply.value)
    step = optax.tree.sub(new[0], state.params) if last_step else None
    return FedLesamState(*new, step), reply

  return Algorithm(
    init,
    round,
    init_client=None if last_step else lambda params: params,  # w_i
    sends=lambda params: [params],
    averages_statistics=True,
  )


def _behind(rule, ahead):
  """A rule that is given x where the steps have x + e."""
  rule = optax.with_extra_args_support(rule)
  back = lambda point: optax.tree.cast_like(optax.tree.sub(point, ahead), point)

  def of_x(function):
    def at(x, *args, **kwargs):
      point = optax.tree.cast_like(optax.tree.add(x, ahead), x)
      return function(point, *args, **kwargs)

    return at

  def update(grads, state, params, **extra: Any):
    names = {"value_fn", "obj_fn", "grad_fn"} & set(extra)
    extra |= {name: of_x(extra[name]) for name in names}
    return rule.update(grads, state, back(params), **extra)

  return optax.GradientTransformationExtraArgs(
    lambda params: rule.init(back(params)), update
  )


def _by_leaves(direction, rho):
  """rho times the direction, divided by the sum of the norms of its leaves."""
  weights = running_statistics.weights(direction)
  norm = jnp.sum(jnp.array([norms.norm(x) for x in jax.tree.leaves(weights)]))
  scale = rho / jnp.where(norm > 0, norm, 1)
  return optax.tree.scale(scale, running_statistics.zeroed(direction))
