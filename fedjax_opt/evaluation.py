"""Metrics of a model, computed inside the compiled program."""

import functools
from collections.abc import Callable, Mapping
from typing import Annotated

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.typing import ArrayLike

from fedjax_opt.arrays import running_statistics, sharding, trees
from fedjax_opt.arrays.trees import at_least_float32, is_float
from fedjax_opt.base import Batch, EvaluateFn, LossFn, Params
from fedjax_opt.checks import fields, functions
from fedjax_opt.checks.fields import Count
from fedjax_opt.checks.values import check_shape
from fedjax_opt.data import lists
from fedjax_opt.data.clients import ClientData

__all__ = [
  "deciles",
  "density",
  "federated",
  "grad_norm_sq",
  "per_client",
  "recovered_rank",
  "recovered_support",
  "with_perplexity",
  "worst_decile",
]

# (params, batch) -> {name: [B]}, such as the loss, and whether a prediction is
# right.
PerExampleFn = Annotated[
  Callable[[Params, Batch], dict[str, jax.Array]],
  fields.function(functions.PER_EXAMPLE_TAKES),
]


@fields.checked(of_params=fields.function("(params) -> {name: scalar}"))
def federated(
  per_example: PerExampleFn,
  batch_size: Count = 500,
  of_params: Callable[[Params], dict[str, jax.Array]] | None = None,
  gradient_of: LossFn | None = None,
  measures_train: bool = True,
  outputs: Callable[[Params, Batch], jax.Array] | None = None,
  scores: Mapping[str, Callable[[jax.Array, jax.Array], jax.Array]]
  | None = None,
) -> EvaluateFn:
  """Metrics on training examples of all clients, and on held-out examples.

  For each name there is `train_<name>`, the mean over the training examples of
  all clients (an example of several clients counts once for each). If the run
  has validation and test examples, `validation_<name>` and `test_<name>` are
  the means over these. For the name `accuracy` there is also its distribution
  over clients, each on its training examples: `train_worst_decile_accuracy`,
  `train_accuracy_decile_1` to `train_accuracy_decile_9`.

  Args:
    per_example: `(params, batch) -> {name: [B]}`. One name should be `loss`,
      which shows whether a run has diverged.
    batch_size: number of examples computed at once.
    of_params: `params -> {name: scalar}`, further metrics that depend on the
      model alone, such as `recovered_support`.
    gradient_of: a loss; its `grad_norm_sq` is a further metric.
    measures_train: whether training examples are measured. If not, a large
      model is evaluated in a fraction of the time.
    outputs: `(params, batch) -> [B, ...]`, the predictions for the scores.
    scores: name -> `(outputs [N, ...], y [N, ...]) -> scalar`, such as those of
      `fedjax_opt.scores`. They are computed on all validation and on all test
      examples, with the labels `batch["y"]`, as `validation_<name>` and
      `test_<name>`.

  Returns:
    A function `(params, data, test, validation=None) -> {name: scalar}`, for
    `evaluate=`.

  Raises:
    ValueError: if scores are given without outputs; as it evaluates, if two
      metrics have one name.
  """
  if scores and outputs is None:
    raise ValueError(
      "outputs=None: scores need it, a function (params, batch) -> [B, ...]"
    )

  def evaluate(
    params,
    data: ClientData,
    test: Batch | ClientData | None,
    validation: Batch | ClientData | None = None,
  ):
    results = {}
    sums_of = {}
    if measures_train:
      sums_of = _sums_of_clients(per_example, params, data, batch_size)
    for name, sums in sums_of.items():
      results[f"train_{name}"] = jnp.sum(sums) / jnp.sum(data.sizes)
      if name == "accuracy":
        accuracy = sums / jnp.maximum(data.sizes, 1)
        worst = worst_decile(accuracy, data.sizes)
        results["train_worst_decile_accuracy"] = worst
        by_decile = deciles(accuracy, data.sizes)
        results |= {f"train_{n}": value for n, value in by_decile.items()}
    for split, examples in (("validation", validation), ("test", test)):
      if isinstance(examples, ClientData):
        examples = examples.pooled()
      if examples is not None:
        held_out = _over_examples(per_example, params, examples, batch_size)
        results |= {f"{split}_{n}": jnp.mean(v) for n, v in held_out.items()}
        if scores:
          predicted = _mapped(outputs, params, examples, batch_size)
          of_split = {
            f"{split}_{name}": score(predicted, examples["y"])
            for name, score in scores.items()
          }
          results = _joined("scores", results, of_split)
    if of_params is not None:
      of_model = functions.checked_scalars("of_params", of_params(params))
      results = _joined("of_params", results, of_model)
    if gradient_of is not None:
      norm = grad_norm_sq(gradient_of, batch_size)(params, data, test)
      results = _joined("gradient_of", results, norm)
    return results

  return evaluate


