"""Plain loops of the composite boxes: the referee for F + psi.

Yuan et al., "Federated Composite Optimization", ICML 2021, Algorithms 2-5, the
subgradient FedAvg of its code, and the sequential methods these are made of.
Conventions are those of reference.py, and besides:
  psi: has `prox(x, step)`, the argmin over w of step psi(w) + ||w - x||^2 / 2;
    x is the flat vector [d] of all parameters.
  h: has `grad(w)`, the dual point, and `primal(z, step, psi)`, the gradient of
    (h + step psi)^* at z.
  client_lr: eta_c, a number, or a function `(r, k) -> eta` of round and step.
  server_lr: eta_s.

Clients may take different numbers of steps K_m. Where the boxes have eta_c K,
the server takes the weighted mean of its clients' sums of rates, eta_c K_m.
"""

import numpy as np

from tests.loops.rounds import mean

# --------------------------------------------------------------- Regularizers


class Zero:
  """psi = 0."""

  def prox(self, x, step):
    return x


class OnSlice:
  """A regularizer of the entries x[part] alone: the kernel, never the bias."""

  def __init__(self, part):
    self.part = part

  def prox(self, x, step):
    x = x.copy()
    x[self.part] = self.prox_of(x[self.part], step)
    return x


class L1(OnSlice):
  """strength * ||w||_1."""

  def __init__(self, part, strength):
    super().__init__(part)
    self.strength = strength

  def prox_of(self, w, step):
    return np.sign(w) * np.maximum(np.abs(w) - step * self.strength, 0)


class Nuclear(OnSlice):
  """strength * the sum of singular values of w as a matrix of this shape."""

  def __init__(self, part, shape, strength):
    super().__init__(part)
    self.shape, self.strength = shape, strength

  def prox_of(self, w, step):
    u, s, vt = np.linalg.svd(w.reshape(self.shape), full_matrices=False)
    return (u * np.maximum(s - step * self.strength, 0) @ vt).ravel()


class L2Ball(OnSlice):
  """The constraint ||w|| <= radius."""

  def __init__(self, part, radius):
    super().__init__(part)
    self.radius = radius

  def prox_of(self, w, step):
    return w / max(1, np.linalg.norm(w) / self.radius)


class L1Ball(OnSlice):
  """The constraint ||w||_1 <= radius."""

  def __init__(self, part, radius):
    super().__init__(part)
    self.radius = radius

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
# Each yields after every round the evaluated model.


def _rate_fn(lr):
  return lr if callable(lr) else lambda r, k: lr


def fed_avg_subgradient(problem, rounds, strength, part, client_lr, server_lr):
  """FedAvg whose clients take a subgradient step of the l1 norm as well.

  w' = w - eta_c g, then w'[part] - eta_c lambda sign(w'[part]).
  """
  rate = _rate_fn(client_lr)
  x = problem.x0
  for r, (_, batches, weights) in enumerate(rounds):
    returned = []
    for steps in batches:
      w = x
      for k, rows in enumerate(steps):
        w = w - rate(r, k) * problem.gradient(w, rows)[1]
        w[part] = w[part] - rate(r, k) * strength * np.sign(w[part])
      returned.append(w)
    x = x + server_lr * (mean(returned, weights) - x)
    yield (x,)


def fed_mid(
  problem, rounds, psi, client_lr, server_lr, only_server_prox=False, h=None
):
  """FedMiD (Algorithm 2), and FedMiD-OSP (Algorithm 4).

  The pseudo-gradient Delta_r is a difference of primal points, for any h.
  """
  h = h or Euclidean()
  rate = _rate_fn(client_lr)
  client_psi = Zero() if only_server_prox else psi
  x = h.primal(h.grad(problem.x0), 0.0, psi)  # w_0 in dom psi
  for r, (_, batches, weights) in enumerate(rounds):
    deltas, elapsed = [], []
    for steps in batches:
      w, local_elapsed = x, 0.0
      for k, rows in enumerate(steps):
        g, eta = problem.gradient(w, rows)[1], rate(r, k)
        w = h.primal(h.grad(w) - eta * g, eta, client_psi)  # line 8
        local_elapsed = local_elapsed + eta
      deltas.append(w - x)
      elapsed.append(local_elapsed)
    delta = mean(deltas, weights)  # line 9
    step = server_lr * mean(elapsed, weights)
    x = h.primal(h.grad(x) + server_lr * delta, step, psi)  # line 10
    yield (x,)


