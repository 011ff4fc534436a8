"""Compares methods from Python: each tuned alike, then run with fresh seeds."""

import difflib
import functools
import inspect
import itertools
import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, Unpack

import numpy as np

from fedjax_opt.base import STREAMS, Algorithm, Batch, Params
from fedjax_opt.checks import values as checks
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.population import Population
from fedjax_opt.engine import inputs
from fedjax_opt.engine.config import DEFAULTS, Settings
from fedjax_opt.engine.settings import check_names
from fedjax_opt.results import environment
from fedjax_opt.results.history import check_has_direction, direction
from fedjax_opt.results.progress import bar
from fedjax_opt.results.selection import Criterion
from fedjax_opt.simulator import Simulator, grid_points, sweep
from fedjax_opt.study import budgets
from fedjax_opt.study.cells import Cell, Measured
from fedjax_opt.study.study import Study
from fedjax_opt.study.tune import Ran, tune
from fedjax_opt.study.words import condition_label

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
  validation: Batch | ClientData | None = None,
  test: Batch | ClientData | None = None,
  criterion: Criterion | None = None,
  metric: str = "test_accuracy",
  target: float | None = None,
  budget: str = "equal",
  title: str = "Study",
  progress: bool = False,
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
    validation: examples {name: [N, ...]} on which settings are chosen, or
      clients that have them, see `simulate`; no client of `data` may have them.
      `fo.data.hold_out` holds some out, as does `ClientData.split`.
    test: examples for the report, as `validation`. While settings are tuned,
      `evaluate` gets None for them, unless the criterion is a `test_` metric.
    criterion: the score by which a setting is chosen. Default: the last
      `validation_` value of the same name as `metric`.
    metric: by which methods are compared in the report.
    target: value of `metric` to which costs are reported; None for none.
    budget: 'equal' refuses methods that try different numbers of settings,
      unless they try one; 'unequal' allows them.
    title: of the report.
    progress: whether a bar shows the cells done, and which one runs.
    **settings: see `Settings`; `evaluate` must be given.

  Returns:
    The `Study`, with a cell for each method and condition.

  Raises:
    ValueError: naming the argument that cannot be, before anything is compiled.
    TypeError: naming one of a wrong type, in the same way.
  """
  methods = _check_methods(methods)
  checks.choice("budget", budget, budgets.BUDGETS)
  sizes = {n: budgets.num_settings(m.grid) for n, m in methods.items()}
  if budget == "equal":
    budgets.check_equal(sizes, "budget='unequal'")
  check_names(settings, DEFAULTS, "compare")
  conditions = _check_conditions(conditions, data, settings)
  seeds, report_seeds = _check_seeds(seeds, report_seeds)
  _check_report(metric, target, title)
  checks.switch("progress", progress)
  is_tuned = max(sizes.values()) > 1
  criterion = _criterion(criterion, metric, validation, settings, is_tuned)
  checks.at_least("rounds", rounds, 0)
  params = inputs.check_params(params, may_be_function=True)
  run = _Run(params, data, rounds, validation, test, criterion, settings)
  run.check(methods, conditions, seeds, report_seeds, metric)
  cells = run.cells(methods, conditions, seeds, report_seeds, progress)
  about = {
    "rounds": rounds,
    "seeds of tuning": seeds,
    "seeds of the report": report_seeds,
    **{n: v for n, v in settings.items() if isinstance(v, int | float | str)},
    "streams": STREAMS,
    "versions": environment.versions(),
    "device": environment.device(),
  }
  return Study(tuple(cells), metric, title, target, about)


class _Run(NamedTuple):
  """What all cells of a study share."""

  params: Any
  data: Any
  rounds: int
  validation: Batch | ClientData | None
  test: Batch | ClientData | None
  criterion: Criterion
  settings: Mapping[str, Any]

  def check(
    self,
    methods: Mapping[str, Method],
    conditions: Sequence[Mapping[str, Any]],
    seeds: list[int],
    report_seeds: list[int],
    metric: str,
  ) -> None:
    """Checks all runs; compiles nothing.

    All methods are traced under the first condition. What the other conditions
    change is data and settings, for which one method is enough.
    """
    for i, condition in enumerate(conditions):
      run = self
      if callable(self.data):  # It is asked once for each seed.
        run = self._replace(data=functools.cache(self.data))
      for j, (label, method) in enumerate(methods.items()):
        if i and j:
          break
        # What fails for the first one may be the fault of all.
        what = (
          f"conditions[{i}]: " if i else f"methods[{label!r}]: " if j else ""
        )
        try:
          run._check_cell(method, condition, seeds, report_seeds, metric, not i)
        except (TypeError, ValueError) as error:
          raise type(error)(f"{what}{error}") from None

  def _check_cell(
    self, method, condition, seeds, report_seeds, metric, is_traced
  ):
    """Checks a cell: its data and settings, and what it measures if traced."""
    first = {name: values[:1] for name, values in method.grid.items()}
    report = self._arguments(condition, report_seeds, self.test)
    runs = [("metric", metric, first, report)]
    if budgets.num_settings(method.grid) > 1:
      tuning = self._arguments(condition, seeds, self._tuning_test)
      runs.append(("criterion", self.criterion.metric, method.grid, tuning))
    for name, measured, grid, arguments in runs:
      simulator = Simulator(method.make, grid=grid, **arguments)
      if is_traced:
        found = simulator._metric_names(self.params)
        _check_measured(name, measured, found)

  def cells(
    self, methods, conditions, seeds, report_seeds, progress
  ) -> list[Cell]:
    """The cells one after the other, with a bar if asked for."""
    pairs = list(itertools.product(methods.items(), conditions))
    found = []
    with bar(len(pairs), "cells") if progress else nullcontext() as shown:
      for (label, method), condition in pairs:
        if progress:
          where = condition_label(condition)
          shown.set_postfix_str(f"{label}, {where}" if where else label)
        found.append(self.cell(label, method, condition, seeds, report_seeds))
        if progress:
          shown.update()
    return found

  def cell(
    self,
    label: str,
    method: Method,
    condition: Mapping[str, Any],
    seeds: list[int],
    report_seeds: list[int],
  ) -> Cell:
    """Tunes one method under one condition, and runs its best setting."""

    def run(grid, seeds, is_report):
      test = self.test if is_report else self._tuning_test
      arguments = self._arguments(condition, seeds, test)
      return self._sweep(method, grid, arguments)

    found = tune(run, method.grid, seeds, report_seeds)
    return found.cell(label, condition)

  @property
  def _tuning_test(self) -> Batch | ClientData | None:
    """The test examples if the choice is to be made on them, else None."""
    return self.test if "test_" in self.criterion.metric else None

  def _data_of(self, condition):
    """The clients under a condition, or a function from a seed to them."""
    if not callable(self.data):
      return self.data
    others = {n: v for n, v in condition.items() if n not in DEFAULTS}
    return lambda seed: self.data(seed, **others)

  def _arguments(self, condition, seeds, test) -> dict[str, Any]:
    """What `sweep` and `Simulator` are called with, by name."""
    return {
      **self.settings,
      **{n: v for n, v in condition.items() if n in DEFAULTS},
      "data": self._data_of(condition),
      "seeds": seeds,
      "validation": self.validation,
      "test": test,
    }

  def _sweep(self, method, grid, arguments):
    """The points of a grid, measured."""
    result = sweep(
      method.make, grid, self.params, rounds=self.rounds, **arguments
    )
    points = grid_points(grid, arguments["seeds"])
    seconds = result.compile_seconds + result.run_seconds
    return Ran(Measured(points, result.history), self.criterion, seconds)


def _check_methods(methods: Any) -> dict[str, Method]:
  if not isinstance(methods, Mapping) or not methods:
    raise TypeError(
      f"methods={checks.shown(methods)}: must be a dict of methods by label, "
      'such as {"FedAvg": fo.Method(make, grid)}'
    )
  found = {}
  for label, method in methods.items():
    if not isinstance(label, str):
      raise TypeError(f"methods: the label {label!r} must be a string")
    name = f"methods[{label!r}]"
    if not isinstance(method, tuple) or not 1 <= len(method) <= 2:
      raise TypeError(
        f"{name}={checks.shown(method)}: must be fo.Method(make, grid)"
      )
    method = Method(*method)
    try:
      inputs.check_is_grid(method.grid)
      found[label] = Method(*inputs.check_grid(*method))
    except (TypeError, ValueError) as error:
      raise type(error)(f"{name}: {error}") from None
  return found


def _check_conditions(
  conditions: Any, data: Any, settings: Mapping[str, Any]
) -> list[dict[str, Any]]:
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
  for name in names:
    if not isinstance(name, str):
      raise TypeError(f"conditions: the name {name!r} must be a string")
    if name in settings:
      raise ValueError(f"{name}: is given, and in conditions too; give it once")
  _check_condition_values(conditions)
  _check_data_function(data, [n for n in names if n not in DEFAULTS])
  return [dict(condition) for condition in conditions]


def _check_condition_values(conditions: Sequence[Mapping[str, Any]]) -> None:
  """That values can be compared, and that no condition is repeated."""
  for i, condition in enumerate(conditions):
    for name, value in condition.items():
      if not isinstance(value, Hashable):
        raise TypeError(
          f"conditions[{i}][{name!r}]={checks.shown(value)}: must be a number, "
          "a string or another value that can be compared, such as a tuple"
        )
    if condition in conditions[:i]:
      raise ValueError(
        f"conditions: {checks.shown(dict(condition))} is repeated; give it once"
      )


def _check_data_function(data: Any, others: list[str]) -> None:
  """That data takes the values of a condition that are no settings."""
  if others and not callable(data):
    raise ValueError(
      f"conditions: {others[0]!r} is no setting; data must then be a function "
      f"of the seed and of {', '.join(others)}"
    )
  if not callable(data):
    return
  try:
    signature = inspect.signature(data)
  except ValueError:  # It does not tell.
    return
  try:
    signature.bind(0, **dict.fromkeys(others))
  except TypeError as error:
    raise ValueError(
      f"data: must be a function (seed{''.join(', ' + n for n in others)}), "
      f"as the conditions say ({error})"
    ) from None


def _check_seeds(seeds: Any, report_seeds: Any) -> tuple[list[int], list[int]]:
  """The seeds of tuning, and fresh ones for the report."""
  seeds = _seeds("seeds", seeds)
  if report_seeds is None:
    return seeds, budgets.fresh_seeds(seeds, None)
  report_seeds = _seeds("report_seeds", report_seeds)
  both = set(report_seeds) & set(seeds)
  if both:
    raise ValueError(
      f"report_seeds: {min(both)} is one of seeds; must be seeds that tuning "
      "does not use"
    )
  return seeds, report_seeds


def _seeds(name: str, seeds: Any) -> list[int]:
  is_array = isinstance(seeds, np.ndarray) and seeds.ndim == 1
  if not is_array and not isinstance(seeds, list | tuple | range):
    raise TypeError(
      f"{name}={checks.shown(seeds)}: must be a list of whole numbers, such as "
      "[0, 1, 2]"
    )
  if not len(seeds):
    raise ValueError(f"{name}=[]: give at least one")
  for seed in seeds:
    checks.at_least(name, seed, 0)
  if len(set(seeds)) < len(seeds):
    raise ValueError(
      f"{name}={checks.shown(list(seeds))}: a seed is repeated; give it once"
    )
  return [int(seed) for seed in seeds]


def _check_report(metric: Any, target: Any, title: Any) -> None:
  """That the report can be about these."""
  for name, value in (("metric", metric), ("title", title)):
    if not isinstance(value, str):
      raise TypeError(f"{name}={checks.shown(value)}: must be a string")
  check_has_direction(metric)
  if target is not None:
    checks.number("target", target)
    if not math.isfinite(target):
      raise ValueError(f"target={target}: must be finite; None for no target")


def _criterion(
  criterion: Criterion | None,
  metric: str,
  validation: Batch | ClientData | None,
  settings: Mapping[str, Any],
  is_tuned: bool,
) -> Criterion:
  """The criterion, by default on the validation examples."""
  if settings.get("evaluate") is None:
    raise ValueError(
      "evaluate: must be given; such as fo.evaluation.federated(per_example)"
    )
  if criterion is None:
    criterion = Criterion(_on_validation(metric), direction(metric))
  if not isinstance(criterion, Criterion):
    raise TypeError(
      f"criterion={checks.shown(criterion)}: must be a Criterion, such as "
      'fo.Criterion("validation_loss", "min")'
    )
  if not isinstance(criterion.metric, str):
    raise TypeError(
      f"criterion.metric={checks.shown(criterion.metric)}: must be a string"
    )
  if is_tuned and "validation_" in criterion.metric and validation is None:
    raise ValueError(
      f"validation: must be given to choose by {criterion.metric}; such as "
      "the second part of fo.data.hold_out(pool, 0.1) or data.split(0.1), of "
      "which clients train on the first. Or give another criterion"
    )
  return criterion


def _on_validation(metric: str) -> str:
  """The metric of the same kind on the validation examples."""
  return re.sub("^(regularized_)?(test_|train_)?", r"\1validation_", metric)


def _check_measured(name: str, metric: str, found: Sequence[str]) -> None:
  if metric in found:
    return
  near = difflib.get_close_matches(metric, found, 3)
  shown = near or [each for each in found if "decile" not in each]
  has_test = any(each.startswith("test_") for each in found)
  needs_test = metric.startswith("test_") and not has_test
  hint = "; give test= too" if needs_test else ""
  raise ValueError(
    f"{name}={metric!r}: is not measured by evaluate{hint}; must be one such "
    f"as {', '.join(shown)}"
  )
