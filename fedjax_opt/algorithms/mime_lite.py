"""MimeLite: clients take the server's kind of steps, with its statistics.

References:
  Karimireddy et al., "Breaking the Centralized Barrier for Cross-Device
  Federated Learning" (Mime), NeurIPS 2021.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_opt import optimizers
from fedjax_opt.arrays import running_statistics
from fedjax_opt.base import Algorithm, LossFn, Params, Rate
from fedjax_opt.checks import fields
from fedjax_opt.checks.fields import Decay


class MimeLiteState(NamedTuple):
  """The server between rounds."""

  params: Params  # x_t
  base: optax.OptState  # s, the statistics of the base optimizer


@fields.checked(
  learning_rate=fields.rate(hint="; give its base optimizer as base")
)
def mime_lite(
  loss_fn: LossFn,
  learning_rate: Rate,
  *,
  beta: Decay = 0.9,
  base: optax.GradientTransformation | None = None,
) -> Algorithm:
  r"""Local steps with server momentum held fixed (Karimireddy et al., 2021).

  The steps are those of a base optimizer whose statistics the server keeps:

  .. math::

    y_i &\leftarrow y_i - \eta U(g_i(y_i), s) \quad \text{K times, from } x_t \\
    x_{t+1} &= \sum_i w_i y_i, \qquad
    s \leftarrow V\Bigl(\sum_i w_i \nabla f_i(x_t), s\Bigr)

  Clients do not change s; :math:`\nabla f_i` is the exact gradient. For SGD
  with momentum :math:`U(g, s) = V(g, s) = (1 - \beta) g + \beta s`, as in the
  paper's table of base optimizers.

  For an optax transformation, U is the update that it makes with g, after g has
  entered its state. For Adam this is not the paper's U:

  .. math::

    U_\text{paper}(g, (m, v)) &= \frac{(1 - \beta_1) g + \beta_1 m}
      {\epsilon + \sqrt{v}} \\
    U_\text{here}(g, (m, v)) &= \frac{((1 - \beta_1) g + \beta_1 m)
      / (1 - \beta_1^{t+1})}{\epsilon + \sqrt{((1 - \beta_2) g^2 + \beta_2 v)
      / (1 - \beta_2^{t+1})}}

  with `optax.scale_by_adam` and t rounds done. The local gradient enters both
  moments, not only the first, and both are corrected for their start at 0. V is
  the paper's.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    learning_rate: eta, or a function from the round to it; non-negative.
    beta: momentum of the server; in [0, 1). At 0 this is `fed_avg` at the cost
      of one more exact gradient. Of no use if `base` is given.
    base: the base optimizer without its rate, as an optax transformation: U are
      its updates and V is its state. `optax.ema(beta, debias=False)` if None.
      `optax.scale_by_adam()` gives MimeLiteAdam, which differs from the paper's
      as said above.

  Returns:
    The algorithm. The server sends the model and s; a client sends its
    difference and its gradient at x_t, twice the bytes of `fed_avg`.

  Raises:
    ValueError: if `learning_rate` is an optimizer, or a number is out of range.
    TypeError: if an argument is of a wrong type.

  References:
    Karimireddy et al., NeurIPS 2021, Algorithm 1, MimeLite.
  """
  if base is not None:
    _check_has_no_rate(base)
  base = optax.ema(beta, debias=False) if base is None else base

  def init(params):
    return MimeLiteState(params, optimizers.init("base", base, params))

  def round(state, cohort):
    rate = optimizers.rate_at(learning_rate, cohort.round)

    def one_client(worker, broadcast):
      params, base_state = broadcast
      rule = optax.chain(_frozen(base, base_state), optax.sgd(rate))
      local_params = worker.descend(loss_fn, rule, params)
      delta = optax.tree.sub(local_params, params)
      return delta, worker.gradient(loss_fn, params)

    reply = cohort.mean(one_client, broadcast=(state.params, state.base))
    delta, gradient = reply.value
    update = running_statistics.sparing_statistics(base).update
    _, new_base = update(gradient, state.base, state.params)  # V
    return MimeLiteState(optax.tree.add(state.params, delta), new_base), reply

  return Algorithm(
    init,
    round,
    sends=lambda params: [params, params],
    averages_statistics=True,
  )


def _check_has_no_rate(base):
  """Checks that updates of the base optimizer have the gradient's sign."""
  with jax.ensure_compile_time_eval():
    one = jnp.ones(1)
    try:
      update, _ = base.update(one, base.init(one), one)
      is_step = bool(update[0] < 0)
    except Exception:  # It is for other parameters, or has tuned numbers.
      return
  if is_step:
    raise ValueError(
      "base: goes down the gradient by itself, and mime_lite does so with "
      "learning_rate; give it without its rate, such as "
      "optax.scale_by_adam() for optax.adam(rate)"
    )


def _frozen(base, state):
  """U(., s): the updates of the base optimizer, always from the state s."""

  def update(grads, params):
    updates, _ = base.update(grads, state, params)
    return optax.tree.cast_like(updates, grads)

  return optax.stateless(update)
