"""One-line messages for unknown flags and invalid values of flags.

Messages name a flag as Python names an argument; `with_dashes` writes it as it
is typed.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from absl import flags

from experiments.specification import spec as specs
from experiments.specification.choice_flags import ALGORITHM, is_list, one_only
from fedjax_opt.checks.values import listed, nearest

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
  "seeds": ("seed", "report_seeds"),
  "steps": ("local_steps",),
  "strategy": ("algorithm",),
  "weight_decay": ("l2",),
}


# What a message may have: a text in quotation marks, or a word with its value.
_PIECE = re.compile(
  r"""(?<!\w)'[^']*'(?!\w) | (?<!\w)"[^"]*"(?!\w)
  | (?<![\w./-])(?P<name>[a-z]\w*)(?P<value>=True|=False)?(?![\w/]|\.\w)""",
  re.VERBOSE,
)
# What a remedy, or a pair, has before a flag.
_BEFORE = re.compile(r"(leave (\w+ and )?|given with |value of )$")


def with_dashes(
  message: str, argv: Sequence[str], own_flags: Collection[str] = ()
) -> str:
  """A message in which flags are written as they are typed: --client_lr=0.1.

  In a message about a method, or a file of a study, this holds only for flags
  of the command line: within a method a flag has no dashes.

  Args:
    message: one line, which names flags without dashes.
    argv: the program, and its arguments.
    own_flags: flags of the program, beside those of a run.
  """
  typed = {
    match[1] for word in argv[1:] if (match := re.match(r"--(\w+)", word))
  }
  names = typed | {name[2:] for name in typed if name.startswith("no")}
  if not re.match(r"method[ =:]|study=", message):
    names |= {*specs.all_flags(), *own_flags}

  def shown(piece: re.Match[str]) -> str:
    name, value = piece["name"], piece["value"]
    if name not in names and (piece.start() or name not in own_flags):
      return piece[0]
    before, after = message[: piece.start()], message[piece.end() :]
    # Many names are words of English too.
    if not (
      "_" in name
      or value
      or after.startswith("=")
      or (after.startswith(": ") and re.search("(^|: |with )$", before))
      or _BEFORE.search(before)
    ):
      return piece[0]
    return f"--no{name}" if value == "=False" else f"--{name}"

  return _PIECE.sub(shown, message)


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
    return one_only(name, value, name in specs.conditions())
  return f"{name}={value}: must be {_WANTED.get(kind, _LIST)}"


def no_such_flag(name: str, known: Collection[str], dashes: str = "--") -> str:
  """The message for a name that no flag has; within a method without dashes."""
  near = [f"{dashes}{flag}" for flag in _nearest(name, known)]
  hint = f"did you mean {listed(near, 'or')}?" if near else "see --help"
  return f"{dashes}{name}: no such flag; {hint}"


def not_a_flag(argument: str, known: Collection[str]) -> str:
  """The message for an argument that does not begin with dashes."""
  name = argument.partition("=")[0]
  if "=" in argument and name in known:
    quoted = f", or --method='NAME {argument}'" if "method" in known else ""
    return f"{argument!r}: not a flag; did you mean --{argument}{quoted}?"
  flag = next((n for n in ("method", "artefact") if n in known), "algorithm")
  if argument in ALGORITHM.registry or flag == "artefact":
    return f"{argument!r}: not a flag; did you mean --{flag}={argument}?"
  is_number = re.match(r"[\d.]+,?", argument)
  hint = "; a list has commas and no spaces" if is_number else ""
  return f"{argument!r}: not a flag; flags are --name=value{hint}"


def _nearest(name: str, known: Collection[str]) -> Sequence[str]:
  """The flags that were probably meant: --lr is --client_lr or --server_lr."""
  name = name.lower().replace("-", "_")
  near = [n for n in (name, *_ELSEWHERE.get(name, ())) if n in known]
  if not near:
    short = name.replace("learning_rate", "lr")
    near = [flag for flag in known if flag.endswith(f"_{short}")][:3]
    near = near or nearest(name, known)
  return near
