"""Compares methods from Python: each tuned alike, then run with fresh seeds."""

import difflib
import functools
import inspect
import itertools
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, Unpack

from fedjax_opt.base import STREAMS, Algorithm, Batch, Params
from fedjax_opt.checks import values as checks
from fedjax_opt.checks.fields import (
  Field,
  Number,
  by_name,
  checked,
  choice,
  function,
  made,
  whole,
)
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.population import Population
from fedjax_opt.engine import inputs
from fedjax_opt.engine.config import DEFAULTS, Settings, check_names
from fedjax_opt.results import environment
from fedjax_opt.results.history import check_has_direction, direction
from fedjax_opt.results.progress import bar
from fedjax_opt.results.selection import Criterion
from fedjax_opt.simulator import Simulator, grid_points, sweep
from fedjax_opt.study import setup, tuning
from fedjax_opt.study.cells import Cell, ExampleSet, Measured
from fedjax_opt.study.study import Study
from fedjax_opt.study.verdicts import check_min_effect
from fedjax_opt.study.words import condition_label

Clients = ClientData | Population


@checked(
  make=function("(...) -> Algorithm"), grid=by_name(None, "a dict of values")
)
class Method(NamedTuple):
  """A method of a study.

  Attributes:
    make: `(**hyperparameters) -> Algorithm`, as in `sweep`.
    grid: {name: values}, what is tuned; {} for nothing.
  """

  make: Callable[..., Algorithm]
  grid: Mapping[str, Sequence[float]] = {}


# What arguments may be.


def _are_seeds(name: str, seeds: Any) -> None:
  found = checks.array(
    name, seeds, "[n]", of_integers=True, interval=f"[0, {checks.LARGEST}]"
  )
  if not found.size:
    raise ValueError(f"{name}=[]: give at least one")
  if len(set(found.tolist())) < found.size:
    raise ValueError(
      f"{name}={checks.shown(list(seeds))}: a seed is repeated; give it once"
    )


def _are_conditions(name: str, conditions: Any) -> None:
  """That they have the same names, values to compare, and none twice."""
  is_list = isinstance(conditions, Sequence) and len(conditions)
  if not is_list or not all(isinstance(c, Mapping) for c in conditions):
    raise TypeError(
      f"{name}={checks.shown(conditions)}: must be a list of dicts, such as "
      '[{"alpha": 0.1}, {"alpha": 1.0}]'
    )
  names = list(conditions[0])
  for i, condition in enumerate(conditions):
    if list(condition) != names:
      raise ValueError(
        f"{name}: one has {names}, another {list(condition)}; all must have "
        "the same names in the same order"
      )
    for key, value in condition.items():
      if not isinstance(key, str):
        raise TypeError(f"{name}: the name {key!r} must be a string")
      if not isinstance(value, Hashable):
        raise TypeError(
          f"{name}[{i}][{key!r}]={checks.shown(value)}: must be a number, a "
          "string or another value that can be compared, such as a tuple"
        )
    if condition in conditions[:i]:
      raise ValueError(
        f"{name}: {checks.shown(dict(condition))} is repeated; give it once"
      )


_SEEDS = Field(_are_seeds)


