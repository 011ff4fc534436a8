"""Clients that send something wrong, to test aggregators with."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_opt import contract
from fedjax_opt.arrays import norms
from fedjax_opt.base import Algorithm
from fedjax_opt.checks import fields
from fedjax_opt.checks.fields import Fraction, Positive, SeedOfRun
from fedjax_opt.registry import Entry, from_factory, register
from fedjax_opt.transforms import messages

__all__ = ["Fault", "flip", "noise", "with_fault"]

# Folded into the key of a client, as no algorithm folds it.
_FAULT = 0xFA17


@fields.checked()
class Fault(NamedTuple):
  """What some clients send in every round.

  Attributes:
    fraction: of the population that is faulty, in [0, 1]; rounded to whole
      clients. A number, which may be tuned in a grid.
    corrupt: `(difference, key) -> difference`, what they send instead.
    seed: of their choice, once for all rounds.
  """

  fraction: Fraction
  corrupt: Callable[[Any, jax.Array], Any]
  seed: SeedOfRun = 0


fields.KINDS[Fault] = fields.instance_of(
  Fault, "one of fedjax_opt.faults, such as faults.flip(0.1)"
)


@fields.checked()
def flip(
  fraction: Fraction,
  strength: Positive = 1.0,
  seed: int = 0,
) -> Fault:
  r"""The difference with its sign flipped: :math:`-\alpha u`.

  Args:
    fraction: of the clients, in [0, 1].
    strength: norm of the fault over that of the difference; alpha, positive.
    seed: by which they are chosen.

  Returns:
    The fault.

  Raises:
    ValueError: if a number is out of range.
    TypeError: if an argument is of a wrong type.
  """
  corrupt = lambda u, key: jax.tree.map(lambda leaf: -strength * leaf, u)
  return Fault(fraction, corrupt, seed)


@fields.checked()
def noise(
  fraction: Fraction,
  strength: Positive = 10.0,
  seed: int = 0,
) -> Fault:
  r"""The difference with Gaussian noise: :math:`u + \alpha \|u\| z / \sqrt d`.

  z is standard normal, so the norm of the noise is about :math:`\alpha \|u\|`.

  Args:
    fraction: of the clients, in [0, 1].
    strength: norm of the fault over that of the difference; alpha, positive.
    seed: by which they are chosen.

  Returns:
    The fault.

  Raises:
    ValueError: if a number is out of range.
    TypeError: if an argument is of a wrong type.
  """

  def corrupt(u, key):
    leaves, structure = jax.tree.flatten(u)
    size = sum(leaf.size for leaf in leaves)
    scale = strength * norms.norm(u) / np.sqrt(size)
    keys = jax.random.split(key, len(leaves))
    noisy = [
      leaf + (scale * jax.random.normal(key, leaf.shape)).astype(leaf.dtype)
      for leaf, key in zip(leaves, keys, strict=True)
    ]
    return jax.tree.unflatten(structure, noisy)

  return Fault(fraction, corrupt, seed)


@fields.checked(algorithm=contract.ALGORITHM)
def with_fault(algorithm: Algorithm, fault: Fault) -> Algorithm:
  """An algorithm some of whose clients send something wrong.

  Every difference of their message is corrupted, after an upload transform.
  Their states are not corrupted. Running statistics of batch normalization are
  not either, because a model whose variances are below zero says nothing about
  an aggregator.

  Args:
    algorithm: one that says what it `sends`.
    fault: what is wrong, and with whom.

  Returns:
    The algorithm. `simulate(..., fault=fault)` makes the same one.

  Raises:
    ValueError: if the algorithm sends no difference, or in several phases; when
      a round is traced, if the fraction is none of the clients. In a grid the
      fraction is traced, and then nobody is faulty.
    TypeError: if an argument is of a wrong type.
  """
  messages.check_sends("fault", algorithm)

  def round(state, cohort):
    shapes = messages.shapes_of_differences(algorithm, state)
    num_clients = cohort.config.num_clients
    # A client is faulty if it comes early in a random order of all.
    rank = np.argsort(_order(fault.seed, num_clients))
    count = _num_faulty(fault, num_clients)

    def rewrite(worker, run):
      output = run(worker)
      is_faulty = jnp.asarray(rank)[worker.client] < count
      key = jax.random.fold_in(worker.key, _FAULT)
      parts = messages.differences_of("fault", output.message, shapes)
      either = lambda wrong, right: jnp.where(is_faulty, wrong, right)
      for i, part in enumerate(parts):
        if part is not None:
          corrupted = fault.corrupt(part, jax.random.fold_in(key, i))
          parts[i] = jax.tree.map(either, corrupted, part)
      message = messages.with_differences(output.message, parts)
      return output._replace(message=message)

    return messages.intercepted("fault", algorithm, state, cohort, rewrite)

  return algorithm._replace(round=round)


def clients_of(fault: Fault, num_clients: int) -> np.ndarray:
  """The numbers of the faulty clients, int32.

  Args:
    fault: any.
    num_clients: M.

  Raises:
    ValueError: if its fraction is positive and none of them.
  """
  count = int(_num_faulty(fault, num_clients))
  return np.sort(_order(fault.seed, num_clients)[:count]).astype(np.int32)


def _num_faulty(fault: Fault, num_clients: int) -> Any:
  """[] float32, how many clients are faulty, alone and in a grid alike.

  Raises:
    ValueError: if a fraction that is known and positive is none of them.
  """
  fraction, number = fault.fraction, np.float32(num_clients)
  if isinstance(fraction, jax.core.Tracer):
    return jnp.round(fraction * number)
  count = np.round(np.float32(fraction) * number)
  if fraction > 0 and count == 0:
    raise ValueError(
      f"fraction={fraction:g}: is none of {num_clients} clients; must be 0, or "
      f"more than {0.5 / num_clients:g}"
    )
  return count


def _order(seed: int, num_clients: int) -> np.ndarray:
  return np.random.default_rng(seed).permutation(num_clients)


FAULTS: dict[str, Entry] = {
  "flip": Entry(
    flip, "differences with their sign flipped", from_factory(flip, "strength")
  ),
  "noise": Entry(
    noise, "differences with Gaussian noise", from_factory(noise, "strength")
  ),
}
register(FAULTS)
