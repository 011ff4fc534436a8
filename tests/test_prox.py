import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_opt import prox

# A step, and a point of two leaves that makes each regularizer do something.
STEP = 0.7


def _numbers(seed=0, scale=1.0):
  rng = np.random.default_rng(seed)
  draw = lambda *shape: np.float32(scale * rng.normal(size=shape))
  return {"bias": draw(6), "kernel": draw(6, 4)}


def _tree(seed=0, scale=1.0):
  return jax.tree.map(jnp.asarray, _numbers(seed, scale))


def _flat(tree):
  return np.concatenate(
    [np.ravel(x) for x in jax.tree.leaves(tree)], dtype=float
  )


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
JITTED = {name: jax.jit(psi.prox) for name, psi in ALL.items()}
# Compiled so that nothing is computed in more digits than its type has.
_as_written = functools.partial(
  jax.jit, compiler_options={"xla_allow_excess_precision": False}
)
each_regularizer = pytest.mark.parametrize("name", ALL)


def _assert_close(found, expected, atol=2e-6):
  close = lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=atol)
  jax.tree.map(close, found, expected)


class TestProximalOperator:
  """Contracts of every regularizer."""

  # Restrictions and multiples of these are below.
  @pytest.mark.parametrize(
    "name", [n for n in ALL if n not in ("scaled", "each_leaf", "kernels")]
  )
  def test_no_other_point_is_better(self, name):
    """Strong convexity: J(w) >= J(w*) + ||w - w*||^2 / 2 for every w."""
    psi = ALL[name]

    def objective(w, z):
      square = optax.tree.norm(optax.tree.sub(w, z), squared=True)
      return STEP * psi.value(w) + square / 2

    @jax.jit
    def gaps(z, keys, sizes):
      best = psi.prox(z, STEP)

      def gap(key, size):
        # The prox makes competitors finite: it is a feasible point. Between it
        # and the best point all is feasible, and near to that the first order
        # counts.
        noise = optax.tree.random_like(key, z, jax.random.normal)
        other = psi.prox(optax.tree.add_scale(best, size, noise), STEP)
        away = optax.tree.scale(size, optax.tree.sub(other, best))
        value = objective(optax.tree.add(best, away), z)
        square = optax.tree.norm(away, squared=True)
        return value - objective(best, z) - square / 2

      return jax.vmap(gap)(keys, sizes)

    with jax.enable_x64(True):
      z = optax.tree.cast(_tree(), jnp.float64)
      keys = jax.random.split(jax.random.key(0), 200)
      found = np.asarray(gaps(z, keys, jnp.logspace(-4, 0, 200)))
    assert np.all(np.isfinite(found))
    assert np.all(found >= -1e-12), found.min()

  @each_regularizer
  def test_firmly_non_expansive(self, name):
    for seed, scale in enumerate([0.1, 0.1, 1.0, 1.0, 1.0, 1.0, 10.0, 10.0]):
      z, y = _numbers(2 * seed, scale), _numbers(2 * seed + 1, scale)
      ends = (JITTED[name](x, STEP) for x in (z, y))
      moved = np.subtract(*map(_flat, ends))
      inner = moved @ (_flat(z) - _flat(y))
      assert moved @ moved <= inner + 1e-5 * (scale + scale**2)

  @pytest.mark.parametrize("name", ["nuclear", "l1_ball", "total_variation_1d"])
  def test_maps_over_steps(self, name):
    steps = jnp.array([0.1, 0.7])
    mapped = jax.jit(jax.vmap(ALL[name].prox, (None, 0)))(_tree(), steps)
    for i, step in enumerate(steps):
      one = jax.tree.map(lambda leaf, i=i: leaf[i], mapped)
      _assert_close(one, JITTED[name](_tree(), step))

  @pytest.mark.parametrize(
    ("name", "dtype"),
    [
      *[(name, "bfloat16") for name in PENALTIES | CONSTRAINTS],
      *[(name, "float32") for name in ("l1_ball", "nuclear", "fused_lasso")],
    ],
  )
  def test_narrow_leaves_under_x64(self, name, dtype):
    narrow = optax.tree.cast(_tree(), dtype)
    with jax.enable_x64(True):
      wide = optax.tree.cast(narrow, jnp.float64)
      atol = {"bfloat16": 0.02, "float32": 2e-6}[dtype]
      step = jnp.float64(STEP)
      point, value = map(_as_written, (ALL[name].prox, ALL[name].value))
      w = point(narrow, step)
      assert optax.tree.dtype(w) == dtype
      w = optax.tree.cast(w, jnp.float64)
      _assert_close(w, point(wide, step), atol=atol)
      np.testing.assert_allclose(value(narrow), value(wide), rtol=1e-5)

  @pytest.mark.parametrize("name", PENALTIES | CONSTRAINTS)
  def test_derivative(self, name):
    """Reverse mode against finite differences, at a generic point."""
    psi = ALL[name]
    with jax.enable_x64(True):
      z = optax.tree.cast(_tree(3), jnp.float64)
      key = jax.random.key(1)
      out, along = (
        optax.tree.random_like(k, z, jax.random.normal)
        for k in jax.random.split(key)
      )
      f = jax.jit(lambda z, step: optax.tree.vdot(out, psi.prox(z, step)))
      grads, step_grad = jax.grad(f, (0, 1))(z, STEP)
      h = 1e-6
      ahead, behind = (
        f(optax.tree.add_scale(z, s, along), STEP) for s in (h, -h)
      )
      np.testing.assert_allclose(
        optax.tree.vdot(grads, along), (ahead - behind) / (2 * h), atol=1e-6
      )
      slope = (f(z, STEP + h) - f(z, STEP - h)) / (2 * h)
      np.testing.assert_allclose(step_grad, slope, atol=1e-6)

  @each_regularizer
  def test_step_zero_is_the_identity_or_the_projection(self, name):
    psi = ALL[name]
    w = JITTED[name](_tree(), 0.0)
    assert np.isfinite(psi.value(w))
    again = JITTED[name](w, 0.0)
    _assert_close(again, w)
    if np.isfinite(psi.value(_tree())):
      _assert_close(w, _tree())

  @each_regularizer
  def test_not_a_number_is_not_hidden(self, name):
    psi = ALL[name]
    if psi.kind == "box":
      pytest.skip("clipping an infinity is finite")
    tree = jax.tree.map(lambda leaf: leaf.at[0].set(jnp.nan), _tree())
    w = JITTED[name](tree, STEP)
    assert any(jnp.isnan(leaf).any() for leaf in jax.tree.leaves(w))

  @pytest.mark.parametrize("psi", CONSTRAINTS.values(), ids=CONSTRAINTS)
  def test_constraints_know_their_set(self, psi):
    assert np.isinf(psi.value(_tree(scale=3.0)))
    w = psi.prox(_tree(scale=3.0), STEP)
    assert psi.value(w) == 0
    assert np.isinf((3 * psi).value(_tree(scale=3.0)))
    jax.tree.map(
      np.testing.assert_array_equal, w, (3 * psi).prox(_tree(scale=3.0), 0.1)
    )