def fed_dual_avg(
  problem, rounds, psi, client_lr, server_lr, only_server_prox=False, h=None
):
  """FedDualAvg (Algorithm 3), and FedDualAvg-OSP (Algorithm 5).

  Yields besides the clients' dual points z_{r,0} to z_{r,K}.
  """
  h = h or Euclidean()
  rate = _rate_fn(client_lr)
  z, elapsed = h.grad(problem.x0), 0.0  # line 2
  for r, (_, batches, weights) in enumerate(rounds):
    sums, paths = [], []
    for steps in batches:
      local_elapsed, path = 0.0, [z]
      for k, rows in enumerate(steps):
        if only_server_prox:
          w = h.primal(path[k], 0.0, Zero())
        else:
          w = h.primal(path[k], elapsed + local_elapsed, psi)  # lines 8-9
        path.append(path[k] - rate(r, k) * problem.gradient(w, rows)[1])  # 11
        local_elapsed = local_elapsed + rate(r, k)
      sums.append(local_elapsed)
      paths.append(path)
    delta = mean([path[-1] - z for path in paths], weights)
    z = z + server_lr * delta  # lines 12-13
    elapsed += server_lr * mean(sums, weights)
    yield h.primal(z, elapsed, psi), paths  # line 14


def averaged_iterate(duals, rounds, psi, client_lr, server_lr):
  """Equation 4.4 after each round: the mean of primal images of dual means.

  (1 / (r K)) sum over the rounds so far and over k = 1..K of the primal image
  of zbar_{r,k} with the weight eta_s eta_c r K + eta_c k.

  `duals` are those of `fed_dual_avg`; all clients took as many steps.
  """
  images, means = [], []
  for r, (paths, (_, _, weights)) in enumerate(zip(duals, rounds, strict=True)):
    num_steps = len(paths[0]) - 1
    for k in range(1, num_steps + 1):
      z = mean([path[k] for path in paths], weights)
      step = server_lr * client_lr * r * num_steps + client_lr * k
      images.append(psi.prox(z, step))
    means.append(sum(images) / len(images))
  return means


# ---------------------------------------------------------- Sequential methods
# These return the list of points after each step.


def proximal_gradient(problem, all_rows, psi, lr):
  """w <- the proximal point of w - eta g, with weight eta."""
  x, xs = problem.x0, []
  for rows in all_rows:
    x = psi.prox(x - lr * problem.gradient(x, rows)[1], lr)
    xs.append(x)
  return xs


def fista(problem, rows, psi, lr, tries):
  """The minimiser of F + psi on these rows, by accelerated proximal gradient.

  Momentum starts anew whenever it points uphill. Stops after so many tries. A
  step is halved, and tried again, while the gradients at its ends do not allow
  it: 2 eta <y' - y, g(y') - g(y)> must be at most ||y' - y||^2.
  """
  x, y, t = problem.x0, problem.x0, 1.0
  for _ in range(tries):
    grad = problem.gradient(y, rows)[1]
    new = psi.prox(y - lr * grad, lr)
    change = problem.gradient(new, rows)[1] - grad
    if 2 * lr * (new - y) @ change > np.sum((new - y) ** 2):
      lr /= 2
      continue
    if np.sum((y - new) * (new - x)) > 0:
      t = 1.0
    following = (1 + np.sqrt(1 + 4 * t**2)) / 2
    y, x, t = new + (t - 1) / following * (new - x), new, following
  return x
