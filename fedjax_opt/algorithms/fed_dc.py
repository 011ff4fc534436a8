"""FedDC: local drift is tracked, and removed when models are averaged.

References:
  Gao et al., "FedDC: Federated Learning with Non-IID Data via Local Drift
  Decoupling and Correction", CVPR 2022.
"""

from typing import NamedTuple

import jax.numpy as jnp
import optax

from fedjax_opt.algorithms.scaffold import mean_gradient
from fedjax_opt.arrays import running_statistics
from fedjax_opt.base import Algorithm, ClientOutput, LossFn, Params, Rate
from fedjax_opt.checks.fields import NonNegative, checked
from fedjax_opt.optimizers import rate_at


class FedDcState(NamedTuple):
  """The server between rounds."""

  params: Params  # w
  drift: Params  # the mean of the clients' h_i
  control: Params  # g, the mean of the clients' g_i


class Drift(NamedTuple):
  """What a client keeps."""

  drift: Params  # h_i
  control: Params  # g_i


@checked()
def fed_dc(
  loss_fn: LossFn,
  learning_rate: Rate,
  *,
  alpha: NonNegative = 0.01,
) -> Algorithm:
  r"""`scaffold` with a penalty on each client's drift (Gao et al., 2022).

  .. math::

    x_i &\approx \operatorname{argmin}_x f_i(x) + \frac{\alpha}{2}
      \|x - (w - h_i)\|^2 + \langle g - g_i, x \rangle
      \quad \text{by K steps from } w \\
    h_i &\leftarrow h_i + (x_i - w), \qquad
      g_i \leftarrow g_i - g - \frac{x_i - w}{K \eta} \\
    w &\leftarrow \frac{1}{|S|} \sum_{i \in S} x_i
      + \frac{1}{M} \sum_{i = 1}^M h_i

  All :math:`h_i` and :math:`g_i` start at 0, and g is the mean of all M
  :math:`g_i`. The paper's means are plain: `weighting='uniform'`. With
  'examples' all means are weighted. The authors' program divides alpha and g by
  the client's relative size, and clips gradients at the norm 10.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    learning_rate: eta, or a function from the round to it; non-negative. Local
      steps are plain SGD, the only rule that control variates correct.
    alpha: strength of the penalty on the drift; non-negative. At 0 drift is not
      corrected and this is `scaffold`. This is not the limit of small alpha:
      for any alpha above 0 the mean drift is added.

  Returns:
    The algorithm. Messages are those of `scaffold`; each client keeps two
    models, :math:`h_i` and :math:`g_i`.

  Raises:
    ValueError: if `learning_rate` is an optimizer, or a number is out of range.
    TypeError: if an argument is of a wrong type.

  References:
    Gao et al., CVPR 2022, Algorithm 1.
  """

  def init(params):
    zeros = optax.tree.zeros_like(params)
    return FedDcState(params, drift=zeros, control=zeros)

  def round(state, cohort):
    rate = rate_at(learning_rate, cohort.round)

    def one_client(worker, broadcast):
      (received, control), own_state = broadcast, worker.state
      correction = optax.tree.sub(control, own_state.control)
      center = optax.tree.sub(received, own_state.drift)
      # A step reads one tree besides x and its gradient, not two.
      slope = optax.tree.add_scale(correction, -alpha, center)
      params = worker.descend(loss_fn, _pulled(rate, alpha, slope), received)
      delta = optax.tree.sub(params, received)
      new = mean_gradient(worker, rate, delta, correction, own_state.control)
      new = optax.tree.cast_like(new, own_state.control)
      change = optax.tree.sub(new, own_state.control)
      drift = optax.tree.add(own_state.drift, running_statistics.zeroed(delta))
      return ClientOutput((delta, change), state=Drift(drift, control=new))

    reply = cohort.mean(one_client, broadcast=(state.params, state.control))
    delta, change = reply.value
    # The share of the cohort makes means over all clients of its means.
    drift = optax.tree.add_scale(
      state.drift, reply.cohort_share, running_statistics.zeroed(delta)
    )
    control = optax.tree.add_scale(state.control, reply.cohort_share, change)
    params = optax.tree.add(state.params, delta)
    params = optax.tree.add_scale(params, jnp.where(alpha > 0, 1, 0), drift)
    return FedDcState(params, drift, control), reply

  def init_client(params):
    zeros = optax.tree.zeros_like(params)
    return Drift(drift=zeros, control=zeros)

  return Algorithm(
    init,
    round,
    init_client=init_client,
    sends=lambda params: [params, params],
    averages_statistics=True,
    may_be_clipped=False,
  )


def _pulled(rate, alpha, slope):
  """Plain steps along the gradient plus alpha x and the slope."""

  def pull(grads, params):
    pulled = optax.tree.add_scale(optax.tree.add(grads, slope), alpha, params)
    return optax.tree.cast_like(pulled, grads)

  return optax.chain(optax.stateless(pull), optax.sgd(rate))