NUMBERS = jnp.array([3.0, -1.0, 0.5])
ROWS = jnp.array([[3.0, 4.0], [0.3, 0.4]])
STAIRS = jnp.array([0.0, 0.0, 3.0, 3.0, 3.0])
FAR, NEAR = jnp.array([3.0, -4.0]), jnp.array([1.0, 0.4, -2.0])
DIAGONAL = jnp.diag(jnp.array([3.0, 1.0, 0.2]))


class TestKnownAnswers:
  @pytest.mark.parametrize(
    ("psi", "z", "step", "w"),
    [
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
    ],
  )
  def test_points(self, psi, z, step, w):
    np.testing.assert_allclose(psi.prox(z, step), w, rtol=1e-6, atol=1e-6)

  @pytest.mark.parametrize(
    ("psi", "z", "value"),
    [
      (prox.l1(2.0), NUMBERS, 9.0),
      (prox.squared_l2(2.0), jnp.array([3.0, -1.0]), 20.0),
      (prox.group_lasso(1.0), ROWS, 5.5),
      (prox.group_lasso(1.0, axis=(0, 1)), ROWS, np.linalg.norm(ROWS)),
      (prox.nuclear(0.5), DIAGONAL, 2.1),
      (prox.total_variation_1d(2.0), STAIRS, 6.0),
    ],
  )
  def test_values(self, psi, z, value):
    np.testing.assert_allclose(psi.value(z), value, rtol=1e-6)

  def test_the_slope_of_a_norm_at_zero_is_finite(self):
    slope = jax.grad(prox.group_lasso(1.0).value)(0 * ROWS)
    assert np.isfinite(slope).all()

  def test_scaling_is_as_a_longer_step(self):
    z = _tree()
    psi = prox.l1(0.3) + prox.squared_l2(0.2)
    doubled = np.float32(2) * psi
    _assert_close(doubled.prox(z, 0.5), psi.prox(z, 1.0))
    np.testing.assert_allclose(doubled.value(z), 2 * psi.value(z), rtol=1e-6)


