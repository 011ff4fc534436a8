"""Bias-variance reduced local SGD, and minibatch SARAH, its case K = 1.

References:
  Murata and Suzuki, "Bias-Variance Reduced Local SGD for Less Heterogeneous
  Federated Learning", ICML 2021.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_opt.arrays import trees
from fedjax_opt.base import Algorithm, LossFn, Params, Rate
from fedjax_opt.checks.fields import Count, checked
from fedjax_opt.optimizers import rate_at
from fedjax_opt.rules.sarah import sarah


class BvrState(NamedTuple):
  """The server between rounds."""

  params: Params  # x_{t-1}
  previous: Params  # x_{t-2}; not used in the first round of a stage
  direction: Params  # v_{t-1}, the estimate of the gradient at x_{t-2}
  output: "Output | None"  # what Algorithm 2 returns; None for Algorithm 4


class Output(NamedTuple):
  """The random iterates that Algorithm 2 returns."""

  stage: Params  # one of the iterates of this stage so far, drawn uniformly
  run: Params  # the output of one of the finished stages; x_0 at first


@checked()
def bvr_l_sgd(
  loss_fn: LossFn,
  learning_rate: Rate,
  *,
  large_batch: Count | None = None,
  practical: bool = True,
) -> Algorithm:
  r"""One client's steps along a shared estimate (Murata and Suzuki, 2021).

  The steps are local steps of SARAH, along a gradient estimate that all workers
  share:

  .. math::

    v_t = v_{t-1} + \sum_p w_p (g_{t,p}(x_{t-1}) - g_{t,p}(x_{t-2}))

  on the same K B examples at both points. One worker then takes K local steps
  of `sarah` from :math:`x_{t-1}` with that first direction, and its last point
  is :math:`x_t`. A stage of

  .. math::

    T = \left\lceil 1 + \frac{\tilde b}{K B} \right\rceil

  rounds begins with a large gradient, which replaces the estimate. Examples
  should be drawn with replacement (`replacement=True`). In the first round of a
  stage the model is sent, and counted, twice: for the large gradient and as
  :math:`x_{t-1}`. If faults lose this round, its large gradient is lost; the
  next stage begins as usual.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    learning_rate: eta, or a function from the round to it; non-negative.
    large_batch: examples that each client draws for the large gradient, all
      that it has if left out; b~. If it is at least the mean number of examples
      of a client, each client also takes all.
    practical: whether only the picked worker takes local steps and the last
      point is returned (Algorithm 4, not 2). Otherwise all do, and a random
      point is returned (Algorithm 2); the points x_t are the same.

  Returns:
    The algorithm. A round is one iteration t of the paper.

  Raises:
    ValueError: if `large_batch` is not positive, or the rate is an optimizer or
      out of range.
    TypeError: if an argument is of a wrong type.

  References:
    Murata and Suzuki, ICML 2021, Algorithms 2 to 4.
  """

  def local_routine(cohort, params, direction):  # Algorithm 3
    rate = rate_at(learning_rate, cohort.round)

    def one_client(worker, broadcast):
      params, direction = broadcast
      rule = sarah(rate, direction)
      if practical:
        return worker.descend(loss_fn, rule, params), None
      # k^ of Algorithm 3, uniform over the local steps.
      stop_step = jax.random.randint(
        worker.key, (), 0, worker.num_steps, jnp.int32
      )
      rule = _with_snapshot(rule, stop_step)
      last_point, end = worker.descend_from(
        loss_fn, rule, params, rule.init(params)
      )
      return last_point, end.snapshot

    reply = cohort.pick(
      one_client,
      broadcast=(params, direction),
      phase=2,
      others_work=not practical,
      bytes_down=trees.num_bytes(direction),  # It has x_{t-1} already.
    )
    return *reply.value, (reply,)

  return _recursive(loss_fn, local_routine, large_batch, practical)


@checked()
def minibatch_sarah(
  loss_fn: LossFn, learning_rate: Rate, *, large_batch: Count | None = None
) -> Algorithm:
  r"""`minibatch_sgd` along a recursive estimate (Nguyen et al., 2017).

  This is `bvr_l_sgd` with a local routine of one step. In the first local step
  of `sarah` both points are the same, so the difference of their gradients is
  zero. So with K = 1 a worker would return :math:`x_t = x_{t-1} - \eta v_t`.
  Here the server takes that step.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`, the loss of each example.
    learning_rate: eta, or a function from the round to it; non-negative.
    large_batch: examples that each client draws for the large gradient, all
      that it has if left out; see `bvr_l_sgd`.

  Returns:
    The algorithm. Its batch is the budget of a round, `local_steps` times
    `batch_size`.

  Raises:
    ValueError: if `large_batch` is not positive, or the rate is an optimizer or
      out of range.
    TypeError: if an argument is of a wrong type.

  References:
    Murata and Suzuki, ICML 2021, section 6; Algorithm 4 with K = 1.
  """

  def one_step(cohort, params, direction):
    rate = rate_at(learning_rate, cohort.round)
    updates = optax.tree.scale(-rate, direction)
    return optax.apply_updates(params, updates), None, ()

  return _recursive(loss_fn, one_step, large_batch, practical=True)


def _recursive(
  loss_fn: LossFn,
  local_routine: Callable[..., tuple[Params, Params | None, tuple]],
  large_batch: int | None,
  practical: bool,
) -> Algorithm:
  """Stages of estimates that are corrected from round to round.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`.
    local_routine: `(cohort, x_{t-1}, v_t) -> (x_t, x_t^out or None,
      replies)`.
    large_batch: b~.
    practical: whether the last point is returned.
  """

  def init(params):
    zeros = optax.tree.zeros_like(params)
    output = None if practical else Output(params, params)
    return BvrState(params, params, zeros, output)

  def round(state, cohort):
    is_exact = _is_exact(large_batch, cohort.config.mean_sizes)
    examples = large_batch or cohort.mean_size  # b~
    budget = cohort.max_steps * cohort.config.plan.batch_size  # K B
    stage_length = 1 - (-examples // budget)  # T
    t = cohort.round % stage_length  # The paper's t - 1.

    large_gradient = _large_gradient(loss_fn, None if is_exact else large_batch)
    start = lambda: cohort.mean(
      large_gradient, broadcast=state.params, label="stage_start"
    )
    stage_reply = cohort.cond(t == 0, start, otherwise=state.direction)
    previous = optax.tree.where(t == 0, state.params, state.previous)
    change_reply = cohort.mean(
      _difference(loss_fn),
      broadcast=(state.params, previous),
      phase=1,
      # Each worker has x_{t-2}, which was x_{t-1} in the round before.
      bytes_down=trees.num_bytes(state.params),
    )
    direction = optax.tree.add(stage_reply.value, change_reply.value)

    params, out, replies = local_routine(cohort, state.params, direction)
    output = state.output
    if not practical:
      is_last = t == stage_length - 1
      stages = cohort.round // stage_length + 1  # s
      output = _next_output(output, out, cohort.key, t + 1, is_last, stages)
    new_state = BvrState(params, state.params, direction, output)
    return new_state, (stage_reply, change_reply, *replies)

  def params(state):
    return state.params if practical else state.output.run

  return Algorithm(init, round, params)


def _is_exact(large_batch, mean_sizes):
  """Whether the large gradients are of all examples.

  Raises:
    ValueError: if they are for some seeds and not for others.
  """
  exact = {large_batch is None or large_batch >= size for size in mean_sizes}
  if len(exact) > 1:
    raise ValueError(
      f"large_batch={large_batch}: is the mean size of a client, or more, for "
      f"some seeds alone; must be so for all or none: above {max(mean_sizes):g}"
      f" or below {min(mean_sizes):g}"
    )
  return exact.pop()


def _large_gradient(loss_fn, num_examples):
  """What a worker sends first in a stage; exact if num_examples is None."""

  def one_client(worker, params):
    if num_examples is None:
      return worker.gradient(loss_fn, params)
    return worker.sample_gradient(loss_fn, params, num_examples)

  return one_client


def _difference(loss_fn):
  """What a worker sends in each round: g(x_{t-1}) - g(x_{t-2})."""

  def one_client(worker, broadcast):
    new, old = worker.batch_gradients(loss_fn, *broadcast)
    return optax.tree.sub(new, old)

  return one_client


def _next_output(output, out, key, t, is_last, stages):
  """The output after iterate t of the stage, whose x_t^out is `out`.

  Reservoir sampling: each iterate of the stage so far is kept with the same
  probability, and so is the output of each finished stage.

  Args:
    output: before.
    out: x_t^out.
    key: [] random key.
    t: iterates of the stage, with this one.
    is_last: whether the stage is finished by it.
    stages: finished stages, if it is.
  """
  stage_draw, run_draw = jax.random.uniform(key, (2,), jnp.float32)
  stage = optax.tree.where(stage_draw * t < 1, out, output.stage)
  is_taken = is_last & (run_draw * stages < 1)
  return Output(stage, optax.tree.where(is_taken, stage, output.run))


class _Snapshot(NamedTuple):
  rule: Any  # state of the rule itself
  snapshot: Params
  count: jax.Array


def _with_snapshot(rule, number):
  """A rule that also records the point after step `number`."""

  def init(params):
    return _Snapshot(rule.init(params), params, jnp.zeros([], jnp.int32))

  def update(grads, state, params=None, **extra):
    updates, inner = rule.update(grads, state.rule, params, **extra)
    point = optax.apply_updates(params, updates)
    snapshot = optax.tree.where(state.count == number, point, state.snapshot)
    return updates, _Snapshot(inner, snapshot, state.count + 1)

  return optax.GradientTransformationExtraArgs(init, update)