def _joined(what, results, others):
  """All metrics; ValueError if two have one name."""
  if both := sorted(results.keys() & others.keys()):
    raise ValueError(
      f"{what}: {both[0]!r} is measured already; must have another name"
    )
  return results | others


@fields.checked()
def with_perplexity(evaluate: EvaluateFn) -> EvaluateFn:
  """An evaluation that also has e to each loss.

  Args:
    evaluate: such as `federated` makes, of `objectives.next_token`.

  Returns:
    An evaluation that has `test_perplexity` beside `test_loss`, and so on.

  Raises:
    TypeError: if it is no function, or has other arguments.
  """

  @functools.wraps(evaluate)
  def measure(*arguments, **options):
    metrics = evaluate(*arguments, **options)
    return metrics | {
      name.removesuffix("loss") + "perplexity": jnp.exp(value)
      for name, value in metrics.items()
      if name.endswith("_loss")
    }

  return measure


@fields.checked()
def per_client(
  per_example: PerExampleFn, batch_size: Count = 500
) -> Callable[[Params, ClientData], dict[str, jax.Array]]:
  """Metrics of one model on each client's examples, such as held-out ones.

  Args:
    per_example: `(params, batch) -> {name: [B]}`.
    batch_size: number of examples computed at once.

  Returns:
    A function `(params, data) -> {name: [M]}` of means, NaN for a client
    without examples. An example that clients share is computed once.
  """

  def evaluate(params, data: ClientData):
    sums = _sums_of_clients(per_example, params, data, batch_size)
    counts = jnp.where(data.sizes > 0, data.sizes, jnp.nan)
    return {name: client_sums / counts for name, client_sums in sums.items()}

  return evaluate


@fields.checked()
def grad_norm_sq(loss_fn: LossFn, batch_size: Count = 500) -> EvaluateFn:
  """The squared norm of the gradient, 0 at a stationary point.

  The gradient is that of the mean loss over the training examples of all
  clients; an example of several clients counts once for each. To measure it
  beside other metrics: `federated(gradient_of=...)`.

  Args:
    loss_fn: `(params, batch, rng) -> [B]`. The rng is None, because an
      evaluation has no dropout.
    batch_size: number of examples computed at once.

  Returns:
    A function `(params, data, test, validation=None) -> {"grad_norm_sq":
    scalar}`, for `evaluate=`.
  """

  loss_fn = functions.checked_loss(loss_fn)

  def evaluate(
    params,
    data: ClientData,
    test: Batch | None,
    validation: Batch | None = None,
  ):
    del test, validation
    times = lists.times_owned(data.indices, data.sizes, data.num_examples)
    # A row that nobody owns may have any numbers; an owned one stands for it.
    of_rows = jnp.where(
      times > 0, jnp.arange(len(times)), jnp.argmax(times > 0)
    )
    batch_numbers, take = _batches(data.examples, batch_size)

    def add_batch(i, total):
      _, rows = take(i)
      weights = times.at[rows].get(mode="fill", fill_value=0)
      owned = jnp.take(of_rows, rows, mode="wrap")
      batch = trees.take(data.examples, owned)
      loss = lambda params: jnp.sum(weights * loss_fn(params, batch, None))
      return optax.tree.add(total, jax.grad(loss)(params))

    zeros = optax.tree.zeros_like(params)
    add = lambda n, total: add_batch(batch_numbers[n], total)
    total = sharding.sum_of_devices(
      lax.fori_loop(0, len(batch_numbers), add, zeros)
    )
    gradient = optax.tree.scale(1 / jnp.sum(data.sizes), total)
    weights = running_statistics.weights(gradient)
    return {"grad_norm_sq": optax.tree.norm(weights, squared=True)}

  return evaluate


