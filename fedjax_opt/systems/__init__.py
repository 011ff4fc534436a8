"""How long clients take: their speed, their connections, their availability.

`SYSTEMS` and `AVAILABILITIES` name what there is to choose from by name.
"""

import functools

from fedjax_opt.registry import (
  Choice,
  File,
  Hyperparameter,
  Option,
  register,
)
from fedjax_opt.systems.availability import (
  Availability,
  cyclic,
  markov,
  periods,
)
from fedjax_opt.systems.devices import (
  OF,
  Durations,
  System,
  from_csv,
  sample,
)
from fedjax_opt.systems.distributions import (
  Distribution,
  constant,
  exponential,
  half_normal,
  lognormal,
  uniform,
  zipf,
)

__all__ = [
  "Availability",
  "Distribution",
  "Durations",
  "System",
  "constant",
  "cyclic",
  "exponential",
  "from_csv",
  "half_normal",
  "lognormal",
  "markov",
  "periods",
  "sample",
  "uniform",
  "zipf",
]

# Seconds of the four groups of FADAS's clients, each a uniform distribution.
FADAS = ((1, 2), (3, 5), (5, 8), (50, 80))


def drawn(
  seconds,
  num_clients: int,
  seed: int,
  *,
  bytes_down: float | None = None,
  bytes_up: float | None = None,
  bytes_sigma: float = 0.0,
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
    bytes_up: likewise to the server.
    bytes_sigma: standard deviation of the logarithm of both.
    redraw: see `sample`.
    of: see `sample`.
    **of_seconds: arguments of `seconds`.
  """
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


def _number(name, default, help, interval="(0, inf)", **more):
  return Hyperparameter(name, default, help, interval, **more)


_BYTES = (
  _number("bytes_down", None, "median bytes per second from the server"),
  _number("bytes_up", None, "median bytes per second to the server"),
  _number(
    "bytes_sigma",
    0.0,
    "standard deviation of the logarithm of bytes per second",
    "[0, inf)",
  ),
)


def _choice(seconds, help, *parameters, redraw=False, of="step"):
  is_drawn = Hyperparameter(
    "redraw", redraw, "draw a client's seconds anew each time it is sent out"
  )
  what = Option(
    "of",
    of,
    "what takes these seconds at a client: a local step, or a round",
    OF,
  )
  return Choice(
    functools.partial(drawn, seconds),
    help,
    (*parameters, what, *_BYTES, is_drawn),
  )


SYSTEMS: dict[str, Choice] = {
  "constant": _choice(
    constant, "all clients alike", _number("value", 0.1, "seconds")
  ),
  "uniform": _choice(
    uniform,
    "seconds uniform between two numbers",
    _number("low", 0.05, "least seconds"),
    _number("high", 0.5, "most seconds"),
  ),
  "lognormal": _choice(
    lognormal,
    "seconds with a normal logarithm: a few clients are very slow",
    _number("median", 0.1, "median seconds"),
    _number(
      "sigma", 1.0, "standard deviation of the logarithm of the seconds",
      "[0, inf)",
    ),
  ),
  "half_normal": _choice(
    half_normal,
    "seconds as the size of a normal number",
    _number("scale", 0.1, "seconds, 1.25 times their mean"),
  ),
  "exponential": _choice(
    exponential,
    "exponential seconds",
    _number("mean", 0.1, "mean seconds"),
  ),
  "zipf": _choice(
    zipf,
    "whole seconds k with a chance in proportion to k^-exponent",
    _number("exponent", 1.5, "how rare slow clients are", "[0, inf)"),
    _number("most", 1000, "most seconds", "[1, 10000000]", is_static=True),
  ),
  "fadas": _choice(
    _groups,
    "four groups of clients whose rounds take U(1, 2), U(3, 5), U(5, 8) and "
    "U(50, 80) seconds, drawn each time (Wang et al., 2024)",
    redraw=True,
    of="round",
  ),
  "devices": Choice(
    from_csv,
    "devices of a table, such as examples/devices.csv, one drawn for each "
    "client",
    (
      File(
        "path",
        "CSV file with the columns seconds_per_step, bytes_down and bytes_up",
        flag="system_file",
      ),
    ),
  ),
}  # fmt: skip
AVAILABILITIES: dict[str, Choice] = {
  "cyclic": Choice(
    cyclic,
    "for a part of every period, which starts at a random time for each",
    (
      _number("period", 100.0, "seconds"),
      _number("share", 0.5, "share of the period", "(0, 1]"),
    ),
  ),
  "markov": Choice(
    markov,
    "on and off in turn, by a Markov chain",
    (
      _number("mean_on", 50.0, "mean seconds for which a client is on"),
      _number("mean_off", 50.0, "mean seconds for which it is off"),
    ),
  ),
  "trace": Choice(
    periods,
    "periods of a table",
    (
      File(
        "path",
        "CSV file with the columns client, start and end, in seconds",
        flag="availability_file",
      ),
      _number("repeat", None, "seconds after which the table begins again"),
    ),
  ),
}
register(SYSTEMS)
register(AVAILABILITIES)
