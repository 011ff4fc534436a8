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


def name(flags: Flags) -> str | None:
  """The name of the mechanism, and checks of what it goes with."""
  chosen = flags["privacy"]
  if chosen is None:
    for flag in (*PRIVACY.owners(), DELTA.name):
      if flags[flag] is not None:
        raise ValueError(
          f"{flag}={flags[flag]}: belongs to privacy; give "
          f"--privacy=gaussian, or leave {flag} out"
        )
    return None
  PRIVACY.check(chosen)
  if flags[DELTA.name] is not None:
    DELTA.check(flags[DELTA.name])
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
