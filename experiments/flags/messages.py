"""The flags of what clients send, and of how the server combines it."""

from collections.abc import Callable
from typing import Any

from experiments.flags import command_line
from experiments.flags.registries import Flags, Kind
from fedjax_opt import aggregators, transforms
from fedjax_opt.aggregators import AGGREGATORS
from fedjax_opt.algorithms import ALGORITHMS
from fedjax_opt.faults import FAULTS
from fedjax_opt.registry import Hyperparameter
from fedjax_opt.transforms import UPLOADS


def _prefixed(prefix: str) -> Callable[..., tuple[str, Any]]:
  """The flags of a kind's hyperparameters, which begin with a word."""
  return lambda name, choice, parameter: (
    f"{prefix}_{parameter.name}",
    parameter,
  )


_AGGREGATOR_FLAGS = {"fraction": "trim_fraction", "faulty": "krum_faulty"}

UPLOAD = Kind("upload", UPLOADS, named=_prefixed("upload"))
AGGREGATOR = Kind(
  "aggregator",
  AGGREGATORS,
  named=lambda name, choice, parameter: (
    _AGGREGATOR_FLAGS[parameter.name],
    parameter,
  ),
)
FAULT = Kind("fault", FAULTS, named=_prefixed("fault"))
KINDS = (UPLOAD, AGGREGATOR, FAULT)
_FAULTY = Hyperparameter("faulty_fraction", 0.0, "fraction", "[0, 1]")


def define() -> None:
  """Defines them."""
  with command_line.group("Messages", "messages"):
    command_line.text(
      "upload",
      None,
      "What clients send instead of their differences, with its bytes counted "
      f"as sent. Default: the differences.{command_line.listed(UPLOADS)}",
    )
    UPLOAD.define()
    command_line.switch(
      "error_feedback",
      False,
      "With upload: what a client did not send is added to its next "
      "difference.",
    )
    command_line.text(
      "aggregator",
      "mean",
      "How the server combines the messages of a cohort; all but mean need "
      f"--weighting=uniform.{command_line.listed(AGGREGATORS)}",
    )
    AGGREGATOR.define()
    command_line.text(
      "fault",
      None,
      "What faulty clients send, to test aggregators."
      f"{command_line.listed(FAULTS)}",
    )
    FAULT.define()
    command_line.number(
      "faulty_fraction",
      None,
      "Share of the clients that are faulty, in [0, 1]; who they are is the "
      "same in all rounds and with every seed. With fault.",
    )


def resolve(flags: Flags) -> dict[str, Any]:
  """The flags of what was chosen, with their defaults.

  Raises:
    ValueError: naming the flag that cannot be.
  """
  resolved = {}
  for kind in KINDS:
    name = flags[kind.flag]
    if name is None:
      _check_absent(flags, kind)
      continue
    kind.check(name)
    kind.check_others(flags, name)
    resolved |= kind.read(flags, name).static
  if flags["error_feedback"] and flags["upload"] is None:
    raise ValueError(
      "error_feedback=True: without an upload all is sent; give "
      "--upload=top_k, or leave error_feedback out"
    )
  _check_faulty(flags)
  _check_aggregator(flags)
  return resolved


def _check_aggregator(flags: Flags) -> None:
  """Checks that all clients weigh alike, unless it is the mean."""
  name = flags["aggregator"]
  if name == "mean":
    return
  if flags["weighting"] != "uniform":
    raise ValueError(
      f"aggregator={name!r}: counts all clients alike, and weighting is "
      f"{flags['weighting']!r}; give --weighting=uniform"
    )
  if flags["sampler"] == "weighted":
    raise ValueError(
      f"aggregator={name!r}: counts all clients alike, and sampler 'weighted' "
      "gives them weights; leave sampler out"
    )
  if ALGORITHMS[flags["algorithm"]].cohort == "first":
    raise ValueError(
      f"aggregator={name!r}: algorithm {flags['algorithm']} has one client in "
      "each round; leave aggregator out"
    )


def check_cohort(flags: Flags) -> None:
  """Checks that the cohort is large enough for the aggregator.

  Args:
    flags: resolved values, with `cohort_size`.

  Raises:
    ValueError: if it is not.
  """
  if flags["aggregator"] != "multi_krum":
    return
  faulty, size = flags["krum_faulty"], flags["cohort_size"]
  if size < aggregators.least_cohort(faulty):
    raise ValueError(
      f"krum_faulty={faulty}: needs at least "
      f"{aggregators.least_cohort(faulty)} clients in a round; cohort_size is "
      f"{size}"
    )


def _check_absent(flags: Flags, kind: Kind) -> None:
  """Checks that no flag was given for what was not chosen."""
  for flag, owners in kind.owners().items():
    if flags[flag] is not None:
      names = ", ".join(owners)
      raise ValueError(
        f"{flag}={flags[flag]:g}: belongs to {kind.flag} {names}; give "
        f"--{kind.flag}={next(iter(owners))}, or leave {flag} out"
      )


def _check_faulty(flags: Flags) -> None:
  fraction = flags["faulty_fraction"]
  if flags["fault"] is None:
    if fraction is not None:
      raise ValueError(
        f"faulty_fraction={fraction:g}: belongs to a fault; give --fault=flip, "
        "or leave faulty_fraction out"
      )
    return
  if fraction is None:
    raise ValueError(
      f"faulty_fraction: must be given with fault {flags['fault']}"
    )
  _FAULTY.check(fraction)


def settings(flags: Flags) -> dict[str, Any]:
  """The settings `upload`, `fault` and `aggregator`; None where there is none.

  Args:
    flags: resolved values; those of no choice may be missing.
  """
  made = lambda kind, **others: kind.read(flags, flags[kind.flag]).make(
    {}, **others
  )
  found: dict[str, Any] = dict.fromkeys(("upload", "fault", "aggregator"))
  if flags["upload"] is not None:
    found["upload"] = made(UPLOAD)
    if flags["error_feedback"]:
      found["upload"] = transforms.error_feedback(found["upload"])
  if flags["fault"] is not None:
    found["fault"] = made(FAULT, fraction=flags["faulty_fraction"])
  if flags["aggregator"] != "mean":
    found["aggregator"] = made(AGGREGATOR)
  return found
