"""Differential privacy of clients: clipping, Gaussian noise, and epsilon.

Noise and accounting are those of `jax_privacy` and `dp_accounting`:
pip install 'fedjax_opt[privacy]'.

References:
  McMahan et al., "Learning Differentially Private Recurrent Language Models",
  ICLR 2018, Algorithm 1.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_opt import contract
from fedjax_opt.arrays import running_statistics
from fedjax_opt.base import Algorithm
from fedjax_opt.checks import errors
from fedjax_opt.checks.fields import (
  Count,
  NonNegative,
  NonNegativeFloat,
  Positive,
  PositiveFloat,
  SeedOfRun,
  checked,
)
from fedjax_opt.checks.values import check_at_least
from fedjax_opt.registry import Entry, from_factory, register
from fedjax_opt.transforms import clip_by_norm, messages
from fedjax_opt.transforms.upload import with_upload

__all__ = ["calibrated_noise", "epsilon", "with_privacy"]

Sampling = Literal["poisson", "uniform"]
# Beside the numbers that algorithms fold into the key of a round.
_NOISE = 0xD9
# With less, `dp_accounting` overflows.
_LEAST_NOISE = 1e-3
# The largest noise multiplier that `calibrated_noise` tries.
_MOST_NOISE = 1 << 20


@checked(algorithm=contract.ALGORITHM)
def with_privacy(
  algorithm: Algorithm,
  max_norm: Positive,
  noise_multiplier: NonNegative,
  noise_seed: SeedOfRun | None = None,
) -> Algorithm:
  r"""An algorithm whose server sees a clipped and noisy mean of differences.

  .. math::

    \Delta = \frac{1}{n} \Bigl( \sum_i u_i \min(1, c / \|u_i\|_2)
      + \mathcal{N}(0, (z c)^2 I) \Bigr)

  n is the expected number of clients in a cohort (that of `samplers.poisson`,
  else the size of the cohort), not the number that comes. All clients have the
  same weight. If a client drops out, or its message is not finite, its
  difference counts as zero. A round without clients has its noise, too.

  The server's model is private against a person who sees all of its versions
  and adds or removes one client; `epsilon` says how private. The states of
  clients, and metrics on their data, are not private.

  The noise comes from the operating system's entropy. It is different at each
  point of a grid and in each run, also in a resumed run, so results differ from
  run to run. With `noise_seed`, for tests, they do not differ, and the run is
  not private: whoever knows the seeds can remove the noise.

  >>> algorithm = fo.privacy.with_privacy(
  ...   fo.fed_avg(loss_fn, optax.sgd(0.1)), max_norm=1.0, noise_multiplier=0.8)
  >>> result = fo.simulate(
  ...   algorithm, params, data, rounds=100, cohort_size=12,
  ...   sampler=fo.samplers.poisson(3))
  >>> epsilon = fo.privacy.epsilon(
  ...   0.8, 100, data.num_clients, 3, delta=1e-3, places=12)

  Args:
    algorithm: one whose clients send a difference and nothing else.
    max_norm: norm to which a client's whole difference is clipped; c, positive.
    noise_multiplier: standard deviation of the noise of the sum in units of
      the norm; z, non-negative.
    noise_seed: seed of noise that can be computed again, together with the
      run's seed, from 0 to 2^32 - 1; None for noise that nobody can compute
      again.

  Returns:
    The algorithm. Both numbers may be tuned in a grid.

  Raises:
    ValueError: if a number is out of range, or the clients send anything else,
      also running statistics of batch normalization.
      In a round: if the sampler draws clients by weights, or more than once, or
      there is a schedule.
    TypeError: if the seed is no whole number.
    ImportError: if `jax_privacy` is missing.

  References:
    McMahan et al., ICLR 2018, Algorithm 1, with equal weights and the estimator
    of section 3.2 that divides by the expected number of clients.
  """
  _check_installed("jax_privacy")
  messages.check_sends("privacy", algorithm)
  clipped = with_upload(algorithm, clip_by_norm(max_norm))

  def init(params):
    state = clipped.init(params)
    parts = messages.shapes_of_differences(algorithm, state)
    if len(parts) != 1 or parts[0] is None:
      raise ValueError(
        "privacy: the clients of this algorithm send more than one difference, "
        "and the noise is for one; take another algorithm, such as fed_avg, "
        "fed_prox or fed_dyn"
      )
    parts = running_statistics.part_paths(
      algorithm.sends(algorithm.params(state))[0]
    )
    if parts:
      raise ValueError(
        f"privacy: {parts[0]!r} of the model has running statistics of the "
        "clients' examples, and noise would make variances of them negative; "
        "take a model without batch normalization, or train only other leaves "
        "(trainable)"
      )
    return state

  def round(state, cohort):
    if noise_seed is None:
      key = cohort.secret_key
    else:
      key = jax.random.fold_in(cohort.key, _NOISE)
      key = jax.random.fold_in(key, np.uint32(noise_seed))
    mean = functools.partial(
      _noisy_mean, cohort, max_norm * noise_multiplier, key
    )
    return clipped.round(state, messages.View(cohort, mean=mean, each=_refuse))

  # Nothing may change a difference after it was clipped.
  return clipped._replace(
    init=init, round=round, sends=None, has_secret_noise=noise_seed is None
  )


def _noisy_mean(cohort, stddev, key, one_client, broadcast, **options):
  """What `Cohort.mean` returns, a noisy sum over the expected number."""
  from jax_privacy import noise_addition

  if cohort.config.clock is not None:
    raise ValueError(
      "privacy: who takes part on a schedule is not drawn as the accounting "
      "assumes; leave schedule out"
    )
  sampler = cohort.config.sampler.name
  if sampler not in ("poisson", "uniform"):
    raise ValueError(
      f"privacy: its accounting does not cover sampler={sampler!r}; must be "
      "poisson or uniform"
    )

  def alike(worker, broadcast):
    return one_client(worker, broadcast)._replace(weight=1.0)

  mean = cohort.mean(alike, broadcast, **options)
  total = optax.tree.scale(jnp.sum(mean.counted), mean.value)
  privatizer = noise_addition.gaussian_privatizer(stddev=stddev, prng_key=key)
  total, _ = privatizer.update(total, privatizer.init(total))
  expected = cohort.config.expected_size
  return dataclasses.replace(
    mean,
    value=optax.tree.scale(1 / expected, total),
    # How many came must not be seen, not even that nobody did.
    cohort_share=jnp.full_like(
      mean.cohort_share, expected / cohort.config.num_clients
    ),
    is_lost=jnp.array(False),
  )


def _refuse(*_: Any, **__: Any) -> None:
  raise ValueError(
    "privacy: this algorithm reads single messages, and the noise hides them "
    "only in their mean; take another algorithm, such as fed_avg"
  )


@checked(delta="(0, 1)")
def epsilon(
  noise_multiplier: NonNegativeFloat,
  rounds: int,
  num_clients: Count,
  cohort_size: PositiveFloat,
  delta: float,
  *,
  sampling: Sampling = "poisson",
  places: Count | None = None,
) -> float:
  r"""The :math:`\varepsilon` of :math:`(\varepsilon, \delta)` after R rounds.

  `dp_accounting` computes it. With Poisson sampling this is its accountant of
  privacy loss distributions, for adding or removing a client. With cohorts of
  one size that are drawn anew in each round, without replacement, this is its
  Rényi accountant, for replacing a client by another one, which changes the sum
  by up to twice the norm. Cohorts that are no secret, such as those of
  `samplers.fixed`, have no accounting here. The other samplers draw cohorts
  from the run's seed, which must be a secret.

  Args:
    noise_multiplier: z, see `with_privacy`.
    rounds: R, also rounds without clients.
    num_clients: M, of the population.
    cohort_size: expected clients of a round, with "uniform" a whole number.
    delta: :math:`\delta`, in (0, 1); smaller than 1 / M.
    sampling: "poisson" (`samplers.poisson`) or "uniform" (`samplers.uniform`).
    places: with "poisson" the option `cohort_size`, the most clients that a
      round has; None if it never cuts.

  Returns:
    The epsilon; 0 without rounds, and infinite without noise, or with so little
    (below 0.001) that it is above 100,000.

  Raises:
    ValueError: if a number is out of range.
    TypeError: if it is none.
    ImportError: if `dp_accounting` is missing.
  """
  accountant = _accounting(num_clients, cohort_size, sampling, places)
  return _spent(accountant, noise_multiplier, rounds, delta)


def _spent(accountant, noise_multiplier, rounds, delta):
  """The epsilon by what `_accounting` returns."""
  if not rounds:
    return 0.0
  if noise_multiplier < _LEAST_NOISE:
    return math.inf
  accounting, event = accountant(float(noise_multiplier))
  return float(accounting.compose(event, int(rounds)).get_epsilon(delta))


@checked(delta="(0, 1)")
def calibrated_noise(
  epsilon: PositiveFloat,
  rounds: Count,
  num_clients: Count,
  cohort_size: PositiveFloat,
  delta: float,
  *,
  sampling: Sampling = "poisson",
  places: Count | None = None,
) -> float:
  """The least noise multiplier for a number of rounds and an epsilon.

  Args:
    epsilon: at most; positive.
    rounds: see `epsilon`; at least 1.
    num_clients: see `epsilon`.
    cohort_size: see `epsilon`.
    delta: see `epsilon`.
    sampling: see `epsilon`.
    places: see `epsilon`.

  Returns:
    z, to 1e-3 above the least.

  Raises:
    ValueError: if a number is out of range, or no noise is enough.
    TypeError: if it is none.
    ImportError: if `dp_accounting` is missing.
  """
  accountant = _accounting(num_clients, cohort_size, sampling, places)
  spent = lambda z: _spent(accountant, z, rounds, delta)
  low, high = 0.0, 1.0
  while spent(high) > epsilon:
    low, high = high, 2 * high
    if high > _MOST_NOISE:
      raise ValueError(
        f"epsilon={epsilon:g}: no noise multiplier up to {_MOST_NOISE} reaches "
        f"it at delta={delta:g}; must be larger"
      )
  while high - low > 1e-3:
    middle = (low + high) / 2
    is_less = spent(middle) > epsilon
    low, high = (middle, high) if is_less else (low, middle)
  return high


def _check_installed(name):
  errors.check_installed(name, f"privacy needs {name}", "privacy")


def _accounting(
  num_clients: int,
  cohort_size: float,
  sampling: Sampling,
  places: int | None,
) -> Callable[[float], tuple[Any, Any]]:
  """From a noise multiplier to an accountant, and the event of a round."""
  if cohort_size > num_clients:
    raise ValueError(
      f"cohort_size={cohort_size:g}: must be at most num_clients={num_clients}"
    )
  _check_installed("dp_accounting")
  import dp_accounting
  from dp_accounting import pld, rdp

  if sampling == "uniform":
    check_at_least("cohort_size", cohort_size, 1)
    if places is not None:
      raise ValueError(f"places={places}: belongs to sampling 'poisson'")
    replaced = dp_accounting.NeighboringRelation.REPLACE_ONE
    return lambda z: (
      rdp.RdpAccountant(neighboring_relation=replaced),
      dp_accounting.SampledWithoutReplacementDpEvent(
        num_clients, cohort_size, dp_accounting.GaussianDpEvent(z / 2)
      ),
    )
  if places is not None and places < cohort_size:
    raise ValueError(
      f"places={places}: must be at least cohort_size={cohort_size:g}, the "
      "expected number"
    )
  rate = cohort_size / num_clients

  def of_losses(z):
    # Losses are of the size of 1 / z^2; in steps of 1e-4 they fill the memory.
    accountant = pld.PLDAccountant(
      value_discretization_interval=1e-4 / min(z, 1.0) ** 2
    )
    if places is None:
      gaussian = dp_accounting.GaussianDpEvent(z)
      return accountant, dp_accounting.PoissonSampledDpEvent(rate, gaussian)
    return accountant, dp_accounting.TruncatedSubsampledGaussianDpEvent(
      num_clients, rate, places, z
    )

  return of_losses


MECHANISMS: dict[str, Entry] = {
  "gaussian": Entry(
    with_privacy,
    "clipped differences, their mean with Gaussian noise",
    from_factory(with_privacy, max_norm=1.0, noise_multiplier=1.0),
    label="Gaussian",
  ),
}
register(MECHANISMS)
