"""The flags of how settings are compared: on which examples, and which these.

A choice between settings that looks at the test examples makes their accuracy
too good. So by default a part of the training examples is held out of training,
for the choice alone.
"""

from typing import Any

from experiments.flags import command_line
from experiments.flags.registries import Flags
from experiments.tasks import TaskChoice
from experiments.tasks.base import LARGER_IS_BETTER
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
_OVER = Hyperparameter("select_over", 1, "rounds", "[1, inf)")
_SEEDS = Hyperparameter("validation_seed", _SEED, "seed", "[0, 4294967295]")


def define() -> None:
  """Defines what settings are chosen by, and the validation part."""
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
    command_line.text(
      "select_metric",
      None,
      "By what of these examples it is chosen: accuracy or loss. Default: "
      "accuracy of validation and test examples, loss of training examples; "
      "the regularized loss for fmri; for tasks without labels their own.",
    )
    command_line.integer(
      "select_over",
      None,
      "Rounds at the end of a run of whose evaluations the worst counts, such "
      "as 100. Default: only the last evaluation; for lasso and low_rank the "
      "mean over the last 100 rounds, for femnist10 and femnist62 with "
      "--select_on=train that of the last 10 evaluations.",
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
  own = _how(flags, select_on)
  if task.draws_validation or "validation" not in task.splits:
    why = "draws its own" if task.draws_validation else "has no examples for it"
    for name, value in zip(names[1:], (fraction, seed), strict=True):
      if value is not None:
        raise ValueError(
          f"{name}={value}: task {flags['task']} {why}; leave {name} out"
        )
    return {"select_on": select_on} | own
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
  resolved = {"select_on": select_on, "validation_fraction": fraction} | own
  if fraction:
    resolved["validation_seed"] = _SEED if seed is None else seed
  return resolved


def _how(flags: Flags, select_on: str) -> dict[str, Any]:
  """The metric and the rounds that count, where they were given."""
  metric, over = flags["select_metric"], flags["select_over"]
  if metric is not None:
    check_choice("select_metric", metric, LARGER_IS_BETTER)
    if select_on == "truth":
      raise ValueError(
        f"select_metric={metric!r}: select_on=truth has a metric of its own; "
        "leave select_metric out"
      )
  if over is not None:
    _OVER.check(over)
  given = {"select_metric": metric, "select_over": over}
  return {name: value for name, value in given.items() if value is not None}
