"""A plain NumPy loop of the algorithm with momenta at server and clients.

Xu and Huang, "Coordinating Momenta for Cross-silo Federated Learning"
(DOMO), AAAI 2022, Algorithm 1. Nothing here comes from the package or from JAX.

Conventions are those of reference.py, and rate is a function `r -> eta` of the
round. Clients may differ in P, which the box does not provide for: what it
calls P m and P d, sums over the local steps, is then what the server keeps and
averages, and P in line 10 is the client's own.
"""

from typing import NamedTuple

import numpy as np

from tests.reference import mean


class Round(NamedTuple):
  """All that happens in a round."""

  x: np.ndarray  # x_{r+1}
  momentum: np.ndarray  # P m_{r+1}
  points: list  # of each client, x_{r,0} (after line 7) to x_{r,P}
  buffers: list  # of each client, m_{r,0} to m_{r,P}


def double_momentum(
  problem, rounds, rate, alpha=1.0, mu_s=0.0, mu_l=0.0, beta=0.0, option="III",
  average_local=False,
):  # fmt: skip
  """Algorithm 1; option "I" is DOMO, "II" DOMO-S and "III" has no fusion.

  Returns:
    A list of this file's `Round`.
  """
  x, zeros, done = problem.x0, np.zeros_like(problem.x0), []
  momentum, local = zeros, zeros
  for r, (_, batches, weights) in enumerate(rounds):
    eta, points, buffers, sums = rate(r), [], [], []
    for steps in batches:
      y, m = x, local if average_local else zeros
      if option == "I" and steps:
        y = y - eta * beta * momentum
      ys, ms = [y], [m]
      for rows in steps:
        m = mu_l * m + problem.gradient(y, rows)[1]
        y = y - eta * m
        if option == "II":
          y = y - eta * beta * momentum / len(steps)
        ys.append(y)
        ms.append(m)
      points.append(ys)
      buffers.append(ms)
      sums.append(sum(ms[1:], zeros))
    momentum = mu_s * momentum + mean(sums, weights)
    x = x - alpha * eta * momentum
    local = mean([ms[-1] for ms in buffers], weights)
    done.append(Round(x, momentum, points, buffers))
  return done
