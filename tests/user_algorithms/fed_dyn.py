"""FedDyn: Acar et al., ICLR 2021, Algorithm 1."""

import optax

import fedjax_opt as fo


def fed_dyn(loss_fn, client, alpha=0.01):
  r"""Steps of a rule on :math:`f_i - <g_i, x> + \alpha/2 \|x - x_t\|^2`.

  h is the mean of all :math:`g_i` in the weights of the setting `weighting`;
  "uniform" is the paper's.
  """

  def one_client(worker, received):
    def term(params):
      squares = optax.tree.norm(optax.tree.sub(params, received), squared=True)
      return alpha / 2 * squares - optax.tree.vdot(worker.state, params)

    loss = fo.objectives.RegularizedLoss(loss_fn, term)
    params = worker.descend(loss, client, received)
    moved = optax.tree.sub(params, received)
    own = optax.tree.add_scale(worker.state, -alpha, moved)  # g_i
    return fo.ClientOutput(moved, state=own)

  def round(state, cohort):
    params, h = state
    sent = cohort.mean(one_client, broadcast=params)
    h = optax.tree.add_scale(h, -alpha * sent.share, sent.value)
    params = optax.tree.add(params, sent.value)
    return (optax.tree.add_scale(params, -1 / alpha, h), h), sent

  return fo.Algorithm(
    init=lambda params, num_clients: (params, optax.tree.zeros_like(params)),
    round=round,
    params=lambda state: state[0],
    init_client=optax.tree.zeros_like,
  )
