"""The flags of who takes part in a round."""

from typing import Any

from experiments.flags.registries import Flags, Kind
from fedjax_opt import samplers
from fedjax_opt.registry import Choice, Hyperparameter

_GROUPS = Hyperparameter(
  "groups",
  None,
  "groups of clients that take turns; must be given",
  "[1, inf)",
  is_static=True,
)


_EXPECTED = Hyperparameter(
  "expected",
  None,
  "expected clients of a round; must be given, at most cohort_size",
  "(0, inf)",
)
SAMPLERS: dict[str, Choice] = {
  "uniform": Choice(lambda: None, "at random, without replacement"),
  "weighted": Choice(
    samplers.weighted,
    "with replacement, the more likely the more examples; means stay unbiased",
  ),
  "poisson": Choice(
    samplers.poisson,
    "each client by itself, in cohort_size places; as many as expected come on "
    "average",
    (_EXPECTED,),
  ),
  "fixed": Choice(
    samplers.fixed, "consecutive clients, one cohort after the other"
  ),
  "cyclic": Choice(
    samplers.cyclic, "at random from one group after the other", (_GROUPS,)
  ),
}
SAMPLER = Kind(
  "sampler",
  SAMPLERS,
  named=lambda name, choice, parameter: (
    f"sampler_{parameter.name}",
    parameter,
  ),
)


def check(flags: Flags) -> None:
  """Checks the flags; those that depend on the data by `check_groups`.

  Raises:
    ValueError: naming the flag that cannot be.
  """
  name = flags["sampler"]
  SAMPLER.check(name)
  SAMPLER.check_others(flags, name)
  for flag in SAMPLER.parameters(name):
    if flags[flag] is None:
      raise ValueError(f"{flag}: must be given with sampler {name}")
  SAMPLER.read(flags, name)


def check_groups(flags: Flags, num_clients: int) -> None:
  """Checks the flags that depend on the clients.

  Args:
    flags: resolved values, with `cohort_size`.
    num_clients: M.

  Raises:
    ValueError: if there are more groups than clients, or fewer places than
      clients are expected.
  """
  expected, places = flags["sampler_expected"], flags["cohort_size"]
  if expected is not None and expected > min(places, num_clients):
    raise ValueError(
      f"sampler_expected={expected:g}: must be at most cohort_size={places}, "
      f"and the number of clients, {num_clients}"
    )
  groups = flags["sampler_groups"]
  if groups is not None and groups > num_clients:
    raise ValueError(
      f"sampler_groups={groups}: must be from 1 to the number of clients, "
      f"{num_clients}"
    )


def _sampler(flags: Flags) -> Any:
  """The sampler, as `simulate` and `sweep` take it; None for uniform."""
  return SAMPLER.read(flags, flags["sampler"]).make({})


def settings(flags: Flags) -> dict[str, Any]:
  """What `simulate` and `sweep` are given; nothing for the default."""
  sampler = _sampler(flags)
  return {} if sampler is None else {"sampler": sampler}
