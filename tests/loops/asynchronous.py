"""Plain loops of the asynchronous boxes: a heap of events, one at a time.

A client works at the moment it is sent out, on the model that is there then;
what it sends lies on the heap until it arrives. The order of events:

  All arrivals of one instant are taken in first, in the order in which they
  were sent out, with the server steps that they complete. Then as many others
  are sent out, with the newest model.

`work(x, client, version, draw) -> x_end` is what a client does; version and
draw (how often it was sent out from that version before) tell its batches.
`choose(in_flight) -> client` is who is sent out next, `duration(client)` for
how long and `is_lost()` whether what it sends is lost on arrival.
"""

import heapq
from typing import NamedTuple

import numpy as np

from tests.loops.rounds import mean


class Sending(NamedTuple):
  """A client that was sent out, and has arrived."""

  client: int
  version: int
  draw: int
  start: float
  end: float
  lost: bool


def events(server, work, choose, duration, is_lost, concurrency, buffer, steps):
  """Server steps of `buffer` arrivals each.

  Args:
    server: has `x`, and `step(updates)`, of (client, start, end, tau).
    work: see above; as are those after it.
    choose: see above.
    duration: see above.
    is_lost: see above.
    concurrency: clients in flight.
    buffer: K.
    steps: of the server.

  Returns:
    The models after each step [steps, d], and the sendings of each, in order.
  """
  heap, flying, drawn, models = [], [], {}, []
  arrived, record, number, now = [], [], 0, 0.0
  missing = concurrency
  while len(models) < steps:
    for _ in range(missing):
      client = choose(flying)
      flying.append(client)
      version = len(models)
      draw = drawn.get((client, version), 0)
      drawn[client, version] = draw + 1
      start = server.x.copy()
      end = work(start, client, version, draw)
      until = now + duration(client)
      sending = Sending(client, version, draw, now, until, is_lost())
      heapq.heappush(heap, (until, number, sending, start, end))
      number += 1
    missing, now = 0, heap[0][0]
    while heap and heap[0][0] == now and len(models) < steps:
      _, _, sending, start, end = heapq.heappop(heap)
      flying.remove(sending.client)
      arrived.append((sending, start, end))
      missing += 1
      if len(arrived) == buffer:
        step = len(models)
        updates = [
          (s.client, start, end, step - s.version)
          for s, start, end in arrived
          if not s.lost
        ]
        if updates:
          server.step(updates)
        models.append(server.x.copy())
        record.append([sending for sending, _, _ in arrived])
        arrived = []
  return np.array(models), record


class FedBuff:
  """w <- server(w, mean_k s(tau_k) (w_start - w_end))."""

  def __init__(self, x, a, server, masses):
    self.x, self.a, self.server, self.masses = x, a, server, masses

  def step(self, updates):
    deltas = [
      (tau + 1) ** -self.a * (start - end) for _, start, end, tau in updates
    ]
    weights = [self.masses[client] for client, *_ in updates]
    if sum(weights):
      self.x = self.server.step(self.x, None, mean(deltas, weights), None)


class FedAsync:
  """w <- (1 - alpha s) w + alpha s w_i, one after the other."""

  def __init__(self, x, alpha, s):
    self.x, self.alpha, self.s = x, alpha, s

  def step(self, updates):
    ((_, _, end, tau),) = updates
    rate = self.alpha * self.s(tau)
    self.x = (1 - rate) * self.x + rate * end


class Ca2fl:
  """v = mean_k (Delta_k - h_k) + mean_N h; w <- w + eta v; h_k <- Delta_k."""

  def __init__(self, x, eta, num_clients):
    self.x, self.eta = x, eta
    self.h = np.zeros((num_clients, len(x)))

  def step(self, updates):
    before = self.h.copy()
    changes = [end - start - before[c] for c, start, end, _ in updates]
    self.x = self.x + self.eta * (np.mean(changes, 0) + before.mean(0))
    for client, start, end, _ in updates:
      self.h[client] = end - start


class Fadas:
  """AMSGrad along the mean; eta / tau_max if the largest tau is above tau_c."""

  def __init__(self, x, eta, b1, b2, eps, tau_c):
    self.x, self.eta, self.b1, self.b2 = x, eta, b1, b2
    self.eps, self.tau_c = eps, tau_c
    self.m = self.v = self.v_max = np.zeros_like(x)

  def step(self, updates):
    delta = np.mean([end - start for _, start, end, _ in updates], 0)
    tau_max = max(tau for *_, tau in updates)
    eta = self.eta
    if self.tau_c is not None and tau_max > self.tau_c:
      eta = self.eta / tau_max
    self.m = self.b1 * self.m + (1 - self.b1) * delta
    self.v = self.b2 * self.v + (1 - self.b2) * delta**2
    self.v_max = np.maximum(self.v_max, self.v)
    self.x = self.x + eta * self.m / (np.sqrt(self.v_max) + self.eps)