class TestTotalVariation:
  @pytest.mark.parametrize("n", [1, 2, 3, 50])
  @pytest.mark.parametrize("t", [0.0, 0.05, 1.0, 30.0])
  @pytest.mark.parametrize("kind", ["noise", "walk", "ties"])
  def test_dual_certificate(self, n, t, kind):
    """u = cumsum(z - w) is in [-t, t] everywhere, and +-t where w jumps."""
    rng = np.random.default_rng(n)
    z = rng.normal(size=n)
    z = {"noise": z, "walk": np.cumsum(z), "ties": np.round(z)}[kind]
    with jax.enable_x64(True):
      w = np.asarray(prox.total_variation_1d(1.0).prox(jnp.asarray(z), t))
    u, jumps = np.cumsum(z - w), np.sign(np.diff(w))
    assert abs(u[-1]) < 1e-10
    assert np.all(np.abs(u) <= t + 1e-10)
    apart = np.abs(np.diff(w)) > 1e-9
    np.testing.assert_allclose(u[:-1][apart], -t * jumps[apart], atol=1e-10)

  def test_along_either_axis(self):
    z = _tree()["kernel"]
    rows = prox.total_variation_1d(0.4, axis=1).prox(z, STEP)
    columns = prox.total_variation_1d(0.4).prox(z.T, STEP)
    np.testing.assert_allclose(rows, columns.T, rtol=1e-6)

  def test_ends_on_infinite_input(self):
    z = jnp.array([0.0, jnp.inf, 1.0, -jnp.inf, jnp.nan])
    assert not np.isfinite(prox.total_variation_1d(1.0).prox(z, 1.0)).all()


def _threshold_by_svd(x, t):
  u, s, vt = np.linalg.svd(np.asarray(x, float), full_matrices=False)
  return (u * np.maximum(s - t, 0)[..., None, :]) @ vt


def _matrices():
  rng = np.random.default_rng(0)
  noise = rng.normal(size=(20, 32, 32))
  graded = np.linalg.qr(noise)[0] * np.logspace(0, -8, 32)
  low_rank = noise[:, :, :3] @ noise[:, :3]
  # Around the threshold 0.1 of the largest.
  crowded = np.linalg.qr(noise)[0] * np.append(1, np.linspace(0.09, 0.11, 31))
  return {
    "noise": noise,
    "graded": graded @ np.linalg.qr(noise[::-1])[0],
    "crowded": crowded @ np.linalg.qr(noise[::-1])[0],
    "low_rank": low_rank,
    "rank_1": noise[:, :, :1] @ noise[:, :1],
    "block": 0.01 * noise + np.diag(np.arange(32) < 16),
    "orthogonal": np.linalg.qr(noise)[0],
    "zero": 0 * noise,
    "tall": noise[:, :, :5],
    "wide": noise[:, :3],
    "column": noise[:, :, :1],
    "huge": 1e25 * noise,
    "tiny": 1e-25 * noise,
  }


_threshold = jax.jit(jax.vmap(prox.soft_threshold_singular_values, (0, None)))


class TestSingularValues:
  @pytest.mark.parametrize(
    ("name", "dtype"),
    [
      *[(name, "float32") for name in _matrices()],
      *[(name, "float64") for name in ("noise", "graded", "crowded")],
    ],
  )
  def test_equal_to_a_decomposition(self, name, dtype):
    tolerance = {"float32": 2e-6, "float64": 1e-13}[dtype]
    with jax.enable_x64(dtype == "float64"):
      x = jnp.asarray(_matrices()[name], dtype)
      largest = np.linalg.norm(np.asarray(x, float), 2, axis=(1, 2)).max()
      for relative in (0, 1e-7, 1e-5, 1e-4, 1e-2, 0.1, 0.5, 0.999, 1, 2, 1e6):
        t = relative * largest
        error = np.abs(_threshold(x, t) - _threshold_by_svd(x, t)).max()
        assert error <= tolerance * largest, (relative, error / largest)

  def test_all_below_the_threshold_is_exactly_zero(self):
    x = jnp.asarray(_matrices()["noise"][0], jnp.float32)
    np.testing.assert_array_equal(prox.nuclear(1.0).prox(x, 100.0), 0)

  @pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 6)])
  @pytest.mark.parametrize("rank", [2, 3])
  def test_derivative_at_repeated_singular_values(self, shape, rank):
    """Repeated values above the threshold, zeros below it."""
    rng = np.random.default_rng(0)
    u, v = (np.linalg.qr(rng.normal(size=(k, k)))[0] for k in shape)
    s = np.zeros(shape)
    np.fill_diagonal(s, 2.0 * (np.arange(min(shape)) < rank))
    along = rng.normal(size=shape)
    with jax.enable_x64(True):
      z = jnp.asarray(u @ s @ v)
      f = jax.jit(prox.soft_threshold_singular_values)
      _, dot = jax.jvp(f, (z, 0.7), (jnp.asarray(along), 0.3))
      h = 1e-6
      numeric = (
        f(z + h * along, 0.7 + 0.3 * h) - f(z - h * along, 0.7 - 0.3 * h)
      ) / (2 * h)
      np.testing.assert_allclose(dot, numeric, atol=1e-7)


