"""Plain NumPy loops of the composite boxes: the referee for F + psi.

Yuan et al., "Federated Composite Optimization", ICML 2021, Algorithms 2-5, the
subgradient FedAvg of its code, and the sequential methods these are made of.
Nothing here comes from the package or from JAX.

Conventions are those of reference.py (x0, gradient, cohorts, batches, weights),
and besides:
  psi: has `value(x)` and `prox(x, step)`, the argmin over w of
    step psi(w) + ||w - x||^2 / 2; x is the flat vector [d] of all parameters.
  h: has `grad(w)`, the dual point, and `primal(z, step, psi)`, the gradient of
    (h + step psi)^* at z.
  client_lr: eta_c, a number, or a function `(r, k) -> eta` of round and step.
  server_lr: eta_s.

Clients may take different numbers of steps K_m. Where the boxes have eta_c K,
the server takes the weighted mean of its clients' sums of rates, eta_c K_m.
"""

import numpy as np

from tests.reference import weighted_mean

# --------------------------------------------------------------- Regularizers


class Zero:
  """psi = 0."""

  def value(self, x):
    return 0.0

  def prox(self, x, step):
    return x


class OnSlice:
  """A regularizer of the entries x[part] alone: the kernel, never the bias."""

  def __init__(self, part):
    self.part = part

  def value(self, x):
    return self.value_of(x[self.part])

  def prox(self, x, step):
    x = x.copy()
    x[self.part] = self.prox_of(x[self.part], step)
    return x


class L1(OnSlice):
  """strength * ||w||_1."""

  def __init__(self, part, strength):
    super().__init__(part)
    self.strength = strength

  def value_of(self, w):
    return self.strength * np.sum(np.abs(w))

  def prox_of(self, w, step):
    return np.sign(w) * np.maximum(np.abs(w) - step * self.strength, 0)


class Nuclear(OnSlice):
  """strength * the sum of singular values of w as a matrix of this shape."""

  def __init__(self, part, shape, strength):
    super().__init__(part)
    self.shape, self.strength = shape, strength

  def value_of(self, w):
    s = np.linalg.svd(w.reshape(self.shape), compute_uv=False)
    return self.strength * np.sum(s)

  def prox_of(self, w, step):
    u, s, vt = np.linalg.svd(w.reshape(self.shape), full_matrices=False)
    return (u * np.maximum(s - step * self.strength, 0) @ vt).ravel()


class L2Ball(OnSlice):
  """The constraint ||w|| <= radius."""

  def __init__(self, part, radius):
    super().__init__(part)
    self.radius = radius

  def value_of(self, w):
    return 0.0 if np.linalg.norm(w) <= self.radius * (1 + 1e-12) else np.inf

  def prox_of(self, w, step):
    return w / max(1, np.linalg.norm(w) / self.radius)


class L1Ball(OnSlice):
  """The constraint ||w||_1 <= radius."""

  def __init__(self, part, radius):
    super().__init__(part)
    self.radius = radius

  def value_of(self, w):
    return 0.0 if np.sum(np.abs(w)) <= self.radius * (1 + 1e-12) else np.inf

  def prox_of(self, w, step):
    if np.sum(np.abs(w)) <= self.radius:
      return w
    u = np.sort(np.abs(w))[::-1]
    excess = np.cumsum(u) - self.radius
    j = np.arange(1, len(u) + 1)
    last = np.flatnonzero(j * u > excess)[-1]
    theta = excess[last] / j[last]
    return np.sign(w) * np.maximum(np.abs(w) - theta, 0)


# ---------------------------------------------------------------- Mirror maps


class Euclidean:
  """h(w) = ||w||^2 / 2."""

  def grad(self, w):
    return w

  def primal(self, z, step, psi):
    return psi.prox(z, step)


