"""Compares methods from Python: each tuned alike, then run with fresh seeds."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Unpack

from fedjax_opt.base import Algorithm, Batch, Params
from fedjax_opt.checks import inputs
from fedjax_opt.checks import values as checks
from fedjax_opt.comparison import budgets
from fedjax_opt.comparison.cells import Cell, Measured, Study
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.population import Population
from fedjax_opt.engine.config import DEFAULTS, Settings
from fedjax_opt.results import environment
from fedjax_opt.results.history import direction
from fedjax_opt.results.selection import Criterion, tune
from fedjax_opt.simulator import grid_points, sweep

Clients = ClientData | Population


class Method(NamedTuple):
  """A method of a study.

  Attributes:
    make: `(**hyperparameters) -> Algorithm`, as in `sweep`.
    grid: {name: values}, what is tuned; {} for nothing.
  """

  make: Callable[..., Algorithm]
  grid: Mapping[str, Sequence[float]] = {}


def compare(
  methods: Mapping[str, Method],
  params: Params | Callable[[Any], Params],
  data: Clients | Callable[..., Clients],
  *,
  rounds: int,
  seeds: Sequence[int] = (0, 1, 2, 3, 4),
  report_seeds: Sequence[int] | None = None,
  conditions: Sequence[Mapping[str, Any]] = ({},),
  validation: Batch | None = None,
  test: Batch | None = None,
  criterion: Criterion | None = None,
  metric: str = "test_accuracy",
  target: float | None = None,
  budget: str = "equal",
  title: str = "Study",
  **settings: Unpack[Settings],
) -> Study:
  """Tunes every method under every condition, and measures its best setting.

  The grid of a method with all seeds is one program. Its best setting, by the
  mean over `seeds` of the criterion, then runs with `report_seeds`, which were
  not used before: what is reported has no part in the choice.

  >>> study = fo.compare(  # doctest: +SKIP
  ...   {
  ...     "FedAvg": fo.Method(fed_avg, {"learning_rate": [0.03, 0.1, 0.3]}),
  ...     "SCAFFOLD": fo.Method(scaffold, {"learning_rate": [0.03, 0.1, 0.3]}),
  ...   },
  ...   params,
  ...   lambda seed, alpha: clients(alpha, seed),
  ...   conditions=[{"alpha": 1.0}, {"alpha": 0.1}],
  ...   rounds=50,
  ...   validation=validation,
  ...   test=test,
  ...   evaluate=fo.evaluation.federated(per_example),
  ... )
  >>> study.write("report")  # doctest: +SKIP

  Args:
    methods: label -> `Method`, or the pair (make, grid).
    params: the initial model, or a function from a random key to one.
    data: the clients, or a function to them from a seed and from those values
      of a condition that are no settings, by name.
    rounds: R, of every run.
    seeds: of tuning.
    report_seeds: of the report; by default as many as `seeds`, after the last
      of them.
    conditions: each a mapping from a setting, such as `local_steps`, or an
      argument of `data` to its value.
    validation: pooled examples {name: [N, ...]} on which settings are chosen;
      no client may have them. `fo.data.hold_out` holds some out.
    test: pooled examples for the report.
    criterion: the score by which a setting is chosen. Default: the last
      `validation_` value of the same name as `metric`.
    metric: by which methods are compared in the report.
    target: value of `metric` to which costs are reported; None for none.
    budget: 'equal' refuses methods that try different numbers of settings,
      unless they try one; 'unequal' allows them.
    title: of the report.
    **settings: see `Settings`; `evaluate` must be given.

  Returns:
    The study, with a cell for each method and condition.

  Raises:
    ValueError: naming the argument that cannot be, before anything is compiled.
    TypeError: naming one of a wrong type, in the same way.
  """
  methods = _check_methods(methods)
  checks.choice("budget", budget, budgets.BUDGETS)
  if budget == "equal":
    sizes = {n: _num_settings(m.grid) for n, m in methods.items()}
    budgets.check_equal(sizes, "budget='unequal'")
  conditions = _check_conditions(conditions, data)
  seeds = list(seeds)
  report_seeds = _check_seeds(seeds, report_seeds)
  criterion = _criterion(criterion, metric, validation, settings)
  if target is not None:
    checks.number("target", target)
  run = _Run(params, data, rounds, validation, test, criterion, settings)
  cells = [
    run.cell(label, method, condition, seeds, report_seeds)
    for label, method in methods.items()
    for condition in conditions
  ]
  _check_measured(cells, metric)
  about = {
    "rounds": rounds,
    "seeds of tuning": seeds,
    "seeds of the report": report_seeds,
    **{n: v for n, v in settings.items() if isinstance(v, int | float | str)},
    "versions": environment.versions(),
    "device": environment.device(),
  }
  return Study(tuple(cells), metric, title, target, about)


class _Run(NamedTuple):
  """What all cells of a study share."""

  params: Any
  data: Any
  rounds: int
  validation: Batch | None
  test: Batch | None
  criterion: Criterion
  settings: Mapping[str, Any]

  def cell(
    self,
    label: str,
    method: Method,
    condition: Mapping[str, Any],
    seeds: list[int],
    report_seeds: list[int],
  ) -> Cell:
    """Tunes one method under one condition, and runs its best setting."""
    tried, chosen, seconds = None, dict(method.grid), 0.0
    if _num_settings(method.grid) > 1:
      # Without the test examples, unless the choice is to be made on them.
      is_on_test = "test_" in self.criterion.metric
      tried, seconds = self._sweep(
        method, method.grid, condition, seeds, self.test if is_on_test else None
      )
      best = tune(tried.history, tried.points, self.criterion).best
      if best is None:
        return Cell(label, condition, self.criterion, tried, None, (), seconds)
      chosen = {name: [v] for name, v in best.hyperparameters.items()}
    measured, more = self._sweep(
      method, chosen, condition, report_seeds, self.test
    )
    seconds += more
    return Cell(label, condition, self.criterion, tried, measured, (), seconds)

  def _sweep(self, method, grid, condition, seeds, test):
    """The points of a grid, measured, and the seconds that it took."""
    own = {n: v for n, v in condition.items() if n in DEFAULTS}
    others = {n: v for n, v in condition.items() if n not in DEFAULTS}
    data = self.data
    if callable(data):
      data = lambda seed: self.data(seed, **others)
    result = sweep(
      method.make,
      grid,
      self.params,
      data,
      rounds=self.rounds,
      seeds=seeds,
      validation=self.validation,
      test=test,
      **{**self.settings, **own},
    )
    measured = Measured(grid_points(grid, seeds), result.history)
    return measured, result.compile_seconds + result.run_seconds


def _num_settings(grid: Mapping[str, Sequence[float]]) -> int:
  return math.prod(len(values) for values in grid.values())


def _check_methods(methods: Any) -> dict[str, Method]:
  if not isinstance(methods, Mapping) or not methods:
    raise TypeError(
      f"methods={checks.shown(methods)}: must be a dict of methods by label, "
      'such as {"FedAvg": fo.Method(make, grid)}'
    )
  found = {}
  for label, method in methods.items():
    name = f"methods[{label!r}]"
    if not isinstance(method, tuple) or not 1 <= len(method) <= 2:
      raise TypeError(
        f"{name}={checks.shown(method)}: must be fo.Method(make, grid)"
      )
    method = Method(*method)
    inputs.check_is_grid(method.grid)
    try:
      found[str(label)] = Method(*inputs.check_grid(*method))
    except (TypeError, ValueError) as error:
      raise type(error)(f"{name}: {error}") from None
  return found


def _check_conditions(conditions: Any, data: Any) -> list[dict[str, Any]]:
  """The conditions, of which each value is a setting or known to `data`."""
  is_list = isinstance(conditions, Sequence) and len(conditions)
  if not is_list or not all(isinstance(c, Mapping) for c in conditions):
    raise TypeError(
      f"conditions={checks.shown(conditions)}: must be a list of dicts, such "
      'as [{"alpha": 0.1}, {"alpha": 1.0}]'
    )
  names = list(conditions[0])
  for condition in conditions:
    if list(condition) != names:
      raise ValueError(
        f"conditions: one has {names}, another {list(condition)}; all must "
        "have the same names in the same order"
      )
  others = [name for name in names if name not in DEFAULTS]
  if others and not callable(data):
    raise ValueError(
      f"conditions: {others[0]!r} is no setting; data must then be a function "
      f"of the seed and of {', '.join(others)}"
    )
  if callable(data):
    try:
      inspect.signature(data).bind(0, **dict.fromkeys(others))
    except TypeError as error:
      raise ValueError(
        f"data: must be a function (seed{''.join(', ' + n for n in others)}), "
        f"as the conditions say ({error})"
      ) from None
  return [dict(condition) for condition in conditions]


def _check_seeds(
  seeds: list[int], report_seeds: Sequence[int] | None
) -> list[int]:
  if not seeds:
    raise ValueError("seeds=[]: give at least one")
  for seed in seeds:
    checks.at_least("seeds", seed, 0)
  if report_seeds is None:
    return budgets.fresh_seeds(seeds, None)
  both = set(report_seeds) & set(seeds)
  if both or not len(report_seeds):
    why = f"{min(both)} is one of seeds" if both else "it is empty"
    raise ValueError(
      f"report_seeds: {why}; must be seeds that tuning does not use"
    )
  return list(report_seeds)


def _criterion(
  criterion: Criterion | None,
  metric: str,
  validation: Batch | None,
  settings: Mapping[str, Any],
) -> Criterion:
  """The criterion, by default on the validation examples."""
  if settings.get("evaluate") is None:
    raise ValueError(
      "evaluate: must be given; such as fo.evaluation.federated(per_example)"
    )
  if direction(metric) is None:
    raise ValueError(
      f"metric={metric!r}: it is not known whether larger or smaller values "
      "are better; must be an accuracy, a loss or such as 'f1'"
    )
  if criterion is None:
    name = "validation_" + metric.removeprefix("test_").removeprefix("train_")
    criterion = Criterion(name, direction(metric))
  if "validation_" in criterion.metric and validation is None:
    raise ValueError(
      f"validation: must be given to choose by {criterion.metric}; such as "
      "fo.data.hold_out(train, 0.1)[1]. Or give another criterion"
    )
  return criterion


def _check_measured(cells: Sequence[Cell], metric: str) -> None:
  for cell in cells:
    found = cell.measured.history.metrics if cell.measured else {metric}
    if metric not in found:
      raise ValueError(
        f"metric={metric!r}: was not measured; must be one of "
        f"{', '.join(found)}"
      )
