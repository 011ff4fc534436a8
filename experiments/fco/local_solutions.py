"""How dense the solutions of clients are, their mean, and the server's."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

import fedjax_opt as fo
from experiments.tasks import composite
from fedjax_opt import evaluation, prox, rules
from fedjax_opt.metrics import History

_THRESHOLD = 1e-2


def densities(
  method: str,
  variant: str,
  client_lr: float,
  server_lr: float,
  strengths: Sequence[float],
  seeds: Sequence[int],
  rounds: int,
) -> tuple[History, list[dict[str, Any]]]:
  """Densities over the rounds of LASSO; entries below 0.01 count as 0.

  Args:
    method: 'fed_mid' or 'fed_dual_avg'.
    variant: 'I' to 'IV'.
    client_lr: rate of the clients.
    server_lr: rate of the server.
    strengths: of the l1 norm.
    seeds: of the runs.
    rounds: as many as are run.

  Returns:
    'clients', the mean density of what the clients of a round arrive at;
    'average', the density of the plain mean of these models; 'server', that of
    the server's model after the round. And the points.
  """
  task = composite.lasso(variant, _THRESHOLD, eval_every=10)

  def make(strength):
    psi = prox.kernels(prox.l1(strength))
    algorithm, local = _METHODS[method]
    return _watched(
      algorithm(task.loss_fn, psi, client_lr, server_lr),
      local(task.loss_fn, psi, client_lr),
    )

  grid = {"strength": list(strengths)}
  result = fo.sweep(
    make,
    grid,
    task.init,
    task.clients,
    rounds=rounds,
    seeds=list(seeds),
    cohort_size=10,
    batch_size=10,
    evaluate=_evaluate,
    eval_every=10,
  )
  # Clients have no solution before the first round.
  history = History(
    result.history.rounds[1:],
    {
      name: values[:, 1:]
      for name, values in result.history.metrics.items()
      if name in ("clients", "average", "server")
    },
  )
  return history, fo.grid_points(grid, list(seeds))


def _mirror(loss_fn, psi, rate) -> Callable:
  def local(worker, state):
    rule = rules.mirror_step(rate, psi)
    return worker.descend(loss_fn, rule, state.params)

  return local


def _dual(loss_fn, psi, rate) -> Callable:
  def local(worker, state):
    start = rules.DualAveragingState(state.dual, state.elapsed)
    params = psi.prox(state.dual, state.elapsed)
    rule = rules.dual_averaging(rate, psi)
    return worker.descend_from(loss_fn, rule, params, start)[0]

  return local


# The algorithm, and what its clients do.
_METHODS = {
  "fed_mid": (fo.fed_mid, _mirror),
  "fed_dual_avg": (fo.fed_dual_avg, _dual),
}


def _watched(algorithm: fo.Algorithm, local: Callable) -> fo.Algorithm:
  """The algorithm, also keeping how dense its clients' solutions are.

  Args:
    algorithm: to be watched.
    local: `(worker, state) -> params`, what a client arrives at.
  """

  def init(params, num_clients):
    return algorithm.init(params, num_clients), (jnp.zeros([]), jnp.zeros([]))

  def round(state, cohort):
    # In batches of its own: a phase belongs to one verb.
    sent = cohort.each(local, broadcast=state[0], phase=1)
    found = sent.value["kernel"]  # [C, d, 1]
    seen = jnp.mean(jax.vmap(_density)(found)), _density(found.mean(axis=0))
    inner, reply = algorithm.round(state[0], cohort)
    return (inner, seen), (sent, reply)

  def params(state):
    clients, average = state[1]
    server = _density(algorithm.params(state[0])["kernel"])
    return {"server": server, "clients": clients, "average": average}

  return fo.Algorithm(init, round, params)


def _density(kernel) -> jax.Array:
  return evaluation.density(kernel, _THRESHOLD)


def _evaluate(params, data, test) -> dict[str, jax.Array]:
  del data, test
  return dict(params)
