"""The messages of an algorithm's clients, changed on their way to the cohort.

`intercepted` runs a round of an algorithm on a cohort whose clients do
something more with what they return. Which parts of a message are differences
says `Algorithm.sends`.
"""

from collections.abc import Callable
from typing import Any

from fedjax_opt.base import Algorithm, ClientOutput, State, client_output

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
