"""A method, and the problem on which methods are tuned, both from Python."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fedjax_opt.base import Algorithm
from fedjax_opt.checks.errors import reworded_errors
from fedjax_opt.checks.fields import checked, function, mapping_of
from fedjax_opt.checks.values import check_choice
from fedjax_opt.data.clients import ClientData
from fedjax_opt.data.example_parts import (
  CLIENT_TEST_FRACTION,
  VALIDATION_FRACTION,
  ExampleParts,
)
from fedjax_opt.engine.client_evaluation import STEP_OPTIONS
from fedjax_opt.engine.own_models import OwnModels
from fedjax_opt.engine.run_options import DEFAULTS
from fedjax_opt.evaluation import PerExampleFn
from fedjax_opt.results.metric_names import split_of
from fedjax_opt.results.selection import Criterion
from fedjax_opt.simulation import Simulator, grid_points
from fedjax_opt.study import sizes, tuning
from fedjax_opt.study.cells import Cell, PointResults
from fedjax_opt.study.words import condition_label


@checked(
  make=function("(...) -> Algorithm"),
  grid=mapping_of(None, "a dict of values"),
  options=mapping_of(None, "a dict of options"),
)
class Method(NamedTuple):
  """A method of a study.

  Attributes:
    make: `(**hyperparameters) -> Algorithm`, as in `sweep`.
    grid: {name: values}, what is tuned; {} for nothing.
    options: options of this method's runs alone, such as a `schedule`. They
      replace those of the study; see `RunOptions`. The report says in which
      methods differ.
  """

  make: Callable[..., Algorithm]
  grid: Mapping[str, Sequence[float]] = {}
  options: Mapping[str, Any] = {}


def _own_parts(data: ClientData, seed: int) -> ExampleParts:
  """A fifth of each client's examples for test, a tenth of the rest to choose.

  Raises:
    TypeError: if the clients are on disk.
    ValueError: if they have too few examples.
  """
  if not isinstance(data, ClientData):
    raise TypeError(
      "own_models: clients' own examples are held out in memory; data must be "
      "a ClientData, or a function that returns one"
    )
  # Seven: one is held out for test, and of the other six one to choose.
  if (most := int(data.sizes.max())) < 7:
    raise ValueError(
      "own_models: a fifth of each client's examples is held out, and a tenth "
      f"of the rest; the largest client has {most}, and must have 7 or more"
    )
  fractions = CLIENT_TEST_FRACTION, VALIDATION_FRACTION
  with reworded_errors("own_models"):
    return ExampleParts.of(data, seed, *(("fraction", f) for f in fractions))


class Problem(NamedTuple):
  """What all cells of a study share; it runs a method as a cell.

  Attributes:
    params, data, rounds, validation, test, criterion, options: see `compare`.
    design: the seeds, and what they are for.
    own_models: measures the models of clients' own; None without these.
    own_parts: function from clients and a seed to their training examples, and
      those held out of them.
  """

  params: Any
  data: Any
  rounds: int
  validation: Any
  test: Any
  criterion: Criterion
  options: Mapping[str, Any]
  design: tuning.Design
  own_models: PerExampleFn | None
  own_parts: Callable[[Any, int], ExampleParts] = _own_parts

  def check(
    self,
    methods: Mapping[str, Method],
    conditions: Sequence[Mapping[str, Any]],
    metric: str,
  ) -> dict[str, sizes.ClientSummary]:
    """Checks all runs; compiles nothing.

    All methods are traced under the first condition. Further conditions change
    only data and options. Under each of them the first method is traced, and
    every method with options of its own.

    Returns:
      The part of a condition that changes the clients -> these clients.
    """
    clients: dict[str, sizes.ClientSummary] = {}
    for i, condition in enumerate(conditions):
      problem = self.under(condition)
      for label, method in methods.items():
        # If the first method fails, the fault may be in what all share.
        is_first = label == next(iter(methods))
        if i and not is_first and not method.options:
          continue
        if both := sorted(method.options.keys() & condition.keys()):
          raise ValueError(
            f"methods[{label!r}]: has {both[0]} in its options, and so has "
            f"conditions[{i}]; leave it out of one of them"
          )
        prefix = "" if is_first else f"methods[{label!r}]: "
        prefix = f"conditions[{i}]: {prefix}" if i else prefix
        try:
          problem._check_cell(method, condition, "" if i else metric)
        except (TypeError, ValueError) as error:
          raise type(error)(f"{prefix}{error}") from None
      label = condition_label(_of_data(condition))
      if label not in clients:
        seed = self.design.report_seeds[0]
        data = _of_seed(problem.data, seed)
        if self.own_models:
          data = problem.own_parts(data, seed).train
        clients[label] = sizes.client_summary_of(data)
    return clients

  def under(self, condition: Mapping[str, Any]) -> "Problem":
    """The same with the clients of a condition, made once for each seed."""
    data = self.data
    if callable(data):
      data = functools.cache(functools.partial(data, **_of_data(condition)))
    return self._replace(data=data, own_parts=functools.cache(_own_parts))

  def _check_cell(self, method, condition, metric):
    """Checks a cell, and that it measures the metric if one is given."""
    first_grid = {name: values[:1] for name, values in method.grid.items()}
    runs = [("metric", metric, first_grid, True)]
    if tuning.num_settings(method.grid) > 1:
      chosen_by = self.criterion.metric
      runs.append(("criterion", chosen_by, method.grid, self.design.is_nested))
    for name, measured, grid, is_fresh in runs:
      design = self.design
      seeds = design.report_seeds if is_fresh else design.seeds
      simulator, own_models = self._simulator(
        method, condition, grid, seeds, is_fresh
      )
      # Some faults are found only when rounds are traced.
      if grid is first_grid:  # Another grid has the same rounds.
        simulator.trace(self.params)
      names = simulator.metric_names(self.params)
      own_names = own_models.names(self.params) if own_models else []
      if both := sorted({*names} & {*own_names}):
        raise ValueError(
          f"own_models: evaluate has a metric named {both[0]!r} too; must "
          "have another name"
        )
      if metric:
        _check_measured(name, measured, [*names, *own_names])

  def run_cell(
    self, label: str, method: Method, condition: Mapping[str, Any]
  ) -> Cell:
    """Tunes one method under its condition, and runs its best setting."""

    def run(grid, seeds, is_fresh, partition_seed=None):
      simulator, own_models = self._simulator(
        method, condition, grid, seeds, is_fresh, partition_seed
      )
      result = simulator.run_all(
        self.params, self.rounds, extra_metrics=own_models
      )
      seconds = result.compile_seconds + result.run_seconds
      points = grid_points(grid, seeds)
      return PointResults(points, result.history, self.criterion, seconds)

    cell = tuning.tune_and_report(
      label, condition, run, method.grid, self.design
    )
    sets = sizes.example_sets(self.validation, self.test)
    return dataclasses.replace(cell, sets=sets)

  def _simulator(
    self,
    method: Method,
    condition: Mapping[str, Any],
    grid: Mapping[str, Sequence[float]],
    seeds: Sequence[int],
    is_fresh: bool,
    partition_seed: int | None = None,
  ) -> tuple[Simulator, OwnModels | None]:
    """What runs a grid, and what measures its clients' own models, or None.

    Args:
      method: what runs.
      condition: under which it runs.
      grid: a part of the method's grid.
      seeds: of all settings.
      is_fresh: whether the seeds are not those of tuning; test examples are
        then measured too.
      partition_seed: the seed of the clients; None for that of each run.
    """
    options = {
      **self.options,
      **{n: v for n, v in condition.items() if n in DEFAULTS},
      **method.options,
    }
    is_on_test = is_fresh or split_of(self.criterion.metric) == "test"
    data, own_models = self.data, None
    if partition_seed is not None:
      data = data(partition_seed)
    if self.own_models is not None:
      parts = {s: self.own_parts(_of_seed(data, s), s) for s in seeds}
      data = lambda seed: parts[seed].train
      own_models = OwnModels(
        method.make,
        grid_points(grid, seeds),
        self.own_models,
        parts,
        ("validation", "test") if is_fresh else ("validation",),
        **{name: options[name] for name in STEP_OPTIONS if name in options},
      )
    simulator = Simulator(
      method.make,
      data,
      grid=grid,
      seeds=seeds,
      validation=self.validation,
      test=self.test if is_on_test else None,
      **options,
    )
    return simulator, own_models


def _of_seed(data: Any, seed: int) -> Any:
  """The clients of a seed; data may be a function from the seed to them."""
  return data(seed) if callable(data) else data


def _of_data(condition: Mapping[str, Any]) -> dict[str, Any]:
  """The part of a condition that is for the function that makes the clients."""
  return {n: v for n, v in condition.items() if n not in DEFAULTS}


def _check_measured(argument: str, metric: str, names: Sequence[str]) -> None:
  has_test = any(name.startswith("test_") for name in names)
  needs_test = metric.startswith("test_") and not has_test
  hint = " (give test= too)" if needs_test else ""
  plain_names = [name for name in names if "decile" not in name]
  listing = f"what evaluate measures{hint}, such as {', '.join(plain_names)}"
  check_choice(argument, metric, names, listing)
