"""The referee checked by closed forms.

All of it is float64 NumPy: a failure here means that a paper was misread, not
that the package is wrong. The theorems are checked on the package.
"""

import numpy as np

from tests import problems, reference


def _sgd(lr):
  return lambda r, client: reference.Sgd(lr)


def test_fed_avg_on_quadratics_equals_matrix_powers():
  problem = problems.least_squares(3)
  lr, steps, weights = 0.1, [3, 0, 5, 1], [1.0, 2.0, 3.0, 4.0]
  rows = problem.client_rows
  batches = [[rows[m]] * steps[m] for m in range(4)]
  rounds = [reference.Round(range(4), batches, weights)] * 2
  x = problem.x0
  for found, _ in reference.fed_avg(problem, rounds, _sgd(lr)):
    local = []
    for m in range(4):
      contraction = np.eye(len(x)) - lr * problem.hessian(rows[m])
      centre = problem.minimiser(rows[m])
      power = np.linalg.matrix_power(contraction, steps[m])
      local.append(centre + power @ (x - centre))
    x = np.average(local, axis=0, weights=weights)
    np.testing.assert_allclose(found, x, rtol=1e-12)


def test_fed_prox_client_converges_to_its_proximal_point():
  problem = problems.least_squares(5)
  rows, mu = problem.client_rows[0], 0.7
  rounds = [reference.Round([0], [[rows] * 400], [1.0])]
  ((x, (trace,)),) = reference.fed_prox(problem, rounds, _sgd(0.2), mu)
  hessian, centre = problem.hessian(rows), problem.minimiser(rows)
  expected = np.linalg.solve(
    hessian + mu * np.eye(len(x)), hessian @ centre + mu * problem.x0
  )
  np.testing.assert_allclose(x, expected, rtol=1e-10)
  loss, _ = problem.gradient(x, rows)
  penalised = loss + mu / 2 * np.sum((x - problem.x0) ** 2)
  np.testing.assert_allclose(trace.losses[-1], penalised, rtol=1e-12)


def test_moon_remembers_each_clients_last_model(monkeypatch):
  problem, seen = problems.softplus_mlp(2), []
  plain = problem.moon_gradient

  def gradient(x, rows, x_global, x_previous, *constants):
    seen.append((x_global, x_previous))
    return plain(x, rows, x_global, x_previous, *constants)

  monkeypatch.setattr(problem, "moon_gradient", gradient)
  rows = problem.client_rows
  rounds = [
    reference.Round(clients, [[rows[m]] for m in clients], [1.0, 1.0])
    for clients in ([0, 1], [1, 2], [0, 2])
  ]
  looped = reference.moon(problem, rounds, _sgd(0.5), 1.0, 0.5)
  xs, traces = zip(*looped, strict=True)
  x_global = [problem.x0, problem.x0, xs[0], xs[0], xs[1], xs[1]]
  last = lambda r, i: traces[r][i].xs[-1]
  x_previous = [*[problem.x0] * 2, last(0, 1), xs[0], last(0, 0), last(1, 1)]
  np.testing.assert_array_equal(
    seen, list(zip(x_global, x_previous, strict=True))
  )


def test_same_batch_variant_takes_both_gradients_on_the_current_batch():
  problem = problems.least_squares(0)
  first, second = problem.client_rows[0], problem.client_rows[1]
  rule = reference.DeltaSgd(2.0, 0.1, 0.2, 1e9)  # growth out of the way
  trace = reference.descend(problem.x0, problem.gradient, [first, second], rule)
  x_0, x_1, x_2 = trace.xs
  g_0, g_1 = (problem.gradient(x, second)[1] for x in (x_0, x_1))
  eta = np.linalg.norm(x_1 - x_0) / np.linalg.norm(g_1 - g_0)
  np.testing.assert_allclose(rule.step_sizes, [0.2, eta], rtol=1e-12)
  np.testing.assert_allclose(x_2, x_1 - eta * g_1, rtol=1e-12)


def test_delta_sgd_grows_without_eps_where_nothing_moves():
  for slope in (1.0, 0.0):  # dg = 0, and dx = 0.
    grad = np.array([slope])
    rule = reference.DeltaSgd(2.0, 1.0, 0.2, 1.0, eps=1e-3)
    linear = lambda x, _, grad=grad: (grad @ x, grad)
    reference.descend(0 * grad, linear, [None] * 2, rule)
    np.testing.assert_allclose(rule.step_sizes, [0.2, 0.2 * np.sqrt(2)])
