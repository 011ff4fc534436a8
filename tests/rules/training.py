"""The plain training loop of optax's manual."""

import jax
import jax.numpy as jnp
import optax

from fedjax_opt import grad_fn_of


def train(rule, loss, params, num_steps, dtype=None):
  """Runs a rule on a loss of the parameters alone.

  Args:
    rule: any optax transformation; it has the extra arguments that it has at a
      client.
    loss: `params -> scalar`.
    params: where to start.
    num_steps: how many steps.
    dtype: of the parameters; their own if None.

  Returns:
    The parameters, and the state of the rule.
  """
  rule = optax.with_extra_args_support(rule)

  @jax.jit
  def step(params, state):
    value, grads = jax.value_and_grad(loss)(params)
    # optax.contrib.sam gives the number of a step too.
    grad_fn = lambda point, step=None: grad_fn_of(loss, params)(point)
    updates, state = rule.update(
      grads, state, params, value=value, grad_fn=grad_fn
    )
    return optax.apply_updates(params, updates), state

  params = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), params)
  state = rule.init(params)
  for _ in range(num_steps):
    params, state = step(params, state)
  return params, state