class Entropy:
  """h(w) = sum_i w_i log w_i on the simplex; psi is constant there."""

  def grad(self, w):
    return 1 + np.log(w)

  def primal(self, z, step, psi):
    del step, psi
    w = np.exp(z - np.max(z))
    return w / np.sum(w)


# ----------------------------------------------------------- Federated methods
# Each returns (xs, points): xs[r] is the evaluated model after round r, and
# points[r][i] the primal points at which the i-th client of the round asked
# for gradients, w_{r,0} to w_{r,K-1}.


def _rate_fn(lr):
  return lr if callable(lr) else lambda r, k: lr


def fed_avg_subgradient(
  x0, gradient, cohorts, batches, weights, strength, part, client_lr, server_lr
):
  """FedAvg whose clients take a subgradient step of the l1 norm as well.

  w' = w - eta_c g, then w'[part] - eta_c lambda sign(w'[part]).
  """
  rate = _rate_fn(client_lr)
  x, xs, points = x0, [], []
  for r, cohort in enumerate(cohorts):
    returned, asked = [], []
    for i in range(len(cohort)):
      w, at = x.copy(), []
      for k, rows in enumerate(batches[r][i]):
        at.append(w)
        w = w - rate(r, k) * gradient(w, rows)[1]
        w[part] = w[part] - rate(r, k) * strength * np.sign(w[part])
      returned.append(w)
      asked.append(at)
    x = x + server_lr * (weighted_mean(returned, weights[r]) - x)
    xs.append(x)
    points.append(asked)
  return xs, points


def fed_mid(
  x0,
  gradient,
  cohorts,
  batches,
  weights,
  psi,
  client_lr,
  server_lr,
  only_server_prox=False,
  h=None,
):
  """FedMiD (Algorithm 2), and FedMiD-OSP (Algorithm 4).

  The pseudo-gradient Delta_r is a difference of primal points, for any h.
  """
  h = h or Euclidean()
  rate = _rate_fn(client_lr)
  client_psi = Zero() if only_server_prox else psi
  x, xs, points = h.primal(h.grad(x0), 0.0, psi), [], []  # w_0 in dom psi
  for r, cohort in enumerate(cohorts):
    deltas, elapsed, asked = [], [], []
    for i in range(len(cohort)):
      w, at = x, []
      for k, rows in enumerate(batches[r][i]):
        at.append(w)
        g = gradient(w, rows)[1]
        eta = rate(r, k)
        w = h.primal(h.grad(w) - eta * g, eta, client_psi)  # line 8
      deltas.append(w - x)
      elapsed.append(sum(rate(r, k) for k in range(len(batches[r][i]))))
      asked.append(at)
    delta = weighted_mean(deltas, weights[r])  # line 9
    step = server_lr * weighted_mean(np.array(elapsed, float), weights[r])
    x = h.primal(h.grad(x) + server_lr * delta, step, psi)  # line 10
    xs.append(x)
    points.append(asked)
  return xs, points


def fed_dual_avg(
  x0,
  gradient,
  cohorts,
  batches,
  weights,
  psi,
  client_lr,
  server_lr,
  only_server_prox=False,
  h=None,
  duals=None,
):
  """FedDualAvg (Algorithm 3), and FedDualAvg-OSP (Algorithm 5).

  Args:
    duals: a list that gets, for each round, the clients' dual points
      z_{r,0} to z_{r,K}, a list of lists.
  """
  h = h or Euclidean()
  rate = _rate_fn(client_lr)
  z, elapsed, xs, points = h.grad(x0), 0.0, [], []  # line 2
  for r, cohort in enumerate(cohorts):
    sums, asked, paths = [], [], []
    for i in range(len(cohort)):
      own, path, at = 0.0, [z], []
      for k, rows in enumerate(batches[r][i]):
        if only_server_prox:
          w = h.primal(path[k], 0.0, Zero())
        else:
          w = h.primal(path[k], elapsed + own, psi)  # lines 8-9
        at.append(w)
        path.append(path[k] - rate(r, k) * gradient(w, rows)[1])  # 10-11
        own = own + rate(r, k)
      sums.append(own)
      asked.append(at)
      paths.append(path)
    delta = weighted_mean([path[-1] - z for path in paths], weights[r])
    z = z + server_lr * delta  # lines 12-13
    elapsed += server_lr * weighted_mean(np.array(sums, float), weights[r])
    xs.append(h.primal(z, elapsed, psi))  # line 14
    points.append(asked)
    if duals is not None:
      duals.append(paths)
  return xs, points


