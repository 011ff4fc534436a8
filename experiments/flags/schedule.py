"""The clients' learning rate over rounds: its flags, and when it drops."""

from experiments.flags import command_line
from experiments.flags.registries import Flags, numbers
from fedjax_opt.algorithms import ALGORITHMS
from fedjax_opt.registry import Hyperparameter, check_choice


def define() -> None:
  """Defines them."""
  command_line.text(
    "client_schedule",
    "constant",
    "Clients' learning rate over rounds: constant, or step_decay, divided by "
    "10 at each of client_milestones.",
  )
  command_line.text(
    "client_milestones",
    None,
    "Fractions of the rounds after which step_decay divides the rate, between "
    "commas. Default: 0.5,0.75.",
  )


_FRACTION = Hyperparameter(
  "client_milestones", 0.5, "fraction of the rounds", "(0, 1)"
)


def milestones(flags: Flags) -> tuple[float, ...]:
  """The fractions of the rounds after which the rate drops; () for never."""
  schedule, given = flags["client_schedule"], flags["client_milestones"]
  check_choice("client_schedule", schedule, ["constant", "step_decay"])
  if schedule == "constant":
    if given is not None:
      raise ValueError(
        f"client_milestones={given}: belongs to client_schedule step_decay, "
        "not to constant"
      )
    return ()
  fractions = numbers(
    "client_milestones", "0.5,0.75" if given is None else given
  )
  for fraction in fractions:
    _FRACTION.check(fraction)
  return tuple(fractions)


def check(
  milestones: tuple[float, ...], algorithm: str, client: str, has_rate: bool
) -> None:
  """Checks that there is a rate that can drop."""
  if not milestones:
    return
  if not has_rate:
    raise ValueError(
      f"client_schedule='step_decay': client {client} has no learning rate "
      "that could drop; must be constant"
    )
  if not ALGORITHMS[algorithm].rate_may_drop:
    raise ValueError(
      f"client_schedule='step_decay': algorithm {algorithm} has one rate for "
      "all rounds; must be constant"
    )
