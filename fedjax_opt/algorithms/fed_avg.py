"""FedAvg, and FedOpt when the server rule is more than a plain average.

References:
  McMahan et al., "Communication-Efficient Learning of Deep Networks from
  Decentralized Data", AISTATS 2017, Algorithm 1.

  Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Algorithm 1.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_opt import optimizers
from fedjax_opt.base import Algorithm, ClientRule, LossFn, Params
from fedjax_opt.checks import fields


class ModelState(NamedTuple):
  """The server between rounds, where it has nothing but the model."""

  params: Params


class FedAvgState(NamedTuple):
  """The server between rounds."""

  params: Params  # x_t
  server: optax.OptState


class SharedRuleState(NamedTuple):
  """The server between rounds, where it has the clients' mean rule state."""

  params: Params  # x_t
  server: optax.OptState
  client: optax.OptState


@fields.checked(local_loss=fields.function("(loss_fn, params)"))
def fed_avg(
  loss_fn: LossFn,
  client: ClientRule,
  server: optax.GradientTransformation | None = None,
  *,
  local_loss: Callable[[LossFn, Params], LossFn] | None = None,
  average_state: bool = False,
) -> Algorithm:
  r"""Local steps, averaged (McMahan et al., 2017).

  Clients take steps of any rule, and the server takes one step of any rule:

  .. math::

    \Delta_t = \sum_i w_i (x_{t,K}^i - x_t), \qquad
    x_{t+1} = \text{server}(x_t, -\Delta_t)

  The server rule takes :math:`-\Delta_t` as its gradient. So `optax.sgd(1.0)`
  is plain averaging, and momentum, Adam, Yogi or Adagrad give FedAvgM, FedAdam,
  FedYogi and FedAdagrad.

  With `optax.adamw` as the clients' rule this is Local AdamW, and with
  `optax.contrib.muon` Local Muon.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    client: the rule of the local steps.
    server: the rule of the server; `optax.sgd(1.0)` if None.
    local_loss: `(loss_fn, x_t) -> loss_fn`, the loss that a client minimizes
      instead of its own, given the model that it received.
    average_state: whether the state of the clients' rule, such as a momentum,
      is averaged like the model and continues in the next round; otherwise the
      state starts afresh. Counts are rounded means, halves up. The state is
      sent in both directions.

  Returns:
    The algorithm.

  Raises:
    TypeError: if an argument is of a wrong type, such as an optimizer that was
      not called.

  References:
    McMahan et al., AISTATS 2017, Algorithm 1; Reddi et al., ICLR 2021,
    Algorithm 1.
  """

  def loss_of(params):
    return local_loss(loss_fn, params) if local_loss else loss_fn

  if average_state:
    return _averaging_state(loss_of, client, server)

  def one_client(worker, params):
    local_params = worker.descend(loss_of(params), client, params)
    return optax.tree.sub(local_params, params)

  return fed_avg_of(one_client, server)


def _averaging_state(
  loss_of: Callable[[Params], LossFn],
  client: ClientRule,
  server: optax.GradientTransformation | None,
) -> Algorithm:
  """FedAvg whose clients share the state of their rule."""
  server = optax.sgd(1.0) if server is None else server

  def init(params):
    first = optimizers.rule_at(client, jnp.int32(0))
    rule_state = optimizers.init("client", first, params)
    for leaf in jax.tree.leaves(rule_state):
      if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        raise ValueError(
          "average_state: must be False, as the state of the clients' rule has "
          "a random key, which has no mean"
        )
    server_state = optimizers.init("server", server, params)
    return SharedRuleState(params, server_state, rule_state)

  def round(state, cohort):
    def one_client(worker, received):
      params, rule_state = received
      rule = optimizers.rule_at(client, worker.round)
      local_params, rule_state = worker.descend_from(
        loss_of(params), rule, params, rule_state
      )
      return optax.tree.sub(local_params, params), rule_state

    reply = cohort.mean(one_client, broadcast=(state.params, state.client))
    delta, mean = reply.value
    mean = cohort.average(reply, mean)
    new = server_step(server, state.params, state.server, delta)
    return SharedRuleState(
      *new, jax.tree.map(rounded_like, mean, state.client)
    ), reply

  return Algorithm(
    init, round, sends=lambda params: [params, None], averages_statistics=True
  )


# A mean up to this much below a half is rounded up as a half is: its last bits
# depend on the chunks in which clients are added.
_TIE_TOLERANCE = 0.001


def rounded_like(mean: jax.Array, leaf: jax.Array) -> jax.Array:
  """A mean in the type of a leaf, rounded where that has whole numbers."""
  if not jnp.issubdtype(leaf.dtype, jnp.floating):
    mean = jnp.floor(mean + 0.5 + _TIE_TOLERANCE)
  return mean.astype(leaf.dtype)


def fed_avg_of(
  one_client: Callable[[Any, Params], Any],
  server: optax.GradientTransformation | None,
  difference: Callable[[Any, Any], Params] = lambda cohort, reply: reply.value,
  sends: Callable[[Params], list[Params | None]] = lambda params: [params],
  *,
  averages_statistics: bool = True,
  **parts: Any,
) -> Algorithm:
  """The algorithm with FedAvg's server and any work of a client.

  Args:
    one_client: `(worker, x_t) -> message`, or a `ClientOutput` with it.
    server: the rule of the server; `optax.sgd(1.0)` if None.
    difference: `(cohort, reply) -> Delta_t`, from the mean message.
    sends: see `Algorithm`.
    averages_statistics: see `Algorithm`.
    **parts: further parts of the algorithm, such as `init_client`. With what
      clients keep they cannot start from older versions.
  """
  server = optax.sgd(1.0) if server is None else server

  def init(params):
    return FedAvgState(params, optimizers.init("server", server, params))

  def round(state, cohort):
    reply = cohort.mean(one_client, broadcast=state.params)
    delta = difference(cohort, reply)
    new = server_step(server, state.params, state.server, delta)
    return FedAvgState(*new), reply

  return Algorithm(
    init,
    round,
    sends=sends,
    broadcast=None if "init_client" in parts else lambda state: state.params,
    averages_statistics=averages_statistics,
    **parts,
  )


def server_step(
  server: optax.GradientTransformation,
  params: Params,
  server_state: optax.OptState,
  delta: Params,
) -> tuple[Params, optax.OptState]:
  """One server step with the pseudo-gradient `-delta`."""
  pseudo_gradient = optax.tree.scale(-1, delta)
  return optimizers.step(
    "server", server, pseudo_gradient, server_state, params
  )
