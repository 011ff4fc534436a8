"""Proximal operators: what each promises, and known answers.

All regularizers are one program, which gives their proximal points and their
values at many points and steps. Each test asks it for what it needs.
"""

import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_opt import prox
from tests.helpers.refusals import refusal

PENALTIES = {
  "zero": prox.zero(),
  "l1": prox.l1(0.4),
  "squared_l2": prox.squared_l2(0.4),
  "elastic_net": prox.elastic_net(0.4, 0.3),
  "group_lasso": prox.group_lasso(0.6),
  "group_lasso_columns": prox.group_lasso(0.6, axis=0),
  "nuclear": prox.kernels(prox.nuclear(0.8)),
  "total_variation_1d": prox.total_variation_1d(0.4),
}
CONSTRAINTS = {
  "l1_ball": prox.l1_ball(3.0),
  "l2_ball": prox.l2_ball(2.0),
  "box": prox.box(-0.5, 0.3),
  "simplex": prox.simplex(2.0),
  "non_negative": prox.non_negative(),
}
COMBINED = {
  "scaled": 2 * prox.l1(0.2),
  "each_leaf": prox.each_leaf(prox.l2_ball(1.0)),
  "kernels": prox.kernels(prox.l1_ball(2.0)),
  "sparse_group": prox.group_lasso(0.3) + prox.l1(0.2),
  "non_negative_lasso": prox.l1(0.3) + prox.non_negative(),
  "box_lasso": prox.l1(0.3) + prox.box(-0.2, 0.6),
  "fused_lasso": prox.l1(0.2) + prox.total_variation_1d(0.3),
  "fused_non_negative": (
    prox.non_negative() + prox.l1(0.2) + prox.total_variation_1d(0.3)
  ),
  "fused_box": prox.box(-0.3, 0.5) + prox.total_variation_1d(0.3),
  "group_non_negative": prox.group_lasso(0.3) + prox.non_negative(),
  "lasso_in_ball": prox.l1(0.3) + prox.l2_ball(1.0),
  "fused_in_ball": prox.total_variation_1d(0.3) + prox.l2_ball(1.0),
  "low_rank_in_ball": prox.kernels(prox.nuclear(0.3) + prox.l2_ball(1.0)),
  "chain": (
    prox.l2_ball(1.0)
    + prox.squared_l2(0.2)
    + prox.group_lasso(0.2)
    + prox.l1(0.1)
    + prox.non_negative()
  ),
  "ball_and_square": prox.l1_ball(2.0) + prox.squared_l2(0.3),
}
ALL = PENALTIES | CONSTRAINTS | COMBINED
STEP = 0.7
COUNT, SIZE = 40, 30  # Points of each call, and their entries.


def draw(seed, scale=1.0):
  """Points [COUNT, SIZE], at which each regularizer does something."""
  return np.random.default_rng(seed).normal(size=(COUNT, SIZE)) * scale


def tree_of(point):
  """Two leaves that hold a point."""
  return {"bias": point[:6], "kernel": point[6:].reshape(6, 4)}


def _of_one(psi, point, step):
  tree = tree_of(point)
  new = psi.prox(tree, step)
  leaves = [new["bias"], new["kernel"].reshape(-1)]
  return jnp.concatenate(leaves), psi.value(tree)


@jax.jit
def _compiled(points, steps):
  pairs = zip(ALL.values(), points, strict=True)
  vectorized = lambda psi: jax.vmap(functools.partial(_of_one, psi))
  results = [vectorized(psi)(of_psi, steps) for psi, of_psi in pairs]
  return [jnp.stack(part) for part in zip(*results, strict=True)]


def evaluated(points, step=STEP):
  """Proximal points and values of all regularizers, in float64.

  Args:
    points: [COUNT, SIZE], or of each regularizer its own, [R, COUNT, SIZE].
    step: of the proximal operators.

  Returns:
    [R, COUNT, SIZE] and [R, COUNT].
  """
  with jax.enable_x64(True):
    points = np.broadcast_to(points, (len(ALL), COUNT, SIZE))
    steps = np.broadcast_to(np.float64(step), COUNT)
    return [np.asarray(array) for array in _compiled(points, steps)]


def failing(holds):
  """The regularizers of which something does not hold for all points."""
  return [
    name for name, of_name in zip(ALL, holds, strict=True) if not of_name.all()
  ]


def inner(a, b):
  return np.sum(a * b, axis=-1)


