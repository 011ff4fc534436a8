"""FedPer, FedRep and FedBN: some leaves of the model never leave the client.

References:
  Arivazhagan et al., "Federated Learning with Personalization Layers", 2019.

  Collins et al., "Exploiting Shared Representations for Personalized Federated
  Learning", ICML 2021.

  Li et al., "FedBN: Federated Learning on Non-IID Features via Local Batch
  Normalization", ICLR 2021.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from fedjax_opt import optimizers, trainable
from fedjax_opt.algorithms.fed_avg import server_step
from fedjax_opt.arrays import running_statistics
from fedjax_opt.base import (
  Algorithm,
  ClientOutput,
  ClientRule,
  LossFn,
  Params,
)
from fedjax_opt.checks import fields


class PersonalState(NamedTuple):
  """The server between rounds.

  Attributes:
    shared: the leaves that clients send, None at personal ones.
    server: state of the server rule.
    initial: the personal leaves of the initial model, None at shared ones.
  """

  shared: Params
  server: optax.OptState
  initial: Params


@fields.checked(personal=fields.ANYTHING)
def fed_per(
  loss_fn: LossFn,
  client: ClientRule,
  server: optax.GradientTransformation | None = None,
  *,
  personal: Sequence[str],
) -> Algorithm:
  """FedAvg of some leaves; the others stay local (Arivazhagan et al., 2019).

  Each client keeps its personal leaves. Local steps move all leaves together.

  >>> train, held_out = data.split(0.2)
  >>> params = {"kernel": jnp.zeros(4), "bias": jnp.zeros(())}
  >>> loss_fn = lambda params, batch, rng: (
  ...   batch["x"] @ params["kernel"] + params["bias"] - batch["y"]) ** 2
  >>> algorithm = fo.fed_per(loss_fn, optax.sgd(0.01), personal=["bias"])
  >>> result = fo.simulate(algorithm, params, train, rounds=20)
  >>> found = fo.evaluate_clients(
  ...   result, per_example, held_out, train=train, algorithm=algorithm)
  >>> accuracy = found.mean("personal")

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    client: the rule of the local steps, of all leaves.
    server: the rule of the server, of the shared leaves; `optax.sgd(1.0)` if
      None.
    personal: paths of the personal leaves, such as the head; see
      `trainable.mask`.

  Returns:
    The algorithm. A client that never took part has the personal leaves of the
    initial model. So has the model that a run evaluates. `evaluate_clients`
    measures the clients' own models.

  Raises:
    ValueError: if a path matches no leaf of the model, or no leaf is left to be
      shared.
    TypeError: if the paths are no list of strings; see also `fed_avg`.

  References:
    Arivazhagan et al., 2019, Algorithms 1 and 2.
  """
  paths = trainable.checked_paths("personal", personal)
  return _personal(loss_fn, client, server, lambda params: paths)


@fields.checked(personal=fields.ANYTHING, shared_steps="(0, 1]")
def fed_rep(
  loss_fn: LossFn,
  client: ClientRule,
  server: optax.GradientTransformation | None = None,
  *,
  personal: Sequence[str],
  shared_steps: ArrayLike = 1 / 11,
) -> Algorithm:
  r"""`fed_per` that trains the personal leaves first (Collins et al., 2021).

  A client takes K local steps. The last :math:`\max(1, \text{round}(K \cdot
  \text{shared\_steps}))` of them move the shared leaves and hold the personal
  ones. The steps before move the personal leaves and hold the shared ones. Both
  parts start with a fresh state of the client rule.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    client: see `fed_per`.
    server: see `fed_per`.
    personal: see `fed_per`.
    shared_steps: share of the local steps that move the shared leaves, after
      the others; in (0, 1]. The paper's 10 epochs of the head and 1 of the
      body are 11 local epochs with the default.

  Returns:
    The algorithm, see `fed_per`.

  Raises:
    ValueError: if `shared_steps` is not in (0, 1]; see also `fed_per`.
    TypeError: see `fed_per`.

  References:
    Collins et al., ICML 2021, Algorithm 1.
  """
  paths = trainable.checked_paths("personal", personal)

  def rule_of(rule, worker):
    num_shared = jnp.maximum(1, jnp.round(worker.num_steps * shared_steps))
    return _in_turn(rule, paths, worker.num_steps - num_shared)

  return _personal(loss_fn, client, server, lambda params: paths, rule_of)


@fields.checked()
def fed_bn(
  loss_fn: LossFn,
  client: ClientRule,
  server: optax.GradientTransformation | None = None,
) -> Algorithm:
  """FedAvg of all but batch normalization, which stays local (Li et al., 2021).

  This is `fed_per` whose personal leaves are those of batch normalization:
  scale, bias, and the running mean and variance of every part of the model that
  has running statistics (see `running_statistics`).

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    client: see `fed_per`.
    server: see `fed_per`.

  Returns:
    The algorithm, see `fed_per`. The model that a run evaluates has the initial
    statistics, so it is of little use by itself.

  Raises:
    ValueError: if the model has no batch normalization.
    TypeError: see `fed_avg`.

  References:
    Li et al., "FedBN", ICLR 2021, Algorithm 1.
  """
  return _personal(loss_fn, client, server, _normalization)


def _personal(
  loss_fn: LossFn,
  client: ClientRule,
  server: optax.GradientTransformation | None,
  find: Callable[[Params], Sequence[str]],
  rule_of: Callable[..., Any] = lambda rule, worker: rule,
) -> Algorithm:
  """The algorithm whose personal leaves are those at the paths `find` gives."""
  server = optax.sgd(1.0) if server is None else server

  def split(params):
    """The shared leaves, and the personal ones."""
    personal, shared = trainable.split_at(params, find(params), "personal")
    if not jax.tree.leaves(shared):
      raise ValueError(
        f"personal={list(find(params))}: names all leaves of the model; at "
        "least one must be shared"
      )
    return shared, personal

  def init(params):
    shared, personal = split(params)
    server_state = optimizers.init("server", server, shared)
    return PersonalState(shared, server_state, personal)

  def round(state, cohort):
    def one_client(worker, received):
      start = trainable.merge(received, worker.state)
      rule = rule_of(optimizers.rule_at(client, worker.round), worker)
      shared, personal = split(worker.descend(loss_fn, rule, start))
      return ClientOutput(optax.tree.sub(shared, received), state=personal)

    reply = cohort.mean(one_client, broadcast=state.shared)
    new = server_step(server, state.shared, state.server, reply.value)
    return PersonalState(*new, state.initial), reply

  return Algorithm(
    init,
    round,
    params=lambda state: trainable.merge(state.shared, state.initial),
    init_client=lambda params: split(params)[1],
    client_params=lambda state, leaves: trainable.merge(state.shared, leaves),
    sends=lambda params: [split(params)[0]],
    averages_statistics=True,
  )


class _InTurnState(NamedTuple):
  """A rule that moves the personal leaves first."""

  count: jax.Array  # [] int32, steps taken
  personal: optax.OptState
  shared: optax.OptState


def _in_turn(
  rule: optax.GradientTransformation, paths: Sequence[str], first: jax.Array
) -> optax.GradientTransformationExtraArgs:
  """Moves the personal leaves in the first steps, then the shared ones."""
  head = trainable.only(rule, paths)
  body = trainable.only(rule, paths, others=True)

  def init(params):
    return _InTurnState(jnp.int32(0), head.init(params), body.init(params))

  def update(grads, state, params=None, **extras):
    is_first = state.count < first
    choose = lambda early, late: optax.tree.where(is_first, early, late)
    head_steps, new_head = head.update(grads, state.personal, params, **extras)
    body_steps, new_body = body.update(grads, state.shared, params, **extras)
    state = _InTurnState(
      state.count + 1,
      choose(new_head, state.personal),
      choose(state.shared, new_body),
    )
    return choose(head_steps, body_steps), state

  return optax.GradientTransformationExtraArgs(init, update)


def _normalization(params: Params) -> list[str]:
  """The paths of the parts of a model that have running statistics."""
  parts = running_statistics.part_paths(params)
  if not parts:
    raise ValueError(
      "fed_bn: the model has no running statistics, so no batch normalization; "
      "give one that has, such as a ResNet with norm='batch'"
    )
  return parts
