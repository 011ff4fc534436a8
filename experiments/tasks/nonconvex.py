"""A synthetic non-convex task with a dial for second-order heterogeneity."""

from collections.abc import Callable

import jax

from experiments.tasks.base import Task, TaskEntry
from fedjax_opt import evaluation
from fedjax_opt.checks import fields
from fedjax_opt.data import synthetic
from fedjax_opt.registry import from_factory
from fedjax_opt.results.selection import Criterion


@fields.checked(zeta="[0, inf)")
def nonconvex(zeta: float = 0.1) -> Task:
  """Double wells, 10 clients.

  Args:
    zeta: how far clients' Hessians differ, in the 2-norm.
  """
  problem = synthetic.heterogeneous(zeta)

  def per_example(params, batch):
    return {"loss": problem.loss_fn(params, batch)}

  return Task(
    train=problem.data.examples,
    test=None,
    init=start(problem),
    loss_fn=problem.loss_fn,
    per_example=per_example,
    evaluate=evaluation.federated(per_example, gradient_of=problem.loss_fn),
    criteria={"train": Criterion("grad_norm_sq", "min", "last")},
    clients=problem.data,
    panels=("train_loss", "grad_norm_sq"),
  )


def start(
  problem: synthetic.Heterogeneous,
) -> Callable[[jax.Array], jax.Array]:
  """The function from a random key to a start, anywhere around the wells."""
  return lambda key: 2 * jax.random.normal(key, problem.scales.shape)


TASKS: dict[str, TaskEntry] = {
  "nonconvex": TaskEntry(
    nonconvex,
    "double wells, clients that differ by zeta, synthetic",
    from_factory(nonconvex, "zeta"),
    takes=(),
    has_clients=True,
    splits=("train",),
    defaults={"client_lr": 0.03},
    label="non-convex",
  ),
}