def test_no_other_point_is_better():
  """Strong convexity: J(w) >= J(w*) + ||w - w*||^2 / 2 for every w."""
  z, sizes = draw(0), np.logspace(-4, 0, COUNT)[:, None]
  best, _ = evaluated(z)
  # The prox makes competitors finite: it is a feasible point. Between it and
  # the best point all is feasible, and near to that the first order counts.
  points, _ = evaluated(best + sizes * draw(1))
  steps = sizes * (points - best)
  objective = lambda w: STEP * evaluated(w)[1] + inner(w - z, w - z) / 2
  gaps = objective(best + steps) - objective(best) - inner(steps, steps) / 2
  assert failing(np.isfinite(gaps)) == []
  assert failing(gaps >= -1e-12) == []


@pytest.mark.parametrize("scale", [0.02, 1.0])
def test_step_zero_is_the_identity_or_the_projection(scale):
  z = draw(4, scale)
  points, of_z = evaluated(z, 0.0)
  reprojected, values = evaluated(points, 0.0)
  assert failing(np.isfinite(values)) == []
  assert failing(np.abs(reprojected - points) <= 1e-9) == []
  is_same = (np.abs(points - z) <= 1e-9).all(axis=-1)
  assert failing(is_same | np.isinf(of_z)) == []


def test_not_a_number_is_not_hidden():
  points = draw(5)
  points[:, [0, 6, 7, 8, 9]] = np.nan  # In either leaf.
  points_found, _ = evaluated(points)
  assert failing(np.isnan(points_found).any(axis=-1)) == []


def test_constraints_know_their_set():
  draws = draw(6, 3.0)
  points, values = evaluated(draws)
  _, of_points = evaluated(points)
  assert not set(CONSTRAINTS) & set(failing(np.isinf(values)))
  assert failing(np.isfinite(of_points)) == []

  @jax.jit
  def narrow(z):
    """In float32, of which the projection is inside up to rounding."""
    both_of = lambda psi: (psi.prox(z, STEP), psi.value(psi.prox(z, STEP)))
    tripled = lambda psi: ((3 * psi).prox(z, 0.1), (3 * psi).value(z))
    return {name: (*both_of(p), *tripled(p)) for name, p in CONSTRAINTS.items()}

  for row in narrow(tree_of(np.float32(draws[0]))).values():
    point, value, of_tripled, tripled = row
    assert value == 0
    assert np.isinf(tripled)
    jax.tree.map(np.testing.assert_array_equal, of_tripled, point)


# Of each way to compute; every regularizer widens and narrows alike.
COMPUTED = ["l1", "group_lasso", "nuclear", "total_variation_1d", "fused_lasso"]
COMPUTED += ["l1_ball", "l2_ball", "simplex"]


# Compiled so that nothing is computed in more digits than its type has.
@functools.partial(
  jax.jit, compiler_options={"xla_allow_excess_precision": False}
)
def _computed(tree):
  step = jnp.float64(STEP)
  both_of = lambda psi: (psi.prox(tree, step), psi.value(tree))
  return {name: both_of(ALL[name]) for name in COMPUTED}


@pytest.mark.slow
@pytest.mark.parametrize(
  ("dtype", "atol"), [("bfloat16", 0.02), ("float32", 2e-6)]
)
def test_narrow_leaves_under_x64(dtype, atol):
  with jax.enable_x64(True):
    narrow = tree_of(jnp.asarray(draw(10)[0], dtype))
    wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), narrow)
    actual, expected = _computed(narrow), _computed(wide)
    for name in COMPUTED:
      (points, value), (of_wide, wide_value) = actual[name], expected[name]
      for leaf in points:
        assert points[leaf].dtype == dtype
        difference = np.float64(points[leaf]) - of_wide[leaf]
        assert np.abs(difference).max() <= atol, name
      np.testing.assert_allclose(value, wide_value, rtol=1e-5)


# Known answers, in float32 and point by point.

NUMBERS = np.float32([3.0, -1.0, 0.5])
ROWS = np.float32([[3.0, 4.0], [0.3, 0.4]])
STAIRS = np.float32([0.0, 0.0, 3.0, 3.0, 3.0])
FAR, NEAR = np.float32([3.0, -4.0]), np.float32([1.0, 0.4, -2.0])
DIAGONAL = np.diag(np.float32([3.0, 1.0, 0.2]))

