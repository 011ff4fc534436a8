"""Step rules, of clients and of the server.

A rule has one method, `step(x, loss, grad, objective) -> x_next`, where loss
and grad belong to x on the current batch, and `objective(y) -> (loss, grad)`
evaluates any other point on that SAME batch.
"""

import numpy as np


class Sgd:
  """x <- x - lr g."""

  def __init__(self, lr):
    self.lr = lr

  def step(self, x, loss, grad, objective):
    del loss, objective
    return x - self.lr * grad


class Momentum:
  """Heavy ball as in PyTorch (no dampening): m <- b m + g; x <- x - lr m."""

  def __init__(self, lr, b):
    self.lr, self.b = lr, b
    self.m = 0.0

  def step(self, x, loss, grad, objective):
    del loss, objective
    self.m = self.b * self.m + grad
    return x - self.lr * self.m


class Adam:
  """PyTorch's form: bias-corrected moments, eps outside the square root."""

  def __init__(self, lr, b1=0.9, b2=0.999, eps=1e-8):
    self.lr, self.b1, self.b2, self.eps = lr, b1, b2, eps
    self.m, self.v, self.t = 0.0, 0.0, 0

  def step(self, x, loss, grad, objective):
    del loss, objective
    self.t += 1
    self.m = self.b1 * self.m + (1 - self.b1) * grad
    self.v = self.b2 * self.v + (1 - self.b2) * grad**2
    m_hat = self.m / (1 - self.b1**self.t)
    v_hat = self.v / (1 - self.b2**self.t)
    return x - self.lr * m_hat / (np.sqrt(v_hat) + self.eps)


class Nesterov(Momentum):
  """Nesterov's form of it: m <- b m + g; x <- x - lr (g + b m)."""

  def step(self, x, loss, grad, objective):
    super().step(x, loss, grad, objective)
    return x - self.lr * (grad + self.b * self.m)


class Sam(Sgd):
  """SGD along the gradient at x + rho g / ||g|| (Foret et al., 2021)."""

  def __init__(self, lr, rho):
    super().__init__(lr)
    self.rho = rho

  def step(self, x, loss, grad, objective):
    _, ahead = objective(x + self.rho * grad / np.linalg.norm(grad))
    return super().step(x, loss, ahead, objective)


class AdamW(Adam):
  """Adam whose weights decay beside its step (Loshchilov and Hutter, 2019)."""

  def __init__(self, lr, b1=0.9, b2=0.999, eps=1e-8, weight_decay=1e-4):
    super().__init__(lr, b1, b2, eps)
    self.weight_decay = weight_decay

  def step(self, x, loss, grad, objective):
    stepped = super().step(x, loss, grad, objective)
    return stepped - self.lr * self.weight_decay * x


class Adagrad:
  """PyTorch's form: the sum starts at zero, eps outside the square root."""

  def __init__(self, lr, eps=1e-10, initial_accumulator=0.0):
    self.lr, self.eps = lr, eps
    self.total = initial_accumulator

  def step(self, x, loss, grad, objective):
    del loss, objective
    self.total = self.total + grad**2
    return x - self.lr * grad / (np.sqrt(self.total) + self.eps)


class Yogi:
  """optax's form: Adam with an additive second moment.

  Both moments start at `initial_accumulator` and both are bias-corrected.
  (Reddi et al., FedOpt, Algorithm 2, start m at zero and correct neither.)
  """

  def __init__(self, lr, b1=0.9, b2=0.999, eps=1e-3, initial_accumulator=1e-6):
    self.lr, self.b1, self.b2, self.eps = lr, b1, b2, eps
    self.m, self.v, self.t = initial_accumulator, initial_accumulator, 0

  def step(self, x, loss, grad, objective):
    del loss, objective
    self.t += 1
    g2 = grad**2
    self.m = self.b1 * self.m + (1 - self.b1) * grad
    self.v = self.v - (1 - self.b2) * np.sign(self.v - g2) * g2
    m_hat = self.m / (1 - self.b1**self.t)
    v_hat = self.v / (1 - self.b2**self.t)
    return x - self.lr * m_hat / (np.sqrt(v_hat) + self.eps)


class FedOpt:
  """Reddi et al., FedOpt, Algorithm 2: no bias correction, v from tau^2.

  `kind` is "adam", "yogi" or "adagrad".
  """

  def __init__(self, kind, lr, b1, b2, tau):
    self.kind, self.lr, self.b1, self.b2, self.tau = kind, lr, b1, b2, tau
    self.m, self.v = 0.0, tau**2

  def step(self, x, loss, grad, objective):
    del loss, objective
    g2 = grad**2
    self.m = self.b1 * self.m + (1 - self.b1) * grad
    if self.kind == "adagrad":
      self.v = self.v + g2
    elif self.kind == "yogi":
      self.v = self.v - (1 - self.b2) * g2 * np.sign(self.v - g2)
    else:
      self.v = self.b2 * self.v + (1 - self.b2) * g2
    return x - self.lr * self.m / (np.sqrt(self.v) + self.tau)


