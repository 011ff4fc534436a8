"""FedSpeed: Sun et al., ICLR 2023, Algorithm 1, with normalized ascent."""

import jax.numpy as jnp
import optax

import fedjax_opt as fo


def fed_speed(loss_fn, learning_rate, lam=10.0, alpha=1.0, rho=0.1):
  """Prox-corrected steps along gradients at a perturbed point of the batch."""

  def one_client(worker, start):
    dual = worker.state

    def update(grads, rule_state, params, *, grad_fn, **_):
      norm = jnp.maximum(optax.tree.norm(grads), 1e-12)
      ahead = grad_fn(optax.tree.add_scale(params, rho / norm, grads))
      mixed = optax.tree.add_scale(
        optax.tree.scale(1 - alpha, grads), alpha, ahead
      )
      pull = optax.tree.scale(1 / lam, optax.tree.sub(params, start))
      step = optax.tree.add(optax.tree.sub(mixed, dual), pull)
      return optax.tree.scale(-learning_rate, step), rule_state

    rule = optax.GradientTransformationExtraArgs(optax.init_empty_state, update)
    moved = optax.tree.sub(worker.descend(loss_fn, rule, start), start)
    dual = optax.tree.add_scale(dual, -1 / lam, moved)
    return fo.ClientOutput(optax.tree.add_scale(moved, -lam, dual), state=dual)

  def round(params, cohort):
    sent = cohort.mean(one_client, broadcast=params)
    return optax.tree.add(params, sent.value), sent

  return fo.Algorithm(
    init=lambda params, num_clients: params,
    round=round,
    params=lambda params: params,
    init_client=optax.tree.zeros_like,  # d_i
  )
