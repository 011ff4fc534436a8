"""Momentum at the server, at the clients, at both, and both coordinated.

One algorithm with eight names: FedAvg, FedAvgSM, FedAvgLM(-Z), FedAvgSLM(-Z),
DOMO and DOMO-S are `domo` with different constants.

References:
  Xu and Huang, "Coordinating Momenta for Cross-silo Federated Learning"
  (DOMO), AAAI 2022.
"""

from typing import NamedTuple

import jax.numpy as jnp
import optax

from fedjax_opt import optimizers
from fedjax_opt.arrays import running_statistics, trees
from fedjax_opt.base import Algorithm, LossFn, Params, Rate
from fedjax_opt.checks.fields import Decay, NonNegative, Positive, checked
from fedjax_opt.rules.momentum_fusion import momentum_fusion


class DomoState(NamedTuple):
  """The server between rounds."""

  params: Params  # x_r
  momentum: Params  # K m_r, a sum of gradients; 0 before the first round
  local: Params | None  # mean of the clients' buffers, with `average_local`


@checked()
def domo(
  loss_fn: LossFn,
  learning_rate: Rate,
  server_learning_rate: Positive = 1.0,
  *,
  mu_s: Decay | None = 0.9,
  mu_l: Decay | None = 0.6,
  beta: NonNegative | None = 0.9,
  intra: bool = False,
  average_local: bool = False,
) -> Algorithm:
  r"""Local momentum steps, fused with the server's momentum.

  .. math::

    x_{r,0} &= x_r - \eta \beta K m_r \quad \text{(DOMO)} \\
    m_{r,k+1} &= \mu_l m_{r,k} + g(x_{r,k}) \\
    x_{r,k+1} &= x_{r,k} - \eta m_{r,k+1} \; [- \eta \beta m_r
      \text{ (DOMO-S)}] \\
    m_{r+1} &= \mu_s m_r + \sum_i w_i \frac{1}{K} \sum_k m_{r,k+1}^{(i)}, \qquad
    x_{r+1} = x_r - \alpha \eta K m_{r+1}

  The methods of the paper; None switches a momentum off:

  ============  ====  ====  ====  =====  =============
  method        mu_s  mu_l  beta  intra  average_local
  ============  ====  ====  ====  =====  =============
  FedAvg        None  None  None
  FedAvgSM      > 0   None  None
  FedAvgLM      None  > 0   None         True
  FedAvgLM-Z    None  > 0   None
  FedAvgSLM     > 0   > 0   None         True
  FedAvgSLM-Z   > 0   > 0   None
  DOMO          > 0   > 0   > 0
  DOMO-S        > 0   > 0   > 0   True
  ============  ====  ====  ====  =====  =============

  Clients may take different numbers of local steps K. So sums over the steps, K
  m_r and K d, are kept and averaged instead of means. Then the algorithm
  without momentum is FedAvg. If all clients have the same K, this is the
  paper's algorithm, in which K is called P.

  Only the model counts as sent by the server. A client can infer the server's
  momentum from two models, with the rate and K of the round before: :math:`m_r
  = (x_{r-1} - x_r) / (\alpha \eta K)`. As in the paper, this assumes that a
  client has the model of the round before, which is true if all clients take
  part. The mean of the local buffers is sent in both directions, and doubles
  the bytes.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    learning_rate: eta, or a function from the round to it; non-negative.
    server_learning_rate: alpha; positive.
    mu_s: momentum of the server; in [0, 1).
    mu_l: momentum of local steps; in [0, 1).
    beta: the part of the server's momentum that clients add; non-negative.
    intra: whether clients add a share of it in every local step (DOMO-S),
      instead of all of it before the first step (DOMO).
    average_local: whether clients start from the mean of the last local
      buffers instead of from zero.

  Returns:
    The algorithm.

  Raises:
    ValueError: if `learning_rate` is an optimizer, a number is out of range, or
      `average_local` is given without local momentum.
    TypeError: if an argument is of a wrong type.

  References:
    Xu and Huang, AAAI 2022, Algorithm 1; appendix C for cohorts that are a part
    of the population.
  """
  if average_local and mu_l is None:
    raise ValueError(
      "average_local=True: there is no local momentum to average; must be "
      "False, or mu_l a number in [0, 1)"
    )

  def init(params):
    zeros = optax.tree.zeros_like(params)
    return DomoState(params, zeros, zeros if average_local else None)

  def round(state, cohort):
    rate = optimizers.rate_at(learning_rate, cohort.round)

    def one_client(worker, server):
      start = server.params
      rule = optimizers.momentum_sgd(rate, mu_l, start)
      if beta is not None:
        # eta beta K m_r: how far the fusion moves a client that takes a step.
        strength = rate * beta * (worker.num_steps > 0)
        fused = optax.tree.scale(strength, server.momentum)
        if intra:  # Line 10.
          share = strength / jnp.maximum(worker.num_steps, 1)
          rule = optax.chain(rule, momentum_fusion(server.momentum, share))
        else:  # Line 7.
          start = _minus(server.params, fused)
      # eta K d (line 12): the local momenta, without the server's.
      moved, local = _descend(worker, loss_fn, rule, start, server.local)
      if intra and beta is not None:
        moved = _minus(moved, fused)
      return moved, local

    # Clients infer the server's momentum, see above.
    bytes_down = trees.num_bytes((state.params, state.local))
    reply = cohort.mean(one_client, broadcast=state, bytes_down=bytes_down)
    moved, local = reply.value
    momentum = _next_momentum(mu_s, state.momentum, moved, rate)
    step = optax.tree.scale(server_learning_rate * rate, momentum)
    step = running_statistics.replaced(step, moved)
    new_params = _minus(state.params, step)  # Line 15.
    return DomoState(new_params, momentum, local), reply

  return Algorithm(
    init,
    round,
    sends=lambda params: [params, None],
    averages_statistics=True,
  )


def _descend(worker, loss_fn, rule, start, local):
  """How far a client's steps move it from `start`, and its last buffer.

  The buffer begins as `local`. If that is None, it begins as zero and is not
  returned.
  """
  rule_state = optimizers.init("client", rule, start)
  if local is not None:
    rule_state = optax.tree.set(rule_state, trace=local)
  params, rule_state = worker.descend_from(loss_fn, rule, start, rule_state)
  if local is not None:
    local = optax.tree.get(rule_state, "trace")
  return _minus(start, params), local


def _next_momentum(mu_s, momentum, moved, rate):
  """K m_{r+1} (line 14), from the mean of what local steps have moved."""
  # With a rate of 0 nothing has moved.
  gradients = optax.tree.scale(
    1 / jnp.where(rate > 0, rate, 1), running_statistics.zeroed(moved)
  )
  if mu_s is not None:
    gradients = optax.tree.add_scale(gradients, mu_s, momentum)
  return optax.tree.cast_like(gradients, momentum)


def _minus(params: Params, step: Params) -> Params:
  """Their difference, in the types of the parameters."""
  return optax.tree.cast_like(optax.tree.sub(params, step), params)
