"""The methods of the DOMO paper, and how a run of one is made.

The paper does not say on what rates are chosen; here on a tenth of the
training examples, held out for that alone, with a seed that is not reported:
for CIFAR-10 at s = 10 % and E = 1, for Tables 2 and 3 in their own setting. The
runs that are reported have all training examples. Momenta, β and α are the
paper's best ones for all methods.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.artefacts import views
from experiments.artefacts.base import Cell, Found, Key, Plan, RunOf

METHODS = {
  "FedAvg": "fed_avg",
  "FedAvgSM": "fed_avg_sm",
  "FedAvgLM": "fed_avg_lm",
  "FedAvgLM-Z": "fed_avg_lm_z",
  "FedAvgSLM": "fed_avg_slm",
  "FedAvgSLM-Z": "fed_avg_slm_z",
  "DOMO-S": "domo_s",
  "DOMO": "domo",
}
OTHERS = [method for method in METHODS if not method.startswith("DOMO")]
SIMILARITIES = {"0.05": "s = 5 %", "0.1": "s = 10 %", "0.2": "s = 20 %"}

PRESETS = {
  "smoke": "experiments/domo/smoke.flags",
  "cpu": "experiments/domo/cifar10.flags",
  "paper": "experiments/domo/cifar10_vgg16.flags",
}
_RATES = {
  "smoke": "0.1,0.05",
  "cpu": "0.2,0.1,0.05,0.03,0.02,0.01",
  "paper": "0.4,0.2,0.1,0.05,0.01,0.005",
}
SEEDS = {"smoke": "1,2", "cpu": "1,2,3", "paper": "1,2,3"}


def run(
  plan: Plan,
  method: str,
  *others: str,
  preset: str | None = None,
  network: str | None = None,
) -> RunOf:
  """A method at its best rate, with all seeds of the report.

  Args:
    plan: of the artefact.
    method: key of `METHODS`.
    *others: flags in which it differs from the runs by which the rate is
      chosen.
    preset: file of flags; that of the size by default.
    network: task, where it is another than the preset's; its rate is its own.
  """
  flags = [
    f"--flagfile={preset or PRESETS[plan.size]}",
    f"--algorithm={METHODS[method]}",
  ]
  if network is not None:
    flags.append(f"--task={network}")
  rate = plan.best(
    *flags,
    "--select_on=validation",
    f"--client_lr={_RATES[plan.size]}",
    "--seed=0",
  )
  return RunOf((*flags, *rate, *others, f"--seed={SEEDS[plan.size]}"))


def some(plan: Plan) -> Sequence[str]:
  """The methods of a size."""
  return ("FedAvg", "DOMO") if plan.size == "smoke" else [*METHODS]


def all_methods(
  plan: Plan, columns: Mapping[str, Sequence[str]]
) -> dict[Key, Cell]:
  """column -> its flags; all methods in each."""
  return {
    (method, column): run(plan, method, *others)
    for column, others in columns.items()
    for method in some(plan)
  }


def of_points(found: Found, key: Key, **wanted: float) -> np.ndarray | None:
  """The last accuracies by seed where hyperparameters have these values.

  Args:
    found: what there is.
    key: of a cell.
    **wanted: hyperparameter -> value.

  Returns:
    None if there are none.
  """
  if key not in found:
    return None
  values = views.of_points(found[key], **wanted)
  return values if values.size else None


def rounds(plan: Plan, factor: float) -> str:
  """As many epochs in more or fewer rounds."""
  number = {"smoke": 2, "cpu": 20, "paper": 200}[plan.size]
  return f"--rounds={round(factor * number)}"