@checked(
  rounds=whole(),
  seeds=_SEEDS,
  report_seeds=_SEEDS,
  conditions=Field(_are_conditions),
  criterion=made(
    Criterion, 'a Criterion, such as fo.Criterion("validation_loss", "min")'
  ),
  target=Number(words="finite; None for no target"),
  min_effect=Number(words="finite; None for the default"),
  budget=choice(*tuning.BUDGETS),
)
def compare(
  methods: Mapping[str, Method],
  params: Params | Callable[[Any], Params],
  data: Clients | Callable[..., Clients],
  *,
  rounds: int,
  seeds: Sequence[int] | None = None,
  report_seeds: Sequence[int] | None = None,
  conditions: Sequence[Mapping[str, Any]] = ({},),
  validation: Batch | ClientData | None = None,
  test: Batch | ClientData | None = None,
  criterion: Criterion | None = None,
  metric: str = "test_accuracy",
  target: float | None = None,
  min_effect: float | None = None,
  nested: bool = False,
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
    seeds: of tuning; 0 to 4 if None.
    report_seeds: of the report; by default after the last of `seeds`, as many
      if these are given, else ten.
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
    min_effect: the smallest difference of interest, in the unit of `metric`
      (0.01 is a point of accuracy): a method that is behind the best by less is
      not called worse. None for 0.005 of accuracies, and 0 of others.
    nested: whether tuning is repeated with each seed of the report: the whole
      grid runs with `report_seeds`, and each seed has the setting that is best
      by its own score. So the luck of choosing is in the intervals. `seeds` are
      then not used.
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
  check_names(settings, function="compare")
  check_has_direction(metric)
  check_min_effect("min_effect", min_effect, metric)
  _check_names_of_conditions(list(conditions[0]), data, settings)
  methods = _checked_methods(methods)
  sizes = {n: tuning.num_settings(m.grid) for n, m in methods.items()}
  if budget == "equal":
    tuning.check_equal(sizes, "budget='unequal'")
  seeds, report_seeds = _seeds(seeds, report_seeds)
  is_tuned = max(sizes.values()) > 1
  criterion = _criterion(criterion, metric, validation, settings, is_tuned)
  params = inputs.check_params(params, may_be_function=True)
  shared = params, data, rounds, validation, test, criterion, settings
  plan = _Plan(*shared, seeds, report_seeds, nested)
  clients = plan.check(methods, conditions, metric)
  cells = []
  pairs = list(itertools.product(methods.items(), conditions))
  with bar(len(pairs), "cells") if progress else nullcontext() as shown:
    for (label, method), condition in pairs:
      if progress:
        parts = label, condition_label(condition)
        shown.set_postfix_str(", ".join(filter(None, parts)))
      cells.append(plan.cell(label, method, condition))
      if progress:
        shown.update()
  about = {
    **setup.sizes(params, validation, test),
    **setup.sizes_of_clients(list(clients.values())),
    **setup.local_work(conditions[0], settings),
    "rounds": rounds,
    "seeds of tuning": report_seeds if nested else seeds,
    "seeds of the report": report_seeds,
    **{n: v for n, v in settings.items() if isinstance(v, int | float | str)},
    "streams": STREAMS,
    "versions": environment.versions(),
    "device": environment.device(),
  }
  return Study(
    tuple(cells),
    metric,
    title,
    target,
    about,
    clients=clients,
    min_effect=min_effect,
  )


def _check_names_of_conditions(
  names: Sequence[str], data: Any, settings: Mapping[str, Any]
) -> None:
  """That each is a setting that is not given too, or an argument of data."""
  for name in names:
    if name in settings:
      raise ValueError(f"{name}: is given, and in conditions too; give it once")
  others = [name for name in names if name not in DEFAULTS]
  if not callable(data):
    if others:
      raise ValueError(
        f"conditions: {others[0]!r} is no setting; data must then be a "
        f"function of the seed and of {', '.join(others)}"
      )
    return
  try:
    signature = inspect.signature(data)
  except ValueError:  # It does not tell.
    return
  try:
    signature.bind(0, **dict.fromkeys(others))
  except TypeError as error:
    raise ValueError(
      f"data: must be a function ({', '.join(['seed', *others])}), as the "
      f"conditions say ({error})"
    ) from None


def _checked_methods(methods: Any) -> dict[str, Method]:
  """The methods by label, their grids as lists."""
  if not isinstance(methods, Mapping) or not methods:
    raise TypeError(
      f"methods={checks.shown(methods)}: must be a dict of methods by label, "
      'such as {"FedAvg": fo.Method(make, grid)}'
    )
  found = {}
  for label, method in methods.items():
    if not isinstance(label, str):
      raise TypeError(f"methods: the label {label!r} must be a string")
    if not label.strip():
      raise ValueError(f"methods: the label {label!r} must not be empty")
    if not isinstance(method, tuple) or not 1 <= len(method) <= 2:
      raise TypeError(
        f"methods[{label!r}]={checks.shown(method)}: must be fo.Method(make, "
        "grid)"
      )
    try:
      inputs.check_is_grid(Method(*method).grid)
      found[label] = Method(*inputs.check_grid(*Method(*method)))
    except (TypeError, ValueError) as error:
      raise type(error)(f"methods[{label!r}]: {error}") from None
  return found


def _seeds(
  seeds: Sequence[int] | None, report_seeds: Sequence[int] | None
) -> tuple[list[int], list[int]]:
  """The seeds of tuning, and fresh ones for the report."""
  are_given = seeds is not None
  seeds = [int(seed) for seed in seeds] if are_given else list(range(5))
  if report_seeds is None:
    return seeds, tuning.fresh_seeds(seeds, None, are_given)
  report_seeds = [int(seed) for seed in report_seeds]
  both = set(report_seeds) & set(seeds)
  if both:
    raise ValueError(
      f"report_seeds: {min(both)} is one of seeds; must be seeds that tuning "
      "does not use"
    )
  return seeds, report_seeds


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
  criterion = criterion or Criterion(_on_validation(metric), direction(metric))
  checks.text("criterion.metric", criterion.metric)
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


class _Plan(NamedTuple):
  """What all cells of a study share: see `compare`."""

  params: Any
  data: Any
  rounds: int
  validation: Any
  test: Any
  criterion: Criterion
  settings: Mapping[str, Any]
  seeds: list[int]
  report_seeds: list[int]
  is_nested: bool

  def check(
    self,
    methods: Mapping[str, Method],
    conditions: Sequence[Mapping[str, Any]],
    metric: str,
  ) -> dict[str, setup.Clients]:
    """Checks all runs; compiles nothing.

    All methods are traced under the first condition. What the other conditions
    change is data and settings, for which one method is enough.

    Returns:
      What tells apart conditions with other clients -> these.
    """
    clients: dict[str, setup.Clients] = {}
    for i, condition in enumerate(conditions):
      plan = self
      if callable(self.data):  # It is called once for each seed.
        plan = self._replace(data=functools.cache(self.data))
      for label, method in list(methods.items())[: 1 if i else None]:
        # What fails for the first one may be the fault of all.
        is_first = label == next(iter(methods))
        what = "" if is_first else f"methods[{label!r}]: "
        what = f"conditions[{i}]: " if i else what
        try:
          plan._check_cell(method, condition, "" if i else metric)
        except (TypeError, ValueError) as error:
          raise type(error)(f"{what}{error}") from None
      label = condition_label(_of_data(condition))
      if label not in clients:
        data = plan._arguments(condition, is_report=True)["data"]
        if callable(data):
          data = data(self.report_seeds[0])
        clients[label] = setup.clients_of(data)
    return clients

  def _check_cell(self, method, condition, metric):
    """Checks a cell; and what it measures, if a metric is given."""
    first = {name: values[:1] for name, values in method.grid.items()}
    runs = [("metric", metric, first, True)]
    if tuning.num_settings(method.grid) > 1:
      chosen_by = self.criterion.metric
      runs.append(("criterion", chosen_by, method.grid, self.is_nested))
    for name, measured, grid, is_report in runs:
      arguments = self._arguments(condition, is_report)
      simulator = Simulator(method.make, grid=grid, **arguments)
      if metric:
        found = simulator._metric_names(self.params)
        _check_measured(name, measured, found)

  def cell(
    self, label: str, method: Method, condition: Mapping[str, Any]
  ) -> Cell:
    """Tunes one method under one condition, and runs its best setting."""

    def run(grid, seeds, is_report):
      arguments = self._arguments(condition, is_report)
      result = sweep(
        method.make, grid, self.params, rounds=self.rounds, **arguments
      )
      seconds = result.compile_seconds + result.run_seconds
      points = grid_points(grid, seeds)
      return Measured(points, result.history, self.criterion, seconds)

    if self.is_nested:
      found = tuning.tune_nested(run, method.grid, self.report_seeds)
    else:
      found = tuning.tune(run, method.grid, self.seeds, self.report_seeds)
    pools = {"validation": self.validation, "test": self.test}
    sets = {
      name: ExampleSet.of(
        pool.pooled() if isinstance(pool, ClientData) else pool
      )
      for name, pool in pools.items()
      if pool is not None
    }
    return found.cell(label, condition, sets=sets)

  def _arguments(
    self, condition: Mapping[str, Any], is_report: bool
  ) -> dict[str, Any]:
    """What `sweep` and `Simulator` are called with, by name."""
    others = _of_data(condition)
    data = self.data
    if callable(data):
      data = lambda seed: self.data(seed, **others)
    is_on_test = is_report or "test_" in self.criterion.metric
    return {
      **self.settings,
      **{n: v for n, v in condition.items() if n in DEFAULTS},
      "data": data,
      "seeds": self.report_seeds if is_report else self.seeds,
      "validation": self.validation,
      "test": self.test if is_on_test else None,
    }


def _of_data(condition: Mapping[str, Any]) -> dict[str, Any]:
  """What of a condition is for the function of the clients."""
  return {n: v for n, v in condition.items() if n not in DEFAULTS}


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