class TestRestriction:
  def test_kernels_are_taken_one_by_one_and_biases_never(self):
    rng = np.random.default_rng(0)
    kernel = lambda: jnp.asarray(rng.normal(size=(3, 3)), jnp.float32)
    tree = {
      "a": {"kernel": kernel(), "bias": 9 * jnp.ones(3)},
      "b": {"kernel": kernel(), "bias": 9 * jnp.ones(3)},
    }
    psi = prox.kernels(prox.l2_ball(1.0))
    assert np.isinf(psi.value(tree))
    w = psi.prox(tree, 1.0)
    assert psi.value(w) == 0
    for layer in "ab":
      np.testing.assert_array_equal(w[layer]["bias"], 9)
      np.testing.assert_allclose(
        np.linalg.norm(w[layer]["kernel"]), 1, rtol=1e-6
      )
    by_value = prox.kernels(prox.l1(0.5)).value(tree)
    expected = 0.5 * sum(abs(tree[layer]["kernel"]).sum() for layer in "ab")
    np.testing.assert_allclose(by_value, expected, rtol=1e-6)

  def test_on_leaves_is_joint(self):
    tree = {"a": jnp.array([3.0]), "b": jnp.array([4.0]), "c": jnp.array([7.0])}
    psi = prox.on_leaves(prox.l2_ball(1.0), lambda path, leaf: path != ("c",))
    w = psi.prox(tree, 1.0)
    np.testing.assert_allclose(
      [w["a"][0], w["b"][0], w["c"][0]], [0.6, 0.8, 7.0], rtol=1e-6
    )

  def test_nothing_selected_is_refused(self):
    psi = prox.kernels(prox.l1(1.0))
    with pytest.raises(
      ValueError, match=r"no leaf is selected.*the array itself"
    ):
      psi.value(jnp.ones(3))
    with pytest.raises(ValueError, match=r"no leaf is selected.* w/bias"):
      psi.prox({"w": {"bias": jnp.ones(3)}}, 1.0)


class TestGrids:
  def test_strengths_and_radii_may_be_traced(self):
    z = _tree()["kernel"]
    values = jnp.array([0.1, 0.9])
    factories = (
      prox.l1,
      prox.squared_l2,
      prox.group_lasso,
      prox.nuclear,
      prox.total_variation_1d,
      prox.l1_ball,
      prox.l2_ball,
      prox.simplex,
      prox.box,
      lambda s: prox.elastic_net(s, s),
      lambda s: s * prox.l1(1.0),
    )
    for factory in factories:
      mapped = jax.jit(jax.vmap(lambda s, f=factory: f(s).prox(z, STEP)))(
        values
      )
      for i in range(2):
        np.testing.assert_allclose(
          mapped[i], factory(float(values[i])).prox(z, STEP), atol=2e-6
        )


@pytest.mark.parametrize(
  ("make", "message"),
  [
    (lambda: prox.box(2, 1), r"low=2 and high=1: needs low <= high"),
    (lambda: -2 * prox.l1(1), r"scale=-2: must be in \[0, inf\)"),
    (
      lambda: prox.nuclear(1.0).prox(jnp.ones(3), 1.0),
      r"nuclear: a leaf has shape \(3,\): must be a matrix",
    ),
    (
      lambda: prox.nuclear(1.0) + prox.l1(1.0),
      r"nuclear \+ l1: the prox of this sum is not known; known are",
    ),
    (
      lambda: prox.box(0, 1) + prox.l2_ball(1.0) + prox.l1(1.0),
      r"box \+ l2_ball: the prox of this sum is not known",
    ),
    (
      lambda: prox.kernels(prox.l1(1.0)) + prox.kernels(prox.l2_ball(1.0)),
      r"restrict the sum: kernels\(a \+ b\)",
    ),
  ],
)
def test_bad_input_is_one_line(make, message):
  with pytest.raises(ValueError, match=message) as error:
    make()
  assert "\n" not in str(error.value)
