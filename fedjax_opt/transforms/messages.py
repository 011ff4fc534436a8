"""The messages of an algorithm's clients, changed on their way to the cohort.

`intercepted` runs a round of an algorithm on a cohort whose clients do
something more with what they return. Which parts of a message are differences
says `Algorithm.sends`. Running statistics are no part of a difference: nothing
may compress, limit, corrupt or noise them.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fedjax_opt.arrays import running_statistics, trees
from fedjax_opt.base import Algorithm, ClientOutput, State, client_output
from fedjax_opt.checks import functions

# (worker, run) -> ClientOutput; `run` maps a worker to the algorithm's own.
Rewrite = Callable[[Any, Callable[[Any], ClientOutput]], ClientOutput]


def check_sends(name: str, algorithm: Algorithm) -> None:
  """Raises ValueError if an algorithm sends no difference.

  Args:
    name: of the argument that needs one.
    algorithm: any.
  """
  if algorithm.sends is None:
    raise ValueError(
      f"{name}: the clients of this algorithm send no difference of models, or "
      "one that must not be changed, or send it in several phases (it has no "
      f"`Algorithm.sends`); leave {name} out, or take another algorithm"
    )


def shapes_of_differences(
  algorithm: Algorithm, server: State
) -> list[Any] | None:
  """The shapes of the differences that clients send.

  Args:
    algorithm: any.
    server: its state.

  Returns:
    For each part of a message the shapes, with None at running statistics; None
    for a part that is no difference. None if the algorithm does not say what
    its clients send.
  """
  if algorithm.sends is None:
    return None

  def shapes(state):
    parts = algorithm.sends(algorithm.params(state))
    if not isinstance(parts, list | tuple):
      raise TypeError(
        f"Algorithm.sends: returned {functions.form_of(parts)}; must be a list "
        "with the shapes of a difference, or None, for each part of a message"
      )
    return running_statistics.weights(list(parts))

  return jax.eval_shape(shapes, server)


def differences_of(name: str, message: Any, shapes: list[Any]) -> list[Any]:
  """The differences of a message, None in place of what is none.

  `with_differences` puts them back.

  Args:
    name: of the argument that changes them.
    message: what a client sends.
    shapes: what `shapes_of_differences` returned.

  Raises:
    ValueError: if the message is not what `Algorithm.sends` says.
  """
  parts = (message,) if len(shapes) == 1 else message
  is_split = isinstance(parts, tuple) and len(parts) == len(shapes)
  if is_split:
    parts = [
      None if of_part is None else running_statistics.weights(part)
      for part, of_part in zip(parts, shapes, strict=True)
    ]
  forms = lambda tree: [np.shape(leaf) for leaf in jax.tree.leaves(tree)]
  is_same = is_split and jax.tree.structure(parts) == jax.tree.structure(shapes)
  if not is_same or forms(parts) != forms(shapes):
    raise ValueError(
      f"{name}: the message of a client is not what `Algorithm.sends` says; "
      "must have its parts, each difference in the shapes given there"
    )
  return parts


def with_differences(message: Any, differences: list[Any]) -> Any:
  """A message with other differences; all else, and its type, is as before."""
  if len(differences) == 1:
    return trees.merge(differences[0], message)
  structure = jax.tree.structure(message, is_leaf=lambda x: x is not message)
  return structure.unflatten(map(trees.merge, differences, message))


def intercepted(
  name: str, algorithm: Algorithm, state: State, cohort: Any, rewrite: Rewrite
) -> tuple[State, Any]:
  """One round of an algorithm whose clients' returns are rewritten.

  Args:
    name: of the argument for which they are.
    algorithm: any.
    state: of the server.
    cohort: of the round.
    rewrite: what a client returns instead.

  Returns:
    What the round of the algorithm does.

  Raises:
    ValueError: if the algorithm does not call exactly one verb.
  """
  verbs = []

  def refuse(*_: Any, **__: Any) -> None:
    raise ValueError(
      f"{name}: a round of this algorithm is not one phase of all clients; "
      f"leave {name} out, or take another algorithm"
    )

  def rewritten(verb):
    def call(one_client, *args, **options):
      verbs.append(verb)
      if len(verbs) > 1:
        refuse()

      def changed(worker, broadcast):
        run = lambda worker: client_output(one_client, worker, broadcast)
        return rewrite(worker, run)

      return verb(changed, *args, **options)

    return call

  mean, each = rewritten(cohort.mean), rewritten(cohort.each)
  view = View(cohort, mean=mean, each=each, pick=refuse, cond=refuse)
  output = algorithm.round(state, view)
  if not verbs:
    refuse()
  return output


class View:
  """An object with some attributes of its own in place of another one's.

  Args:
    inner: the other one, a cohort or a worker.
    **own: attributes.
  """

  def __init__(self, inner: Any, **own: Any):
    self.__dict__.update(own)
    self._inner = inner

  def __getattr__(self, name: str) -> Any:
    return getattr(self._inner, name)
