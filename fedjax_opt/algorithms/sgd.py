"""Plain gradient steps: one large one a round, or many small local ones.

The baselines of Murata and Suzuki, "Bias-Variance Reduced Local SGD for Less
Heterogeneous Federated Learning", ICML 2021, section 6. Both use the same
K B examples of a client in a round.
"""

import optax

from fedjax_opt.algorithms.fed_avg import ModelState, fed_avg
from fedjax_opt.base import Algorithm, LossFn, Rate
from fedjax_opt.checks.fields import checked
from fedjax_opt.optimizers import rate_at


@checked()
def minibatch_sgd(loss_fn: LossFn, learning_rate: Rate) -> Algorithm:
  r"""One step in each round on all local batches at once.

  .. math::

    x_{t+1} = x_t - \eta \sum_p w_p g_p(x_t)

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    learning_rate: eta, or a function from the round to it; non-negative.

  Returns:
    The algorithm. Its batch is the budget of a round, `local_steps` times
    `batch_size`.

  Raises:
    ValueError: if the rate is an optimizer, or negative.
    TypeError: if an argument is of a wrong type.

  References:
    Murata and Suzuki, ICML 2021, section 6.
  """

  def round(state, cohort):
    def one_client(worker, params):
      return worker.batch_gradients(loss_fn, params)[0]

    reply = cohort.mean(one_client, broadcast=state.params)
    rate = rate_at(learning_rate, cohort.round)
    updates = optax.tree.scale(-rate, reply.value)
    return ModelState(optax.apply_updates(state.params, updates)), reply

  return Algorithm(
    ModelState,
    round,
    sends=lambda params: [params],
  )


@checked()
def local_sgd(loss_fn: LossFn, learning_rate: Rate) -> Algorithm:
  """Plain local steps, averaged (Stich, 2019).

  `fed_avg` with plain local steps and plain averaging.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    learning_rate: eta, or a function from the round to it; non-negative.

  Returns:
    The algorithm.

  Raises:
    ValueError: if the rate is an optimizer, or negative.
    TypeError: if an argument is of a wrong type.

  References:
    Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019.
  """
  return fed_avg(
    loss_fn, lambda round: optax.sgd(rate_at(learning_rate, round))
  )
