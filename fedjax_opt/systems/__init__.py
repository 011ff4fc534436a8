"""How long clients take: their speed, their connections, their availability.

`SYSTEMS` and `AVAILABILITIES` name what there is to choose from by name.
"""

import functools

from fedjax_opt.checks import fields
from fedjax_opt.checks.fields import (
  NonNegativeFloat,
  PositiveFloat,
  Seed,
  checked,
)
from fedjax_opt.registry import (
  Entry,
  Hyperparameter,
  file_path,
  from_factory,
  register,
)
from fedjax_opt.systems.availability import Availability as Availability
from fedjax_opt.systems.availability import cyclic as cyclic
from fedjax_opt.systems.availability import markov as markov
from fedjax_opt.systems.availability import periods as periods
from fedjax_opt.systems.devices import UNITS
from fedjax_opt.systems.devices import Durations as Durations
from fedjax_opt.systems.devices import System as System
from fedjax_opt.systems.devices import from_csv as from_csv
from fedjax_opt.systems.devices import sample as sample
from fedjax_opt.systems.distributions import Distribution as Distribution
from fedjax_opt.systems.distributions import constant as constant
from fedjax_opt.systems.distributions import exponential as exponential
from fedjax_opt.systems.distributions import half_normal as half_normal
from fedjax_opt.systems.distributions import lognormal as lognormal
from fedjax_opt.systems.distributions import uniform as uniform
from fedjax_opt.systems.distributions import zipf as zipf

# Seconds of the four groups of FADAS's clients, each a uniform distribution.
FADAS = ((1, 2), (3, 5), (5, 8), (50, 80))


@checked()
def from_distribution(
  seconds,
  num_clients: int,
  seed: Seed,
  *,
  bytes_down: PositiveFloat | None = None,
  bytes_up: PositiveFloat | None = None,
  bytes_sigma: NonNegativeFloat = 0.0,
  redraw: bool = False,
  of: str = "step",
  **of_seconds: float,
) -> System:
  """Devices by name: the seconds of a distribution, and their connections.

  Args:
    seconds: makes the distribution, or a list of several, of `of_seconds`.
    num_clients: M.
    seed: of all that is drawn.
    bytes_down: median bytes per second from the server; None for no time.
    bytes_up: median bytes per second to the server; None for no time.
    bytes_sigma: standard deviation of the logarithm of bytes per second; needs
      one of them.
    redraw: whether to draw a client's seconds anew each time it is sent out.
    of: see `sample`.
    **of_seconds: arguments of `seconds`.
  """
  if bytes_sigma and bytes_down is None and bytes_up is None:
    raise ValueError(
      f"bytes_sigma={bytes_sigma:g}: bytes take no time; must be given with "
      "bytes_down or bytes_up"
    )
  down, up = (
    None if median is None else lognormal(median, bytes_sigma)
    for median in (bytes_down, bytes_up)
  )
  return sample(
    num_clients,
    seconds(**of_seconds),
    bytes_down=down,
    bytes_up=up,
    redraw=redraw,
    of=of,
    seed=seed,
  )


def _groups():
  return [uniform(low, high) for low, high in FADAS]


def _choice(seconds, help, redraw=False, of="step", **defaults):
  """Devices by a distribution, whose arguments have these defaults."""
  of_parameter = Hyperparameter(
    "of",
    of,
    "what takes these seconds at a client: a local step, or a round",
    fields.one_of(*UNITS),
  )
  parameters = (
    *from_factory(seconds, **defaults),
    of_parameter,
    *from_factory(from_distribution, "bytes_down", "bytes_up", "bytes_sigma"),
    *from_factory(from_distribution, redraw=redraw),
  )
  return Entry(functools.partial(from_distribution, seconds), help, parameters)


SYSTEMS: dict[str, Entry] = {
  "constant": _choice(constant, "all clients alike", value=0.1),
  "uniform": _choice(
    uniform, "seconds uniform between two numbers", low=0.05, high=0.5
  ),
  "lognormal": _choice(
    lognormal,
    "seconds whose logarithm is normal: a few clients are very slow",
    median=0.1,
    sigma=1.0,
  ),
  "half_normal": _choice(
    half_normal, "the absolute value of a normal number", scale=0.1
  ),
  "exponential": _choice(exponential, "exponential seconds", mean=0.1),
  "zipf": _choice(
    zipf,
    "whole seconds k, each with a probability in proportion to k^-exponent",
    exponent=1.5,
    most=1000,
  ),
  "fadas": _choice(
    _groups,
    "four groups of clients whose rounds take U(1, 2), U(3, 5), U(5, 8) and "
    "U(50, 80) seconds, drawn each time (Wang et al., 2024)",
    redraw=True,
    of="round",
  ),
  "devices": Entry(
    from_csv,
    "devices of a table, such as examples/devices.csv, one drawn for each "
    "client",
    (
      file_path(
        "CSV file with the columns seconds_per_step, bytes_down and bytes_up",
        "system_file",
      ),
    ),
  ),
}
AVAILABILITIES: dict[str, Entry] = {
  "cyclic": Entry(
    cyclic,
    "available in a part of every period; each client's periods start at a "
    "random time",
    from_factory(cyclic, "period", "share"),
  ),
  "markov": Entry(
    markov,
    "available and absent in turn, by a Markov chain",
    from_factory(markov, "mean_on", "mean_off"),
  ),
  "trace": Entry(
    periods,
    "available in the periods of a table",
    (
      file_path(
        "CSV file with the columns client, start and end, in seconds",
        "availability_file",
      ),
      *from_factory(periods, "repeat"),
    ),
  ),
}
register(SYSTEMS)
register(AVAILABILITIES)
