"""Small problems with hand-written NumPy gradients, for the reference loops.

Each problem holds a pool of examples `examples = {'x': [N, p], 'y': [N]}`,
`client_rows` (list of M row arrays of unequal sizes), a start `x0` [d] and
`gradient(x, rows) -> (loss, grad)`: mean of the per-example loss stated in
its docstring. The flat vector has the order of jax.flatten_util.ravel_pytree
on the named dict: keys sorted alphabetically, arrays row by row.
"""

import dataclasses

import numpy as np


@dataclasses.dataclass
class LeastSquares:
  """Convex: loss_n(w) = (x_n^T w - y_n)^2 / 2.

  Flat vector: {'kernel': [p]}, so d = p. y is float.
  """

  examples: dict
  client_rows: list
  x0: np.ndarray

  def gradient(self, w, rows):
    a, y = self.examples["x"][rows], self.examples["y"][rows]
    residual = a @ w - y
    return np.mean(residual**2) / 2, a.T @ residual / len(rows)


@dataclasses.dataclass
class SoftmaxRegression:
  """Strongly convex: loss_n = CE(y_n, x_n W + b) + (l2/2) (||W||^2 + ||b||^2).

  CE is logsumexp(logits) - logits[y]. Flat vector: {'bias': [c],
  'kernel': [p, c]}, so x = (b, W row by row). y is an int in [0, c).
  """

  examples: dict
  client_rows: list
  x0: np.ndarray
  num_classes: int
  l2: float

  def gradient(self, x, rows):
    inputs, y = self.examples["x"][rows], self.examples["y"][rows]
    c = self.num_classes
    bias, kernel = x[:c], x[c:].reshape(-1, c)
    loss, d_logits = _cross_entropy(inputs @ kernel + bias, y)
    grad = np.concatenate([d_logits.sum(0), (inputs.T @ d_logits).ravel()])
    return loss + self.l2 / 2 * np.sum(x**2), grad + self.l2 * x


@dataclasses.dataclass
class SoftplusMlp:
  """Nonconvex and smooth, with features for MOON.

  z = softplus(x W1 + b1), logits = z W2 + b2, loss_n = CE(y_n, logits);
  softplus(a) = log(1 + e^a). Flat vector: {'hidden': {'bias': [h],
  'kernel': [p, h]}, 'output': {'bias': [c], 'kernel': [h, c]}}, so
  x = (b1, W1, b2, W2). y is an int in [0, c).
  """

  examples: dict
  client_rows: list
  x0: np.ndarray
  num_hidden: int
  num_classes: int

  def gradient(self, x, rows):
    return self._backward(x, rows, lambda z: (0.0, np.zeros_like(z)))

  def moon_gradient(self, x, rows, x_global, x_previous, mu, temperature):
    """Adds mu * l_con, l_con = -log(e^s_g / (e^s_g + e^s_p)) per example.

    s_g = cos(z, z_g) / temperature, with z the features of x, z_g those of
    x_global, z_p those of x_previous; the latter two are constants.
    """
    z_g, z_p = self.features(x_global, rows), self.features(x_previous, rows)

    def contrast(z):
      cos_g, d_cos_g = _cosine(z, z_g)
      cos_p, d_cos_p = _cosine(z, z_p)
      gap = (cos_p - cos_g) / temperature
      loss = np.mean(np.logaddexp(0.0, gap))
      d_gap = _sigmoid(gap)[:, None] / temperature / len(rows)
      return mu * loss, mu * d_gap * (d_cos_p - d_cos_g)

    return self._backward(x, rows, contrast)

  def features(self, x, rows):
    """Penultimate features z [b, h]."""
    b1, w1, _, _ = self._split(x)
    return np.logaddexp(0.0, self.examples["x"][rows] @ w1 + b1)

  def _backward(self, x, rows, feature_loss):
    inputs, y = self.examples["x"][rows], self.examples["y"][rows]
    b1, w1, b2, w2 = self._split(x)
    pre = inputs @ w1 + b1
    z = np.logaddexp(0.0, pre)
    loss, d_logits = _cross_entropy(z @ w2 + b2, y)
    extra, d_extra = feature_loss(z)
    d_pre = (d_logits @ w2.T + d_extra) * _sigmoid(pre)
    parts = [d_pre.sum(0), inputs.T @ d_pre, d_logits.sum(0), z.T @ d_logits]
    return loss + extra, np.concatenate([part.ravel() for part in parts])

  def _split(self, x):
    h, c = self.num_hidden, self.num_classes
    p = self.examples["x"].shape[1]
    b1, w1, b2, w2 = np.split(x, np.cumsum([h, p * h, c]))
    return b1, w1.reshape(p, h), b2, w2.reshape(h, c)


def least_squares(seed, dim=5, sizes=(13, 7, 20, 4), noise=0.5):
  """Clients with different minimisers; noise=0 makes one shared by all."""
  rng = np.random.default_rng(seed)
  x, client_rows = _inputs(rng, dim, sizes)
  x = x * np.geomspace(0.3, 1.5, dim)  # curvatures that differ
  y = x @ rng.normal(size=dim)
  for rows in client_rows:
    y[rows] += noise * (x[rows] @ rng.normal(size=dim))
  y += noise * rng.normal(size=len(y))
  return LeastSquares({"x": x, "y": y}, client_rows, rng.normal(size=dim))


def softmax_regression(
  seed, dim=4, num_classes=3, sizes=(13, 7, 20, 4), l2=0.01
):
  rng = np.random.default_rng(seed)
  x, client_rows = _inputs(rng, dim, sizes)
  y = _labels(rng, x, num_classes)
  x0 = 0.3 * rng.normal(size=num_classes * (dim + 1))
  return SoftmaxRegression({"x": x, "y": y}, client_rows, x0, num_classes, l2)


def softplus_mlp(
  seed, dim=4, num_hidden=6, num_classes=3, sizes=(13, 7, 20, 4)
):
  rng = np.random.default_rng(seed)
  x, client_rows = _inputs(rng, dim, sizes)
  y = _labels(rng, x, num_classes)
  d = num_hidden * (dim + 1) + num_classes * (num_hidden + 1)
  x0 = 0.5 * rng.normal(size=d)
  return SoftplusMlp({"x": x, "y": y}, client_rows, x0, num_hidden, num_classes)


def _inputs(rng, dim, sizes):
  """Inputs [N, p] and the clients' rows, which partition a shuffled pool."""
  x = rng.normal(size=(sum(sizes), dim))
  order = rng.permutation(sum(sizes))
  return x, np.split(order, np.cumsum(sizes)[:-1])


def _labels(rng, x, num_classes):
  scores = x @ rng.normal(size=(x.shape[1], num_classes))
  return np.argmax(scores + rng.gumbel(size=scores.shape), 1).astype(np.int32)


def _cross_entropy(logits, y):
  """Mean loss over the batch and its derivative [b, c]."""
  b = len(y)
  log_p = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
  d_logits = np.exp(log_p)
  d_logits[np.arange(b), y] -= 1
  return -np.mean(log_p[np.arange(b), y]), d_logits / b


def _cosine(z, u):
  """cos(z, u) [b] row by row, and its derivative in z [b, h]."""
  norm_z = np.linalg.norm(z, axis=1, keepdims=True)
  norm_u = np.linalg.norm(u, axis=1, keepdims=True)
  cos = np.sum(z * u, axis=1, keepdims=True) / (norm_z * norm_u)
  return cos[:, 0], u / (norm_z * norm_u) - cos * z / norm_z**2


def _sigmoid(a):
  return 1 / (1 + np.exp(-a))
