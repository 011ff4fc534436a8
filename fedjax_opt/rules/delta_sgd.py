"""Δ-SGD: a step size that each client finds by itself.

References:
  Kim et al., "Adaptive Federated Learning with Auto-Tuned Clients", ICLR 2024,
  Algorithm 1.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from fedjax_opt.arrays import norms, target
from fedjax_opt.arrays.trees import at_least_float32
from fedjax_opt.base import Params
from fedjax_opt.checks import rules
from fedjax_opt.checks.fields import NonNegative, Positive, checked


class DeltaSgdState(NamedTuple):
  """State of the rule; one client, one round.

  Before the first update `params` and `grads` are those of no point, so the
  first update ignores them (`count` is 0). Either is None where it is not
  needed.
  """

  count: jax.Array  # [] int32, updates done
  step_size: jax.Array  # [] eta_k, the step size of the latest update
  theta: jax.Array  # [] theta_k = eta_k / eta_{k-1}
  smoothness_step: jax.Array  # [] first branch of the minimum in line 9
  growth_step: jax.Array  # [] second branch of the minimum in line 9
  params: Params | None  # x_{k-1}
  # g(x_{k-1}) on its own batch, scaled, see `_scaled`; leaves raveled, [n]
  grads: Params | None


@checked(theta_0="[0, inf]")
def delta_sgd(
  gamma: Positive = 2.0,
  delta: NonNegative = 0.1,
  eta_0: Positive = 0.2,
  theta_0: ArrayLike = 1.0,
  eps: NonNegative = 0.0,
  reuse_gradients: bool = False,
  measure_movement: bool = False,
  independent_dropout: bool = False,
) -> optax.GradientTransformationExtraArgs:
  r"""Δ-SGD (Delta-SGD), auto-tuned step sizes (Kim et al., 2024).

  SGD whose step size follows the local smoothness of the loss:

  .. math::

    \eta_k &= \min\Bigl\{ \frac{\gamma \|x_k - x_{k-1}\|}
                     {2 \|g(x_k) - g(x_{k-1})\|}, \;
               \sqrt{1 + \delta \theta_{k-1}} \, \eta_{k-1} \Bigr\} \\
    \theta_k &= \eta_k / \eta_{k-1} \\
    x_{k+1} &= x_k - \eta_k g(x_k)

  The first step is :math:`\eta_0`. Norms are Euclidean over the whole tree. If
  the iterate or the gradient did not change, only the second branch counts.
  Gradients are measured in units of :math:`1 / \eta_{k-1}`. So for any scale of
  the loss the steps are those of the formula, if they are shorter than 1e19; a
  longer step counts as 1e19 long. A step size that is too small for its type
  becomes the smallest one of the type.

  By default both gradients are taken on the current batch, through `grad_fn`:
  two gradients a step, as in the authors' program. With `reuse_gradients` the
  previous gradient is kept from its own batch: one gradient a step, as in the
  paper's text.

  If nothing else changes a step, its length is :math:`\|x_k - x_{k-1}\| =
  \eta_{k-1} \|g(x_{k-1})\|`. So with `reuse_gradients` no previous point is
  kept. The point is kept, and the length measured, with `measure_movement` and
  in half precision, where rounding changes the step.

  Args:
    gamma: scales the smoothness branch; positive.
    delta: how fast the step size may grow; non-negative. 1 gives the box as
      printed, 0.1 is what all experiments use.
    eta_0: the first step size; positive.
    theta_0: the ratio of step sizes assumed before the first step;
      non-negative, may be infinite.
    eps: added to the minimum, as the authors' program does (1e-8 there);
      non-negative, 0 is the box.
    reuse_gradients: whether to keep the previous gradient instead of taking it
      again on the current batch (one gradient a step, not two).
    measure_movement: whether to keep the previous point too and measure how far
      the parameters moved; needed with `reuse_gradients` if something changes
      the updates after this rule, such as clipping behind it in a chain.
      Without `reuse_gradients` the movement is always measured.
    independent_dropout: whether the gradient at the previous point draws its
      own dropout masks (and what else the loss draws), as in the authors'
      program. By default both gradients are of one function, with the same
      draws. With `reuse_gradients` there is no second gradient.

  Returns:
    An optax transformation. Unless `reuse_gradients`, its `update` needs the
    keyword argument `grad_fn`: `params -> grads` on the current batch (see
    `fedjax_opt.grad_fn_of`); with `independent_dropout` it is called with
    `draw=1`, which stands for other draws than those of `grads`.

  Raises:
    ValueError: if a number is out of range, or both `reuse_gradients` and
      `independent_dropout` are given; from `update`, if `params` or a needed
      `grad_fn` is missing.
    TypeError: if an argument is of a wrong type.

  Example:
    >>> rule = delta_sgd()
    >>> loss = lambda x: 0.5 * jnp.sum(x**2)
    >>> x = jnp.ones(3)
    >>> state = rule.init(x)
    >>> for _ in range(50):
    ...   grads = jax.grad(loss)(x)
    ...   updates, state = rule.update(grads, state, x, grad_fn=jax.grad(loss))
    ...   x = optax.apply_updates(x, updates)
    >>> bool(loss(x) < 1e-6)  # No step size was tuned.
    True

  References:
    Kim et al., "Adaptive Federated Learning with Auto-Tuned Clients", ICLR
    2024, Algorithm 1 with the delta of section 4.
  """
  if reuse_gradients and independent_dropout:
    raise ValueError(
      "independent_dropout=True: with reuse_gradients there is no second "
      "gradient on the same batch; leave one of them out"
    )

  def init_fn(params: Params) -> DeltaSgdState:
    dtype = optax.tree.dtype(params, "lowest")
    scalar = lambda value: jnp.asarray(value, dtype)
    keeps_params = measure_movement or not reuse_gradients or _is_half(params)
    zeros = optax.tree.zeros_like(norms.raveled(params))
    return DeltaSgdState(
      count=jnp.zeros([], jnp.int32),
      step_size=scalar(eta_0),
      theta=scalar(theta_0),
      smoothness_step=scalar(jnp.inf),
      growth_step=scalar(jnp.inf),
      params=params if keeps_params else None,
      grads=zeros if reuse_gradients else None,
    )

  def update_fn(grads, state, params=None, *, grad_fn=None, **extra_args):
    del extra_args
    rules.check_needs("delta_sgd", params)
    old_grads = state.grads
    if not reuse_gradients:
      old_grads = _on_this_batch(grad_fn, state.params, independent_dropout)
      old_grads = _scaled(old_grads, state.step_size)

    # Line 9.
    dx, dg = _lengths(grads, old_grads, params, state)
    smoothness_step = _smoothness_step(gamma, dx, dg)
    growth_step = _growth_step(delta, state)
    minimum = jnp.minimum(smoothness_step, growth_step) + eps
    fallback = _unchanged_step(growth_step, state)
    step_size = jnp.where((dx > 0) & (dg > 0), minimum, fallback)
    theta = step_size / state.step_size  # Line 10.

    new_state = _next_state(
      state, params, grads, step_size, theta, smoothness_step, growth_step
    )
    return optax.tree.scale(-new_state.step_size, grads), new_state  # Line 8.

  return optax.GradientTransformationExtraArgs(init_fn, update_fn)


def _on_this_batch(grad_fn, old_params, independent_dropout):
  """The gradient at the previous point, on the current batch."""
  if grad_fn is None:
    raise ValueError(
      "delta_sgd: update needs grad_fn=, the gradient of the current batch "
      "as a function of params; or create it with reuse_gradients=True"
    )
  return grad_fn(old_params, **({"draw": 1} if independent_dropout else {}))


def _lengths(grads, old_grads, params, state):
  """How far x and g have moved, given the scaled previous gradient.

  A length that overflows counts as the largest one that does not, so that no
  ratio is inf / inf; NaN stays NaN.
  """
  unit = _unit(state.step_size)
  if state.params is None:  # Line 8, one step ago.
    dx = at_least_float32(state.step_size) / unit * norms.norm(old_grads)
  else:
    dx = norms.distance(params, state.params)
  dg = norms.distance(_scaled(grads, state.step_size), old_grads)
  longest = lambda length: 2.0 ** (jnp.finfo(length.dtype).maxexp // 2)
  dx, dg = (jnp.minimum(length, longest(length)) for length in (dx, dg))
  return dx, jnp.minimum(dg / unit, jnp.finfo(dg.dtype).max / 4)


def _scaled(grads, step_size):
  """The gradient in units of about 1 / step size, leaves raveled.

  The squares of lengths overflow where steps are absurd, not where the loss is
  only scaled. A gradient that is kept is scaled when it is stored, as each
  product with a number reads or writes a tree.
  """
  unit = _unit(step_size)
  scale = lambda leaf: jnp.ravel(leaf) * unit.astype(leaf.dtype)
  return jax.tree.map(scale, grads)


def _unit(step_size):
  """The power of two below the step size, so that scaling rounds nothing.

  It is 1 in float16, of which float32 has all squares.
  """
  unit = norms.power_of_two(at_least_float32(step_size))
  return jnp.ones_like(unit) if step_size.dtype == jnp.float16 else unit


def _smoothness_step(gamma, dx, dg):
  """The first branch; infinite where nothing changed."""
  has_changed = (dx > 0) & (dg > 0)
  step = gamma * dx / (2 * jnp.where(has_changed, dg, 1))
  return jnp.where(has_changed, step, jnp.inf)


def _growth_step(delta, state):
  """The second branch; with delta 0 nothing grows, whatever theta is."""
  growth = jnp.where(jnp.equal(delta, 0), 0, delta * state.theta)
  return jnp.sqrt(1 + growth) * state.step_size


def _unchanged_step(growth_step, state):
  """The second branch alone, which theta_0 = inf leaves without a bound."""
  return jnp.where(jnp.isinf(growth_step), state.step_size, growth_step)


def _next_state(
  state, params, grads, step_size, theta, smoothness_step, growth_step
):
  """The state with what lines 9 and 10 have found, in its own types.

  The first step has no previous point; it is eta_0 (line 6).
  """
  first = state.count == 0
  dtype = state.step_size.dtype
  choose = lambda start, later: jnp.where(first, start, later).astype(dtype)
  # From 0, where a step that the type does not have is rounded to, there is
  # no way back.
  step_size = choose(state.step_size, jnp.maximum(step_size, _smallest(dtype)))
  kept_grads = None if state.grads is None else _scaled(grads, step_size)
  return DeltaSgdState(
    count=_after(step_size, optax.safe_increment(state.count)),
    step_size=step_size,
    theta=choose(state.theta, theta),
    smoothness_step=choose(jnp.inf, smoothness_step),
    growth_step=choose(jnp.inf, growth_step),
    params=_kept(step_size, params, state.params),
    grads=kept_grads,
  )


def _smallest(dtype):
  """The smallest positive number that is not flushed to zero."""
  info = jnp.finfo(dtype)
  # XLA computes float16 in float32, and so has its subnormal numbers.
  return info.smallest_subnormal if dtype == jnp.float16 else info.tiny


def _is_half(params):
  """Whether some leaf is narrower than float32."""
  return any(leaf.dtype.itemsize < 4 for leaf in jax.tree.leaves(params))


def _kept(step_size, params, old_params):
  """The point that the state keeps; None if it keeps none.

  On a processor a copy is faster than what `_after` computes.
  """
  if old_params is None:
    return None
  is_cpu = target.platform() == "cpu"
  return params if is_cpu else _after(step_size, params)


def _after(step_size, tree):
  """The tree itself, in a form that XLA can compute only after the step size.

  The step size is the last that depends on the tree which was kept before. So
  XLA may write the new one in its place; otherwise it copies both. Where the
  step size is NaN, nothing that is kept is of use.
  """
  return jax.tree.map(lambda x: jnp.where(step_size >= 0, x, -x), tree)