POINTS = [
  (prox.l1(2.0), NUMBERS, 0.5, [2, 0, 0]),
  (prox.squared_l2(1.0), NUMBERS, 0.5, NUMBERS / 2),  # There is no half.
  (prox.elastic_net(2.0, 0.5), NUMBERS, 1.0, [0.5, 0, 0]),
  # Rows by default.
  (prox.group_lasso(1.0), ROWS, 1.0, [[2.4, 3.2], [0, 0]]),
  (prox.nuclear(0.5), DIAGONAL, 1.0, np.diag([2.5, 0.5, 0])),
  (prox.total_variation_1d(1.0), STAIRS, 0.6, [0.3] * 2 + [2.8] * 3),
  (prox.total_variation_1d(1.0), STAIRS, 9.0, 5 * [1.8]),
  (prox.l2_ball(1.0), FAR, 9.0, FAR / 5),
  (prox.l1_ball(1.0), FAR, 9.0, [0, -1]),
  (prox.l1_ball(5.0), FAR, 9.0, [2, -3]),
  (prox.l1_ball(7.0), FAR, 9.0, FAR),
  (prox.simplex(), NEAR, 1.0, [0.8, 0.2, 0]),
  (prox.box(-1, 0.5), NEAR, 1.0, [0.5, 0.4, -1]),
  (prox.box(low=0), NEAR, 1.0, [1, 0.4, 0]),
  (prox.non_negative(), NEAR, 1.0, [1, 0.4, 0]),
]
VALUES = [
  (prox.l1(2.0), NUMBERS, 9.0),
  (prox.squared_l2(2.0), NUMBERS[:2], 20.0),
  (prox.group_lasso(1.0), ROWS, 5.5),
  (prox.group_lasso(1.0, axis=(0, 1)), ROWS, np.linalg.norm(ROWS)),
  (prox.nuclear(0.5), DIAGONAL, 2.1),
  (prox.total_variation_1d(2.0), STAIRS, 6.0),
]


@pytest.mark.quick
def test_known_points_and_values():
  of_points = lambda zs: [
    psi.prox(z, step) for z, (psi, _, step, _) in zip(zs, POINTS, strict=True)
  ]
  of_values = lambda zs: [
    psi.value(z) for z, (psi, *_) in zip(zs, VALUES, strict=True)
  ]
  for table, program in ((POINTS, of_points), (VALUES, of_values)):
    results = jax.jit(program)([row[1] for row in table])
    for (psi, *_, expected), actual in zip(table, results, strict=True):
      np.testing.assert_allclose(
        actual, expected, rtol=1e-6, atol=1e-6, err_msg=psi.kind
      )


def test_the_slope_of_a_norm_at_zero_is_finite():
  slope = jax.jit(jax.grad(prox.group_lasso(1.0).value))(0 * ROWS)
  assert np.isfinite(slope).all()


# Total variation.


@pytest.mark.parametrize("n", [1, 2, 3, 50])
def test_dual_certificate_of_total_variation(n):
  """u = cumsum(z - w) is in [-t, t] everywhere, and +-t where w jumps."""
  noise = np.random.default_rng(n).normal(size=n)
  z = np.stack([noise, np.cumsum(noise), np.round(noise)])  # The last has ties.
  cases = [(line, t) for line in z for t in (0.0, 0.05, 1.0, 30.0)]
  with jax.enable_x64(True):
    minimize = jax.jit(jax.vmap(prox.total_variation_1d(1.0).prox))
    points = minimize(*map(np.array, zip(*cases, strict=True)))
  for (line, t), w in zip(cases, np.asarray(points), strict=True):
    u, jumps = np.cumsum(line - w), np.sign(np.diff(w))
    assert abs(u[-1]) < 1e-10
    assert np.all(np.abs(u) <= t + 1e-10)
    jumping = np.abs(np.diff(w)) > 1e-9
    np.testing.assert_allclose(u[:-1][jumping], -t * jumps[jumping], atol=1e-10)


def test_total_variation_along_either_axis():
  z = jnp.asarray(tree_of(draw(0)[0])["kernel"])
  rows = jax.jit(prox.total_variation_1d(0.4, axis=1).prox)(z, STEP)
  columns = jax.jit(prox.total_variation_1d(0.4).prox)(z.T, STEP)
  np.testing.assert_allclose(rows, columns.T, rtol=1e-6)


def test_total_variation_ends_on_infinite_input():
  z = jnp.array([0.0, jnp.inf, 1.0, -jnp.inf, jnp.nan])
  assert not np.isfinite(prox.total_variation_1d(1.0).prox(z, 1.0)).all()


# Singular values.


def _threshold_by_svd(x, t):
  u, s, vt = np.linalg.svd(np.asarray(x, float), full_matrices=False)
  return (u * np.maximum(s - t, 0)[..., None, :]) @ vt


