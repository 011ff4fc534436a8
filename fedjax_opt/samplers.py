"""Who takes part in a round.

A sampler draws the cohort of a round from the round's key. It gives the same
cohort inside the compiled program and on the host, which reads clients from
disk ahead of time.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_opt.arrays.draws import distinct, is_few
from fedjax_opt.base import round_key, run_key
from fedjax_opt.checks import errors, fields
from fedjax_opt.checks.fields import Count, PositiveFloat
from fedjax_opt.checks.values import (
  check_choice,
  check_count,
  check_function,
  form,
)
from fedjax_opt.registry import Entry, from_factory, register


@fields.checked()
class Sampler(NamedTuple):
  """How the cohort of a round is drawn.

  Attributes:
    draw: `(key, round, sizes, cohort_size) -> (clients, scale)`: [C] int32
      clients, and [C] float factors of their weights in means, or None for 1.
      `key` is the round's; other draws of the round fold 1 to 10 into it.
      `sizes` is [M], the examples of each client. The number M stands for an
      empty place of the cohort, which only samplers with `expected` may have.
      Clients must be in [0, M): the compiled program does not notice others.
    check: `(num_clients, cohort_size) -> None`, raises ValueError if it cannot
      draw such cohorts.
    expected: how many clients are drawn on average, if not always C.
    name: of the function of this module that made it.
  """

  draw: Callable[..., tuple[jax.Array, jax.Array | None]]
  check: Callable[[int, int], None] = lambda num_clients, cohort_size: None
  expected: PositiveFloat | None = None
  name: str = "a function"


@functools.cache  # One object: a run again is known to have the same options.
def uniform() -> Sampler:
  """Each client with the same probability, without replacement.

  Returns:
    The sampler.

  References:
    McMahan et al., AISTATS 2017, Algorithm 1.
  """

  def draw(key, round, sizes, cohort_size):
    del round
    num_clients = len(sizes)
    if cohort_size == num_clients:
      return jnp.arange(num_clients, dtype=jnp.int32), None
    return distinct(key, num_clients, cohort_size), None

  return Sampler(draw, name="uniform")


@fields.checked(weights=fields.array("[M]", interval="[0, inf)"))
def weighted(weights: Sequence[float] | np.ndarray | None = None) -> Sampler:
  r"""Drawn with given probabilities and with replacement.

  Client i is drawn with :math:`p_i`, C times. Its weight in means is divided by
  :math:`C p_i`, so the expectation of the weighted sum is the mean over the
  population. If :math:`p_i` are the weights of the clients, all C draws have
  the same weight, which is scheme I of Li et al. A client that is drawn twice
  counts twice, with the same batches. What a server keeps as a mean over all
  clients, such as SCAFFOLD's control, FedDyn's h and FedSpeed's dual variable,
  is one only under a sampler without replacement. The step of FedExP, a ratio
  of means, is not unbiased, and scales with the sum of the drawn weights.
  Running statistics, second moments and numbers of steps, which must not be
  negative, are averaged with weights that sum to 1. If clients drop out,
  the weights of the others are scaled to the same sum, and means are no longer
  unbiased.

  Args:
    weights: [M], proportional to the probabilities, non-negative; the clients'
      numbers of examples if None. A client of weight 0 is never drawn, but
      counts in the population: means are short by its weight in them, unless
      it has no examples.

  Returns:
    The sampler.

  Raises:
    ValueError: if the weights are not non-negative numbers with a positive sum.
    TypeError: if they are no numbers.

  References:
    Li et al., "On the Convergence of FedAvg on Non-IID Data", ICLR 2020,
    section 3.1, scheme I.
  """
  if weights is not None:
    weights = np.asarray(weights, np.float64)
    if not weights.any():
      raise ValueError("weights: must have a positive sum")
    # In float64 and without an overflow: neither weights nor their sum need be
    # numbers of float32.
    weights = weights / weights.max()
    weights /= weights.sum()
    # Such a share has no reciprocal in float32, and is never drawn.
    weights[weights < np.finfo(np.float32).tiny] = 0

  def check(num_clients, cohort_size):
    del cohort_size
    if weights is not None:
      check_count("sampler: weights", weights, num_clients, "clients")

  def draw(key, round, sizes, cohort_size):
    del round
    if weights is None:
      shares = sizes.astype(float) / jnp.sum(sizes.astype(float))
      ends, owners = jnp.cumsum(shares), _last_with_share(shares, jnp)
    else:  # Constants of the program, [M].
      shares, ends = jnp.asarray(weights), jnp.asarray(np.cumsum(weights))
      owners = jnp.asarray(_last_with_share(weights, np))
    # Inverse transform sampling. Rounding of the ends can give a client without
    # a share an interval, which goes to the last one before that has a share.
    uniforms = jax.random.uniform(key, (cohort_size,), jnp.float32)
    positions = jnp.searchsorted(ends, uniforms, side="right")
    clients = owners[jnp.minimum(positions, len(shares) - 1)].astype(jnp.int32)
    return clients, 1 / (cohort_size * shares[clients])

  return Sampler(draw, check, name="weighted")


def _last_with_share(shares, xp):
  """[M], of each client the last one up to it that has a share."""
  places = xp.where(shares > 0, xp.arange(len(shares)), 0)
  return jax.lax.cummax(places) if xp is jnp else np.maximum.accumulate(places)


@fields.checked(cohorts=fields.array("[T, C]", of_integers=True))
def fixed(cohorts: Sequence[Sequence[int]] | None = None) -> Sampler:
  """Given cohorts, in turn.

  Args:
    cohorts: [T, C] clients; round r has the cohort r mod T. If None the
      population is cut into cohorts of C consecutive clients; those of the
      last one that would be incomplete are filled up from the first.

  Returns:
    The sampler.

  Raises:
    ValueError: if the cohorts are not lists of one length.
    TypeError: if they are no lists of whole numbers.
  """
  if cohorts is not None:
    cohorts = np.asarray(cohorts)

  def check(num_clients, cohort_size):
    if cohorts is None:
      return
    if not len(cohorts) or cohorts.shape[1] != cohort_size:
      raise ValueError(
        f"sampler: fixed has {len(cohorts)} cohorts of {cohorts.shape[1]} "
        f"clients; must be one or more, each of cohort_size={cohort_size}"
      )
    if cohorts.min() < 0 or cohorts.max() >= num_clients:
      raise ValueError(
        f"sampler: fixed has a client outside [0, {num_clients})"
      )
    if any(len(set(row)) < len(row) for row in cohorts.tolist()):
      raise ValueError("sampler: fixed has a client twice in one cohort")

  def draw(key, round, sizes, cohort_size):
    del key
    num_clients = len(sizes)
    if cohorts is not None:
      return jnp.asarray(cohorts, jnp.int32)[round % len(cohorts)], None
    num_cohorts = -(-num_clients // cohort_size)
    first = round % num_cohorts * cohort_size
    clients = (first + jnp.arange(cohort_size)) % num_clients
    return clients.astype(jnp.int32), None

  return Sampler(draw, check, name="fixed")


@fields.checked()
def cyclic(groups: Count) -> Sampler:
  """Groups of clients that are available in turn.

  Group g has the clients whose number is g modulo `groups`. In round r the
  cohort is drawn from group r mod `groups`, uniformly without replacement.

  Args:
    groups: groups of clients that take turns; each must have at least C
      clients.

  Returns:
    The sampler.

  Raises:
    ValueError: if `groups` is not positive. A number that does not fit the
      clients is refused by `simulate`.
    TypeError: if it is no whole number.

  References:
    Cho et al., "On the Convergence of Federated Averaging with Cyclic Client
    Participation", ICML 2023, section 3.
  """

  def check(num_clients, cohort_size):
    if not 1 <= groups <= num_clients // cohort_size:
      raise ValueError(
        f"groups={groups}: must be from 1 to {num_clients // cohort_size}, so "
        f"that each has cohort_size={cohort_size} of the {num_clients} clients"
      )

  def draw(key, round, sizes, cohort_size):
    group, (whole_groups, leftover) = round % groups, divmod(len(sizes), groups)
    most = whole_groups + (leftover > 0)
    num = whole_groups + (group < leftover)  # Clients of this group.
    places = distinct(key, most, cohort_size, num)
    return (group + groups * places).astype(jnp.int32), None

  return Sampler(draw, check, name="cyclic")


@fields.checked()
def poisson(expected: PositiveFloat) -> Sampler:
  """Each client independently, with the same probability expected / M.

  So a round has a random number of clients. If it has none, it is lost.
  `cohort_size` is the number of places. If more clients are drawn, so many of
  them, chosen uniformly, take part. Accountants of differential privacy assume
  this sampler, see `fedjax_opt.privacy`.

  Args:
    expected: clients expected in a round, at most as many as the cohort has
      places; positive, and at most M. Two or three times as many places make it
      unlikely that a client stays outside.

  Returns:
    The sampler.

  Raises:
    ValueError: if `expected` is not positive.
    TypeError: if it is no number.

  References:
    McMahan et al., "Learning Differentially Private Recurrent Language Models",
    ICLR 2018, Algorithm 1.
  """

  def check(num_clients, cohort_size):
    if not expected <= cohort_size <= num_clients:
      raise ValueError(
        f"sampler: poisson expects {expected:g} clients; must be at most "
        f"cohort_size={cohort_size}, and that at most the number of clients, "
        f"{num_clients}"
      )

  def draw(key, round, sizes, cohort_size):
    del round
    num_clients = len(sizes)
    if is_few(num_clients, cohort_size):
      # How many come is binomial, and who does is then as likely for all: the
      # same cohorts without a number for each client.
      count_key, key = jax.random.split(jax.random.fold_in(key, 0))
      clients = distinct(key, num_clients, cohort_size)
      count = _binomial(count_key, num_clients, expected, cohort_size)
      is_drawn = jnp.arange(cohort_size) < count
    else:
      uniforms = jax.random.uniform(key, (num_clients,), jnp.float32)
      least, clients = jax.lax.top_k(-uniforms, cohort_size)
      is_drawn = -least < expected / num_clients
    clients = jnp.where(is_drawn, clients, num_clients)
    return clients.astype(jnp.int32), None

  return Sampler(draw, check, float(expected), "poisson")


def _binomial(key, trials, mean, most):
  """[] int, Binomial(trials, mean / trials), or `most` where it is more.

  By inversion, with 64 random bits as two words: float32 would round a tail of
  the distribution that accountants of privacy look at.
  """
  from scipy import special  # No other sampler needs it.

  ends = special.bdtr(np.arange(most), trials, mean / trials)  # [most] float64
  high = np.minimum(np.floor(ends * 2.0**32), 2**32 - 1)
  low = np.minimum(np.floor((ends * 2.0**32 - high) * 2.0**32), 2**32 - 1)
  high, low = jnp.asarray(high.astype(np.uint32)), low.astype(np.uint32)
  bits = jax.random.bits(key, (2,), jnp.uint32)
  is_past = (bits[0] > high) | ((bits[0] == high) & (bits[1] >= low))
  return jnp.sum(is_past)


SAMPLERS: dict[str, Entry] = {
  "uniform": Entry(uniform, "at random, without replacement"),
  "weighted": Entry(
    weighted,
    "with replacement, clients with more examples more often; means stay "
    "unbiased if none drops out",
  ),
  "poisson": Entry(
    poisson,
    "each client independently of the others; on average sampler_expected "
    "clients, at most cohort_size",
    from_factory(poisson, "expected"),
    label="Poisson",
  ),
  "fixed": Entry(fixed, "consecutive clients, one cohort after the other"),
  "cyclic": Entry(
    cyclic,
    "at random from one group of clients, then from the next",
    from_factory(cyclic, "groups"),
  ),
}
register(SAMPLERS)

_TAKES = (
  "(key, round) -> [C] int32, a sampler such as samplers.cyclic(4), or a name"
)


@fields.checked()
def resolve(sampler: Any, num_clients: Count, cohort_size: int) -> Sampler:
  """The sampler that an option stands for, checked.

  Args:
    sampler: a `Sampler`, its name, or a function `(key, round) -> clients`, or
      `-> (clients, scale)`, see `Sampler.draw`.
    num_clients: M, of the population.
    cohort_size: C.

  Raises:
    ValueError: if it cannot draw such cohorts.
    TypeError: if it is none of these.
  """
  if isinstance(sampler, str):
    complete = [n for n, c in SAMPLERS.items() if not c.hyperparameters]
    check_choice("sampler", sampler, complete)
    sampler = SAMPLERS[sampler].factory()
  elif not isinstance(sampler, Sampler):
    sampler = _of_function(sampler)
  sampler.check(num_clients, cohort_size)
  _check_drawn(sampler, num_clients, cohort_size)
  return sampler


def _of_function(function):
  """A sampler that calls a function of key and round."""
  check_function("sampler", function, _TAKES)

  def draw(key, round, sizes, cohort_size):
    del sizes, cohort_size
    # The engine folds numbers from 1 on. A key of its own keeps what a function
    # folds or splits apart from the keys of clients.
    drawn = function(jax.random.fold_in(key, 0), round)
    return drawn if isinstance(drawn, tuple) else (drawn, None)

  return Sampler(draw)


def _check_drawn(sampler, num_clients, cohort_size):
  """Checks that a sampler draws [C] whole numbers, and [C] factors or None."""
  draw = lambda key, round, sizes: sampler.draw(key, round, sizes, cohort_size)
  key = jax.eval_shape(lambda: run_key(0))
  sizes = jax.ShapeDtypeStruct((num_clients,), jnp.int32)
  with errors.in_one_line("sampler: failed on (key, round)"):
    drawn = jax.eval_shape(draw, key, sizes.update(shape=()), sizes)
  is_pair = isinstance(drawn, tuple) and len(drawn) == 2
  clients, scale = drawn if is_pair else (None, None)
  shapes = [getattr(array, "shape", None) for array in (clients, scale)]
  is_fit = shapes[0] == (cohort_size,)
  is_fit = is_fit and jnp.issubdtype(clients.dtype, jnp.integer)
  if not is_fit or (scale is not None and shapes[1] != (cohort_size,)):
    raise ValueError(
      f"sampler: draws {jax.tree.map(form, drawn)}; must draw "
      f"[C] = [{cohort_size}] whole numbers, and [C] factors of weights or None"
    )


@fields.checked(
  seed=fields.integer(may_be_array=True),
  round=fields.integer(may_be_array=True),
  sizes=fields.array("[M]"),
)
def draw(
  sampler: Sampler,
  seed: jax.Array,
  round: jax.Array,
  sizes: jax.Array,
  cohort_size: Count,
) -> tuple[jax.Array, jax.Array | None]:
  """The cohort of a round of the run with that seed; for use on the host.

  Args:
    sampler: see `resolve`.
    seed: of the run. [] int.
    round: from 0. [] int.
    sizes: examples of each client. [M] int.
    cohort_size: C.

  Returns:
    As `Sampler.draw`: [C] int32 clients, and [C] factors of weights or None.
  """
  key = round_key(run_key(seed), round)
  return sampler.draw(key, round, sizes, cohort_size)
