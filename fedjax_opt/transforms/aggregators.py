"""Means that a few wrong messages do not move far.

An `Aggregator` replaces the weighted mean in every phase of a round, see
`with_aggregator`. It combines the n messages that count, without clients that
dropped out or were rejected.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from fedjax_opt import contract
from fedjax_opt.arrays import trees
from fedjax_opt.base import Algorithm, client_output
from fedjax_opt.checks import fields
from fedjax_opt.registry import Entry, from_factory, register
from fedjax_opt.transforms import messages

__all__ = [
  "Aggregator",
  "mean",
  "median",
  "multi_krum",
  "trimmed_mean",
  "with_aggregator",
]


@fields.checked()
class Aggregator(NamedTuple):
  """How the server combines messages.

  Attributes:
    combine: `(messages, counted) -> message`, leaves [C, ...] -> [...], given
      who counts, [C] bool; the messages of others may be anything. None for
      the weighted mean.
  """

  combine: Callable[[Any, jax.Array], Any] | None


fields.KINDS[Aggregator] = fields.instance_of(
  Aggregator, "one of fedjax_opt.aggregators, such as aggregators.median()"
)


def mean() -> Aggregator:
  """The weighted mean, which is the default.

  Returns:
    The aggregator.
  """
  return Aggregator(None)


def median() -> Aggregator:
  """The median of each coordinate; for an even number the mean of both.

  Returns:
    The aggregator.

  References:
    Yin et al., "Byzantine-Robust Distributed Learning: Towards Optimal
    Statistical Rates", ICML 2018, definition 1.
  """

  def inner(rank, n):
    return (rank >= (n - 1) // 2) & (rank <= n // 2)

  return Aggregator(_of_ranks(inner))


@fields.checked(fraction="[0, 0.5)")
def trimmed_mean(fraction: ArrayLike) -> Aggregator:
  """The mean of each coordinate without its largest and smallest entries.

  Args:
    fraction: share of the n messages that is left out at each end; in [0, 1/2).
      The number is rounded down.

  Returns:
    The aggregator.

  Raises:
    ValueError: if `fraction` is out of range.
    TypeError: if it is no number.

  References:
    Yin et al., ICML 2018, definition 2.
  """

  def inner(rank, n):
    # In float32 0.29 times 100 is 28.999998.
    cut = jnp.floor(fraction * n + 1e-4).astype(jnp.int32)
    cut = jnp.minimum(cut, (n - 1) // 2)  # One message at least stays.
    return (rank >= cut) & (rank < n - cut)

  return Aggregator(_of_ranks(inner))


@fields.checked()
def multi_krum(faulty: int) -> Aggregator:
  """The mean of those messages that are nearest to the others.

  The score of a message is the sum of its squared distances to the n - f - 2
  nearest others, over all its leaves. The n - f messages with the least scores
  are averaged. If clients drop out and fewer than f + 3 are left, the score is
  the distance to the nearest other message, and at least one message is taken.

  Args:
    faulty: messages that may be wrong; f. A cohort must have at least
      2 f + 3 clients.

  Returns:
    The aggregator.

  Raises:
    ValueError: if `faulty` is negative.
    TypeError: if it is no whole number.

  References:
    Blanchard et al., "Machine Learning with Adversaries: Byzantine Tolerant
    Gradient Descent", NeurIPS 2017, sections 4 and 5.
  """

  def combine(messages, counted):
    size = len(counted)
    if size < least_cohort(faulty):
      raise ValueError(
        f"aggregator: multi_krum with faulty={faulty} needs a cohort of at "
        f"least {least_cohort(faulty)} clients; cohort_size is {size}"
      )
    n = jnp.sum(counted)
    score = _scores(messages, counted, jnp.maximum(n - faulty - 2, 1))
    rank = jnp.argsort(jnp.argsort(score, stable=True))
    is_chosen = counted & (rank < jnp.maximum(n - faulty, 1))
    return jax.tree.map(
      lambda leaf: _mean_of(trees.along(is_chosen, leaf), leaf, leaf.dtype),
      messages,
    )

  return Aggregator(combine)


def least_cohort(faulty: int) -> int:
  """The clients that `multi_krum` needs in a cohort, for its f."""
  return 2 * faulty + 3


@fields.checked(algorithm=contract.ALGORITHM)
def with_aggregator(algorithm: Algorithm, aggregator: Aggregator) -> Algorithm:
  """An algorithm whose server combines messages in another way.

  All clients have the same weight, because a client could lie about its number
  of examples. The messages of a cohort are on the device at once, [C, ...].

  Args:
    algorithm: one whose rounds have means over the cohort.
    aggregator: it replaces these means.

  Returns:
    The algorithm. `simulate(..., aggregator=aggregator)` makes the same one.

  Raises:
    TypeError: if an argument is of a wrong type.
  """
  if aggregator.combine is None:
    return algorithm

  def round(state, cohort):
    means = []

    def mean(*args, **options):
      means.append(_combined(cohort, aggregator.combine, *args, **options))
      return means[-1]

    view = messages.View(cohort, mean=mean, has_plain_means=False)
    output = algorithm.round(state, view)
    if not means:
      raise ValueError(
        "aggregator: a round of this algorithm has no mean over the cohort; "
        "leave aggregator out"
      )
    return output

  return algorithm._replace(round=round)


def _combined(cohort, combine, one_client, broadcast, **options):
  """What `Cohort.mean` returns, with messages combined in another way."""
  if cohort.config.weights_by_examples:
    raise ValueError(
      "aggregator: counts all clients alike; must be with weighting='uniform'"
    )
  if cohort.is_scaled:
    sampler = cohort.config.sampler.name
    raise ValueError(
      f"aggregator: counts all clients alike, but sampler={sampler!r} gives "
      "them weights; leave sampler out"
    )

  def alike(worker, broadcast):
    output = client_output(one_client, worker, broadcast)
    if output.weight is not None:
      raise ValueError(
        "aggregator: counts all clients alike, and those of this algorithm "
        "return weights of their own; leave aggregator out"
      )
    return output

  reply = cohort.each(alike, broadcast, **options)
  return dataclasses.replace(reply, value=combine(reply.value, reply.counted))


def _of_ranks(inner):
  """Of each coordinate, the mean of the entries of some ranks."""

  def combine(messages, counted):
    n = jnp.sum(counted)

    def of_leaf(leaf):
      # Those that do not count are sorted to the end.
      ascending = jnp.sort(
        jnp.where(trees.along(counted, leaf), _wide(leaf), jnp.inf), axis=0
      )
      rank = jnp.arange(len(counted))
      is_taken = inner(rank, n) & (rank < n)
      return _mean_of(trees.along(is_taken, leaf), ascending, leaf.dtype)

    return jax.tree.map(of_leaf, messages)

  return combine


def _scores(messages, counted, neighbors):
  """[C] sums of squared distances; infinite for those that do not count."""
  rows = jax.vmap(lambda message: ravel_pytree(message)[0])(messages)
  rows = jnp.where(counted[:, None], _wide(rows), 0)  # [C, d]
  # One row after the other: all at once would take [C, C, d].
  distances = lax.map(lambda row: jnp.sum((rows - row) ** 2, axis=1), rows)
  is_pair = counted & counted[:, None] & ~jnp.eye(len(rows), dtype=bool)
  distances = jnp.sort(jnp.where(is_pair, distances, jnp.inf), axis=1)
  is_near = jnp.arange(len(rows)) < neighbors
  score = jnp.sum(jnp.where(is_near, distances, 0), axis=1)
  # Finite also for the only one left.
  largest = jnp.finfo(score.dtype).max
  return jnp.where(counted, jnp.minimum(score, largest), jnp.inf)


def _mean_of(mask, leaf, dtype):
  """The mean of the rows in a mask, in the type that `Cohort.mean` has."""
  total = jnp.sum(jnp.where(mask, _wide(leaf), 0), axis=0)
  mean = total / jnp.maximum(jnp.sum(mask, axis=0), 1)
  return mean.astype(jnp.result_type(dtype, float))


def _wide(leaf):
  """The array in a floating-point type of at least 32 bits."""
  return trees.at_least_float32(leaf.astype(jnp.result_type(leaf.dtype, float)))


AGGREGATORS: dict[str, Entry] = {
  "mean": Entry(mean, "the weighted mean"),
  "median": Entry(median, "the median of each coordinate"),
  "trimmed_mean": Entry(
    trimmed_mean,
    "the mean of each coordinate without its extremes",
    from_factory(
      trimmed_mean, fraction={"default": 0.1, "flag": "trim_fraction"}
    ),
  ),
  "multi_krum": Entry(
    multi_krum,
    "the mean of the messages nearest to the others",
    from_factory(multi_krum, faulty={"default": 1, "flag": "krum_faulty"}),
    label="multi-Krum",
  ),
}
register(AGGREGATORS)
