"""Plain NumPy of what clients send, and of what the server makes of it.

u: float64 vector [d]. Draws are
given: `indices` [k] of random-k, `uniforms` [d] of quantization.
"""

import math

import numpy as np


def top_k(u, k):
  sent = np.zeros_like(u)
  for j in np.argsort(-np.abs(u), kind="stable")[:k]:
    sent[j] = u[j]
  return sent


def random_k(u, indices, is_scaled):
  sent = np.zeros_like(u)
  for j in indices:
    sent[j] = u[j] * (len(u) / len(indices) if is_scaled else 1)
  return sent


def sign(u):
  return np.sum(np.abs(u)) / len(u) * np.sign(u)


def quantize(u, levels, uniforms, is_contraction):
  norm, sent = math.sqrt(sum(u**2)), np.zeros_like(u)
  for j in range(len(u)):
    if u[j] == 0:
      continue
    exact = levels * abs(u[j]) / norm
    below = math.floor(exact)
    level = below + (uniforms[j] >= 1 - (exact - below))
    sent[j] = norm * np.sign(u[j]) * level / levels
  if is_contraction:
    sent /= 1 + min(len(u) / levels**2, math.sqrt(len(u)) / levels)
  return sent


class ErrorFeedback:
  """What clients send with a memory: `compress(v, r, client)` of all they owe.

  Attributes:
    errors: [R, M, d], what each client has not sent yet, after each round.
  """

  def __init__(self, compress, num_clients):
    self.compress, self.num_clients = compress, num_clients
    self.errors = []

  def __call__(self, u, r, client):
    while len(self.errors) <= r:
      before = self.errors or [np.zeros((self.num_clients, len(u)))]
      self.errors.append(before[-1].copy())
    owed = u + self.errors[r][client]
    sent = self.compress(owed, r, client)
    self.errors[r][client] = owed - sent
    return sent


# ------------------------------------------------ How the server combines it
# All take messages [n, d].


def median(sent):
  return np.median(sent, axis=0)


def trimmed_mean(sent, share):
  """Without that share of the entries of each coordinate, at both ends."""
  n, sent = len(sent), np.sort(sent, axis=0)
  cut = int(share * n + 1e-9)
  return np.mean(sent[cut : n - cut], axis=0)


def multi_krum(sent, faulty=1):
  n, scores = len(sent), []
  for i in range(n):
    distances = [np.sum((sent[i] - sent[j]) ** 2) for j in range(n) if j != i]
    scores.append(sum(sorted(distances)[: max(n - faulty - 2, 1)]))
  best = np.argsort(scores, kind="stable")[: max(n - faulty, 1)]
  return np.mean(np.array(sent)[best], axis=0)