def _sums_of_clients(per_example, params, data, batch_size):
  """{name: [M]}, the sum over the examples of each client."""
  on_pool = _over_examples(per_example, params, data.examples, batch_size)
  sums = lambda of_pool: lists.sums_of_clients(
    data.indices, data.sizes, of_pool
  )
  return {name: sums(values) for name, values in on_pool.items()}


def _over_examples(per_example, params, examples, batch_size):
  """{name: [N]}, computed for `batch_size` examples at a time."""
  checked = functools.partial(functions.checked_per_example, per_example)
  return _mapped(checked, params, examples, batch_size)


def _mapped(function, params, examples, batch_size):
  """`function(params, batch)`, leaves [B, ...], of all examples: [N, ...]."""
  batch_numbers, take = _batches(examples, batch_size)

  def of_batch(i):
    outputs = function(params, take(i)[0])
    # Sums over many examples are neither exact nor finite in half precision.
    widen = lambda leaf: at_least_float32(leaf) if is_float(leaf) else leaf
    return jax.tree.map(widen, outputs)

  values = sharding.gather_rows(lax.map(of_batch, batch_numbers))
  num_examples = len(jax.tree.leaves(examples)[0])
  flat = lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:num_examples]
  return jax.tree.map(flat, values)


def _batches(examples, batch_size):
  """Divides examples into batches, of which each device has its part.

  Args:
    examples: tree of [N, ...].
    batch_size: examples of a batch.

  Returns:
    The numbers of this device's batches, and a function from the number of a
    batch to the batch and its rows. Rows beyond N - 1 are the first examples
    again, so that all of a batch differ, for models to which that matters.
  """
  num_examples = len(jax.tree.leaves(examples)[0])
  batch_size = min(batch_size, num_examples)

  def take(i):
    rows = i * batch_size + jnp.arange(batch_size)
    take_rows = lambda leaf: jnp.take(leaf, rows, axis=0, mode="wrap")
    return jax.tree.map(take_rows, examples), rows

  num_shards = sharding.num_shards()
  num_batches = -(-num_examples // batch_size)
  padded = -(-num_batches // num_shards) * num_shards
  return sharding.local_rows(jnp.arange(padded)), take


_OfClients = Annotated[jax.Array, fields.array("[M]")]
_Matrix = Annotated[jax.Array, fields.array("[rows, columns]")]


@fields.checked()
def worst_decile(accuracy: _OfClients, sizes: jax.Array) -> jax.Array:
  """Mean accuracy of the worst 10 % of the clients.

  The mean over the `ceil(n / 10)` lowest accuracies, where `n` is the number of
  clients with at least one example.

  Args:
    accuracy: accuracy of every client. [M] float in [0, 1].
    sizes: examples of every client; a client with 0 does not count. [M] int.

  Returns:
    A scalar in [0, 1], NaN if no client has an example.
  """
  ascending, num_clients = _ascending(accuracy, sizes)
  count = (num_clients + 9) // 10
  worst = jnp.where(jnp.arange(ascending.size) < count, ascending, 0.0)
  return jnp.sum(worst) / count


@fields.checked()
def deciles(accuracy: _OfClients, sizes: jax.Array) -> dict[str, jax.Array]:
  """The nine deciles of accuracy over clients, interpolated linearly.

  Args:
    accuracy: accuracy of every client. [M] float in [0, 1].
    sizes: examples of every client; a client with 0 does not count. [M] int.

  Returns:
    `{'accuracy_decile_1': ..., ..., 'accuracy_decile_9': ...}`, scalars, NaN if
    no client has an example.
  """
  ascending, num_clients = _ascending(accuracy, sizes)
  # Not `jnp.nanquantile`, which sorts once more and compiles for a third of
  # the time of a whole evaluation.
  ranks = jnp.arange(1, 10) / 10 * (num_clients - 1)  # [9]
  low = jnp.floor(ranks)
  share = ranks - low
  take = lambda ranks: ascending[jnp.clip(ranks, 0).astype(jnp.int32)]
  values = take(low) * (1 - share) + take(jnp.ceil(ranks)) * share
  values = jnp.where(num_clients > 0, values, jnp.nan)
  return {f"accuracy_decile_{i + 1}": values[i] for i in range(9)}


def _ascending(accuracy, sizes):
  """[M], of clients with an example first, and how many these are."""
  accuracy, sizes = jnp.asarray(accuracy), jnp.asarray(sizes)
  check_shape("sizes", sizes, accuracy.shape, "as accuracy")
  nonempty = sizes > 0
  return jnp.sort(jnp.where(nonempty, accuracy, jnp.inf)), jnp.sum(nonempty)


@fields.checked()
def recovered_support(
  w: jax.Array, w_real: jax.Array, threshold: ArrayLike
) -> dict[str, jax.Array]:
  """How well the nonzero coefficients of a sparse vector are found.

  Args:
    w: coefficients found, of any shape.
    w_real: true coefficients, of the same shape.
    threshold: coefficients whose magnitude is below it count as zero.

  Returns:
    Scalars `precision`, `recall` and `f1` (0 if nothing is found), `density`
    (the fraction of nonzero coefficients) and `recovery_error`, ||w - w_real||.

  References:
    Yuan et al., "Federated Composite Optimization", ICML 2021, appendix A.2.
  """
  w, w_real = jnp.asarray(w), jnp.asarray(w_real)
  check_shape("w_real", w_real, w.shape, "as w")
  is_found, is_real = jnp.abs(w) >= threshold, w_real != 0
  hits = jnp.sum(is_found & is_real)
  precision = hits / jnp.maximum(jnp.sum(is_found), 1)
  recall = hits / jnp.maximum(jnp.sum(is_real), 1)
  total = precision + recall
  return {
    "precision": precision,
    "recall": recall,
    "f1": jnp.where(total > 0, 2 * precision * recall / total, 0),
    "density": density(w, threshold),
    "recovery_error": jnp.linalg.norm(jnp.ravel(w - w_real)),
  }


@fields.checked()
def recovered_rank(
  w: _Matrix, w_real: _Matrix, threshold: ArrayLike
) -> dict[str, jax.Array]:
  """How well a low-rank matrix is found.

  Args:
    w: the matrix found, [rows, columns].
    w_real: the true matrix, [rows, columns].
    threshold: singular values that do not exceed it count as zero.

  Returns:
    Scalars `rank` and `recovery_error`, ||w - w_real||_F.

  References:
    Yuan et al., "Federated Composite Optimization", ICML 2021, appendix A.3.
  """
  w, w_real = jnp.asarray(w), jnp.asarray(w_real)
  check_shape("w_real", w_real, w.shape, "as w")
  singular_values = jnp.linalg.svd(w, compute_uv=False)
  return {
    "rank": jnp.sum(singular_values > threshold),
    "recovery_error": jnp.linalg.norm(w - w_real),
  }


@fields.checked()
def density(w: jax.Array, threshold: ArrayLike) -> jax.Array:
  """The fraction of coefficients that are not below the threshold.

  Args:
    w: the coefficients, of any shape.
    threshold: of their absolute values; positive.

  Returns:
    A scalar in [0, 1].
  """
  return jnp.mean(jnp.abs(jnp.asarray(w)) >= threshold, dtype=jnp.float32)