def averaged_iterate(duals, weights, psi, client_lr, server_lr=1.0, h=None):
  """Equation 4.4 after each round: the mean of primal images of dual means.

  (1 / (r K)) sum over the rounds so far and over k = 1..K of the primal image
  of zbar_{r,k} with the weight eta_s eta_c r K + eta_c k.

  Args:
    duals: of `fed_dual_avg`; all clients took the same number of steps.
  """
  h = h or Euclidean()
  images, means = [], []
  for r, paths in enumerate(duals):
    num_steps = len(paths[0]) - 1
    for k in range(1, num_steps + 1):
      mean = weighted_mean([path[k] for path in paths], weights[r])
      step = server_lr * client_lr * r * num_steps + client_lr * k
      images.append(h.primal(mean, step, psi))
    means.append(sum(images) / len(images))
  return means


# ---------------------------------------------------------- Sequential methods
# These return the list of points after each step.


def proximal_gradient(x0, gradient, all_rows, psi, lr, h=None):
  """w <- the primal image of grad h(w) - eta g, with weight eta."""
  h = h or Euclidean()
  x, xs = x0, []
  for rows in all_rows:
    x = h.primal(h.grad(x) - lr * gradient(x, rows)[1], lr, psi)
    xs.append(x)
  return xs


def dual_averaging(x0, gradient, all_rows, psi, lr, h=None):
  """z <- z - eta g at the primal image of z with weight eta t; t = 0, 1, ..."""
  h = h or Euclidean()
  z, xs = h.grad(x0), []
  for t, rows in enumerate(all_rows):
    w = h.primal(z, lr * t, psi)
    z = z - lr * gradient(w, rows)[1]
    xs.append(h.primal(z, lr * (t + 1), psi))
  return xs


def fista(x0, gradient, rows, psi, lr, tolerance=1e-13, max_steps=100_000):
  """The minimiser of F + psi on these rows, by accelerated proximal gradient.

  Momentum starts anew whenever it points uphill. Stops where a proximal step
  moves the point by at most `tolerance * lr`.
  """
  x, y, t = x0, x0, 1.0
  for _ in range(max_steps):
    new = psi.prox(y - lr * gradient(y, rows)[1], lr)
    if np.linalg.norm(new - y) <= tolerance * lr:
      return new
    if np.sum((y - new) * (new - x)) > 0:
      t = 1.0
    following = (1 + np.sqrt(1 + 4 * t**2)) / 2
    y, x, t = new + (t - 1) / following * (new - x), new, following
  raise AssertionError("did not converge")


def fista_of_any_step(x0, gradient, rows, psi, tries, step=1024.0):
  """The point after some proximal steps of `fista`, accepted or not.

  A step is halved, and tried again, while the gradients at its ends do not
  allow it: 2 eta <y' - y, g(y') - g(y)> must be at most ||y' - y||^2.
  """
  x, y, t = x0, x0, 1.0
  for _ in range(tries):
    grad = gradient(y, rows)[1]
    new = psi.prox(y - step * grad, step)
    change = gradient(new, rows)[1] - grad
    if 2 * step * np.sum((new - y) * change) > np.sum((new - y) ** 2):
      step /= 2
      continue
    if np.sum((y - new) * (new - x)) > 0:
      t = 1.0
    following = (1 + np.sqrt(1 + 4 * t**2)) / 2
    y, x, t = new + (t - 1) / following * (new - x), new, following
  return x