class Sps:
  """Stochastic Polyak step: eta = (loss - f_min) / (c ||g||^2 + eps), capped.

  It is 0 where the loss is below f_min.
  """

  def __init__(self, c=0.5, f_min=0.0, max_step=np.inf, eps=1e-8):
    self.c, self.f_min, self.max_step, self.eps = c, f_min, max_step, eps

  def step(self, x, loss, grad, objective):
    del objective
    gap = max(loss - self.f_min, 0.0)
    eta = min(gap / (self.c * np.sum(grad**2) + self.eps), self.max_step)
    return x - eta * grad


class DeltaSgd:
  """Delta-SGD, Algorithm 1 lines 6-10, for one client in one round.

  The first step uses eta_0 exactly. Before step k >= 1, line 9 compares x_k
  with x_{k-1}: both gradients on the current batch, which costs a second
  gradient (the authors' code), or with the stored gradient of x_{k-1} on its
  own batch if `reuse_gradients` (the paper's text). eps is added to the
  minimum only. Where the point or the gradient did not move, the first branch
  is undefined and the step grows.

  Attributes:
    step_sizes: [K] eta_k of every step taken.
    smoothness_branches: [K] gamma dx / (2 dg) before eps; inf where undefined;
      nan at the first step, which no branch decides.
    growth_branches: [K] sqrt(1 + delta theta) eta; nan at the first step.
  """

  def __init__(
    self,
    gamma=2.0,
    delta=0.1,
    eta_0=0.2,
    theta_0=1.0,
    eps=0.0,
    reuse_gradients=False,
  ):
    self.gamma, self.delta, self.eps = gamma, delta, eps
    self.reuse_gradients = reuse_gradients
    self.eta, self.theta = eta_0, theta_0  # line 6
    self.x_prev, self.g_prev = None, None
    self.step_sizes = []
    self.smoothness_branches = []
    self.growth_branches = []

  def step(self, x, loss, grad, objective):
    del loss
    smoothness, growth = np.nan, np.nan
    if self.x_prev is not None:
      g_prev = self.g_prev
      if not self.reuse_gradients:
        _, g_prev = objective(self.x_prev)
      dx = np.linalg.norm(x - self.x_prev)
      dg = np.linalg.norm(grad - g_prev)
      growth = np.sqrt(1 + self.delta * self.theta) * self.eta
      if dx > 0 and dg > 0:
        smoothness = self.gamma * dx / (2 * dg)
        eta = min(smoothness, growth) + self.eps  # line 9
      else:
        smoothness = np.inf
        eta = growth
      self.theta = eta / self.eta  # line 10
      self.eta = eta
    self.step_sizes.append(self.eta)
    self.smoothness_branches.append(smoothness)
    self.growth_branches.append(growth)
    self.x_prev, self.g_prev = x, grad
    return x - self.eta * grad  # line 8


COEFFICIENTS = 3.4445, -4.7750, 2.0315  # Jordan's


def orthogonalized(matrix, eps=1e-8):
  """Five steps of Jordan's quintic Newton-Schulz iteration."""
  a, b, c = COEFFICIENTS
  x = matrix / (np.linalg.norm(matrix) + eps)
  for _ in range(5):
    x = a * x + b * (x @ x.T) @ x + c * (x @ x.T) @ (x @ x.T) @ x
  return x


class Muon:
  """Muon on one matrix, AdamW on all other coordinates, both with Nesterov.

  The momenta are M = b M + (1 - b) G, looked ahead by one step: what is
  orthogonalized is b M' + (1 - b) G', where M' and G' are divided as Adam's
  moments are, M' as of one step later. The step of a matrix of n rows and m
  columns is multiplied with sqrt(max(1, m / n)).

  Args:
    lr: of both.
    beta: b of the matrix; of the rest it is 0.9.
    weight_decay: times lr, of both.
    kernel: a slice, the coordinates of the matrix; None if there is none.
    shape: of the matrix.
  """

  def __init__(self, lr, beta, weight_decay, kernel=None, shape=None):
    self.lr, self.beta, self.weight_decay = lr, beta, weight_decay
    self.kernel, self.shape = kernel, shape
    self.m, self.v, self.t = 0.0, 0.0, 0

  def step(self, x, loss, grad, objective):
    del loss, objective
    b = np.full(len(x), 0.9)
    if self.kernel is not None:
      b[self.kernel] = self.beta
    self.t += 1
    self.m = b * self.m + (1 - b) * grad
    self.v = 0.999 * self.v + 0.001 * grad**2
    ahead = b * self.m / (1 - b ** (self.t + 1))
    ahead = ahead + (1 - b) * grad / (1 - b**self.t)
    direction = ahead / (np.sqrt(self.v / (1 - 0.999**self.t)) + 1e-8)
    if self.kernel is not None:
      rows, columns = self.shape
      matrix = orthogonalized(ahead[self.kernel].reshape(self.shape))
      matrix = matrix * np.sqrt(max(1, columns / rows))
      direction[self.kernel] = matrix.ravel()
    return x - self.lr * (direction + self.weight_decay * x)
