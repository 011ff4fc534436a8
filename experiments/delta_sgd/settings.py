"""What the runs of the Delta-SGD paper are made of.

Section 4 of the paper: each client optimizer has the step size that was best
for CIFAR-10 and ResNet-18 at alpha = 0.1, in all tasks.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from experiments.artefacts import views
from experiments.artefacts.base import Cell, Found, Key, Plan, RunOf
from experiments.artefacts.claims import Claim, Quantity

_DECAY = "--client_schedule=step_decay"
OPTIMIZERS: dict[str, tuple[str, ...]] = {
  "SGD": ("--client=sgd", "--client_lr=0.1"),
  "SGD(↓)": ("--client=sgd", "--client_lr=0.1", _DECAY),
  "SGDM": ("--client=sgdm", "--client_lr=0.1"),
  "SGDM(↓)": ("--client=sgdm", "--client_lr=0.1", _DECAY),
  "Adam": ("--client=adam", "--client_lr=0.001"),
  "Adagrad": ("--client=adagrad", "--client_lr=0.01"),
  "SPS": ("--client=sps",),
  "Delta-SGD": ("--client=delta_sgd", "--delta=0.1"),
}
OURS = "Delta-SGD"
OTHERS = [name for name in OPTIMIZERS if name != OURS]

# Data set and model -> flags of the paper's size.
R18, R50 = "CIFAR-100, ResNet-18", "CIFAR-100, ResNet-50"
COLUMNS = {
  "MNIST": "mnist",
  "FMNIST": "fmnist",
  "CIFAR-10": "cifar10",
  R18: "cifar100_resnet18",
  R50: "cifar100_resnet50",
}
# Of cpu and smoke, whatever the column is.
_SMALL = {"smoke": "smoke", "cpu": "mnist_cpu"}
# The paper has one seed, the first, but for its Table 7.
_SEEDS = {
  "smoke": "5821,1004",
  "cpu": "5821,1004,6078",
  "paper": "5821,1004,6078",
}
ALPHAS = ("1", "0.1", "0.01")
# A result within so many points of the best is among the best, says the paper.
TIE = 0.5


# The order of the pictures' colours, of which the first is Delta-SGD's.
DRAWN = (OURS, *OTHERS)


def optimizers(plan: Plan, few: Sequence[str] = ("SGD", OURS)) -> Sequence[str]:
  """The rows of a size; a few in smoke."""
  return few if plan.size == "smoke" else list(OPTIMIZERS)


def columns(plan: Plan, *names: str) -> Sequence[str]:
  """The columns of a size: of few cores all data are MNIST."""
  if plan.size == "paper":
    return names
  return ("MNIST",) if plan.size == "cpu" else names[:1]


def run(
  plan: Plan, column: str, optimizer: str, *others: str, seeds: str = ""
) -> RunOf:
  """One optimizer on one data set, with all seeds.

  Args:
    plan: with the size.
    column: key of `COLUMNS`.
    optimizer: key of `OPTIMIZERS`.
    *others: further flags.
    seeds: in place of those of the size.
  """
  preset = _SMALL.get(plan.size, COLUMNS.get(column))
  return of_preset(plan, preset, optimizer, *others, seeds=seeds)


def of_preset(
  plan: Plan, preset: str, optimizer: str, *others: str, seeds: str = ""
) -> RunOf:
  """One optimizer with the flags of a file."""
  return RunOf(
    (
      f"--flagfile=experiments/delta_sgd/{preset}.flags",
      *OPTIMIZERS[optimizer],
      *others,
      f"--seed={seeds or _SEEDS[plan.size]}",
    )
  )


def table_of(
  *names: str, flags: Sequence[str], few: Sequence[str] = (OURS,)
) -> Callable[[Plan], dict[Key, Cell]]:
  """The cells of a table: optimizers by data sets, all with some flags.

  Args:
    *names: the paper's columns.
    flags: of all cells.
    few: optimizers of smoke.
  """
  return lambda plan: {
    (optimizer, column): run(plan, column, optimizer, *flags)
    for column in columns(plan, *names)
    for optimizer in optimizers(plan, few)
  }


def of_columns(found: Found) -> list[str]:
  """The columns that there are, in the order of `COLUMNS`."""
  there = {key[1] for key in found}
  return [column for column in COLUMNS if column in there]


# Numbers of the paper, and claims on them.


def numbers(rows: Mapping[str, str], *names: str) -> dict[Key, str]:
  """(row, column) -> number.

  Args:
    rows: row -> its numbers, between spaces.
    *names: the columns.
  """
  return {
    (row, column): number
    for row, line in rows.items()
    for column, number in zip(names, line.split(), strict=True)
  }


def lead(
  found: Found, one: Key, other: Key, *, by: float = 0.0, name: str = ""
) -> Quantity:
  """That one cell is above another by more than some points.

  They are compared at the seeds that both have.
  """
  shared = min((len(found[k].points) for k in (one, other) if k in found),
               default=0)  # fmt: skip
  quantity = views.lead(
    found,
    name or f"{one[0]} over {other[0]}",
    one,
    other,
    lambda record: record.final(views.ACCURACY)[:shared],
  )
  if not by:
    return quantity
  values = tuple(value - by for value in quantity.values)
  more = f"less {by:g}" if by > 0 else f"plus {-by:g}"
  return quantity._replace(name=f"{quantity.name}, {more}", values=values)


def above_others(
  found: Found,
  rest: Key,
  *,
  by: float = 0.0,
  others: Iterable[str] = OTHERS,
  one: str = OURS,
) -> list[Quantity]:
  """That an optimizer is above others by more than some points.

  Args:
    found: what there is.
    rest: of the keys, after the optimizer.
    by: points.
    others: keys of `OPTIMIZERS`.
    one: key of `OPTIMIZERS`.
  """
  return [lead(found, (one, *rest), (other, *rest), by=by) for other in others]


def among_best(found: Found, rest: Key, where: str, by: float = TIE) -> Claim:
  """That Delta-SGD is best, or nearly so."""
  return Claim(
    f"Delta-SGD is the best or within {by:g} points of it: {where}",
    above_others(found, rest, by=-by),
  )


def best(found: Found, rest: Key, where: str) -> Claim:
  """That Delta-SGD is above all others."""
  return Claim(
    f"Delta-SGD is above all others: {where}", above_others(found, rest)
  )
