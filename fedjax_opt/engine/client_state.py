"""The states that clients keep between rounds, on the devices or the host.

The states of all clients may be too large for a device. Then they are stored on
the host: before each round the rows of the cohort are gathered to the device,
and after it they are scattered back. The program sees only these rows.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_opt import multi_process
from fedjax_opt.arrays import target, trees
from fedjax_opt.base import Algorithm
from fedjax_opt.engine.config import Config

# The part of a device's memory that these states may fill before 'auto' chooses
# the host. The examples and the computation need the rest.
_LARGEST_SHARE = 0.5


class Cohorts(NamedTuple):
  """Who takes part in some rounds; a number of M or more is no client.

  Attributes:
    clients: [seeds, T, C], the clients that compute.
    kept: [seeds, T, C], which of these clients' new states are kept.
  """

  clients: np.ndarray
  kept: np.ndarray


# Leaves are [M, ...], or for a grid [settings, seeds, M, ...]. On the host they
# are NumPy arrays, which are changed in place. `config` has `client_memory`
# resolved.


def put(config: Config, states: Any) -> Any:
  """Puts the states of all clients on the devices, or on the host."""
  if config.state_is_on_host:
    return jax.tree.map(_writable, states)
  return config.layout.put_state(states, axes=1)


def shapes_of_gathered(config: Config, states: Any) -> Any:
  """The shapes of what `gather` returns, given the shapes of all states."""
  axis = 2 if config.has_axes else 0

  def of_cohort(leaf):
    leading, trailing = leaf.shape[:axis], leaf.shape[axis + 1 :]
    return leaf.update(shape=(*leading, config.cohort_size, *trailing))

  if config.state_is_on_host:
    states = jax.tree.map(of_cohort, states)
  return config.layout.put_state(states, axes=1)


def gather(config: Config, states: Any, cohorts: Cohorts | None) -> Any:
  """The input of the program: the rows of the cohort, or of all clients.

  Args:
    config: static options.
    states: the states of all clients.
    cohorts: the cohorts of the next round; None if states are on the devices.
  """
  if not config.state_is_on_host:
    return states
  # An empty place has the number M. Any row may be gathered for it.
  clients = np.minimum(cohorts.clients[:, 0], config.num_clients - 1)
  clients = clients if config.has_axes else clients[0]
  seeds = np.arange(len(cohorts.clients))[:, None]
  cohort_states = trees.take(states, _index(config, seeds, clients))
  return config.layout.put_state(cohort_states, axes=1)


def scatter(
  config: Config, states: Any, new: Any, cohorts: Cohorts | None
) -> Any:
  """The states of all clients after a round.

  Args:
    config: static options.
    states: the states before the round; on the host they are changed in place.
    new: what the program returned for the rows of `gather`.
    cohorts: see `gather`.
  """
  if not config.state_is_on_host:
    return new
  cohort = cohorts.kept[:, 0]
  seeds, places = np.nonzero(cohort < config.num_clients)
  state_index = _index(config, seeds, cohort[seeds, places])
  new_index = _index(config, seeds, places)

  def write(leaf, new):
    leaf[state_index] = new[new_index]
    return leaf

  return jax.tree.map(write, states, multi_process.fetch(new))


def _index(config, seeds, clients):
  """The index of rows of clients in an array of all points."""
  return (slice(None), seeds, clients) if config.has_axes else (clients,)


def _writable(leaf):
  """The array as a NumPy array that can be written."""
  array = np.asarray(leaf)
  return array if array.flags.writeable else array.copy()


def resolve_client_memory(
  config: Config, algorithm: Algorithm, states: Any
) -> Config:
  """The options with 'device' or 'host' for `client_memory`.

  Args:
    config: static options, perhaps with 'auto'.
    algorithm: the algorithm of any setting.
    states: the shapes of what all clients keep, at all points.

  Raises:
    ValueError: if they cannot be on the host, as clients keep nothing, or JAX
      has no CPU.
  """
  if config.state_is_on_host and algorithm.init_client is None:
    raise ValueError(
      "client_memory='host': this algorithm keeps nothing for its clients (it "
      "has no `Algorithm.init_client`); leave client_memory out"
    )
  if config.state_is_on_host and target.host() is None:
    raise ValueError(
      "client_memory='host': JAX was started without the CPU; set "
      "JAX_PLATFORMS=cuda,cpu before the start"
    )
  if config.client_memory != "auto":
    return config
  place = "host" if _is_too_much(config, states) else "device"
  return dataclasses.replace(config, client_memory=place)


def _is_too_much(config, states):
  """Whether the states would fill a device, and the host can store them."""
  # Not the host if each round would copy most of the population, nor on a CPU,
  # whose memory is that of the host.
  is_most = 2 * config.cohort_size > config.num_clients
  if is_most or target.platform() == "cpu" or target.host() is None:
    return False
  num_bytes = trees.num_bytes(states) // config.layout.state_devices
  memory = target.device_bytes()
  too_much = memory is not None and num_bytes > _LARGEST_SHARE * memory
  # All processes must run the same program.
  return bool(multi_process.of_any_process(too_much))
