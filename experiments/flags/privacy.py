"""The flags of differential privacy, and the epsilon of a run."""

from typing import Any

from experiments.flags import command_line
from experiments.flags.registries import Flags, Kind
from fedjax_opt import privacy
from fedjax_opt.registry import Hyperparameter

PRIVACY = Kind(
  "privacy",
  privacy.MECHANISMS,
  has_lists=True,
  named=lambda name, choice, parameter: (f"dp_{parameter.name}", parameter),
)
DELTA = Hyperparameter(
  "dp_delta", 1e-5, "The delta for which epsilon is computed.", "(0, 1)"
)
SEED = "dp_seed"
# Those that belong to privacy and are no numbers of a mechanism.
OTHERS = (DELTA.name, SEED)
# Flag -> where it leaves messages as they are.
_CHANGES_MESSAGES = {"upload": None, "aggregator": "mean", "fault": None}


def define() -> None:
  """Defines them."""
  with command_line.group("Differential privacy", "privacy"):
    command_line.text(
      "privacy",
      None,
      "Makes the server's model private for clients; the table has the epsilon "
      "of each setting. Needs --weighting=uniform. With --sampler=poisson "
      "epsilon is for adding or removing a client; with cohorts of fixed size "
      "it is for replacing one, and larger. Default: none."
      f"{command_line.listed(privacy.MECHANISMS)}",
    )
    PRIVACY.define()
    command_line.number(
      DELTA.name, None, f"{DELTA.help} Default: {DELTA.default:g}."
    )
    command_line.integer(
      SEED,
      None,
      "Seed of the noise, a whole number from 0 to 4294967295, for runs that "
      "are to be repeated; such a run is NOT private, as the noise can be made "
      "again and taken away. Default: none; the noise is of the operating "
      "system's entropy, and another one in each run and at each grid point.",
    )


def name(flags: Flags) -> str | None:
  """The name of the mechanism, and checks of what it goes with."""
  chosen = flags["privacy"]
  if chosen is None:
    for flag in (*PRIVACY.owners(), *OTHERS):
      if flags[flag] is not None:
        raise ValueError(
          f"{flag}={flags[flag]}: belongs to privacy; give "
          f"--privacy=gaussian, or leave {flag} out"
        )
    return None
  PRIVACY.check(chosen)
  if flags[DELTA.name] is not None:
    DELTA.check(flags[DELTA.name])
  if flags[SEED] is not None:
    privacy.check_noise_seed(SEED, flags[SEED])
  if flags["weighting"] != "uniform":
    raise ValueError(
      f"privacy={chosen!r}: counts all clients alike, and weighting is "
      f"{flags['weighting']!r}; give --weighting=uniform"
    )
  if flags["sampler"] not in ("uniform", "poisson"):
    raise ValueError(
      f"privacy={chosen!r}: nobody accounts for sampler {flags['sampler']!r}; "
      "must be poisson or uniform"
    )
  for flag, none in _CHANGES_MESSAGES.items():
    if flags[flag] != none:
      raise ValueError(
        f"{flag}={flags[flag]!r}: would change the clipped differences after "
        f"privacy has limited them; leave {flag} out"
      )
  return chosen


def delta(flags: Flags) -> float:
  """The delta of the epsilon that is reported."""
  given = flags.get(DELTA.name)
  return DELTA.default if given is None else given


def summary(
  flags: Flags, epsilons: list[float] | None
) -> dict[str, dict[str, Any]]:
  """What summary.json says of privacy; {} if there is none.

  Args:
    flags: resolved values.
    epsilons: what `epsilons` gave.
  """
  if epsilons is None:
    return {}
  about = {"delta": delta(flags), "epsilon": epsilons}
  return {"privacy": about | {"is_private": flags.get(SEED) is None}}


def warning(flags: Flags) -> list[str]:
  """The line that says of a run that its noise can be taken away."""
  if flags.get(SEED) is None:
    return []
  return [
    f"NOT private: the noise is that of dp_seed={flags[SEED]}, so that it can "
    "be made again and taken away; epsilon is what it would be without dp_seed"
  ]


def epsilons(
  flags: Flags, points: list[dict[str, Any]], num_clients: int, rounds: int
) -> list[float] | None:
  """[S], the epsilon of each point after so many rounds; None if not private.

  Args:
    flags: resolved values, with `cohort_size`.
    points: of the grid.
    num_clients: M.
    rounds: R.
  """
  if flags.get("privacy") is None:
    return None
  size, given = flags["cohort_size"], {}
  if flags["sampler"] == "poisson":
    given = {"places": size}
    size = flags["sampler_expected"]
  else:
    given = {"sampling": "uniform"}
  found: dict[float, float] = {}
  for point in points:
    noise = point["dp_noise_multiplier"]
    if noise not in found:
      about = (noise, rounds, num_clients, size, delta(flags))
      found[noise] = privacy.epsilon(*about, **given)
  return [found[point["dp_noise_multiplier"]] for point in points]