def _matrices():
  noise = np.random.default_rng(0).normal(size=(5, 32, 32))
  left, right = np.linalg.qr(noise)[0], np.linalg.qr(noise[::-1])[0]
  # Around the threshold 0.1 of the largest.
  crowded = np.append(1, np.linspace(0.09, 0.11, 31))
  return {
    "noise": noise,
    "graded": left * np.logspace(0, -8, 32) @ right,
    "crowded": left * crowded @ right,
    "low_rank": noise[:, :, :3] @ noise[:, :3],
    "rank_1": noise[:, :, :1] @ noise[:, :1],
    "block": 0.01 * noise + np.diag(np.arange(32) < 16),
    "orthogonal": left,
    "zero": 0 * noise,
    "tall": noise[:, :, :5],
    "wide": noise[:, :3],
    "column": noise[:, :, :1],
    "huge": 1e25 * noise,
    "tiny": 1e-25 * noise,
  }


MATRICES = _matrices()
_threshold = jax.jit(jax.vmap(prox.soft_threshold_singular_values, (0, None)))


@pytest.mark.parametrize(
  ("dtype", "tolerance", "names"),
  [
    ("float32", 2e-6, [*MATRICES]),
    ("float64", 1e-13, ["noise", "graded", "crowded"]),
  ],
)
def test_singular_values_equal_to_a_decomposition(dtype, tolerance, names):
  with jax.enable_x64(dtype == "float64"):
    for name in names:
      x = jnp.asarray(MATRICES[name], dtype)
      largest = np.linalg.norm(np.asarray(x, float), 2, axis=(1, 2)).max()
      for relative in (0, 1e-7, 1e-5, 1e-4, 1e-2, 0.1, 0.5, 0.999, 1, 2, 1e6):
        t = relative * largest
        error = np.abs(_threshold(x, t) - _threshold_by_svd(x, t)).max()
        assert error <= tolerance * largest, (name, relative, error / largest)


def test_singular_values_of_lists_and_of_an_empty_matrix():
  matrix = prox.soft_threshold_singular_values([[3, 0], [0, 1]], 0.5)
  np.testing.assert_allclose(matrix, [[2.5, 0], [0, 0.5]], atol=1e-6)
  for shape in ((0, 3), (3, 0)):
    empty = jnp.zeros(shape)
    assert prox.nuclear(1.0).prox(empty, 1.0).shape == shape
    assert not prox.nuclear(1.0).value(empty)


def test_all_below_the_threshold_is_exactly_zero():
  x = jnp.asarray(MATRICES["noise"], jnp.float32)
  np.testing.assert_array_equal(_threshold(x, 100.0), 0)


# Some leaves only.


def test_kernels_are_taken_one_by_one_and_biases_never():
  rng = np.random.default_rng(0)
  kernel = lambda: jnp.asarray(rng.normal(size=(3, 3)), jnp.float32)
  tree = {name: {"kernel": kernel(), "bias": 9 * jnp.ones(3)} for name in "ab"}
  psi = prox.kernels(prox.l2_ball(1.0))
  assert np.isinf(psi.value(tree))
  w = psi.prox(tree, 1.0)
  assert psi.value(w) == 0
  for layer in "ab":
    np.testing.assert_array_equal(w[layer]["bias"], 9)
    np.testing.assert_allclose(np.linalg.norm(w[layer]["kernel"]), 1, rtol=1e-6)
  by_value = prox.kernels(prox.l1(0.5)).value(tree)
  expected = 0.5 * sum(abs(tree[layer]["kernel"]).sum() for layer in "ab")
  np.testing.assert_allclose(by_value, expected, rtol=1e-6)


def test_on_leaves_is_joint():
  tree = {"a": jnp.array([3.0]), "b": jnp.array([4.0]), "c": jnp.array([7.0])}
  psi = prox.on_leaves(prox.l2_ball(1.0), lambda path, leaf: path != ("c",))
  w = psi.prox(tree, 1.0)
  np.testing.assert_allclose(
    [w["a"][0], w["b"][0], w["c"][0]], [0.6, 0.8, 7.0], rtol=1e-6
  )


def test_sums_whose_prox_is_not_known():
  ball, l1 = prox.l2_ball(1.0), prox.l1(1.0)
  for name, first, second in (
    ("nuclear + l1", prox.nuclear(1.0), l1),
    ("box + l2_ball", prox.box(0, 1), ball + l1),
  ):
    line = refusal(operator.add, first, second)
    assert line.startswith(f"{name}: the prox of this sum is not known")
  line = refusal(operator.add, prox.kernels(l1), prox.kernels(ball))
  assert line.endswith("restrict the sum: kernels(a + b)")
