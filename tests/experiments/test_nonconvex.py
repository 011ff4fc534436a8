"""The task `nonconvex`; a run of it is in test_results_table.py."""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.tasks import nonconvex
from fedjax_opt.data import synthetic


def test_what_is_measured():
  task = nonconvex.nonconvex(2.0)
  x = task.init(jax.random.key(0))
  measured = jax.jit(task.evaluate)(x, task.clients, task.test)
  objective = synthetic.heterogeneous(0.0).objective
  gradient = jax.grad(objective)(x)
  assert set(measured) == {"train_loss", "grad_norm_sq"}
  np.testing.assert_allclose(measured["train_loss"], objective(x), rtol=1e-5)
  np.testing.assert_allclose(
    measured["grad_norm_sq"], jnp.sum(gradient**2), rtol=1e-4
  )
  other = task.init(jax.random.key(1))
  assert (x != other).all()
