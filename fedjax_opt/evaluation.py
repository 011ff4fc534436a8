"""Metrics of the server's model, computed inside the compiled program."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_opt import metrics
from fedjax_opt.base import Batch, Params
from fedjax_opt.data.clients import ClientData
from fedjax_opt.program import EvaluateFn

# (params, batch) -> {name: [B]}, such as the loss and whether it was right.
PerExampleFn = Callable[[Params, Batch], dict[str, jax.Array]]


def federated(per_example: PerExampleFn, batch_size: int = 500) -> EvaluateFn:
  """Metrics over all clients' training examples and over the test examples.

  For each name: `train_<name>`, the mean over all examples of all clients (one
  that several clients own counts as often), and `test_<name>`, the mean over
  the test examples. With a name `accuracy` also how it is spread over clients
  on their own examples: `worst_decile_accuracy`, `accuracy_decile_1` to `_9`.

  Args:
    per_example: `(params, batch) -> {name: [B]}`.
    batch_size: examples computed at once.

  Returns:
    A function `(params, data, test) -> {name: scalar}`, for `evaluate=`.
  """

  def evaluate(params, data: ClientData, test: Batch | None):
    results = {}
    on_pool = _over_examples(per_example, params, data.examples, batch_size)
    owned = jnp.arange(data.indices.shape[1]) < data.sizes[:, None]
    for name, values in on_pool.items():
      sums = jnp.sum(jnp.where(owned, values[data.indices], 0), axis=1)  # [M]
      results[f"train_{name}"] = jnp.sum(sums) / jnp.sum(data.sizes)
      if name == "accuracy":
        accuracy = sums / jnp.maximum(data.sizes, 1)
        worst = metrics.worst_decile(accuracy, data.sizes)
        results["worst_decile_accuracy"] = worst
        results |= metrics.deciles(accuracy, data.sizes)
    if test is not None:
      on_test = _over_examples(per_example, params, test, batch_size)
      results |= {f"test_{n}": jnp.mean(v) for n, v in on_test.items()}
    return results

  return evaluate


def _over_examples(per_example, params, examples, batch_size):
  """{name: [N]}, `batch_size` examples at a time."""
  num_examples = len(jax.tree.leaves(examples)[0])
  batch_size = min(batch_size, num_examples)
  num_batches = -(-num_examples // batch_size)

  def one_batch(i):
    rows = i * batch_size + jnp.arange(batch_size)
    take = lambda leaf: jnp.take(leaf, rows, axis=0, mode="clip")
    return per_example(params, jax.tree.map(take, examples))

  batches = lax.map(one_batch, jnp.arange(num_batches))
  flat = lambda leaf: leaf.reshape(-1)[:num_examples]
  return jax.tree.map(flat, batches)
