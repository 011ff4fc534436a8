"""FedAvg, and what changes the objective of its clients alone.

Each loop yields after every round the model, and the `LocalTrace` of each
client of the round.
"""

import copy

import numpy as np

from tests.loops.rounds import descend, mean
from tests.loops.rules import Sgd


def fed_avg(
  problem,
  rounds,
  make_rule,
  server=None,
  objective=lambda x_t, last: None,
  send=lambda delta, r, client: delta,
  combine=mean,
):
  """FedAvg with any client and server rule (FedAvgM, FedAdam, FedYogi, ...).

  Args:
    problem: see above; so are `rounds`, `make_rule` and `server`.
    objective: `(x_t, last) -> (x, rows) -> (loss, grad)`, what a client
      minimizes instead of its loss, where `last` is what it returned when it
      last took part (with however few steps), x_t if it never did.
    send: what a client sends of its difference.
    combine: `(messages, weights) -> message`.
  """
  server = copy.deepcopy(server or Sgd(1.0))
  x, last = problem.x0, {}
  for r, (clients, batches, weights) in enumerate(rounds):
    traces, sent = [], []
    for client, steps in zip(clients, batches, strict=True):
      local = objective(x, last.get(client, x)) or problem.gradient
      traces.append(descend(x, local, steps, make_rule(r, client)))
      last[client] = traces[-1].xs[-1]
      sent.append(send(last[client] - x, r, client))
    x = server.step(x, None, -combine(sent, weights), None)
    yield x, traces


def fed_prox(problem, rounds, make_rule, mu, server=None):
  """FedProx: clients descend F_i(x) + (mu/2) ||x - x_t||^2.

  The term is part of the objective, so that a rule which looks at losses or
  at a second gradient sees it there too.
  """

  def objective(x_t, last):
    def of(y, rows):
      loss, grad = problem.gradient(y, rows)
      return loss + mu / 2 * np.sum((y - x_t) ** 2), grad + mu * (y - x_t)

    return of

  return fed_avg(problem, rounds, make_rule, server, objective)


def moon(problem, rounds, make_rule, mu, temperature):
  """MOON: every client is pulled to the global and off its own last model."""

  def objective(x_t, last):
    return lambda y, rows: problem.moon_gradient(
      y, rows, x_t, last, mu, temperature
    )

  return fed_avg(problem, rounds, make_rule, objective=objective)
