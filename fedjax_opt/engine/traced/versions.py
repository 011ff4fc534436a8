"""The versions of the server's message that clients in flight still use.

On an asynchronous schedule a client arrives with a message that it made from
what the server sent some steps ago. The server's messages are kept in slots,
which the host assigns, see `engine.clock`. A slot is reused once no client
needs its message.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_opt import contract
from fedjax_opt.arrays import trees
from fedjax_opt.base import Algorithm, State
from fedjax_opt.checks import functions, memory


class AsyncState(NamedTuple):
  """The state of an algorithm on an asynchronous schedule."""

  server: State  # The state of the algorithm.
  versions: Any  # What the server sent, leaves [slots, ...].


def with_versions(algorithm: Algorithm, num_slots: int) -> Algorithm:
  """An algorithm whose clients start from older versions.

  Args:
    algorithm: one with a `broadcast`.
    num_slots: how many versions are kept.

  Raises:
    ValueError: if clients need more than what the server sent.
  """
  if algorithm.broadcast is None:
    raise ValueError(
      "schedule: must be synchronous for this algorithm, whose clients keep a "
      "state or need the server's present one, and for error_feedback (no "
      "`Algorithm.broadcast`); or give fed_buff without error_feedback"
    )

  def init(params):
    server = contract.call_function("init", algorithm, params)
    broadcast = contract.call_function("broadcast", algorithm, server)
    functions.check_arrays("Algorithm.broadcast", broadcast)
    expand = lambda leaf: jnp.zeros((num_slots, *leaf.shape), leaf.dtype)
    return AsyncState(
      server, jax.tree.map(expand, jax.tree.map(jnp.asarray, broadcast))
    )

  def round(state, cohort):
    server, replies = algorithm.round(state.server, cohort)
    return AsyncState(server, state.versions), replies

  of_server = lambda fn: fn and (lambda state, *args: fn(state.server, *args))
  return algorithm._replace(
    init=init,
    round=round,
    params=of_server(algorithm.params),
    client_params=of_server(algorithm.client_params),
    broadcast=of_server(algorithm.broadcast),
  )


def store_version(
  algorithm: Algorithm, state: AsyncState, slot: jax.Array
) -> AsyncState:
  """The state, with what the server sends now written into a slot.

  Args:
    algorithm: what `with_versions` returned.
    state: before a server step.
    slot: [] int32.
  """
  broadcast = contract.call_function("broadcast", algorithm, state)
  write = lambda old, new: lax.dynamic_update_index_in_dim(old, new, slot, 0)
  return state._replace(versions=jax.tree.map(write, state.versions, broadcast))


def check_versions_fit(
  versions: Any, num_devices: int, available: int | None
) -> None:
  """Checks that the versions fit into the memory of a device.

  Args:
    versions: their shapes, at all points of a grid.
    num_devices: number of devices that the grid is divided over.
    available: memory of a device in bytes; None if it is not known.

  Raises:
    ValueError: if they do not.
  """
  num_bytes = trees.num_bytes(versions) // num_devices
  if available is not None and num_bytes > available:
    raise ValueError(
      "schedule: the versions of the model that clients in flight use take "
      f"{memory.size_text(num_bytes)} on a device; must be at most "
      f"{memory.size_text(available)}, its memory; take fewer clients in "
      "flight, fewer points of a grid, or a smaller max_staleness"
    )
