"""ProxSkip (Scaffnew): clients meet when a shared coin says so.

References:
  Mishchenko, Malinovsky, Stich and Richtarik, "ProxSkip: Yes! Local Gradient
  Steps Provably Lead to Communication Acceleration! Finally!", ICML 2022.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from fedjax_opt.arrays import counters, trees
from fedjax_opt.base import Algorithm, ClientOutput, LossFn, Params
from fedjax_opt.checks import fields


class Local(NamedTuple):
  """What a client keeps."""

  params: Params  # x_i after its last step, before it meets the others
  control: Params  # h_i before that meeting; they sum to 0
  meetings: jax.Array  # [] int32, how many there were before


class ProxSkipState(NamedTuple):
  """The server between rounds."""

  params: Params  # the mean at the last meeting; x_0 at first
  meetings: jax.Array  # [] int32, how many there were


@fields.checked(learning_rate=fields.rate(may_drop=False), p="(0, 1]")
def prox_skip(
  loss_fn: LossFn,
  learning_rate: ArrayLike,
  *,
  p: ArrayLike = 0.1,
) -> Algorithm:
  r"""Corrected local steps of all clients, until a coin tells them to average.

  .. math::

    x'_i &= x_i - \gamma (g_i(x_i) - h_i) \\
    x_i &\leftarrow \sum_j w_j x'_j \text{ with probability } p, \quad
      \text{else } x'_i \\
    h_i &\leftarrow h_i + \frac{p}{\gamma} (x_i - x'_i)

  All clients share the coin, which is tossed after each step. A round ends when
  the clients average, or after K steps. In the second case the next round
  continues where this one ended, so the result follows the paper's law for any
  K. The gradients of K steps are computed in every round. Give `local_steps`,
  because the paper's clients take equally many steps. Clients with fewer than K
  steps wait for the others' coin.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    learning_rate: gamma, of all rounds; non-negative.
    p: probability of averaging after a local step; in (0, 1], best is the
      inverse root of the condition number. At 1 this is `fed_avg` with one
      local step.

  Returns:
    The algorithm. All clients take part, because the h_i must sum to 0, and
    each client keeps two models. So none average in a round in which the update
    of one is rejected. In a round without averaging clients send nothing; the
    server's model is counted in every round.

  Raises:
    ValueError: if `learning_rate` is an optimizer, a number is out of range, or
      the cohort is not all clients.
    TypeError: if an argument is of a wrong type.

  References:
    Mishchenko et al., ICML 2022, Algorithm 2.
  """

  def init(params):
    return ProxSkipState(params, meetings=jnp.int32(0))

  def round(state, cohort):
    cohort.check_everyone("prox_skip")
    if not cohort.has_plain_means:
      raise ValueError(
        "prox_skip: needs plain means, by which its corrections add up to "
        "zero; leave aggregator out"
      )
    rate = jnp.asarray(learning_rate, float)
    strength = p / jnp.where(rate > 0, rate, 1)  # p / gamma
    # The step after which the coin falls; a fresh draw continues an old one.
    length = jax.random.geometric(cohort.key, jnp.asarray(p, jnp.float32))
    meets = length <= cohort.max_steps

    def one_client(worker, broadcast):
      mean, meetings = broadcast
      start, control, _ = _after_meeting(worker.state, *broadcast, strength)
      rule = optax.chain(
        optax.stateless(lambda grads, _: optax.tree.sub(grads, control)),
        optax.sgd(rate),
        optax.scale_by_schedule(lambda count: count < length),
      )
      params = worker.descend(loss_fn, rule, start)  # x'_i
      delta = optax.tree.sub(params, mean)
      bytes_up = counters.counter(trees.num_bytes(delta)) * meets
      local = Local(params, control, meetings)
      return ClientOutput(delta, local, bytes_up=bytes_up)

    reply = cohort.mean(one_client, broadcast=state)
    have_met = meets & jnp.all(reply.counted)
    params = optax.tree.add(state.params, reply.value)
    new_state = ProxSkipState(params, state.meetings + 1)
    return optax.tree.where(have_met, new_state, state), reply

  def init_client(params):
    return Local(params, optax.tree.zeros_like(params), jnp.int32(0))

  return Algorithm(
    init,
    round,
    init_client=init_client,
    may_be_clipped=False,
    costs_differ=True,
  )


def _after_meeting(local, mean, meetings, strength):
  """x_i and h_i, once the client knows whether there was another meeting."""
  gap = optax.tree.sub(mean, local.params)
  control = optax.tree.add_scale(local.control, strength, gap)
  control = optax.tree.cast_like(control, local.control)
  after = Local(mean, control, meetings)
  return optax.tree.where(meetings > local.meetings, after, local)
