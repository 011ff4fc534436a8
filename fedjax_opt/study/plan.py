"""What all cells of a study from Python share, and how each of them runs."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fedjax_opt.base import Algorithm
from fedjax_opt.checks import values as checks
from fedjax_opt.checks.fields import by_name, checked, function
from fedjax_opt.data.clients import ClientData
from fedjax_opt.engine.config import DEFAULTS
from fedjax_opt.results.selection import Criterion
from fedjax_opt.simulator import Simulator, grid_points, sweep
from fedjax_opt.study import setup, tuning
from fedjax_opt.study.cells import Cell, ExampleSet, Measured
from fedjax_opt.study.words import condition_label


@checked(
  make=function("(...) -> Algorithm"),
  grid=by_name(None, "a dict of values"),
  settings=by_name(None, "a dict of settings"),
)
class Method(NamedTuple):
  """A method of a study.

  Attributes:
    make: `(**hyperparameters) -> Algorithm`, as in `sweep`.
    grid: {name: values}, what is tuned; {} for nothing.
    settings: of its runs alone, such as a `schedule`, which go before those of
      the study; see `Settings`.
  """

  make: Callable[..., Algorithm]
  grid: Mapping[str, Sequence[float]] = {}
  settings: Mapping[str, Any] = {}


class Plan(NamedTuple):
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
  crossed: tuple[list[int], list[int]]

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
        data = plan._data_under(condition)
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
      arguments = self._arguments(method, condition, is_report)
      simulator = Simulator(method.make, grid=grid, **arguments)
      if metric:
        found = simulator._metric_names(self.params)
        _check_measured(name, measured, found)

  def cell(
    self, label: str, method: Method, condition: Mapping[str, Any]
  ) -> Cell:
    """Tunes one method under one condition, and runs its best setting."""

    def run(grid, seeds, is_report, partition_seed=None):
      arguments = self._arguments(method, condition, is_report)
      arguments["seeds"] = seeds
      if partition_seed is not None:
        arguments["data"] = arguments["data"](partition_seed)
      result = sweep(
        method.make, grid, self.params, rounds=self.rounds, **arguments
      )
      seconds = result.compile_seconds + result.run_seconds
      points = grid_points(grid, seeds)
      return Measured(points, result.history, self.criterion, seconds)

    tried, report = tuning.tune(
      run, method.grid, self.seeds, self.report_seeds, self.is_nested
    )
    partition_seeds, seeds = self.crossed
    crossed = (run(method.grid, seeds, True, p) for p in partition_seeds)
    pools = {"validation": self.validation, "test": self.test}
    sets = {
      name: ExampleSet.of(
        pool.pooled() if isinstance(pool, ClientData) else pool
      )
      for name, pool in pools.items()
      if pool is not None
    }
    return Cell.of(
      label,
      condition,
      tried,
      report,
      is_nested=self.is_nested and tried is not None,
      crossed=tuple(crossed),
      sets=sets,
    )

  def _data_under(self, condition: Mapping[str, Any]) -> Any:
    """The clients, or the function from a seed to them."""
    if not callable(self.data):
      return self.data
    return lambda seed: self.data(seed, **_of_data(condition))

  def _arguments(
    self, method: Method, condition: Mapping[str, Any], is_report: bool
  ) -> dict[str, Any]:
    """What `sweep` and `Simulator` are called with, by name."""
    is_on_test = is_report or "test_" in self.criterion.metric
    return {
      **self.settings,
      **{n: v for n, v in condition.items() if n in DEFAULTS},
      **method.settings,
      "data": self._data_under(condition),
      "seeds": self.report_seeds if is_report else self.seeds,
      "validation": self.validation,
      "test": self.test if is_on_test else None,
    }


def _of_data(condition: Mapping[str, Any]) -> dict[str, Any]:
  """What of a condition is for the function of the clients."""
  return {n: v for n, v in condition.items() if n not in DEFAULTS}


def _check_measured(name: str, metric: str, found: Sequence[str]) -> None:
  has_test = any(each.startswith("test_") for each in found)
  needs_test = metric.startswith("test_") and not has_test
  hint = " (give test= too)" if needs_test else ""
  known = [each for each in found if "decile" not in each]
  listing = f"what evaluate measures{hint}, such as {', '.join(known)}"
  checks.check_choice(name, metric, found, listing)
