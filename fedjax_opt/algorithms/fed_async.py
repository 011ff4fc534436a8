"""FedAsync: the server moves towards each model when it arrives.

References:
  Xie, Koyejo and Gupta, "Asynchronous Federated Optimization", 2019
  (arXiv:1903.03934).
"""

import jax.numpy as jnp
import optax

from fedjax_opt import objectives
from fedjax_opt.algorithms.fed_avg import ModelState, server_step
from fedjax_opt.algorithms.fed_buff import polynomial
from fedjax_opt.arrays import running_statistics
from fedjax_opt.base import Algorithm, ClientRule, LossFn
from fedjax_opt.checks import fields
from fedjax_opt.checks.fields import Fraction, NonNegative

# Name of the function s -> its hyperparameters, with their defaults.
STALENESS: dict[str, dict[str, float]] = {
  "constant": {},
  "polynomial": {"staleness_power": 0.5},
  "hinge": {"hinge_slope": 10.0, "hinge_start": 6.0},
}


@fields.checked(staleness=fields.one_of(*STALENESS))
def fed_async(
  loss_fn: LossFn,
  client: ClientRule,
  *,
  alpha: Fraction = 0.6,
  mu: NonNegative = 0.005,
  staleness: str = "polynomial",
  staleness_power: NonNegative | None = None,
  hinge_slope: NonNegative | None = None,
  hinge_start: NonNegative | None = None,
) -> Algorithm:
  r"""The server mixes in each model that arrives (Xie et al., 2019).

  A client minimizes :math:`F_i(x) + \frac{\mu}{2} \|x - x_{t-\tau}\|^2` from
  the model :math:`x_{t-\tau}` that it got :math:`\tau` server steps ago. With
  the client's result :math:`x_{new}`:

  .. math::

    x_{t+1} = (1 - \alpha \, s(\tau)) \, x_t + \alpha \, s(\tau) \, x_{new}

  where :math:`s` is 1 ('constant'), :math:`(\tau + 1)^{-a}` ('polynomial'), or
  1 up to :math:`\tau = b` and :math:`1 / (a (\tau - b) + 1)` from there
  ('hinge'). The paper's server takes one model at a time. If several models
  come in a step, the server takes the mean of the steps along each.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    client: the rule of the local steps; its state starts afresh each time.
    alpha: how far the server moves towards a fresh model; in [0, 1].
    mu: strength of the proximal term; rho of the paper, non-negative.
    staleness: 'constant', 'polynomial' or 'hinge'; how old models count.
    staleness_power: exponent of 'polynomial'; a, non-negative, by default 0.5.
    hinge_slope: slope of 'hinge'; a, non-negative, by default 10.
    hinge_start: staleness from which models count less, with 'hinge'; b, in
      server steps, non-negative, by default 6.

  Returns:
    The algorithm. Running statistics of batch normalization become those of
    the models that arrived.

  Raises:
    ValueError: if a number is out of range or belongs to another `staleness`,
      or this is no such word.
    TypeError: see `fed_avg`.

  References:
    Xie et al., 2019, Algorithm 1 and section 5.2.
  """

  arguments = {
    "staleness_power": staleness_power,
    "hinge_slope": hinge_slope,
    "hinge_start": hinge_start,
  }
  numbers = dict(STALENESS[staleness])
  for name, value in arguments.items():
    if value is None:
      continue
    if name not in numbers:
      owner = next(word for word, names in STALENESS.items() if name in names)
      raise ValueError(
        f"{name}: belongs to staleness={owner!r}; this is {staleness!r}"
      )
    numbers[name] = value

  def weight(tau):
    if staleness == "constant":
      return jnp.ones(())
    if staleness == "polynomial":
      return polynomial(tau, numbers["staleness_power"])
    excess = jnp.maximum(jnp.asarray(tau, float) - numbers["hinge_start"], 0)
    return 1 / (numbers["hinge_slope"] * excess + 1)

  def round(state, cohort):
    def one_client(worker, received):
      loss = objectives.proximal(loss_fn, received, mu)
      local_params = worker.descend(loss, client, received)
      scale = weight(worker.staleness)
      # The server's part: its own model now, not the one that was sent.
      step = optax.tree.sub(local_params, state.params)
      return running_statistics.map_weights(
        lambda leaf: scale.astype(leaf.dtype) * leaf, step
      )

    reply = cohort.mean(one_client, broadcast=state.params)
    rule = optax.sgd(alpha)
    params, _ = server_step(
      rule, state.params, rule.init(state.params), reply.value
    )
    return ModelState(params), reply

  return Algorithm(
    ModelState,
    round,
    broadcast=lambda state: state.params,
    averages_statistics=True,
  )
