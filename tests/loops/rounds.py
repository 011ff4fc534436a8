"""What all loops share: the rounds they are given, and local steps."""

import dataclasses
from typing import NamedTuple


class Round(NamedTuple):
  """The clients of a round whose messages count.

  Attributes:
    clients: their numbers.
    batches: of each, a list over local steps of row arrays; clients may have
      different numbers of steps, also none (then a client returns x_t).
    weights: of each, its weight in the mean; need not sum to one.
  """

  clients: list
  batches: list
  weights: list


@dataclasses.dataclass
class LocalTrace:
  """What one client did in one round.

  Attributes:
    xs: K+1 vectors [d], from the received model to the returned one.
    rule: the rule after its last step, with whatever it recorded.
  """

  xs: list
  rule: object


def descend(x, objective, local_batches, rule):
  """Local steps of one client; objective(x, rows) -> (loss, grad)."""
  trace = LocalTrace([x], rule)
  for rows in local_batches:
    loss, grad = objective(x, rows)
    x = rule.step(x, loss, grad, lambda y, rows=rows: objective(y, rows))
    trace.xs.append(x)
  return trace


def mean(values, weights):
  """sum_i w_i v_i / sum_i w_i."""
  total = sum(w * v for w, v in zip(weights, values, strict=True))
  return total / sum(weights)
