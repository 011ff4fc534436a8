"""The plain training loop of optax's manual, and each rule's referee."""

import functools

import jax
import jax.numpy as jnp
import optax

from fedjax_opt import grad_fn_of
from fedjax_opt.rules import RULES
from tests import reference

_MOMENTUM = {"learning_rate": 0.05, "momentum": 0.8}
_ADAM = {"learning_rate": 0.05, "b1": 0.8, "b2": 0.95, "eps": 1e-3}
_FEDOPT = _ADAM | {"eps": 0.02}
_DELTA = {"gamma": 1.5, "delta": 0.7, "eta_0": 0.4, "theta_0": 0.8, "eps": 0.01}
# name -> (its referee, its arguments in RULES, which are also the referee's).
REFEREES = {
  "sgd": (reference.Sgd, {"learning_rate": 0.1}),
  "sgdm": (reference.Momentum, _MOMENTUM),
  "nesterov": (reference.Nesterov, _MOMENTUM),
  "adam": (reference.Adam, _ADAM),
  "adamw": (reference.AdamW, _ADAM | {"weight_decay": 0.2}),
  # Of a vector; test_loops.py has it on a matrix.
  "muon": (
    reference.Muon,
    {"learning_rate": 0.05, "beta": 0.8, "weight_decay": 0.2},
  ),
  "adagrad": (
    reference.Adagrad,
    {"learning_rate": 0.1, "eps": 1e-10, "initial_accumulator": 0.2},
  ),
  "yogi": (reference.Yogi, _ADAM | {"eps": 1e-2}),
  "fedopt_adam": (functools.partial(reference.FedOpt, "adam"), _FEDOPT),
  "fedopt_yogi": (functools.partial(reference.FedOpt, "yogi"), _FEDOPT),
  "fedopt_adagrad": (
    lambda lr, b1, tau: reference.FedOpt("adagrad", lr, b1, None, tau),
    {"learning_rate": 0.05, "b1": 0.5, "eps": 0.02},
  ),
  "sps": (reference.Sps, {"c": 0.8, "f_min": 0.1, "max_step": 0.3}),
  "delta_sgd": (reference.DeltaSgd, _DELTA),
  "delta_sgd_reused": (reference.DeltaSgd, _DELTA | {"reuse_gradients": True}),
}


def rule(name):
  """The package's rule."""
  return RULES[name.removesuffix("_reused")].factory(**REFEREES[name][1])


def referee(name):
  """The loop's rule, in its first state."""
  make, arguments = REFEREES[name]
  return make(*arguments.values())


def path(rule, loss, x0, num_steps):
  """Points x_0 to x_K, and the states of a rule, leaves [K, ...].

  Args:
    rule: of one array.
    loss: `(k, x) -> scalar`, of step k.
    x0: where it starts.
    num_steps: K.
  """

  def step(carry, k):
    x, state = carry
    own = functools.partial(loss, k)
    value, grads = jax.value_and_grad(own)(x)
    updates, state = rule.update(
      grads, state, x, value=value, grad_fn=grad_fn_of(own, x)
    )
    return (optax.apply_updates(x, updates), state), (x, state)

  start = (x0, rule.init(x0))
  (last, _), (xs, states) = jax.lax.scan(step, start, jnp.arange(num_steps))
  return jnp.concatenate([xs, last[None]]), states


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
