import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_opt import prox
from fedjax_opt.prox import mirror
from tests.helpers.refusals import refusal


def _simplex_tree():
  rng = np.random.default_rng(0)
  draw = lambda n: jnp.asarray(rng.dirichlet(np.ones(n)), jnp.float32)
  return {"a": draw(4), "b": draw(6)}


def test_euclidean_is_the_proximal_operator():
  h, psi = mirror.euclidean(), prox.l1(0.3)
  z = jnp.array([1.0, -0.2])
  np.testing.assert_array_equal(h.grad_h(z), z)
  np.testing.assert_array_equal(
    h.grad_h_plus_psi_conjugate(z, 0.5, psi), psi.prox(z, 0.5)
  )


ACCEPTED = {
  "zero": prox.zero(),
  "simplex": prox.each_leaf(prox.simplex()),
  "l1": prox.l1(0.3),
  "sum": prox.l1(0.3) + prox.non_negative(),
}


REFUSED = {
  "psi=squared_l2: must be constant on the simplex": prox.squared_l2(1.0),
  "psi=l2_ball: must be constant": prox.l2_ball(1.0),
  "psi=on_leaves(each_leaf(simplex))": prox.kernels(prox.simplex()),
  "in a tree of several leaves, each_leaf(simplex())": prox.simplex(),
  "another scale: must be 1": prox.each_leaf(prox.simplex(2.0)),
}


# The entropy.


@pytest.mark.parametrize("psi", ACCEPTED.values(), ids=ACCEPTED)
def test_entropy_there_and_back(psi):
  h, w = mirror.entropy(), _simplex_tree()
  back = h.grad_h_plus_psi_conjugate(h.grad_h(w), 0.5, psi)
  chex.assert_trees_all_close(back, w, rtol=1e-5)


def test_a_step_is_the_exponentiated_gradient():
  h, w = mirror.entropy(), _simplex_tree()
  grads = jax.tree.map(lambda leaf: jnp.arange(len(leaf)) / 7, w)
  z = optax.tree.add_scale(h.grad_h(w), -0.5, grads)
  new_point = h.grad_h_plus_psi_conjugate(z, 0.0, prox.zero())
  for name, new in new_point.items():
    expected = w[name] * np.exp(-0.5 * grads[name])
    np.testing.assert_allclose(new, expected / expected.sum(), rtol=1e-5)


def test_entropy_maps_and_differentiates():
  h, psi = mirror.entropy(), prox.simplex()
  z = jnp.arange(6.0).reshape(2, 3)
  back = lambda z: h.grad_h_plus_psi_conjugate(z, 0.1, psi)
  np.testing.assert_allclose(
    jax.jit(jax.vmap(back))(z), jax.nn.softmax(z), rtol=1e-6
  )
  assert np.isfinite(jax.jit(jax.jacobian(back))(z[0])).all()
  # A traced scale cannot be checked.
  of_scale = lambda s: h.grad_h_plus_psi_conjugate(z[0], 0.1, prox.simplex(s))
  jax.eval_shape(jax.vmap(of_scale), jnp.array([1.0]))


@pytest.mark.parametrize(
  ("w", "text"),
  [
    ([0.5, 0.6], "smallest entry 0.5 and sum 1.1: must be on the simplex"),
    ([1.0, 0.0], "smallest entry 0 and sum 1"),
    ([1.5, -0.5], "smallest entry -0.5"),
    ([np.nan, 1.0], "smallest entry nan"),
  ],
)
def test_a_start_off_the_simplex_is_refused(w, text):
  grad_h, w = mirror.entropy().grad_h, jnp.array(w)
  message = refusal(grad_h, w)
  assert message.startswith(f"entropy: the point has {text}")
  message = refusal(grad_h, {"layer": {"kernel": w}})
  assert message.startswith(f"entropy: layer/kernel has {text}")


@pytest.mark.parametrize("message", REFUSED)
def test_a_regularizer_without_closed_form_is_refused(message):
  back = mirror.entropy().grad_h_plus_psi_conjugate
  jitted = jax.jit(lambda z: back(z, 0.1, REFUSED[message]))
  assert message in refusal(jitted, _simplex_tree())
