"""The flags of how settings are compared: on which examples, and which these.

A choice between settings that looks at the test examples makes their accuracy
too good. So by default a part of the training examples is held out of training,
for the choice alone.
"""

from typing import Any

from experiments.flags import command_line
from experiments.flags.registries import Flags
from experiments.tasks import TaskChoice
from fedjax_opt.registry import Hyperparameter, check_choice

# What a setting may be chosen on.
SPLITS = {
  "validation": "examples held out of training; the default",
  "test": "the test examples, as many papers do: the best is then too good",
  "train": "the training examples",
  "truth": "the distance to the true coefficients, which lasso and low_rank "
  "know",
}
_FRACTION, _SEED = 0.1, 0

_FRACTIONS = Hyperparameter(
  "validation_fraction", _FRACTION, "fraction", "[0, 1)"
)
_SEEDS = Hyperparameter("validation_seed", _SEED, "seed", "[0, 4294967295]")


def define() -> None:
  """Defines `--select_on` and the flags of the validation part."""
  width = max(map(len, SPLITS))
  lines = "".join(f"\n{name:{width}}  {help}" for name, help in SPLITS.items())
  with command_line.group("Selection", "selection"):
    command_line.text(
      "select_on",
      None,
      "On what the best setting is chosen, by its mean over the seeds. "
      "Default: validation; train for nonconvex, whose objective is known "
      f"exactly, and for clients on disk without a validation part.{lines}",
    )
    command_line.number(
      "validation_fraction",
      None,
      "Fraction of the training examples that is held out of training, in "
      f"[0, 1); of each class alike. Default: {_FRACTION} with "
      "--select_on=validation, else 0. lasso and low_rank draw theirs.",
    )
    command_line.integer(
      "validation_seed",
      None,
      "Seed of the validation part; the same part for all seeds of a run. "
      f"Default: {_SEED}.",
    )


def resolve(flags: Flags, task: TaskChoice) -> dict[str, Any]:
  """The flags of the selection, with their defaults filled in.

  Args:
    flags: values of all flags; None where not given.
    task: the task of these flags.

  Raises:
    ValueError: naming the flag that cannot be.
  """
  names = ("select_on", "validation_fraction", "validation_seed")
  select_on, fraction, seed = (flags[name] for name in names)
  if select_on is None:
    select_on = task.splits[0]
  check_choice("select_on", select_on, SPLITS)
  if select_on not in task.splits:
    raise ValueError(
      f"select_on={select_on!r}: task {flags['task']} has no such examples; "
      f"must be {' or '.join(task.splits)}"
    )
  if task.draws_validation or "validation" not in task.splits:
    why = "draws its own" if task.draws_validation else "has no examples for it"
    for name, value in zip(names[1:], (fraction, seed), strict=True):
      if value is not None:
        raise ValueError(
          f"{name}={value}: task {flags['task']} {why}; leave {name} out"
        )
    return {"select_on": select_on}
  if fraction is None:
    fraction = _FRACTION if select_on == "validation" else 0.0
  _FRACTIONS.check(fraction)
  if select_on == "validation" and not fraction:
    raise ValueError(
      "validation_fraction=0: select_on=validation needs examples that are "
      "held out; give a fraction, or --select_on=test or train"
    )
  if seed is not None and not fraction:
    raise ValueError(
      f"validation_seed={seed}: nothing is held out; give validation_fraction"
    )
  _SEEDS.check(_SEED if seed is None else seed)
  resolved = {"select_on": select_on, "validation_fraction": fraction}
  if fraction:
    resolved["validation_seed"] = _SEED if seed is None else seed
  return resolved
