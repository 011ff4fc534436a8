"""FedExP: the more the clients disagree, the longer the server's step.

References:
  Jhunjhunwala, Wang and Joshi, "FedExP: Speeding Up Federated Averaging via
  Extrapolation", ICLR 2023.
"""

from typing import NamedTuple

import jax.numpy as jnp
import optax

from fedjax_opt.arrays import norms, running_statistics
from fedjax_opt.base import Algorithm, ClientRule, LossFn, Params
from fedjax_opt.checks.fields import NonNegative, checked


class FedExpState(NamedTuple):
  """The server between rounds."""

  params: Params  # x_t
  previous: Params  # x_{t-1}; x_0 before the first round


@checked()
def fed_exp(
  loss_fn: LossFn,
  client: ClientRule,
  *,
  eps: NonNegative = 1e-3,
) -> Algorithm:
  r"""FedAvg with an extrapolated server step (Jhunjhunwala et al., 2023).

  .. math::

    \Delta_i = x_t - x_i, \qquad \bar\Delta = \sum_i w_i \Delta_i, \qquad
    \eta_g = \max\left(1, \frac{\sum_i w_i \|\Delta_i\|^2}
                               {2 (\|\bar\Delta\|^2 + \epsilon)}\right), \qquad
    x_{t+1} = x_t - \eta_g \bar\Delta

  The evaluated model is the mean of the last two iterates, because the iterates
  themselves oscillate.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    client: the rule of the local steps; its state starts afresh each round.
    eps: damps the extrapolation, a squared distance; non-negative. If it is
      about as large as the squared differences, the step is plain averaging.
      (The authors' program multiplies it by the number of clients.)

  Returns:
    The algorithm. A client sends its difference and one number, the squared
    norm. If an upload sends less, the number is still the squared norm of the
    whole difference, so the server's step is longer. Running statistics of
    batch normalization are averaged; no step extrapolates them.

  Raises:
    ValueError: if `eps` is negative.
    TypeError: see `fed_avg`.

  References:
    Jhunjhunwala et al., ICLR 2023, Algorithm 1.
  """

  def init(params):
    return FedExpState(params, previous=params)

  def round(state, cohort):
    def one_client(worker, params):
      local_params = worker.descend(loss_fn, client, params)
      delta = optax.tree.sub(local_params, params)
      length = norms.norm(running_statistics.weights(delta))
      if cohort.clip_norm is not None:  # The norm of what is sent.
        length = jnp.minimum(length, cohort.clip_norm)
      return delta, jnp.square(length)

    reply = cohort.mean(one_client, broadcast=state.params)
    delta, squares = reply.value
    mean_norm = norms.norm(running_statistics.weights(delta))
    denominator = 2 * (jnp.square(mean_norm) + eps)
    # If nobody has moved the ratio is 0 / 0.
    ratio = squares / jnp.where(denominator > 0, denominator, 1)
    rate = jnp.maximum(1, ratio)
    step = running_statistics.map_weights(lambda leaf: rate * leaf, delta)
    params = optax.tree.add(state.params, step)
    return FedExpState(params, previous=state.params), reply

  def evaluated(state):
    mean = optax.tree.scale(0.5, optax.tree.add(state.params, state.previous))
    return optax.tree.cast_like(mean, state.params)

  return Algorithm(
    init,
    round,
    params=evaluated,
    sends=lambda params: [params, None],
    averages_statistics=True,
  )
