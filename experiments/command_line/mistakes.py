"""One-line messages for unknown flags and invalid values of flags."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from absl import flags

from experiments.specification import spec
from experiments.specification.choice_flags import is_list, one_only
from fedjax_opt.checks.values import nearest

_WANTED = {float: "a number", int: "a whole number", bool: "true or false"}
_LIST = "values between commas, with quotation marks in pairs"
# Names that other programs have for a flag.
_ELSEWHERE = {
  "batch": ("batch_size",),
  "client_optimizer": ("client",),
  "clients": ("num_clients", "cohort_size"),
  "clients_per_round": ("cohort_size",),
  "data": ("task", "data_dir"),
  "dataset": ("task",),
  "device": ("client_devices",),
  "epochs": ("local_epochs",),
  "frac": ("cohort_size",),
  "lr": ("client_lr", "server_lr"),
  "lr_decay": ("client_decay",),
  "learning_rate": ("client_lr", "server_lr"),
  "method": ("algorithm",),
  "model": ("task",),
  "optimizer": ("client", "server"),
  "out": ("output_dir",),
  "participation": ("cohort_size",),
  "rate": ("client_lr", "server_lr"),
  "regularization": ("regularizer", "l2"),
  "steps": ("local_steps",),
  "strategy": ("algorithm",),
  "weight_decay": ("l2",),
}


def of_flags(error: flags.Error, kinds: Mapping[str, Any]) -> str:
  """What absl says about an argument, in this program's words."""
  if isinstance(error, flags.UnrecognizedFlagError):
    return no_such_flag(error.flagname, kinds)
  wrong = re.match(r"flag --(\w+)=(.*?): ", str(error), re.DOTALL)
  if wrong and wrong[1] in kinds:
    name, value = wrong.groups()
    return wrong_value(name, value, kinds[name])
  missing = re.search(r"missing value for flag --(\w+)", str(error), re.I)
  if missing:
    return f"--{missing[1]}: has no value; give --{missing[1]}=VALUE"
  message = " ".join(str(error).split())
  return message[0].lower() + message[1:]


def wrong_value(name: str, value: str, kind: Any) -> str:
  """The message for a value that a flag of this kind cannot have."""
  if kind in (int, float) and is_list(value, kind):
    return one_only(name, value, name in spec.conditions())
  return f"{name}={value}: must be {_WANTED.get(kind, _LIST)}"


def no_such_flag(name: str, known: Collection[str]) -> str:
  """The message for a name that no flag has."""
  near = _nearest(name, known)
  hint = f"did you mean {near}?" if near else "see --help"
  return f"--{name}: no such flag; {hint}"


def not_a_flag(argument: str, known: Collection[str]) -> str:
  """The message for an argument that does not begin with dashes."""
  name = argument.partition("=")[0]
  if "=" in argument and name in known:
    return f"{argument!r}: not a flag; did you mean --{argument}?"
  return f"{argument!r}: not a flag; flags are --name=value"


def _nearest(name: str, known: Collection[str]) -> str:
  """The flags that were probably meant: --lr is --client_lr or --server_lr."""
  name = name.lower().replace("-", "_")
  near = [name] if name in known else _ELSEWHERE.get(name)
  if not near:
    short = name.replace("learning_rate", "lr")
    near = [flag for flag in known if flag.endswith(f"_{short}")][:3]
    near = near or nearest(name, known)
  return " or ".join(f"--{flag}" for flag in near)
