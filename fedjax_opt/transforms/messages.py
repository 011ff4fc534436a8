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
      "in several phases, or none that may be changed (it has no "
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
  between = _Between(name, cohort, rewrite)
  returned = algorithm.round(state, between)
  if between.calls != 1:
    raise between.refusal()
  return returned


class _Between:
  """A cohort with one verb, `mean` or `each`, that rewrites messages."""

  def __init__(self, name: str, cohort: Any, rewrite: Rewrite):
    self.calls = 0
    self._name, self._cohort, self._rewrite = name, cohort, rewrite

  def __getattr__(self, name: str) -> Any:
    return getattr(self._cohort, name)

  def mean(self, one_client: Callable[..., Any], *args: Any, **options: Any):
    return self._cohort.mean(self._rewritten(one_client), *args, **options)

  def each(self, one_client: Callable[..., Any], *args: Any, **options: Any):
    return self._cohort.each(self._rewritten(one_client), *args, **options)

  def pick(self, *args: Any, **options: Any):
    raise self.refusal()

  def cond(self, *args: Any, **options: Any):
    raise self.refusal()

  def refusal(self) -> ValueError:
    return ValueError(
      f"{self._name}: a round of this algorithm is not one phase of all "
      f"clients; leave {self._name} out, or take another algorithm"
    )

  def _rewritten(self, one_client):
    self.calls += 1
    if self.calls > 1:
      raise self.refusal()

    def rewritten(worker, broadcast):
      run = lambda worker: client_output(one_client, worker, broadcast)
      return self._rewrite(worker, run)

    return rewritten
