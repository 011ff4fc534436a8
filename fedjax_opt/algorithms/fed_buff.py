"""FedBuff: a server step after every few updates, however old they are.

References:
  Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation",
  AISTATS 2022.
"""

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from fedjax_opt.algorithms.fed_avg import fed_avg_of
from fedjax_opt.arrays import running_statistics
from fedjax_opt.base import Algorithm, ClientRule, LossFn
from fedjax_opt.checks.fields import NonNegative, checked


@checked()
def fed_buff(
  loss_fn: LossFn,
  client: ClientRule,
  server: optax.GradientTransformation | None = None,
  *,
  staleness_power: NonNegative = 0.5,
) -> Algorithm:
  r"""A server step after every few updates (Nguyen et al., 2022).

  .. math::

    \Delta_k = x_{t-\tau_k,K}^k - x_{t-\tau_k}, \qquad
    \Delta = \sum_{k=1}^A w_k \frac{\Delta_k}{(1 + \tau_k)^a}, \qquad
    x_{t+1} = \text{server}(x_t, -\Delta)

  The staleness :math:`\tau_k` is the number of server steps since client k got
  its model. It comes from the schedule, and is 0 without a schedule. A is the
  number of updates of a step (K in the paper). The paper's weights are
  :math:`w_k = 1/A`, which `weighting='uniform'` gives. The authors' program,
  FLSim, adds up the A updates and does not divide by A.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    client: the rule of the local steps; its state starts afresh each time.
    server: the rule of the server; `optax.sgd(1.0)` if None.
    staleness_power: how much less an old update counts; a, non-negative, 0 for
      all alike.

  Returns:
    The algorithm. Running statistics of batch normalization are averaged,
    however old.

  Raises:
    ValueError: if `staleness_power` is negative.
    TypeError: see `fed_avg`.

  References:
    Nguyen et al., AISTATS 2022, Algorithm 1; the weights in its section 5.
  """

  def one_client(worker, params):
    local_params = worker.descend(loss_fn, client, params)
    scale = polynomial(worker.staleness, staleness_power)
    delta = optax.tree.sub(local_params, params)
    return running_statistics.map_weights(
      lambda leaf: scale.astype(leaf.dtype) * leaf, delta
    )

  return fed_avg_of(one_client, server)


def polynomial(staleness: ArrayLike, power: ArrayLike) -> jax.Array:
  """(1 + tau)^-a, [] float."""
  return jnp.power(1 + jnp.asarray(staleness, float), -power)
