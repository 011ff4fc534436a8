"""Plain NumPy of what clients send, and FedAvg with it.

Nothing comes from the package or from JAX. u: float64 vector [d]. Draws are
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


def fed_avg(
  x0, gradient, cohorts, batches, weights, lr, compress, num_clients, feedback
):
  """FedAvg whose clients send `compress(v, r, client)`.

  Returns:
    xs, and the errors [M, d] of all clients after the last round.
  """
  x, xs = x0, []
  errors = np.zeros((num_clients, len(x0)))
  for r, cohort in enumerate(cohorts):
    sent = []
    for client, steps in zip(cohort, batches[r], strict=True):
      y = x
      for rows in steps:
        y = y - lr * gradient(y, rows)[1]
      v = y - x + (errors[client] if feedback else 0)
      sent.append(compress(v, r, client))
      errors[client] = v - sent[-1]
    x = x + np.average(sent, axis=0, weights=weights[r])
    xs.append(x)
  return xs, errors
